// Package store keeps the jobs of one namespace where the master finds them
// again. The master decides, the store remembers: each transition of a job is one
// step, which checks that this master still has the lease and that the job is
// where the master believes it to be.
package store

import (
	"context"
	"errors"
	"time"

	"gloom/cmd/jq-master/job"
)

// Errors of transitions. All others are faults of the program or the store's
// data, which the master logs and treats as ErrLost.
var (
	// ErrAway: the store cannot be reached or does not take writes. Only Enqueue
	// fails with it: the store resends all else until it knows the outcome.
	ErrAway = errors.New("the store is away")
	// ErrFull: the store has no room. Only Enqueue, PutConstraint and PutSchedule fail with
	// it, and have changed nothing.
	ErrFull = errors.New("the store is full")
	// ErrFenced: another master has the lease.
	ErrFenced = errors.New("another master has taken over")
	// ErrLost: the store is another one, or not what it was (its epoch has changed,
	// a job is not where it must be). Nothing this master holds may be trusted.
	ErrLost = errors.New("the store has lost what it held")
	// ErrKeyReused: the idempotency key came with another body before.
	ErrKeyReused = errors.New("the idempotency key was used with another body")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the store is closed")
)

// Key is an idempotency key with what it stands for.
type Key struct {
	Name string   // with the token and path it belongs to
	Body [32]byte // hash of the body
	TTL  time.Duration
}

// Size is how many bytes the key takes that stands for some jobs, but for what the
// store itself needs.
func (k *Key) Size(jobs int) int { return len(k.Name) + len(k.Body) + len(job.ID{})*jobs }

// Store holds jobs, workers and constraints.
//
// The methods with done are asynchronous: they return soon and call done exactly
// once, perhaps before they return, on whatever goroutine; done must return soon,
// too, and may call the store. A transition that is repeated after an unknown
// outcome answers as the first one did. Of one job, the master asks for a
// transition only when the one before has been answered. The bytes and slices
// given are not changed by either side. Each transition of one job brings its Rev,
// one more than before: what is found with Rev - 1 is changed, what is found with
// Rev is a repeat, anything else is ErrLost. Fetch and Forget do not count.
type Store interface {
	// Enqueue stores new jobs, all or none, with State Queued. With a key that is
	// known, nothing is stored, and ids are those of the first time. On ErrAway it
	// is not known whether they were stored: the store removes them first thing
	// when it is back, and before anything else is enqueued under the same key.
	Enqueue(jobs []*job.Job, key *Key, done func(ids []job.ID, replayed bool, err error))
	// Start: queued or retrying → running. The job comes with State Running and
	// with Attempt, Worker, Started and Deadline of the run.
	Start(j *job.Job, done func(error))
	// Release: running → what it was before, but for Rev (State, Attempt, Worker and
	// so on as the job has them now). The run was not an attempt.
	Release(j *job.Job, done func(error))
	// Retry: running → retrying, with Retries, Due, Error, Message, Reason and
	// Attempts. A revived job (ended → queued) is written by Revive.
	Retry(j *job.Job, done func(error))
	// Finish: running → done or error, with all of the outcome. forget is when to
	// forget the job, drop when to drop its result (0: it has none), in
	// milliseconds since 1970.
	Finish(j *job.Job, forget, drop int64, done func(error))
	// Cancel: queued, retrying or running → cancelled.
	Cancel(j *job.Job, forget int64, done func(error))
	// Revive: error or cancelled → queued with Retries 0, or retrying → retrying
	// with Due now.
	Revive(j *job.Job, done func(error))
	// Postpone: queued or retrying → the same with another Due.
	Postpone(j *job.Job, done func(error))
	// Fetch drops results that were fetched or whose time has passed.
	Fetch(ids []job.ID, done func(error))
	// Forget removes ended jobs; at most 1,000.
	Forget(ids []job.ID, done func(error))

	PutWorker(w *job.Worker, done func(error))
	DropWorker(id job.ID, done func(error))
	PutConstraint(c *job.Constraint, done func(error))
	DropConstraint(id string, done func(error))
	// PutSchedule stores a schedule, and new jobs of it in the same step.
	PutSchedule(name string, text []byte, jobs []*job.Job, done func(error))
	DropSchedule(name string, done func(error))
	// Durable says whether what was stored is there after this process has ended.
	Durable() bool

	// Acquire waits until this master has the lease, and renews it from then on.
	// It fails when ctx ends, or at once when the store can never be used (an
	// evicting memory policy). waits is told why it waits, whenever that changes.
	Acquire(ctx context.Context, waits func(error)) error
	// Load reads what is stored, after Acquire; each is called in order on the
	// goroutine of the caller: workers, constraints, schedules, then jobs that have not ended
	// by Seq, then ended ones by the time to forget them, the oldest first. When
	// the store goes away meanwhile Load goes on when it is back.
	Load(ctx context.Context, each Loaded) error
	// Lost is closed when the lease of the last Acquire is gone or the store is not
	// what it was; Err tells which, ErrFenced or ErrLost. Acquire and Load again
	// is what helps.
	Lost() <-chan struct{}
	Err() error
	// Watch sets who is told, in order, whenever the store goes away (with why) or
	// is back (nil). It is away from the first failed write on, and back when one
	// has succeeded and what had to be undone is undone.
	Watch(changed func(away error))
	// Holds reports whether this master surely still has the lease: the time that the
	// last renewal has brought, counted from before it was asked for, is not over.
	Holds() bool
	// Resign gives the lease back.
	Resign(ctx context.Context) error
	Close() error
}

// Loaded is who is told what a store holds. Jobs are the caller's to keep.
type Loaded struct {
	Worker     func(*job.Worker)
	Constraint func(*job.Constraint) error          // what is wrong with it
	Schedule   func(name string, text []byte) error // what is wrong with it; nil: nobody wants them
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
