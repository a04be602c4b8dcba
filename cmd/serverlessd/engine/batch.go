package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	gloom "gloom/clients/go"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/runner"
	"gloom/cmd/serverlessd/store"
)

// run is a job in hand.
type run struct {
	store.Taken
	sysid string
	taken time.Time
	batch *batch
	ended bool // its end is to be written; this and the next are guarded by its backend
	lost  bool // others have its lock
}

// age is how long ago the job's first run began.
func (r *run) age() time.Duration { return r.Age + time.Since(r.taken) }

// batch is jobs of one type that run one after the other in a slot, or at Gloom
// workers. It is one job of the broker, or one each.
type batch struct {
	e           *Engine
	b           *backend
	id          string // at the broker
	client, typ string
	handler     *job.Handler
	runs        []*run
	ctx         context.Context
	cancel      context.CancelCauseFunc
	begun       bool // guarded by the engine
	started     int  // jobs begun; its goroutine's
	reported    int  // jobs ended; its goroutine's
}

var (
	errLocksLost = errors.New("the locks were lost")
	errLeaving   = errors.New("the daemon stops")
	errUnread    = errors.New("the handlers have yet to be read")
)

func newBatch(e *Engine, c *candidate, sysid string, taken []store.Taken, at time.Time) *batch {
	t := &batch{e: e, b: c.b, handler: c.handler}
	t.client, t.typ, _ = job.Split(c.due.Jobtype)
	t.ctx, t.cancel = context.WithCancelCause(e.life)
	t.runs = make([]*run, len(taken))
	for i := range taken {
		t.runs[i] = &run{Taken: taken[i], sysid: sysid, taken: at, batch: t}
	}
	return t
}

func (t *batch) jobtype() string { return t.handler.Jobtype }

// grasp takes batches in hand, all of a Take. From then on their locks are renewed,
// and they are ended when the sysid is lost: false if it has been already.
func (b *backend) grasp(all []*batch, sysid string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range all {
		for _, r := range t.runs {
			b.hand[r.ID] = r
		}
	}
	return b.sysid == sysid
}

// begin brings a batch in hand, whose slot is taken, to the broker, or gives it back
// when its sysid is lost or nothing is handed out any more. It waits for nothing.
func (e *Engine) begin(t *batch, held bool) {
	e.mu.Lock()
	e.serial++
	t.id = e.typeOf(strconv.FormatUint(e.serial, 36)) + "/" + e.ids.Sysid()
	e.batches[t.id] = t
	t.begun = !held || e.stopped || e.leaving
	back := t.begun
	e.mu.Unlock()
	switch {
	case back:
		t.finish()
	case t.handler.Lang == job.Gloom:
		go t.askWorkers()
	default:
		go e.submit(t)
	}
}

// submit brings a batch to the broker, for one of our slots. When the broker
// loses it before a slot has it, it is brought again.
func (e *Engine) submit(t *batch) {
	err := e.jobs.Submitter().SubmitFunc(t.ctx, gloom.Job{
		ID: t.id, Type: e.typeOf(t.jobtype()), Body: fmt.Appendf(nil, `{"jobs":%d}`, len(t.runs)),
		Groups: []string{t.client, t.jobtype()}, Retries: gloom.NoRetries,
	}, func(_ gloom.Result, err error) { t.answered(err) })
	if err != nil {
		t.answered(err)
	}
}

// resubmit is how long to wait before a batch that the broker did not take, or
// lost, is submitted again.
const resubmit = 200 * time.Millisecond

// answered is told how the broker's job ended. Its slot says how the batch did.
func (t *batch) answered(err error) {
	t.e.jobs.Note(t.e.typeOf(t.jobtype()), err, true)
	if t.isBegun() {
		return
	}
	switch {
	case errors.Is(err, gloom.ErrLost) || t.ctx.Err() != nil:
	case err == nil:
		t.e.log.Warn().Str("type", t.jobtype()).Msg("a worker that is none of our slots has answered a batch, submitting it again; workers that serve all types must leave out @*")
	default:
		t.e.log.Warn().Err(err).Str("type", t.jobtype()).Msg("the broker did not hand a batch to our slots, submitting it again")
	}
	go func() {
		timer := time.NewTimer(resubmit)
		defer timer.Stop()
		select {
		case <-t.ctx.Done():
			if t.claim() {
				t.finish()
			}
		case <-timer.C:
			t.e.submit(t)
		}
	}()
}

func (t *batch) isBegun() bool {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	return t.begun
}

// claim gives a batch to whoever runs or ends it, once.
func (t *batch) claim() bool {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	first := !t.begun
	t.begun = true
	return first
}

// slot is the handler of the slots' worker.
func (e *Engine) slot(_ context.Context, gj *gloom.Job) (any, error) {
	e.mu.Lock()
	t := e.batches[gj.ID]
	e.mu.Unlock()
	if t == nil || !t.claim() {
		return nil, gloom.Fatal(fmt.Errorf("job %q is no batch that waits for a slot of this daemon", gj.ID))
	}
	if !e.held() {
		t.run()
	}
	t.finish()
	return map[string]int{"run": t.reported, "given_back": len(t.runs) - t.reported}, nil
}

func (t *batch) run() {
	jobs := make([]runner.Job, len(t.runs))
	for i, r := range t.runs {
		jobs[i] = runner.Job{ID: r.ID, Payload: r.Payload, Tries: r.Tries}
	}
	t.e.runner.Run(t.ctx, runner.Batch{Client: t.client, Type: t.typ, Handler: t.handler, Jobs: jobs, Held: t.e.held}, t)
}

// Started implements runner.Reporter, as does Ended.
func (t *batch) Started(i int) {
	t.started = i + 1
	t.e.events.started(t.runs[i], time.Now())
}

func (t *batch) Ended(i int, o job.Outcome) {
	t.reported = i + 1
	t.b.put(t.e.judge(t.runs[i], &o))
}

// finish gives back what has not been begun, or was ended by us, and frees the
// slot.
func (t *batch) finish() {
	for i := t.reported; i < len(t.runs); i++ {
		t.b.put(t.e.broken(t.runs[i], i < t.started, context.Cause(t.ctx)))
	}
	t.cancel(nil)
	e := t.e
	e.mu.Lock()
	delete(e.batches, t.id)
	e.sched.JobsStopped(time.Now(), t.client, t.jobtype())
	e.checkIdle()
	e.mu.Unlock()
	e.nudge()
}
