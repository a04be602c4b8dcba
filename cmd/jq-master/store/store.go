// Package store keeps the jobs of a namespace for the master. The master decides on transitions of
// jobs, and the store records them. Each transition is one step. The step checks that this master
// still has the lease, and that the job is in the expected state.
package store

import (
	"context"
	"errors"
	"time"

	"gloom/cmd/jq-master/job"
)

// Transitions return these errors. Any other error means that the program or the stored data is
// wrong; the master logs it and treats it as ErrLost.
var (
	// ErrAway means that the store cannot be reached or does not accept writes. Only Enqueue
	// returns it; the store repeats all other transitions until it knows their outcome.
	ErrAway = errors.New("the store is away")
	// ErrFull means that the store has no room. Only Enqueue, PutConstraint and PutSchedule return
	// it; they have then changed nothing.
	ErrFull = errors.New("the store is full")
	// ErrTooLong means that the store does not accept a value of this length. Only transitions with
	// a value of 1 MiB or more return it; they have then changed nothing.
	ErrTooLong = errors.New("the store does not take a value of this length")
	// ErrFenced means that another master has the lease.
	ErrFenced = errors.New("another master has taken over")
	// ErrLost means that the store was replaced or has lost data: its epoch has changed, or a job
	// is not in the expected state. The master's memory cannot be trusted.
	ErrLost = errors.New("the store has lost data")
	// ErrKeyReused means that the idempotency key was used before with another body.
	ErrKeyReused = errors.New("the idempotency key was used with another body")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("the store is closed")
)

// KeyTTL is how long an idempotency key is remembered.
const KeyTTL = 24 * time.Hour

// Key is an idempotency key.
type Key struct {
	Name string        // includes the token and the path of its request
	Body [32]byte      // hash of the request's body
	TTL  time.Duration // at most KeyTTL
}

// Size returns how many bytes the key takes for a request with this number of jobs, without the
// overhead of the store.
func (k *Key) Size(jobs int) int { return len(k.Name) + len(k.Body) + len(job.ID{})*jobs }

// Store holds jobs, workers and constraints.
//
// The methods with done are asynchronous: they return soon and call done exactly once, perhaps
// before they return, on any goroutine. done must return soon, too, and may call the store. The
// master requests a transition of a job only when the previous one has been answered. Neither side
// changes the bytes and slices that are passed. Each transition of a job carries the next Rev: if
// the stored Rev is one less, the transition changes the job. If the stored Rev is the same, the
// transition is a repeat, and gets the same answer as the first time. Any other stored Rev is
// ErrLost. Fetch and Forget do not change Rev.
type Store interface {
	// Enqueue stores all of the new jobs or none, with State Queued. With a key that was used before
	// it stores nothing, and ids has the ids of the first request. Without jobs it only looks the key
	// up, also in a full store. After ErrAway the jobs may have been stored. The store removes these
	// jobs as soon as it is back, before it enqueues other jobs with the same key.
	Enqueue(jobs []*job.Job, key *Key, done func(ids []job.ID, replayed bool, err error))
	// Move records a transition. The stored job must equal old, and becomes j. These are the
	// transitions:
	//
	//	start     queued or retrying to running, with the Attempt, Worker, Started and Deadline of the run
	//	release   running to the State and Attempt before the run, which was undone
	//	retry     running to retrying: the run has failed
	//	finish    running to done or error, or retrying to error
	//	cancel    queued, retrying or running to cancelled
	//	revive    error or cancelled to queued, or retrying without Due: an operator's retry
	//	postpone  queued or retrying, with another Due or Priority
	//
	// Once the job has ended, forgetAt is the time to forget it, and dropAt is the time to drop its
	// result (0: it has none), both in milliseconds since 1970.
	Move(old, j *job.Job, forgetAt, dropAt int64, done func(error))
	// Fetch drops results that were fetched or have expired.
	Fetch(ids []job.ID, done func(error))
	// Forget removes ended jobs, at most 1,000.
	Forget(ids []job.ID, done func(error))

	// PutWorker, PutConstraint and PutSchedule store a record under its name; nil removes it.
	PutWorker(id job.ID, w *job.Worker, done func(error))
	PutConstraint(id string, c *job.Constraint, done func(error))
	// PutSchedule also stores, in the same step, the new jobs of the schedule.
	PutSchedule(name string, text []byte, jobs []*job.Job, done func(error))
	// At returns the time of the store at the moment when boot.Since returned uptime, in
	// milliseconds since 1970. All stored times of jobs and idempotency keys are times of this
	// clock. From the first Acquire on it runs evenly, even if the clock of a host is set.
	At(uptime time.Duration) int64
	// Durable reports whether stored data survives this process.
	Durable() bool

	// Acquire waits until this master has the lease, and renews the lease from then on. It returns
	// an error when ctx ends, or at once if the store cannot be used and never could (for example
	// because its memory policy evicts keys). canServe reports whether this master could serve now;
	// while it returns false, the master leaves the lease to another waiting master that could
	// serve. onWait is called with the reason for the wait whenever the reason changes.
	Acquire(ctx context.Context, canServe func() bool, onWait func(error)) error
	// Load reads the whole content of the store, after Acquire. The functions in load are called on
	// the caller's goroutine: first for workers, constraints and schedules, then for jobs that have
	// not ended, by Seq, then for ended jobs, by the time to forget them. If the store goes away
	// meanwhile, Load continues when the store is back.
	Load(ctx context.Context, load LoadHandlers) error
	// Lost is closed when the lease of the last Acquire is lost (then Err returns ErrFenced), or
	// when the store has lost data (then Err returns ErrLost). The master has to call Acquire and
	// Load again.
	Lost() <-chan struct{}
	Err() error
	// Watch sets a function that is called with the reason whenever the store goes away, and with
	// nil when it is back. The store is away from the first failed write on. It is back when a
	// write has succeeded and everything that had to be undone has been undone.
	Watch(changed func(awayErr error))
	// HoldsLease reports whether this master certainly still has the lease: less than the length of a
	// lease has passed since the last successful renewal was sent.
	HoldsLease() bool
	// HasWaitingStandby reports whether another master that could serve was waiting for the lease
	// when the lease was last renewed.
	HasWaitingStandby() bool
	// Resign gives the lease back.
	Resign(ctx context.Context) error
	Close() error
}

// LoadHandlers receives the content of a store. It may keep the jobs.
type LoadHandlers struct {
	Worker     func(*job.Worker)
	Constraint func(*job.Constraint) error              // returns why it is invalid, or nil
	Schedule   func(name string, text []byte) error     // returns why it is invalid, or nil
	Key        func(until int64, size int)              // is called for the idempotency keys, sorted by until; size is in bytes
	Job        func(j *job.Job, forgetAt, dropAt int64) // forgetAt and dropAt: see Move
	Seq        func(last uint64)                        // the largest Seq that any job has had
}
