package master

import (
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// Master's methods return a *job.Fault if the request is wrong or cannot be served now; any other
// error comes from a context. The results belong to the caller. The caller must have validated the
// types, ranges and sizes of all fields.

// NewJob is a job to be enqueued.
type NewJob struct {
	job.Attributes
	Delay         time.Duration
	UniqueRequest *job.UniqueRequest // the requested unique key, from which the master sets Unique; nil for none
}

// Key is an idempotency key; nil for none.
type Key = store.Key

// KeyTTL is how long an idempotency key is remembered.
const KeyTTL = store.KeyTTL

// Status is a job as pushers see it.
type Status struct {
	*job.Job        // its State is never Cancelled
	Result   []byte // the result in this response; nil stands for null
	// Fetch must be called after the response was written; written says whether all of it was sent.
	// Fetch is nil if the response does not count as fetching the result.
	Fetch func(written bool)
}

// Report is a worker's report of how a run ended.
type Report struct {
	Job     job.ID
	Attempt int32 // 0: the worker did not report it
	job.Outcome
}

// Filter selects jobs for operators. A zero field selects all jobs.
type Filter struct {
	HasState bool
	State    job.State
	Name     string
	Worker   job.ID
	From, To int64                      // when they were enqueued, in milliseconds since 1970; To is excluded
	Match    func(*job.Attributes) bool // nil: all
}

// Page is a part of a list of jobs, newest first. Next is the cursor of the next page, or 0 at the
// end.
type Page struct {
	Jobs []*job.Job
	Next uint64
}

// Detail is a job with everything that operators see.
type Detail struct {
	Job       *job.Job
	HasResult bool
	// Position is the number of jobs that are handed out before this job, or -1 if this job does
	// not wait. Unless PositionExact is set, there may be more such jobs.
	Position      int
	PositionExact bool
	// BlockedBy holds the ids of the constraints that hold the job back now. WaitReason says for
	// people what else it waits for, "" for nothing.
	BlockedBy  []string
	WaitReason string
}

// ConstraintView is a constraint and its current effect.
type ConstraintView struct {
	job.Constraint
	Matching, Running int  // jobs
	Blocked           int  // jobs that it holds back; -1: the broker does not say
	Persisted         bool // the constraint survives a restart
}

// WorkerView is a worker and its current state.
type WorkerView struct {
	job.Worker
	Running     int
	LastSeen    int64     // last request, in milliseconds since 1970
	PausedUntil time.Time // it gets no jobs until then; zero: it is not paused
	PauseReason string    // the reason for the pause
	Leaving     bool      // it has unregistered, but its runs may still be answered
	Silent      bool      // it pulls, runs nothing, and has not asked for jobs for a minute
}

// StateCounts holds a number of jobs for each State.
type StateCounts [job.Cancelled + 1]int

// Stats holds current counts, and counts since the start.
type Stats struct {
	States StateCounts
	Names  []NameStats // the busiest, at most 1,000
	Oldest time.Duration
	Ledger Ledger
	// The rates are per second, over the last minute.
	EnqueuedRate, HandedOutRate, EndedRate float64
	// Ended counts the jobs that have ended in the last minute. Failed counts those of them that
	// ended with an error.
	Ended, Failed        uint64
	Workers, Slots, Busy int
	Paused               int // workers that get no jobs for now
	// Wait and Run are histograms with the buckets of Bounds: how long jobs waited before an
	// attempt, and how long attempts took.
	Wait, Run  [len(bounds) + 1]uint64
	Bytes      int64
	Results    int // results that are kept
	Waiters    int
	StoreError string // why the store is away; "" if it is not
	Refusal    string // why the broker has refused jobs in the last seconds; "" if it has not
	Durable    bool
}

// NameStats holds the numbers of jobs with a name, by state. Served says whether a worker serves
// the name. Silence is the time since such a worker last asked for jobs. Oldest is how long the
// oldest waiting job has waited. It is 0 if no job waits, or if the search for the oldest job would
// visit too many jobs of other names.
type NameStats struct {
	Name            string
	States          StateCounts
	Served          bool
	Silence, Oldest time.Duration
}

// Bounds returns the upper bounds of the buckets in Stats.Wait and Stats.Run, in seconds; the last
// bucket has none.
func Bounds() []float64 { return bounds[:] }

// Ledger holds counts since the start of this master, including the jobs that it found in the
// store: Enqueued + Revived = Waiting + Running + Done + Failed + Cancelled.
type Ledger struct {
	Enqueued, Revived               uint64
	Waiting, Running                uint64
	Done, Failed, Cancelled         uint64
	HandedOut, Released, Retries    uint64
	Timeouts, LostRuns, LateReports uint64 // LateReports: reports that came too late
}

// Answer is the outcome of a push.
type Answer struct {
	Kind       AnswerKind
	RetryAfter time.Duration // given with AnswerBusy; 0: the worker did not say when
	Reason     string        // for people
}

// AnswerKind is the kind of an answer to a push.
type AnswerKind uint8

// An answer is of one of these kinds.
const (
	AnswerTaken       AnswerKind = iota // 2xx; also if no answer came in time, or if the connection broke after the job was sent
	AnswerUnknownName                   // 404
	AnswerBusy                          // 429, 503
	AnswerRefused                       // other 4xx, a redirect
	AnswerBroken                        // other 5xx
	AnswerUnreachable                   // never sent
)

var answerNames = [...]string{"taken", "unknown_name", "busy", "refused", "broken", "unreachable"}

// Pusher sends jobs to workers. Push returns soon and calls onAnswer exactly once, on another
// goroutine. The caller does not change w until then.
type Pusher interface {
	Push(w *job.Worker, h *job.Handout, onAnswer func(Answer))
}
