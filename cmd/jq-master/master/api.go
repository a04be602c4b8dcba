package master

import (
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// Master's methods return a *job.Fault for what is wrong with a request or with
// the moment; any other error is a context's. What they return is the caller's.
// Fields are validated by the caller: types, ranges, sizes.

// New is a job to be enqueued.
type New struct {
	job.Attributes
	Delay   time.Duration
	Sharing *job.Sharing // of a unique key, which Unique is made of; nil: it shares none
}

// Key is an idempotency key; nil for none.
type Key = store.Key

// Status is what pushers see of a job.
type Status struct {
	ID       job.ID
	Name     string
	State    job.State // never Cancelled
	Worker   job.ID    // last; none when never run
	Result   []byte    // MessagePack, nil is null
	Error    []byte    // MessagePack, nil is null
	Message  string    // null without a Reason
	Retries  int32
	Finished int64 // in milliseconds since 1970, 0: null

	Reason job.Reason // of the last failure
	// Fetch is to be called once the response is written, with whether all of it
	// was; nil when nothing was fetched.
	Fetch func(written bool)
}

// Registration is what a worker says of itself, and where it comes from.
type Registration struct {
	Name      string
	MaxJobs   int
	URL       string // "" pulls
	Host      string // address that it registers from; "" on a unix socket
	Names     []string
	Token     string
	Heartbeat bool
	Owner     job.Owner
}

// Registered is the reply.
type Registered struct {
	ID        job.ID
	Pulls     bool
	Heartbeat time.Duration // the interval asked for
}

// Report is what a worker says about the end of a run.
type Report struct {
	Job     job.ID
	Attempt int32 // 0: not said
	job.Outcome
}

// Filter picks jobs for the UI. Zero fields pick all.
type Filter struct {
	HasState bool
	State    job.State
	Name     string
	Worker   job.ID
	From, To int64                      // enqueued, in milliseconds since 1970; To is not in it
	Match    func(*job.Attributes) bool // nil: all
}

// Page is a part of a list, newest first. Next is the cursor for the one after
// it, 0 at the end.
type Page struct {
	Jobs []*job.Job
	Next uint64
}

// Detail is a job as the UI shows it.
type Detail struct {
	Job       *job.Job
	HasResult bool
	// Place is how many jobs are handed out before it at least, -1 when it does not
	// wait; Exact says that it is not more.
	Place int
	Exact bool
	// BlockedBy are constraints that hold it back now, and Waits what else does, in
	// words ("" for nothing).
	BlockedBy []string
	Waits     string
}

// ConstraintView is a constraint with what it does now.
type ConstraintView struct {
	job.Constraint
	Matching, Blocked, Running int  // jobs
	Persisted                  bool // it is there after a restart
}

// WorkerView is a worker with what it does now.
type WorkerView struct {
	job.Worker
	Running int
	Seen    int64     // last request, in milliseconds since 1970
	Paused  time.Time // it gets nothing before; zero: it does
	Why     string    // of the pause
	Leaving bool      // unregistered with runs that may still be answered
}

// Stats are counts of now and since the start.
type Stats struct {
	States map[job.State]int
	Names  []NameStats // the busiest, at most 1,000
	Oldest time.Duration
	Ledger Ledger
	// Rates are per second, of the last minute.
	EnqueuedRate, HandedOutRate, EndedRate float64
	Workers, Slots, Busy                   int
	Bytes                                  int64
	Results                                int // kept
	Waiters                                int
	StoreAway                              string // why; "" when it is there
	Durable                                bool
}

// NameStats are the jobs of one name, by state.
type NameStats struct {
	Name   string
	States map[job.State]int
}

// Ledger counts since the start of this master, what it found in the store
// included: Enqueued + Revived = Waiting + Running + Done + Failed + Cancelled.
type Ledger struct {
	Enqueued, Revived             uint64
	Waiting, Running              uint64
	Done, Failed, Cancelled       uint64
	HandedOut, Released, Retries  uint64
	Timeouts, LostRuns, Discarded uint64 // Discarded: answers that came too late
}

// Answer is what came of a push.
type Answer struct {
	Kind       AnswerKind
	RetryAfter time.Duration // of Busy, 0: not said
	Reason     string        // for people
}

// AnswerKind tells the answers to a push apart.
type AnswerKind uint8

// What may come of a push.
const (
	Taken       AnswerKind = iota // 2xx; also no answer in time, or cut off once sent
	UnknownName                   // 404
	Busy                          // 429, 503
	Refused                       // other 4xx, a redirect
	Broken                        // other 5xx
	Unreachable                   // never sent
)

// Pusher carries jobs to workers. Push returns soon and calls answered exactly
// once, on another goroutine. The worker is not changed while it is used.
type Pusher interface {
	Push(w *job.Worker, h *job.Handout, answered func(Answer))
}
