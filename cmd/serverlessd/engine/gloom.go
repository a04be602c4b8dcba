package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	gloom "gloom/clients/go"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/runner"
	"gloom/cmd/serverlessd/store"
)

// Jobs of a gloom handler are taken only if a worker will have them soon. The engine cannot see the
// workers of a shared broker. Workers may even be at another broker of the fleet, and that broker
// borrows a job only after a while. So the engine learns how many jobs the workers take at a time.
// Each job that ends leaves room for another job, and from time to time the engine sends probes,
// which are jobs beyond that number. Each job has a deadline, at which it expires at the broker and
// is given back.

const (
	// jobDeadline is the deadline of jobs for which workers are known to have room.
	jobDeadline = 250 * time.Millisecond
	// firstProbeTime is the first deadline of probes. The deadline doubles when a probe expires, up to
	// maxProbeTime: within maxProbeTime a fleet finds a worker. It is also the deadline of all jobs at
	// the broker inside this process, where an idle worker gets a job at once.
	firstProbeTime = 5 * time.Millisecond
	maxProbeTime   = 160 * time.Millisecond
	// A job that has not expired by expirySlack after its deadline is assumed to run.
	expirySlack     = 250 * time.Millisecond
	firstProbePause = 50 * time.Millisecond // pause after the first probe that expires; it doubles
	maxProbePause   = time.Second
	connWait        = time.Second // bounds the wait for a connection that has room
)

// typeWorkers holds what the engine knows about the Gloom workers of a jobtype.
type typeWorkers struct {
	capacity   int           // how many jobs they take at a time
	busyCount  int           // how many are at the broker
	probes     int           // how many of those at the broker are probes
	nextProbes int           // how many probes to send next
	probeTime  time.Duration // deadline of the next probes
	probePause time.Duration // pause after the next probe that expires
	probeAfter time.Time     // no probe is sent before this time
}

// brokerJob is a job at the broker. The engine's mutex guards it.
type brokerJob struct {
	engine   *Engine
	jobtype  string
	deadline time.Duration // how long it may wait at the broker
	isProbe  bool          // the job is a probe
	settled  bool
}

// workersOf returns what is known about a jobtype's workers. The caller holds the engine's mutex.
func (e *Engine) workersOf(jobtype string) *typeWorkers {
	c := e.workers[jobtype]
	if c == nil {
		c = &typeWorkers{nextProbes: 1, probeTime: firstProbeTime, probePause: firstProbePause}
		e.workers[jobtype] = c
	}
	return c
}

// workerRoom returns how many jobs of a jobtype to take for Gloom workers now.
func (e *Engine) workerRoom(jobtype string) int {
	if e.link.Health() != nil {
		return 0 // another daemon, which reaches a broker, may take the jobs
	}
	idle, known := e.link.IdleWorkers(jobtype)
	e.mu.Lock()
	defer e.mu.Unlock()
	workers := e.workersOf(jobtype)
	isResting := time.Now().Before(workers.probeAfter)
	switch {
	case known && isResting:
		return 0
	case known:
		return idle
	case isResting || workers.probes > 0:
		return max(0, workers.capacity-workers.busyCount)
	}
	return max(0, workers.capacity-workers.busyCount) + workers.nextProbes
}

// newBrokerJob records that a job goes to the broker.
func (e *Engine) newBrokerJob(jobtype string) *brokerJob {
	e.mu.Lock()
	defer e.mu.Unlock()
	atBroker := &brokerJob{engine: e, jobtype: jobtype, deadline: firstProbeTime}
	c := e.workersOf(jobtype)
	c.busyCount++
	switch {
	case e.link.EmbeddedBroker() != nil:
	case c.busyCount <= c.capacity:
		atBroker.deadline = jobDeadline
	default:
		if e.probeCount < max(1, e.cfg.Concurrency/8) { // only few probes may wait long, because they hold slots that other jobs need
			atBroker.deadline = c.probeTime
		}
		atBroker.isProbe = true
		c.probes++
		e.probeCount++
	}
	return atBroker
}

// noteRun records that a job has not expired, so a worker must have it.
func (j *brokerJob) noteRun() {
	j.engine.mu.Lock()
	defer j.engine.mu.Unlock()
	if !j.settled && j.isProbe {
		j.recordProbeTaken()
		j.engine.wakePick()
	}
}

// recordProbeTaken records that a worker has taken a probe: the workers take one more job than was known.
func (j *brokerJob) recordProbeTaken() {
	c := j.engine.workersOf(j.jobtype)
	j.settle(c)
	c.capacity++
	c.probePause = firstProbePause
	if c.probes == 0 {
		c.nextProbes = min(2*c.nextProbes, j.engine.cfg.Batch)
	}
}

func (j *brokerJob) settle(c *typeWorkers) {
	if j.isProbe {
		j.isProbe = false
		c.probes--
		j.engine.probeCount--
	}
}

// recordGone records that a job is no longer at the broker. reason is nil if a worker had it;
// otherwise it says why no worker got it.
func (j *brokerJob) recordGone(reason error) {
	e := j.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.workersOf(j.jobtype)
	j.settled = true
	c.busyCount--
	switch {
	case reason == nil && j.isProbe:
		j.recordProbeTaken()
	case reason == nil && 2*c.busyCount <= c.capacity: // there is room for more before the whole batch has ended
		e.wakePick()
	case reason == nil, e.link.EmbeddedBroker() != nil && errors.Is(reason, gloom.ErrExpired): // another job got the idle worker
	case !j.isProbe && c.capacity > 1: // a worker seems to have left
		c.capacity--
	default:
		if !j.isProbe {
			c.capacity = 0
		}
		if j.settle(c); errors.Is(reason, gloom.ErrExpired) {
			c.probeTime = min(2*c.probeTime, maxProbeTime)
		}
		c.nextProbes = 1
		if now := time.Now(); !now.Before(c.probeAfter) { // if several probes expire together, only the first counts
			c.probeAfter = now.Add(c.probePause)
			c.probePause = min(2*c.probePause, maxProbePause)
		}
	}
}

// awaitRun is for a job that was given up although a worker may still run it. The job counts in its
// type's concurrency until the broker no longer has the run. It does nothing for a type without a
// limit.
func (e *Engine) awaitRun(id job.ID, jobtype string, h *job.Handler) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h == nil || h.Lang != job.Gloom || h.Options.Concurrency == 0 || e.leaving || e.ctx.Err() != nil || e.mayStillRun[jobtype][id] {
		return
	}
	if e.mayStillRun[jobtype] == nil {
		e.mayStillRun[jobtype] = make(map[job.ID]bool)
	}
	e.mayStillRun[jobtype][id] = true
	e.loops.Go(func() {
		e.submitter.AwaitRun(e.ctx, gloom.Job{ID: id.String(), Type: jobtype}, func() {
			e.log.Warn().Stringer("id", id).Str("type", jobtype).Msg("a job that was given up still runs at a worker; it counts towards its type's concurrency until it ends")
		})
		e.mu.Lock()
		if delete(e.mayStillRun[jobtype], id); len(e.mayStillRun[jobtype]) == 0 {
			delete(e.mayStillRun, jobtype)
		}
		e.mu.Unlock()
		e.wakePick()
	})
}

// awaitOldRuns calls awaitRun for the jobs that a killed earlier daemon of this directory has left
// at the broker. It returns false if it must be called again.
func (b *backend) awaitOldRuns() bool {
	b.mu.Lock()
	old := b.oldSysids
	b.mu.Unlock()
	if len(old) == 0 || b.engine.link.EmbeddedBroker() != nil {
		return true
	}
	if b.engine.handlers.refresh(b) != nil {
		return false
	}
	q := store.Query{State: job.Running, Limit: 1000}
	for {
		list, next, err := b.store.Jobs(b.engine.ctx, q)
		if err != nil && (errors.Is(err, store.ErrUnwell) || !errors.Is(err, store.ErrAway)) {
			// The store may refuse forever, for example because of a damaged row. Other jobs run
			// nevertheless.
			b.log.Error().Err(err).Msg("cannot look for the jobs of an earlier daemon: at first, more of them may run than their types allow")
			return true
		}
		if b.noteCall("look for the jobs of an earlier daemon", err) != nil {
			return false
		}
		for i := range list {
			if r := &list[i]; slices.Contains(old, r.Lock) {
				b.engine.awaitRun(r.ID, r.Jobtype, b.engine.handlers.newest(r.Jobtype))
			}
		}
		if q.After = next; next == "" {
			return true
		}
	}
}

// askWorkers submits all jobs of a batch to Gloom workers at the same time.
func (bt *batch) askWorkers() {
	var wg sync.WaitGroup
	for _, r := range bt.runs {
		atBroker := bt.engine.newBrokerJob(bt.jobtype())
		wg.Go(func() {
			end, reason := bt.askWorker(r, atBroker)
			if end == nil {
				end = bt.engine.endingOfUnreported(r, false, nil)
			}
			bt.backend.queueEnding(end)
			atBroker.recordGone(reason)
		})
	}
	wg.Wait()
	bt.reported = len(bt.runs)
	bt.finish()
}

// askWorker returns how a job ended, or why no worker got it.
func (bt *batch) askWorker(r *run, atBroker *brokerJob) (*queuedEnding, error) {
	timeout := cmp.Or(time.Duration(bt.handler.Options.Timeout), bt.engine.cfg.JobTimeout)
	ctx, cancel := context.WithTimeout(bt.ctx, connWait)
	defer cancel()
	start := time.Now()
	bt.engine.logStart(r, start) // recorded before a worker can have any effect
	p, err := bt.engine.submitter.Current().Submit(ctx, gloom.Job{
		ID: r.ID.String(), Type: bt.jobtype(), Body: runner.GloomBody(r.Payload),
		Groups: []string{bt.client, bt.jobtype()}, Retries: gloom.NoRetries, Expires: atBroker.deadline, Timeout: timeout,
	})
	var res gloom.Result
	if err == nil {
		runTimer := time.AfterFunc(atBroker.deadline+expirySlack, atBroker.noteRun)
		res, err = p.Result(bt.ctx)
		runTimer.Stop()
	}
	bt.engine.submitter.NoteRefusal(bt.jobtype(), err, isNotTaken(err))
	switch {
	case err != nil && bt.ctx.Err() != nil && p != nil:
		_ = p.Cancel(bt.engine.ctx) // nobody waits for the job any more
		bt.engine.awaitRun(r.ID, bt.jobtype(), bt.handler)
		return bt.engine.endingOfUnreported(r, true, context.Cause(bt.ctx)), nil
	case isNotTaken(err):
		return nil, err
	}
	if errors.Is(err, gloom.ErrLost) {
		bt.engine.awaitRun(r.ID, bt.jobtype(), bt.handler)
	}
	o := runner.GloomOutcome(res.Body, err)
	o.Wall = time.Since(start)
	return bt.engine.endingOf(r, &o), nil
}

// isNotTaken reports whether err means that no worker got the job, but a worker may get it later.
// It is false if the broker would always refuse this job.
func isNotTaken(err error) bool {
	var lost *gloom.LostError
	var refused *gloom.RefusedError
	var ended *gloom.JobError
	switch {
	case err == nil:
		return false
	case errors.As(err, &lost):
		return !lost.Sent
	case errors.As(err, &refused): // ErrIDExists: an earlier run of the job may still have the id
		return refused.ID == "" || slices.Contains([]gloom.Code{gloom.ErrIDExists, gloom.ErrOverloaded, gloom.ErrDraining}, refused.Code)
	case errors.As(err, &ended):
		return ended.Code == gloom.ErrExpired
	}
	return true // there is no connection, or no room in it
}
