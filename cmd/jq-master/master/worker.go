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
	seen     int64 // last request, monotonic
	gone     bool  // it gets no more jobs, and requests with its id are refused
	runs     map[*record]struct{}
	pausedTo int64
	why      string           // the reason for the pause
	failing  int64            // when the worker became unreachable; 0: it is reachable
	pause    time.Duration    // the length of the last pause that was made because the worker was unreachable
	excepts  map[string]int64 // for names that it does not know: until when it gets no jobs with the name
	cancels  map[job.ID]int64 // jobs that were cancelled while it ran them, and until when heartbeats return them
	pullers  []*puller
	orphans  bool // some of its runs were submitted to a new broker, to be handed to it again
	told     serving
	joined   bool
}

// available reports whether the worker may get jobs at the moment, apart from its own limits.
func (w *worker) available(c *machine) bool {
	return !w.gone && !w.Leaving && c.away == nil && !c.draining && c.linked
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
	return c.now >= w.pausedTo
}

// ownWorkersOnly reports whether only the master's own workers may run a job: because it already
// runs, must not run before the attempt is written, or has an argument that does not fit into a
// frame of the broker.
func (c *machine) ownWorkersOnly(r *record) bool {
	return r.State == job.Running || r.long || r.MaxRetry == 0 && c.once != c.prefix
}

// typeOf returns the type of a waiting job at the broker.
func (c *machine) typeOf(r *record) string {
	if r.MaxRetry == 0 || r.long {
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
	if w.gone && len(w.runs) == 0 {
		return
	}
	v := serving{prefetch: 0}
	if w.available(c) {
		switch {
		case w.Pulls():
			if n := w.demand(); n > 0 {
				v.prefetch = min(w.MaxJobs, len(w.runs)+n)
			}
		case c.now >= w.pausedTo:
			v.prefetch = w.MaxJobs
		}
	}
	if v.prefetch == 0 && w.orphans && !w.gone && c.settled {
		v.prefetch = -1
	}
	for _, n := range w.Names {
		v.types = c.addTypes(v.types, n)
	}
	if v.prefetch < 0 { // it gets only what it already runs
		v.types, v.prefetch = nil, max(w.MaxJobs, len(w.runs))
	}
	if w.orphans {
		v.types = append(v.types, c.ownType(w))
	}
	for n := range w.excepts {
		if !strings.Contains(n, "*") { // a name with * would be a pattern at the broker, and keep away other names, too
			v.except = c.addTypes(v.except, n)
		}
	}
	slices.Sort(v.except)
	if w.joined && v.same(&w.told) {
		return
	}
	w.told, w.joined = v, true
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
	for _, w := range c.byAge() {
		c.updateServing(w)
	}
	c.link()
}

// byAge returns all workers, the oldest first.
func (c *machine) byAge() []*worker {
	workers := make([]*worker, 0, len(c.workers))
	for _, w := range c.workers {
		workers = append(workers, w)
	}
	slices.SortFunc(workers, func(a, b *worker) int { return cmp.Or(cmp.Compare(a.Since, b.Since), slices.Compare(a.ID[:], b.ID[:])) })
	return workers
}

// silentFor is how long a worker that pulls may be silent before it is forgotten to make room for
// another.
const silentFor = 10 * time.Minute

// dropSilent forgets the pulling worker that has been silent longest. Only silence shows that a
// worker without heartbeats is gone; if the worker is alive after all, it registers again.
func (c *machine) dropSilent() {
	var silent *worker
	for _, w := range c.workers {
		if w.Pulls() && len(w.runs) == 0 && !w.hasOpenRequest() && c.now-w.seen >= ms(silentFor) && (silent == nil || w.seen < silent.seen) {
			silent = w
		}
	}
	if silent != nil {
		c.removeWorker(silent)
	}
}

// register adds a worker. It sets the worker's ID and Since, and its Names if it has none.
func (c *machine) register(as job.Worker, reply func(*job.Worker, error)) {
	fail := func(err error) { c.later(func() { reply(nil, err) }) }
	if len(c.workers) >= c.MaxWorkers && c.away == nil {
		c.dropSilent()
	}
	switch {
	case c.draining:
		fail(errDraining)
		return
	case c.away != nil:
		fail(c.storeAway())
		return
	case len(c.workers) >= c.MaxWorkers:
		fail(overloaded("%d workers are registered, and no more are allowed (max-workers)", len(c.workers)))
		return
	}
	as.ID, as.Since = c.newID(), c.wall
	w := &worker{Worker: as, seen: c.now, runs: make(map[*record]struct{})}
	if len(w.Names) == 0 {
		w.Names = []string{"*"}
	}
	c.workers[w.ID] = w // counts towards MaxWorkers from now on
	stored := w.Worker
	c.later(func() {
		c.env.store.PutWorker(&stored, func(err error) {
			if err != nil {
				c.env.fail(err)
				reply(nil, errStarting)
				return
			}
			c.env.run(func() {
				w.seen = c.now
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
	if w == nil || w.gone || w.Leaving && !leaving || !w.Owner.Is(&from.Owner) {
		return nil, job.Refuse(job.UnknownWorker, "", "there is no worker %v with this token: it has unregistered, was lost, or registered with another token; it can register again", from.ID)
	}
	w.seen = c.now
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
	if !w.Leaving && !w.gone || len(w.runs) > 0 || c.workers[w.ID] != w {
		return
	}
	w.gone = true
	delete(c.workers, w.ID)
	c.tellBroker(func(b brokerLink) { b.removeWorker(w.ID) })
	c.tellStore(func(done func(error)) { c.env.store.DropWorker(w.ID, done) })
}

// tellStore sends the store a transition. Nobody waits for its outcome.
func (c *machine) tellStore(send func(done func(error))) {
	c.later(func() {
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
	w.gone = true
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
	if w.excepts == nil {
		w.excepts = make(map[string]int64)
	}
	if len(w.excepts) >= job.MaxWorkerNames {
		c.setPause(w, firstPause, "there are too many names that it does not know")
		return
	}
	w.excepts[name] = c.now + ms(refusedNameFor)
	c.updateServing(w)
}

// setPause makes a worker get no jobs for a while.
func (c *machine) setPause(w *worker, d time.Duration, why string) {
	w.pausedTo, w.why = max(w.pausedTo, c.now+ms(d)), why
	c.updateServing(w)
}

// markReachable notes that a worker has answered a push.
func (c *machine) markReachable(w *worker) { w.failing, w.pause = 0, 0 }

// markUnreachable notes that a worker could not be reached, or answered with a server error.
func (c *machine) markUnreachable(w *worker, why string) {
	if w.Leaving || w.gone {
		return
	}
	if w.failing == 0 {
		w.failing = max(c.now, 1)
	}
	if c.now-w.failing >= ms(dropAfter) {
		c.removeWorker(w)
		return
	}
	if c.now < w.pausedTo {
		return // another push that was on its way has already caused this pause
	}
	w.pause = min(max(2*w.pause, firstPause), maxPause)
	c.setPause(w, w.pause, why)
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
	lapse(w.cancels, c.now)
	ids := slices.Collect(maps.Keys(w.cancels))
	slices.SortFunc(ids, func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// lapse deletes the entries whose time has passed.
func lapse[K comparable](until map[K]int64, now int64) {
	maps.DeleteFunc(until, func(_ K, t int64) bool { return now >= t })
}

// checkPeriodic does the periodic work for workers, idempotency keys and ended jobs.
func (c *machine) checkPeriodic() {
	c.forgetKeys()
	if c.away == nil {
		c.expire()
	}
	for _, w := range c.byAge() {
		if w.Heartbeat && !w.gone && !w.Leaving && c.away == nil && c.now >= c.deadlinesFrom && c.now-w.seen > missedHeartbeats*ms(c.Heartbeat) && !w.hasOpenRequest() {
			c.endLostRuns(w)
			continue
		}
		lapse(w.excepts, c.now)
		lapse(w.cancels, c.now)
		if w.pausedTo != 0 && c.now >= w.pausedTo {
			w.pausedTo, w.why = 0, ""
		}
		c.updateServing(w)
	}
	c.link()
}
