// Package container has the data structures of the core, which know nothing of jobs:
// Heap orders, Ring lists, Slots and Table number, Slabs store bytes and Index finds.
// None of them is safe for concurrent use.
package container
