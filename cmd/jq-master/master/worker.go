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
	removed            bool  // the worker gets no more jobs, and requests with its id are refused
	runs               map[*record]struct{}
	pausedUntil        int64
	pauseReason        string           // the reason for the pause
	unreachableSince   int64            // when the worker became unreachable; 0: it is reachable
	lastPause          time.Duration    // the length of the last pause that the worker got because it was unreachable
	excludedUntil      map[string]int64 // for names that it does not know: until when it gets no jobs with the name
	cancelUntil        map[job.ID]int64 // jobs that were cancelled while it ran them, and until when heartbeats return them
	pullRequests       []*pullRequest
	hasResubmittedRuns bool // some of its runs were submitted to a new broker, to be handed to it again
	serving            serving
	connected          bool
}

// available reports whether the worker may get jobs at the moment, apart from its own limits.
func (w *worker) available(m *machine) bool {
	return !w.removed && !w.Leaving && m.awayErr == nil && !m.draining && m.workersMayGetJobs
}

// hasOpenRequest reports whether the worker waits for a reply. Such a worker is not silent.
func (w *worker) hasOpenRequest() bool {
	if len(w.pullRequests) > 0 {
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
func (w *worker) mayTake(m *machine) bool {
	if !w.available(m) {
		return false
	}
	if w.Pulls() {
		return w.demand() > 0
	}
	return m.now >= w.pausedUntil
}

// needsOwnWorker reports whether only the master's own workers may run a job. This is so if no Gloom
// workers may join, or if the job already runs, must not run before the attempt is written, or has an
// argument too large for a frame of the broker.
func (m *machine) needsOwnWorker(r *record) bool {
	return m.singleRunPrefix == m.prefix || r.State == job.Running || r.tooLong || r.MaxRetry == 0
}

// typeOf returns the type of a waiting job at the broker.
func (m *machine) typeOf(r *record) string {
	if r.MaxRetry == 0 || r.tooLong {
		return m.singleRunPrefix + r.Name
	}
	return m.prefix + r.Name
}

// addTypes appends to names the types under which the broker has the jobs with this name.
func (m *machine) addTypes(names []string, name string) []string {
	if m.singleRunPrefix != m.prefix {
		names = append(names, m.singleRunPrefix+name)
	}
	return append(names, m.prefix+name)
}

// heldRunsType returns the type under which the broker has the jobs that the worker already runs.
func (m *machine) heldRunsType(w *worker) string { return m.heldRunsPrefix() + w.ID.String() }

// heldRunsPrefix is what the types of heldRunsType begin with.
func (m *machine) heldRunsPrefix() string { return strings.TrimSuffix(m.prefix, ".") + "~" }

// updateServing tells the broker the types and the prefetch of a worker, if they have changed.
func (m *machine) updateServing(w *worker) {
	if w.removed && len(w.runs) == 0 {
		return
	}
	next := serving{}
	if w.mayTake(m) {
		next.prefetch = w.MaxJobs
		if w.Pulls() {
			next.prefetch = min(w.MaxJobs, len(w.runs)+w.demand())
		}
	}
	onlyOwnRuns := next.prefetch == 0 && w.hasResubmittedRuns && !w.removed && m.runsRestored
	for _, n := range w.Names {
		next.types = m.addTypes(next.types, n)
	}
	if onlyOwnRuns { // the worker gets only what it already runs
		next.types, next.prefetch = nil, max(w.MaxJobs, len(w.runs))
	}
	if w.hasResubmittedRuns {
		next.types = append(next.types, m.heldRunsType(w))
	}
	for n := range w.excludedUntil {
		if !strings.Contains(n, "*") { // a name with * would be a pattern at the broker, and would keep away other names, too
			next.exceptTypes = m.addTypes(next.exceptTypes, n)
		}
	}
	slices.Sort(next.exceptTypes)
	if w.connected && next.equal(&w.serving) {
		return
	}
	w.serving, w.connected = next, true
	m.tellBroker(func(b brokerLink) { b.setServing(w.ID, next) })
}

func (v *serving) equal(o *serving) bool {
	if v.prefetch == 0 && o.prefetch == 0 {
		return true
	}
	return v.prefetch == o.prefetch && slices.Equal(v.types, o.types) && slices.Equal(v.exceptTypes, o.exceptTypes)
}

// serveAll tells the broker what every worker serves, and restores their runs.
func (m *machine) serveAll() {
	for _, w := range m.workersByAge() {
		m.updateServing(w)
	}
	m.restoreRuns()
}

// workersByAge returns all workers by their ids, which begin with the time of registration.
func (m *machine) workersByAge() []*worker {
	return slices.SortedFunc(maps.Values(m.workers), func(a, b *worker) int { return slices.Compare(a.ID[:], b.ID[:]) })
}

// A worker that pulls must have been silent for silentAfter before it may be forgotten to make room
// for another worker.
const silentAfter = 10 * time.Minute

// dropSilent forgets the pulling worker that has been silent longest. Only silence shows that a
// worker without heartbeats is gone; if the worker is alive after all, it registers again.
func (m *machine) dropSilent() {
	var oldest *worker
	for _, w := range m.workers {
		if w.Pulls() && len(w.runs) == 0 && !w.hasOpenRequest() && m.now-w.lastSeen >= toMillis(silentAfter) && (oldest == nil || w.lastSeen < oldest.lastSeen) {
			oldest = w
		}
	}
	if oldest != nil {
		m.removeWorker(oldest)
	}
}

// register adds a worker. It sets the worker's ID and Since, and its Names if it has none.
func (m *machine) register(registration job.Worker, reply func(*job.Worker, error)) {
	w := &worker{Worker: registration, lastSeen: m.now, runs: make(map[*record]struct{})}
	if len(w.Names) == 0 {
		w.Names = []string{"*"}
	}
	replaced := m.predecessors(w)
	room := m.MaxWorkers + min(len(replaced), 1) // w gets the place of one
	if len(m.workers) >= room && m.awayErr == nil {
		m.dropSilent()
	}
	switch {
	case m.draining:
		reply(nil, errDraining)
		return
	case m.awayErr != nil:
		reply(nil, m.storeAway())
		return
	case len(m.workers) >= room:
		reply(nil, overloaded("%d workers are registered, and no more are allowed (max-workers)", len(m.workers)))
		return
	}
	w.ID, w.Since = m.newID(), m.wallTime
	m.workers[w.ID] = w // counts towards MaxWorkers from now on
	stored := w.Worker
	m.runAfterStep(func() {
		m.env.store.PutWorker(w.ID, &stored, func(err error) {
			if err != nil {
				m.env.fail(err)
				reply(nil, errStarting)
				return
			}
			m.env.run(func() {
				w.lastSeen = m.now
				for _, old := range replaced {
					if !old.Leaving && !old.removed {
						old.Replaced = true
						m.removeWorker(old)
					}
				}
				m.updateServing(w)
			})
			reply(&stored, nil)
		})
	})
}

// predecessors returns the workers that w, which now registers, replaces: its process was started again,
// or had no reply when it registered. Jobs that are pushed to their URL would reach w, which cannot
// report them.
func (m *machine) predecessors(w *worker) (list []*worker) {
	if w.Pulls() {
		return nil
	}
	served := make(map[string]bool, len(w.Names))
	for _, n := range w.Names {
		served[n] = true
	}
	for _, old := range m.workersByAge() {
		sharesName := served["*"] || slices.ContainsFunc(old.Names, func(n string) bool { return n == "*" || served[n] })
		if old.URL == w.URL && old.IsOwnedBy(w.Owner) && sharesName && !old.Leaving && !old.removed {
			list = append(list, old)
		}
	}
	return list
}

// findWorker returns the worker that sent a request; the request counts as a sign of life. A worker
// that is leaving is returned only if leaving is set.
func (m *machine) findWorker(from job.Caller, leaving bool) (*worker, error) {
	w := m.workers[from.ID]
	known := w != nil && !w.removed && w.IsOwnedBy(from.Owner)
	if known {
		w.lastSeen = m.now // also if it is leaving: its runs go on
	}
	if !known || w.Leaving && !leaving {
		return nil, job.Refuse(job.UnknownWorker, "", "there is no worker %v with this token: it has unregistered, was lost, or registered with another token; it can register again", from.ID)
	}
	return w, nil
}

// removeWorker unregisters a worker: it gets no more jobs, but its runs may still be answered.
func (m *machine) removeWorker(w *worker) {
	w.Leaving = true
	m.updateServing(w)
	m.wakePulls(w)
	if len(w.runs) > 0 {
		stored := w.Worker
		m.tellStore(func(done func(error)) { m.env.store.PutWorker(w.ID, &stored, done) }, nil)
	}
	m.dismiss(w)
}

// dismiss forgets a worker that is leaving or gone once its last run has ended.
func (m *machine) dismiss(w *worker) {
	if !w.Leaving && !w.removed || len(w.runs) > 0 || m.workers[w.ID] != w {
		return
	}
	w.removed = true
	delete(m.workers, w.ID)
	m.tellBroker(func(b brokerLink) { b.removeWorker(w.ID) })
	m.tellStore(func(done func(error)) { m.env.store.PutWorker(w.ID, nil, done) }, nil)
}

// tellStore sends the store a transition, and calls onDone, unless it is nil, when it is stored.
func (m *machine) tellStore(send func(done func(error)), onDone func()) {
	m.runAfterStep(func() {
		send(func(err error) {
			if err != nil {
				m.env.run(func() { m.env.fail(err) })
			} else if onDone != nil {
				m.env.run(onDone)
			}
		})
	})
}

// jobsByAge returns the jobs that the worker runs, the oldest first.
func (w *worker) jobsByAge() []*record {
	return slices.SortedFunc(maps.Keys(w.runs), func(a, b *record) int { return cmp.Compare(a.Seq, b.Seq) })
}

// endLostRuns ends the runs of a worker that counts as lost.
func (m *machine) endLostRuns(w *worker) {
	w.removed = true
	m.updateServing(w)
	m.wakePulls(w)
	for _, r := range w.jobsByAge() {
		m.endLostRun(r)
	}
	m.dismiss(w)
}

func (m *machine) endLostRun(r *record) {
	m.whenIdle(r, r.runInfo.run, func() {
		m.ledger.LostRuns++
		m.end(r, &job.Outcome{Reason: job.Other, Retry: true, Message: "worker lost", Lost: true}, false)
	})
}

// excludeName keeps jobs with a name away from a worker that did not know the name: at the broker
// or, if the name looks like a pattern, in onHandout.
func (m *machine) excludeName(w *worker, name string) {
	if w.excludedUntil == nil {
		w.excludedUntil = make(map[string]int64)
	}
	if len(w.excludedUntil) >= job.MaxWorkerNames {
		m.setPause(w, firstPause, "there are too many names that it does not know")
		return
	}
	w.excludedUntil[name] = m.now + toMillis(refusedNameFor)
	m.updateServing(w)
}

// setPause makes a worker get no jobs for a while.
func (m *machine) setPause(w *worker, d time.Duration, reason string) {
	w.pausedUntil, w.pauseReason = max(w.pausedUntil, m.now+toMillis(d)), reason
	m.updateServing(w)
}

// markReachable notes that a worker has answered a push.
func (m *machine) markReachable(w *worker) { w.unreachableSince, w.lastPause = 0, 0 }

// markUnreachable notes that a worker could not be reached, or answered with a server error.
func (m *machine) markUnreachable(w *worker, reason string) {
	if w.Leaving || w.removed {
		return
	}
	if w.unreachableSince == 0 {
		w.unreachableSince = max(m.now, 1)
	}
	if m.now-w.unreachableSince >= toMillis(dropAfter) {
		m.removeWorker(w)
		return
	}
	if m.now < w.pausedUntil {
		return // another push that was on its way has already caused this pause
	}
	w.lastPause = min(max(2*w.lastPause, firstPause), maxPause)
	m.setPause(w, w.lastPause, reason)
}

// heartbeat returns the jobs that the worker should stop because they were cancelled. After its
// first heartbeat, the worker counts as lost when its requests stop, even if it registered without
// heartbeats.
func (m *machine) heartbeat(w *worker) []job.ID {
	if !w.Heartbeat {
		w.Heartbeat = true
		stored := w.Worker
		m.tellStore(func(done func(error)) { m.env.store.PutWorker(w.ID, &stored, done) }, nil)
	}
	dropExpired(w.cancelUntil, m.now)
	ids := slices.Collect(maps.Keys(w.cancelUntil))
	slices.SortFunc(ids, func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// stopRun makes heartbeats tell the worker to stop its run of a job, until the given time.
func (w *worker) stopRun(id job.ID, until int64) {
	if w.cancelUntil == nil {
		w.cancelUntil = make(map[job.ID]int64)
	}
	w.cancelUntil[id] = until
}

// dropExpired deletes the entries whose time has passed.
func dropExpired[K comparable](until map[K]int64, now int64) {
	maps.DeleteFunc(until, func(_ K, t int64) bool { return now >= t })
}

// checkPeriodic does the periodic work for workers, idempotency keys and ended jobs.
func (m *machine) checkPeriodic() {
	m.forgetKeys()
	if m.awayErr == nil {
		m.expire()
	}
	for _, w := range m.workersByAge() {
		if w.Heartbeat && !w.removed && (!w.Leaving || w.Replaced) && m.awayErr == nil && m.now >= m.deadlinesFrom && m.now-w.lastSeen > missedHeartbeats*toMillis(m.Heartbeat) && !w.hasOpenRequest() {
			m.endLostRuns(w)
			continue
		}
		if m.awayErr == nil {
			m.dismiss(w) // if the last master ended before it did this
		}
		dropExpired(w.excludedUntil, m.now)
		dropExpired(w.cancelUntil, m.now)
		if w.pausedUntil != 0 && m.now >= w.pausedUntil {
			w.pausedUntil, w.pauseReason = 0, ""
		}
		m.updateServing(w)
	}
	m.restoreRuns()
}
