// Package store keeps the jobs of a namespace for the master. The master decides on transitions of
// jobs, and the store records them. Each transition is one step, which checks that this master
// still has the lease and that the job is in the state that the master expects.
package store

import (
	"context"
	"errors"
	"time"

	"gloom/cmd/jq-master/job"
)

// Errors of transitions. All others are faults of the program or of the stored data, which the
// master logs and treats as ErrLost.
var (
	// ErrAway: the store cannot be reached or does not accept writes. Only Enqueue fails with it;
	// the store repeats all other transitions until it knows their outcome.
	ErrAway = errors.New("the store is away")
	// ErrFull: the store has no room. Only Enqueue, PutConstraint and PutSchedule fail with it.
	// They have changed nothing.
	ErrFull = errors.New("the store is full")
	// ErrFenced: another master has the lease.
	ErrFenced = errors.New("another master has taken over")
	// ErrLost: the store is another one, or has lost data (its epoch has changed, a job is not in
	// the expected state). The master's memory cannot be trusted.
	ErrLost = errors.New("the store has lost data")
	// ErrKeyReused: the idempotency key was used before with another body.
	ErrKeyReused = errors.New("the idempotency key was used with another body")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the store is closed")
)

// Key is an idempotency key.
type Key struct {
	Name string   // includes its token and path
	Body [32]byte // hash of the body
	TTL  time.Duration
}

// Size returns how many bytes the key of a number of jobs takes, without the store's own overhead.
func (k *Key) Size(jobs int) int { return len(k.Name) + len(k.Body) + len(job.ID{})*jobs }

// Store holds jobs, workers and constraints.
//
// The methods with done are asynchronous: they return soon and call done exactly once, perhaps
// before they return, on any goroutine. done must return soon, too, and may call the store. A
// transition that is repeated after an unknown outcome answers as it did the first time. The master
// requests a transition of a job only when the previous one has been answered. Neither side changes
// the bytes and slices given. Each transition of a job has the next Rev: it changes a job with Rev
// - 1; if the job already has Rev, the transition is a repeat; anything else is ErrLost. Fetch and
// Forget do not change Rev.
type Store interface {
	// Enqueue stores new jobs, all or none, with State Queued. With a known key it stores
	// nothing, and ids are those of the first request. After ErrAway it is unknown whether the
	// jobs were stored: the store removes them as soon as it is back, before it enqueues
	// anything else under the same key.
	Enqueue(jobs []*job.Job, key *Key, done func(ids []job.ID, replayed bool, err error))
	// Start: queued or retrying → running. The job has State Running, and Attempt, Worker, Started
	// and Deadline of the run.
	Start(j *job.Job, done func(error))
	// Release: running → the state before. The job has the State, Attempt, Worker and so on of
	// before the run, which was not an attempt.
	Release(j *job.Job, done func(error))
	// Retry: running → retrying, with Retries, Due, Error, Message, Reason and
	// Attempts. A revived job (ended → queued) is written by Revive.
	Retry(j *job.Job, done func(error))
	// Finish: running → done or error, with the outcome. forget is when to forget the job, drop
	// when to drop its result (0: it has none), in milliseconds since 1970.
	Finish(j *job.Job, forget, drop int64, done func(error))
	// Cancel: queued, retrying or running → cancelled.
	Cancel(j *job.Job, forget int64, done func(error))
	// Revive: error or cancelled → queued with Retries 0, or retrying → retrying
	// with Due now.
	Revive(j *job.Job, done func(error))
	// Postpone: queued or retrying → the same with another Due, Priority, or both.
	Postpone(j *job.Job, done func(error))
	// Fetch drops results that were fetched or whose time has passed.
	Fetch(ids []job.ID, done func(error))
	// Forget removes ended jobs, at most 1,000.
	Forget(ids []job.ID, done func(error))

	PutWorker(w *job.Worker, done func(error))
	DropWorker(id job.ID, done func(error))
	PutConstraint(c *job.Constraint, done func(error))
	DropConstraint(id string, done func(error))
	// PutSchedule stores a schedule, and new jobs of it in the same step.
	PutSchedule(name string, text []byte, jobs []*job.Job, done func(error))
	DropSchedule(name string, done func(error))
	// At returns the time of the store when boot.Since was up, in milliseconds since 1970. All
	// stored times of jobs and idempotency keys are from this clock. During a term it runs
	// evenly, even if a clock is set.
	At(up time.Duration) int64
	// Durable reports whether stored data survives this process.
	Durable() bool

	// Acquire waits until this master has the lease, and renews it from then on. It fails when
	// ctx ends, or at once if the store can never be used (because of an evicting memory
	// policy). able reports whether this master could serve now; if it could not, it leaves the
	// lease to another waiting master that could. waits is called with the reason for the wait
	// whenever the reason changes.
	Acquire(ctx context.Context, able func() bool, waits func(error)) error
	// Load reads everything stored, after Acquire. The functions are called on the caller's
	// goroutine and in order: workers, constraints, schedules, then jobs that have not ended by
	// Seq, then ended ones by the time to forget them. If the store goes away meanwhile, Load
	// continues when it is back.
	Load(ctx context.Context, each Loaded) error
	// Lost is closed when the lease of the last Acquire is lost or the store has lost data; Err
	// says which, ErrFenced or ErrLost. The master has to call Acquire and Load again.
	Lost() <-chan struct{}
	Err() error
	// Watch sets a function that is called, in order, whenever the store goes away (with the
	// reason) or is back (nil). It is away from the first failed write on, and back when a write
	// has succeeded and everything that had to be undone is undone.
	Watch(changed func(away error))
	// Holds reports whether this master certainly still has the lease: its term, counted from
	// before the last renewal was sent, is not over.
	Holds() bool
	// Awaited reports whether another master that could serve was waiting for the lease when the
	// lease was last renewed.
	Awaited() bool
	// Resign gives the lease back.
	Resign(ctx context.Context) error
	Close() error
}

// Loaded receives the content of a store. It may keep the jobs.
type Loaded struct {
	Worker     func(*job.Worker)
	Constraint func(*job.Constraint) error          // returns why it is invalid, or nil
	Schedule   func(name string, text []byte) error // returns why it is invalid, or nil; may be nil
	Key        func(until int64, size int)          // an idempotency key, in order of until
	Job        func(j *job.Job, forget, drop int64) // forget and drop as for Finish
	Seq        func(last uint64)                    // the largest Seq ever given
}

func (l *Loaded) schedule(name string, text []byte) error {
	if l.Schedule == nil {
		return nil
	}
	return l.Schedule(name, text)
}
