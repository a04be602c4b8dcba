// Package container has the data structures of the core, which know nothing of jobs: Heap is a
// priority queue, Ring is a list, Slots and Table number items, Slabs stores bytes, Log keeps
// the latest records, and Index finds records by id. Buffers keeps memory for reuse by the
// packages around the core. None of them is safe for concurrent use.
package container
