package engine

import (
	"context"
	"errors"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/runner"
	"gloom/cmd/serverlessd/store"
)

// run is a job that this daemon has taken.
type run struct {
	store.TakenJob
	sysid     string
	takenAt   time.Time
	batch     *batch
	endQueued bool // its end is queued; endQueued and lockLost are guarded by the mutex of its backend
	lockLost  bool // the lock was lost: another daemon may have the job
}

// age returns how long ago the job's first run began.
func (r *run) age() time.Duration { return r.Age + time.Since(r.takenAt) }

// batch holds the jobs of one type that share a slot. In this daemon the jobs run one after the
// other. At Gloom workers they run at the same time, each as a job of the broker.
type batch struct {
	engine       *Engine
	backend      *backend
	client, typ  string
	handler      *job.Handler
	runs         []*run
	ctx          context.Context
	cancel       context.CancelCauseFunc
	startedCount int // how many jobs have begun; only the batch's goroutine uses it
	reported     int // how many jobs have ended; only the batch's goroutine uses it
}

var (
	errLocksLost      = errors.New("the locks were lost")
	errStopping       = errors.New("the daemon is stopping")
	errHandlersUnread = errors.New("the handlers have not been read yet")
)

func newBatch(e *Engine, c *candidate, sysid string, taken []store.TakenJob, at time.Time) *batch {
	bt := &batch{engine: e, backend: c.backend, handler: c.handler}
	bt.client, bt.typ, _ = job.SplitJobtype(c.due.Jobtype)
	bt.ctx, bt.cancel = context.WithCancelCause(e.ctx)
	bt.runs = make([]*run, len(taken))
	for i := range taken {
		bt.runs[i] = &run{TakenJob: taken[i], sysid: sysid, takenAt: at, batch: bt}
	}
	return bt
}

func (bt *batch) jobtype() string { return bt.handler.Jobtype }

// addRunning adds the jobs of these batches to runsInHand. From then on their locks are
// renewed, and the batches are ended when the sysid is lost. It returns false if the sysid is
// already lost.
func (b *backend) addRunning(batches []*batch, sysid string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, bt := range batches {
		for _, r := range bt.runs {
			b.runsInHand[r.ID] = r
		}
	}
	return b.holds(sysid)
}

// startBatch starts a batch, for which a slot has been taken. If held is false because the sysid
// was lost, or if the daemon hands out no more jobs, the batch is given back. It does not block.
func (e *Engine) startBatch(bt *batch, held bool) {
	e.mu.Lock()
	e.batches[bt] = struct{}{}
	back := !held || e.stopped || e.leaving
	e.mu.Unlock()
	switch {
	case back:
		bt.finish()
	case bt.handler.Lang == job.Gloom:
		go bt.askWorkers()
	default:
		go bt.run()
	}
}

// run runs a batch in this daemon.
func (bt *batch) run() {
	jobs := make([]runner.Job, len(bt.runs))
	for i, r := range bt.runs {
		jobs[i] = runner.Job{ID: r.ID, Payload: r.Payload, Tries: r.Tries}
	}
	err := bt.engine.runner.Run(bt.ctx, runner.Batch{Client: bt.client, Type: bt.typ, Handler: bt.handler, Jobs: jobs, MustEnd: bt.mustEnd}, bt)
	if err != nil {
		bt.engine.noteHostError(bt.handler.Lang, err)
	}
	bt.finish()
}

// mustEnd reports whether no other job of the batch may begin: this daemon hands out no more jobs,
// or the locks have expired, such as while this daemon was stopped.
func (bt *batch) mustEnd() bool {
	if !bt.engine.isHandingOut() {
		return true
	}
	bt.backend.mu.Lock()
	defer bt.backend.mu.Unlock()
	return !bt.backend.holds(bt.runs[0].sysid)
}

// Started and Ended implement runner.Reporter.
func (bt *batch) Started(i int) {
	bt.startedCount = i + 1
	bt.engine.logStart(bt.runs[i], time.Now())
}

func (bt *batch) Ended(i int, o job.Outcome) {
	bt.reported = i + 1
	bt.backend.queueEnding(bt.engine.endingOf(bt.runs[i], &o))
}

// endWithoutPayload ends the jobs of a batch without running them, because the store has lost their
// payloads. If held is false because the sysid was lost, it gives the jobs back. The batch has no
// slot.
func (bt *batch) endWithoutPayload(held bool) {
	defer bt.cancel(nil)
	for _, r := range bt.runs {
		if !held {
			bt.backend.queueEnding(bt.engine.endingOfUnreported(r, false, nil))
			continue
		}
		bt.engine.log.Error().Stringer("id", r.ID).Str("type", r.Jobtype).Msg("the payload of a job is gone: sq_data has no row for it; the job ends")
		bt.backend.queueEnding(bt.engine.endingOf(r, &job.Outcome{Status: 410, Code: job.CodeNoPayload, Data: []byte("the payload is gone: the store has no row for it in sq_data")}))
	}
}

// finish gives back the jobs that were not begun or that this daemon has cut short, and frees the
// slot.
func (bt *batch) finish() {
	for i := bt.reported; i < len(bt.runs); i++ {
		bt.backend.queueEnding(bt.engine.endingOfUnreported(bt.runs[i], i < bt.startedCount, context.Cause(bt.ctx)))
	}
	bt.cancel(nil)
	e := bt.engine
	e.mu.Lock()
	delete(e.batches, bt)
	e.scheduler.JobsStopped(time.Now(), bt.client, bt.jobtype())
	e.checkIdle()
	e.mu.Unlock()
	e.wakePick()
}
