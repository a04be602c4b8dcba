package broker

import (
	"time"

	"gloom/broker/container"
)

// JobOverhead is what a held job counts against limits on bytes beside its id
// and body: its record, its share of the index and of the slabs' waste.
const JobOverhead = 128

// Checking tells whether invariants are swept after each command: the build tag of that
// name is set.
const Checking = container.Checking

// Pages provides the memory of records, ids and bodies.
type Pages = container.Pages

// Config holds the core's limits and defaults. A limit of 0 means none.
type Config struct {
	// MaxJobs bounds the jobs held (delayed, queued and running) in all,
	// MaxTypeJobs those of one type, MaxSubmitterJobs those of one submitter.
	MaxJobs, MaxTypeJobs, MaxSubmitterJobs int
	// MaxBytes bounds ids, bodies and overhead (JobOverhead) of the jobs held,
	// in all, of one type, of one submitter.
	MaxBytes, MaxTypeBytes, MaxSubmitterBytes int64
	// MaxTypes bounds the types known at a time, used or configured.
	MaxTypes int
	// MaxPairs bounds the pairs of a type and a set of types, of workers that
	// serve several, to which it belongs.
	MaxPairs int
	// MaxGroups bounds the groups there are at a time.
	MaxGroups int
	// IdleTypes is how many types that nobody uses are remembered. The first
	// KeptTypes (at most IdleTypes) types ever are never forgotten, so that
	// what they count can be shown under their names for good.
	IdleTypes, KeptTypes int
	// Retries is how often a job is handed out again after its first run, for
	// jobs that do not say.
	Retries int
	// DeadLetters bounds the failed jobs kept per type; DeadBytes bounds them
	// in all; DeadAge is how long they are kept, in nanoseconds. With 0 of any
	// none is kept.
	DeadLetters int
	DeadBytes   int64
	DeadAge     time.Duration
	// Credit is how many bytes of jobs (names, headers and bodies, the last job whole)
	// a worker is handed before Broker.Credit says how many more it may be.
	Credit int64
	// Pages provides memory; nil takes Go's heap.
	Pages Pages
	// Seed makes the random part of backoffs.
	Seed uint64
}

// Ranges of what peers may ask for; the wire checks them.
const (
	MaxBackoff = 24 * time.Hour
)
