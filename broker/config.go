package broker

import (
	"time"

	"gloom/broker/container"
)

// JobOverhead is how many bytes are counted against limits for a job besides its id, headers and
// body: for its record and its share of the index and of the slabs.
const JobOverhead = 128

// InvariantsEnabled reports whether the build tag "invariants" is set, so that each command checks
// the invariants.
const InvariantsEnabled = container.InvariantsEnabled

// Pages provides the memory of records, ids and bodies.
type Pages = container.Pages

// Config holds the core's limits and defaults. A limit of 0 is no limit.
type Config struct {
	// MaxJobs bounds the jobs held (delayed, queued, running and kept) in all, MaxTypeJobs
	// those of one type, MaxSubmitterJobs those of one submitter.
	MaxJobs, MaxTypeJobs, MaxSubmitterJobs int
	// MaxBytes bounds the bytes of jobs held (ids, headers, bodies and JobOverhead) in all,
	// MaxTypeBytes those of one type, MaxSubmitterBytes those of one submitter.
	MaxBytes, MaxTypeBytes, MaxSubmitterBytes int64
	// MaxTypes bounds the types in use at a time.
	MaxTypes int
	// MaxPairs bounds the pairs of a type and a pool that serves it.
	MaxPairs int
	// MaxGroups bounds the groups that exist at a time.
	MaxGroups int
	// IdleTypes is how many unused types are remembered. The first KeptTypes types that the
	// broker meets (at most IdleTypes) are forgotten only by ForgetType, so that their counts
	// can always be shown under their names.
	IdleTypes, KeptTypes int
	// Retries is how many runs may follow the first one, for jobs that do not set their own
	// number.
	Retries int
	// DeadLetters bounds the dead letters of a type, DeadBytes those of all types, and
	// DeadAge is how long they are kept. If any of them is 0, none are kept.
	DeadLetters int
	DeadBytes   int64
	DeadAge     time.Duration
	// History bounds the bytes of the history of ended jobs. If it is 0, only runs of jobs that
	// have not ended are remembered, in up to 1 MiB.
	History int64
	// Credit is how many bytes of jobs (names, headers and bodies, the last job whole) a
	// worker may be handed before Broker.SetCredit sets a new number.
	Credit int64
	// Pages provides memory. By default it comes from Go's heap.
	Pages Pages
	// Seed seeds the random part of backoffs.
	Seed uint64
}

// MaxBackoff is the longest wait before a retry. Package wire checks what peers ask for.
const (
	MaxBackoff = 24 * time.Hour
)
