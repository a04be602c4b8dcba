package broker

import (
	"time"

	"gloom/broker/container"
)

// JobOverhead is the number of bytes that limits count for a job in addition to its id, headers and
// body. It stands for the job's record and its share of the index and of the slabs.
const JobOverhead = 128

// InvariantsEnabled reports whether the build tag "invariants" is set, so that each command checks
// the invariants.
const InvariantsEnabled = container.InvariantsEnabled

// Pages provides the memory of records, ids and bodies.
type Pages = container.Pages

// Config holds the core's limits and defaults. A limit of 0 means no limit.
type Config struct {
	// MaxJobs bounds all jobs held (delayed, queued, running and kept), MaxTypeJobs bounds those of
	// one type, and MaxSubmitterJobs those of one submitter.
	MaxJobs, MaxTypeJobs, MaxSubmitterJobs int
	// MaxBytes bounds the bytes of all jobs held (ids, headers, bodies and JobOverhead),
	// MaxTypeBytes bounds those of one type, and MaxSubmitterBytes those of one submitter.
	MaxBytes, MaxTypeBytes, MaxSubmitterBytes int64
	// MaxTypes bounds the types in use at a time.
	MaxTypes int
	// MaxPairs bounds the pairs of a type and a pool that serves it.
	MaxPairs int
	// MaxGroups bounds the groups that exist at a time.
	MaxGroups int
	// MaxUnusedTypes limits the unused types that are remembered. The first KeptTypes types that
	// the broker meets (at most MaxUnusedTypes) are forgotten only by ForgetType, so that their
	// counts can always be shown under their names.
	MaxUnusedTypes, KeptTypes int
	// Retries is the default number of retries: the runs that may follow a job's first run.
	Retries int
	// DeadLetters limits the dead letters of a type, and DeadBytes the memory of all of them.
	// DeadAge is how long they are kept. If any of these limits is 0, no dead letters are kept.
	DeadLetters int
	DeadBytes   int64
	DeadAge     time.Duration
	// History bounds the bytes of the history of ended jobs. If it is 0, only runs of jobs that
	// have not ended are remembered, in up to 1 MiB.
	History int64
	// Credit limits the bytes of jobs (names, headers and bodies) that a worker is handed before
	// Broker.SetCredit sets a new number. The last job may exceed the limit.
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
