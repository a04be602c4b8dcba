package broker

import "unsafe"

// Memory is the memory that the core holds, used or not, in bytes by part.
type Memory struct {
	// Records is the memory of the records of jobs, overdue runs and deadlines; Slabs hold ids,
	// headers and bodies; Bodies is the memory of long bodies, which lie outside the slabs.
	Records, Slabs, Bodies int64
	// Index finds jobs by id. Queues and Heaps keep the order and the deadlines of jobs.
	Index, Queues, Heaps int64
	// DeadLetters are the dead letters, and History is the history of ended jobs.
	DeadLetters, History int64
	// Types and Peers are the approximate memory of the records of types and connections. Pools
	// are the sets of types that workers serve.
	Types, Peers, Pools int64
}

// Total returns the sum of all parts.
func (m Memory) Total() int64 {
	return m.Records + m.Slabs + m.Bodies + m.Index + m.Queues + m.Heaps + m.DeadLetters + m.History + m.Types + m.Peers + m.Pools
}

// Jobs returns the memory of the jobs themselves: records, ids, headers and bodies.
func (m Memory) Jobs() int64 { return m.Records + m.Slabs + m.Bodies }

// typeSize is the size of a type, including its entries in the map and in the table.
const typeSize = int64(unsafe.Sizeof(jobType{})) + 128

// Memory returns how much memory the core holds.
func (b *Broker) Memory() Memory {
	return Memory{
		Records:     b.jobs.HeldBytes() + b.timings.HeldBytes(),
		Slabs:       b.slabs.HeldBytes(),
		Bodies:      b.bigBytes,
		Index:       b.jobIndex.HeldBytes() + b.borrowedIndex.HeldBytes() + b.groupIndex.HeldBytes() + b.groupSetIndex.HeldBytes(),
		Queues:      b.queueBytes() + b.groupBytes(),
		Heaps:       b.heapBytes,
		DeadLetters: b.deadLetters.bytes,
		History:     b.history.HeldBytes(),
		Types:       int64(len(b.typesByName))*typeSize + b.typeNameBytes,
		Pools:       b.poolBytes + b.pairs.HeldBytes(),
		Peers:       int64(b.submitterCount)*int64(unsafe.Sizeof(submitter{})) + int64(b.workerCount)*int64(unsafe.Sizeof(worker{})) + int64(len(b.peers.All()))*int64(unsafe.Sizeof(peer{})),
	}
}
