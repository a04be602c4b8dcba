package master

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"gloom/cmd/jq-master/job"
)

// worker is a registered worker. The master joins the broker on its behalf.
type worker struct {
	job.Worker
	lastSeen           int64 // last request, monotonic
	removed            bool  // it gets no more jobs, and requests with its id are refused
	runs               map[*record]struct{}
	pausedUntil        int64
	pauseReason        string           // the reason for the pause
	unreachableSince   int64            // when the worker became unreachable; 0: it is reachable
	lastPause          time.Duration    // the length of the last pause that was made because the worker was unreachable
	exceptUntil        map[string]int64 // for names that it does not know: until when it gets no jobs with the name
	cancelUntil        map[job.ID]int64 // jobs that were cancelled while it ran them, and until when heartbeats return them
	pullers            []*puller
	hasResubmittedRuns bool // some of its runs were submitted to a new broker, to be handed to it again
	serving            serving
	connected          bool
}

// available reports whether the worker may get jobs at the moment, apart from its own limits.
func (w *worker) available(c *machine) bool {
	return !w.removed && !w.Leaving && c.awayErr == nil && !c.draining && c.linked
}

// hasOpenRequest reports whether the worker waits for a reply. Such a worker is not silent.
func (w *worker) hasOpenRequest() bool {
	if len(w.pullers) > 0 {
		return true
	}
	for r := range w.runs {
		if r.runInfo.run.ended {
			return true
		}
	}
	return false
}

// mayTake reports whether the worker may get one more job now.
func (w *worker) mayTake(c *machine) bool {
	if !w.available(c) {
		return false
	}
	if w.Pulls() {
		return w.demand() > 0
	}
	return c.now >= w.pausedUntil
}

// needsOwnWorker reports whether only the master's own workers may run a job: because it already
// runs, must not run before the attempt is written, or has an argument that does not fit into a
// frame of the broker.
func (c *machine) needsOwnWorker(r *record) bool {
	return r.State == job.Running || r.tooLong || r.MaxRetry == 0 && c.once != c.prefix
}

// typeOf returns the type of a waiting job at the broker.
func (c *machine) typeOf(r *record) string {
	if r.MaxRetry == 0 || r.tooLong {
		return c.once + r.Name
	}
	return c.prefix + r.Name
}

// addTypes appends to names the types under which the broker has the jobs with this name.
func (c *machine) addTypes(names []string, name string) []string {
	if c.once != c.prefix {
		names = append(names, c.once+name)
	}
	return append(names, c.prefix+name)
}

// ownType returns the type under which the broker has the jobs that the worker already runs.
func (c *machine) ownType(w *worker) string { return c.ownPrefix() + w.ID.String() }

func (c *machine) ownPrefix() string { return strings.TrimSuffix(c.prefix, ".") + "~" }

// updateServing tells the broker what a worker serves, if that has changed.
func (c *machine) updateServing(w *worker) {
	if w.removed && len(w.runs) == 0 {
		return
	}
	v := serving{prefetch: 0}
	if w.available(c) {
		switch {
		case w.Pulls():
			if n := w.demand(); n > 0 {
				v.prefetch = min(w.MaxJobs, len(w.runs)+n)
			}
		case c.now >= w.pausedUntil:
			v.prefetch = w.MaxJobs
		}
	}
	if v.prefetch == 0 && w.hasResubmittedRuns && !w.removed && c.runsRestored {
		v.prefetch = -1
	}
	for _, n := range w.Names {
		v.types = c.addTypes(v.types, n)
	}
	if v.prefetch < 0 { // it gets only what it already runs
		v.types, v.prefetch = nil, max(w.MaxJobs, len(w.runs))
	}
	if w.hasResubmittedRuns {
		v.types = append(v.types, c.ownType(w))
	}
	for n := range w.exceptUntil {
		if !strings.Contains(n, "*") { // a name with * would be a pattern at the broker, and keep away other names, too
			v.except = c.addTypes(v.except, n)
		}
	}
	slices.Sort(v.except)
	if w.connected && v.same(&w.serving) {
		return
	}
	w.serving, w.connected = v, true
	c.tellBroker(func(b brokerLink) { b.setServing(w.ID, v) })
}

func (v *serving) same(o *serving) bool {
	if v.prefetch == 0 && o.prefetch == 0 {
		return true
	}
	return v.prefetch == o.prefetch && slices.Equal(v.types, o.types) && slices.Equal(v.except, o.except)
}

// serveAll calls updateServing for all workers.
func (c *machine) serveAll() {
	for _, w := range c.workersByAge() {
		c.updateServing(w)
	}
	c.restoreRuns()
}

// workersByAge returns all workers, the oldest first.
func (c *machine) workersByAge() []*worker {
	workers := make([]*worker, 0, len(c.workers))
	for _, w := range c.workers {
		workers = append(workers, w)
	}
	slices.SortFunc(workers, func(a, b *worker) int { return cmp.Or(cmp.Compare(a.Since, b.Since), slices.Compare(a.ID[:], b.ID[:])) })
	return workers
}

// silentAfter is how long a worker that pulls may be silent before it is forgotten to make room for
// another.
const silentAfter = 10 * time.Minute

// dropSilent forgets the pulling worker that has been silent longest. Only silence shows that a
// worker without heartbeats is gone; if the worker is alive after all, it registers again.
func (c *machine) dropSilent() {
	var silent *worker
	for _, w := range c.workers {
		if w.Pulls() && len(w.runs) == 0 && !w.hasOpenRequest() && c.now-w.lastSeen >= toMillis(silentAfter) && (silent == nil || w.lastSeen < silent.lastSeen) {
			silent = w
		}
	}
	if silent != nil {
		c.removeWorker(silent)
	}
}

// register adds a worker. It sets the worker's ID and Since, and its Names if it has none.
func (c *machine) register(as job.Worker, reply func(*job.Worker, error)) {
	fail := func(err error) { c.runAfterStep(func() { reply(nil, err) }) }
	if len(c.workers) >= c.MaxWorkers && c.awayErr == nil {
		c.dropSilent()
	}
	switch {
	case c.draining:
		fail(errDraining)
		return
	case c.awayErr != nil:
		fail(c.storeAway())
		return
	case len(c.workers) >= c.MaxWorkers:
		fail(overloaded("%d workers are registered, and no more are allowed (max-workers)", len(c.workers)))
		return
	}
	as.ID, as.Since = c.newID(), c.wallTime
	w := &worker{Worker: as, lastSeen: c.now, runs: make(map[*record]struct{})}
	if len(w.Names) == 0 {
		w.Names = []string{"*"}
	}
	c.workers[w.ID] = w // counts towards MaxWorkers from now on
	stored := w.Worker
	c.runAfterStep(func() {
		c.env.store.PutWorker(&stored, func(err error) {
			if err != nil {
				c.env.fail(err)
				reply(nil, errStarting)
				return
			}
			c.env.run(func() {
				w.lastSeen = c.now
				c.updateServing(w)
			})
			reply(&stored, nil)
		})
	})
}

// findWorker returns the worker that sent a request; the request counts as a sign of life. A worker
// that is leaving is returned only if leaving is set.
func (c *machine) findWorker(from job.Caller, leaving bool) (*worker, error) {
	w := c.workers[from.ID]
	if w == nil || w.removed || w.Leaving && !leaving || !w.Owner.Equal(&from.Owner) {
		return nil, job.Refuse(job.UnknownWorker, "", "there is no worker %v with this token: it has unregistered, was lost, or registered with another token; it can register again", from.ID)
	}
	w.lastSeen = c.now
	return w, nil
}

// removeWorker unregisters a worker: it gets no more jobs, but its runs may still be answered.
func (c *machine) removeWorker(w *worker) {
	w.Leaving = true
	c.updateServing(w)
	c.closePulls(w)
	if len(w.runs) > 0 {
		stored := w.Worker
		c.tellStore(func(done func(error)) { c.env.store.PutWorker(&stored, done) })
	}
	c.dismiss(w)
}

// dismiss forgets a worker that is leaving or gone once its last run has ended.
func (c *machine) dismiss(w *worker) {
	if !w.Leaving && !w.removed || len(w.runs) > 0 || c.workers[w.ID] != w {
		return
	}
	w.removed = true
	delete(c.workers, w.ID)
	c.tellBroker(func(b brokerLink) { b.removeWorker(w.ID) })
	c.tellStore(func(done func(error)) { c.env.store.DropWorker(w.ID, done) })
}

// tellStore sends the store a transition. Nobody waits for its outcome.
func (c *machine) tellStore(send func(done func(error))) {
	c.runAfterStep(func() {
		send(func(err error) {
			if err != nil {
				c.env.run(func() { c.env.fail(err) })
			}
		})
	})
}

// jobsByAge returns the jobs that the worker runs, the oldest first.
func (w *worker) jobsByAge() []*record {
	return slices.SortedFunc(maps.Keys(w.runs), func(a, b *record) int { return cmp.Compare(a.Seq, b.Seq) })
}

// endLostRuns ends the runs of a worker that counts as lost.
func (c *machine) endLostRuns(w *worker) {
	w.removed = true
	c.updateServing(w)
	c.closePulls(w)
	for _, r := range w.jobsByAge() {
		c.lostRun(r)
	}
	c.dismiss(w)
}

func (c *machine) lostRun(r *record) {
	c.whenIdle(r, r.runInfo.run, func() {
		c.ledger.LostRuns++
		c.end(r, &job.Outcome{Reason: job.Other, Retry: true, Message: "worker lost", Lost: true}, false)
	})
}

// excludeName keeps jobs with a name away from a worker that did not know the name: at the broker
// or, if the name looks like a pattern, in onHandout.
func (c *machine) excludeName(w *worker, name string) {
	if w.exceptUntil == nil {
		w.exceptUntil = make(map[string]int64)
	}
	if len(w.exceptUntil) >= job.MaxWorkerNames {
		c.setPause(w, firstPause, "there are too many names that it does not know")
		return
	}
	w.exceptUntil[name] = c.now + toMillis(refusedNameFor)
	c.updateServing(w)
}

// setPause makes a worker get no jobs for a while.
func (c *machine) setPause(w *worker, d time.Duration, why string) {
	w.pausedUntil, w.pauseReason = max(w.pausedUntil, c.now+toMillis(d)), why
	c.updateServing(w)
}

// markReachable notes that a worker has answered a push.
func (c *machine) markReachable(w *worker) { w.unreachableSince, w.lastPause = 0, 0 }

// markUnreachable notes that a worker could not be reached, or answered with a server error.
func (c *machine) markUnreachable(w *worker, why string) {
	if w.Leaving || w.removed {
		return
	}
	if w.unreachableSince == 0 {
		w.unreachableSince = max(c.now, 1)
	}
	if c.now-w.unreachableSince >= toMillis(dropAfter) {
		c.removeWorker(w)
		return
	}
	if c.now < w.pausedUntil {
		return // another push that was on its way has already caused this pause
	}
	w.lastPause = min(max(2*w.lastPause, firstPause), maxPause)
	c.setPause(w, w.lastPause, why)
}

// heartbeat returns the jobs that the worker should stop because they were cancelled. From its
// first heartbeat on, the worker counts as lost when its requests stop, even if it registered
// without heartbeats.
func (c *machine) heartbeat(w *worker) []job.ID {
	if !w.Heartbeat {
		w.Heartbeat = true
		stored := w.Worker
		c.tellStore(func(done func(error)) { c.env.store.PutWorker(&stored, done) })
	}
	dropExpired(w.cancelUntil, c.now)
	ids := slices.Collect(maps.Keys(w.cancelUntil))
	slices.SortFunc(ids, func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// dropExpired deletes the entries whose time has passed.
func dropExpired[K comparable](until map[K]int64, now int64) {
	maps.DeleteFunc(until, func(_ K, t int64) bool { return now >= t })
}

// checkPeriodic does the periodic work for workers, idempotency keys and ended jobs.
func (c *machine) checkPeriodic() {
	c.forgetKeys()
	if c.awayErr == nil {
		c.expire()
	}
	for _, w := range c.workersByAge() {
		if w.Heartbeat && !w.removed && !w.Leaving && c.awayErr == nil && c.now >= c.deadlinesFrom && c.now-w.lastSeen > missedHeartbeats*toMillis(c.Heartbeat) && !w.hasOpenRequest() {
			c.endLostRuns(w)
			continue
		}
		dropExpired(w.exceptUntil, c.now)
		dropExpired(w.cancelUntil, c.now)
		if w.pausedUntil != 0 && c.now >= w.pausedUntil {
			w.pausedUntil, w.pauseReason = 0, ""
		}
		c.updateServing(w)
	}
	c.restoreRuns()
}
