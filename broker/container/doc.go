// Package container has the data structures of the core, which know nothing of jobs: Heap
// keeps order, Ring is a list, Slots and Table number things, Slabs store bytes, and Index
// finds records. Buffers keep memory for use again, for those around the core. None of them
// is safe for concurrent use.
package container
