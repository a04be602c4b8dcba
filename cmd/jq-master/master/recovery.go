package master

import (
	"cmp"
	"fmt"
	"slices"

	"gloom/cmd/jq-master/job"
)

// load adds a stored job to the machine. The broker does not know the job yet.
func (m *machine) load(j *job.Job, forgetAt, dropAt int64) {
	m.correctTimes(j)
	r := m.newRecord(j)
	m.restoreKey(r)
	if !j.State.Ended() {
		m.constraints.add(r, m.constraints.setFor(matchAll(m.constraints.enabled, &j.Attributes, nil)))
	}
	m.ledger.Enqueued++
	switch j.State {
	case job.Running:
		w := m.workers[j.Worker]
		if w == nil { // its worker is no longer registered; the run will time out
			w = &worker{Worker: job.Worker{ID: j.Worker, MaxJobs: 1, Names: []string{"*"}, Leaving: true}, lastSeen: m.now, runs: make(map[*record]struct{})}
			m.workers[j.Worker] = w
		}
		run := &run{worker: w, stateBefore: job.Queued, delivered: true, deadline: m.now + missedHeartbeats*toMillis(m.Heartbeat)}
		maxRunTime := toMillis(j.Timeout.Duration() + m.TimeoutGrace) // no run may last longer, even if a clock was set
		run.deadline = max(run.deadline, min(m.monoAt(j.Deadline), m.now+maxRunTime))
		if j.Retries > 0 {
			run.stateBefore = job.Retrying
		}
		r.ensureRunInfo().run = run
		w.runs[r] = struct{}{}
		m.timers.set(r, run.deadline)
	case job.Done:
		m.ledger.Done++
	case job.Failed:
		m.ledger.Failed++
	case job.Cancelled:
		m.ledger.Cancelled++
	}
	if j.State.Ended() {
		if forgetAt = min(forgetAt, m.wallTime+toMillis(m.KeepEnded)); dropAt != 0 {
			dropAt = m.wallTime + toMillis(m.ResultTTL)
		}
		m.addEnded(r, max(forgetAt, dropAt), dropAt)
	}
	m.restoreCancelledRun(j)
}

// restoreCancelledRun lets heartbeats tell a worker again that its run of a job, the last that has
// ended, was cancelled.
func (m *machine) restoreCancelledRun(j *job.Job) {
	if len(j.Attempts) == 0 {
		return
	}
	a := &j.Attempts[len(j.Attempts)-1]
	w := m.workers[a.Worker]
	if w == nil || !a.Cancelled || j.State == job.Running && j.Worker == a.Worker {
		return
	}
	maxRunTime := toMillis(j.Timeout.Duration() + m.TimeoutGrace)
	if until := min(m.monoAt(a.Started), m.now) + maxRunTime; until > m.now {
		w.stopRun(j.ID, until)
	}
}

// correctTimes corrects the times of a job that was stored while the store's clock was ahead. From
// now on the job waits, and holds its key, at most for the time that was set when it was enqueued or
// last failed.
func (m *machine) correctTimes(j *job.Job) {
	u, n, setAt := j.Unique, len(j.Attempts), j.Enqueued
	if u == nil && j.State == job.Retrying && n > 0 {
		setAt = j.Attempts[n-1].Finished
	}
	j.Due = min(j.Due, m.wallTime+max(0, j.Due-setAt))
	if u != nil && u.Until > j.Enqueued {
		u.Until = min(u.Until, m.wallTime+u.Until-j.Enqueued)
	}
}

// loadKey adds a stored idempotency key.
func (m *machine) loadKey(until int64, size int) {
	m.keys = append(m.keys, keyEntry{until, int64(size)})
	m.keyBytes += int64(size)
}

// loadWorker adds a stored worker.
func (m *machine) loadWorker(s *job.Worker) {
	m.workers[s.ID] = &worker{Worker: *s, lastSeen: m.now, runs: make(map[*record]struct{})}
}

// finishLoad is called when everything stored has been read.
func (m *machine) finishLoad() {
	slices.SortFunc(m.bySeq, func(a, b seqEntry) int { return cmp.Compare(a.seq, b.seq) })
	m.loading = false
	m.afterStep = nil // nobody waits for a reply yet
	m.forgetSubmissions()
	m.finishReplacing()
}

// forgetSubmissions is called when the connection to the broker is lost or new. The broker may have
// no jobs, so submitSlice then submits all of them. It may also be another broker, or have been
// restarted with longer frames.
func (m *machine) forgetSubmissions() {
	m.workersMayGetJobs, m.runsRestored, m.allSubmitted, m.runsExpected, m.submitIndex, m.relinkStart, m.pendingResubmits = false, false, false, 0, 0, m.wallTime, nil
	for _, p := range m.bySeq {
		if r := p.rec; r != nil {
			r.submitted, r.tooLong = false, false
			if run := r.currentRun(); run != nil {
				run.brokerJob = nil
			}
		}
	}
	for _, w := range m.workers {
		w.connected, w.hasResubmittedRuns = false, false
	}
	for _, k := range m.constraints.byID {
		m.emptyBuckets(k)
	}
}

// submitSlice submits some of the jobs to the broker, first the running ones and then the oldest, and
// reports whether more remain. Workers get no jobs until the broker has all of them. Without the
// lease submitSlice submits nothing, because it would overwrite rules of the master that has taken
// over.
func (m *machine) submitSlice(budget int) (more bool) {
	if m.allSubmitted || !m.env.store.HoldsLease() {
		return false
	}
	if m.submitIndex == 0 {
		for _, k := range m.constraints.enabled {
			m.sendRules(k)
		}
		for _, w := range m.workersByAge() { // running jobs come before the waiting ones: a full or stopping broker may not take all of them
			for _, r := range w.jobsByAge() {
				if !w.removed && r.runInfo.run.brokerJob == nil && !r.submitted {
					w.hasResubmittedRuns = true
					m.submit(r, 0)
				}
			}
		}
	}
	for ; budget > 0 && m.submitIndex < len(m.bySeq); budget-- {
		r := m.bySeq[m.submitIndex].rec
		m.submitIndex++
		if r != nil && !r.submitted && r.State.Waits() {
			m.submit(r, toBrokerDuration(m.relinkStart-r.Enqueued))
		}
	}
	if m.submitIndex < len(m.bySeq) {
		return true
	}
	m.allSubmitted = true
	// The broker must have all jobs and rules before the first worker joins.
	m.tellBroker(func(b brokerLink) {
		b.flush(func(reached bool) {
			m.env.run(func() {
				m.runsRestored = reached && m.env.broker == b
				m.serveAll()
				m.restoreRuns()
			})
		})
	})
	return false
}

// restoreRuns lets workers get waiting jobs once the broker has handed out all running jobs again.
// Until then the running jobs do not count in their groups. It does not wait long for a run that
// the broker refuses, or that a full group holds back.
func (m *machine) restoreRuns() {
	if !m.runsRestored || m.workersMayGetJobs {
		return
	}
	left := 0
	for _, w := range m.workers {
		for r := range w.runs {
			if run := r.runInfo.run; run.onlyThisWorker && run.brokerJob == nil {
				left++
			}
		}
	}
	if left != m.runsExpected {
		m.runsExpected, m.runsExpectedSince = left, m.now
	}
	if left == 0 || m.now-m.runsExpectedSince >= 2*toMillis(resubmitPause) {
		m.workersMayGetJobs = true
		m.serveAll()
	}
}

// drain stops accepting jobs and handing them out.
func (m *machine) drain() {
	m.draining = true
	m.serveAll()
	for _, w := range m.workers {
		m.wakePulls(w)
	}
	for _, p := range m.bySeq {
		if r := p.rec; r != nil && r.runInfo != nil && len(r.runInfo.pollers) > 0 {
			for _, p := range r.runInfo.pollers {
				p.reply(nil, errDraining)
			}
			m.waiters -= len(r.runInfo.pollers)
			r.runInfo.pollers = nil
		}
	}
}

// onStoreChange is called with the reason when the store has gone away, and with nil when it is
// back.
func (m *machine) onStoreChange(awayErr error) {
	if m.awayErr != nil && awayErr == nil {
		m.deadlinesFrom = max(m.deadlinesFrom, m.now+toMillis(m.StoreWait)) // reports that workers have sent meanwhile are then read first
	}
	m.awayErr = awayErr
	if awayErr != nil { // requests do not wait for jobs whose start cannot be written now
		for _, w := range m.workers {
			for _, p := range w.pullRequests {
				p.wakeIfComplete(m)
			}
		}
	}
	m.serveAll()
}

// onNotAtBroker is called if the broker has refused a job, or has ended it without the master.
func (m *machine) onNotAtBroker(id job.ID, number uint32) {
	if r := m.bySubmission(id, number); r != nil {
		m.submitLater(r, nil)
	}
}

// onRetriesUsedUp is called if the broker makes no more retries of a job, because one of the master's
// workers failed the last run. retried is how often the job had been retried before this run: the
// master has not seen the runs that Gloom workers failed.
func (m *machine) onRetriesUsedUp(id job.ID, number uint32, retried int32) {
	r := m.bySubmission(id, number)
	switch {
	case r == nil:
	case r.op != opNone:
		r.addOnIdle(func() { m.onRetriesUsedUp(id, number, retried) })
	case r.State != job.Retrying:
		m.submitLater(r, nil)
	case r.Retries > retried:
		m.submitWaiting(r)
	case retried < r.MaxRetry:
		r.submitted = false
		j := r.nextState()
		j.Retries = retried + 1
		j.Due = m.wallTime + toMillis(m.backoff(j.Retries))
		m.write(opPostpone, r, j, 0, 0, func() { m.submitWaiting(r) })
	default: // its runs were more than it knew, and that was the last
		r.submitted = false
		j := r.nextState()
		j.State, j.Retries = job.Failed, retried
		forgetAt := m.wallTime + toMillis(m.KeepEnded)
		m.write(opEnd, r, j, forgetAt, 0, func() {
			m.addEnded(r, forgetAt, 0)
			m.ledger.Failed++
			m.expire()
		})
	}
}

// bySubmission returns the job of a submission, or nil if that is not the job's current submission.
func (m *machine) bySubmission(id job.ID, number uint32) *record {
	if r := m.jobs.Get(id); r != nil && r.submitted && r.submission == number {
		return r
	}
	return nil
}

// submitLater is called when the broker does not have a job. outcome says how a Gloom worker has
// ended the job; it is nil if no worker has. A running job is submitted when its run is over.
func (m *machine) submitLater(r *record, outcome *job.Outcome) {
	r.submitted = false
	m.pendingResubmits = append(m.pendingResubmits, pendingResubmit{id: r.ID, resubmitAt: m.now + toMillis(resubmitPause), outcome: outcome, number: r.submission})
}

// onTooLong is called when a job's argument does not fit into a frame of the broker.
func (m *machine) onTooLong(id job.ID) {
	r := m.jobs.Get(id)
	if r == nil || !r.submitted {
		return
	}
	r.tooLong, r.submitted = true, false
	if r.State.Waits() {
		m.submitWaiting(r)
	}
}

// onChangeRefused is called when the broker has refused to change a job's groups or, if ofDelay is
// set, its delay, because the job is just being handed out or given back.
func (m *machine) onChangeRefused(id job.ID, ofDelay bool) {
	if r := m.jobs.Get(id); r != nil && r.submitted && r.State.Waits() {
		m.pendingResubmits = append(m.pendingResubmits, pendingResubmit{id: id, resubmitAt: m.now + toMillis(resubmitPause), onlyDelay: ofDelay})
	} else if r != nil && !ofDelay {
		r.stale = true
	}
}

// sendDelay tells the broker how long a waiting job still waits.
func (m *machine) sendDelay(r *record) {
	if r.submitted {
		id, delay := r.ID, m.remainingWait(r)
		m.tellBroker(func(b brokerLink) { b.change(id, nil, nil, &delay) })
	}
}

// pendingResubmit is a job that is to be submitted again, or whose groups or delay are to be sent
// again.
type pendingResubmit struct {
	id         job.ID
	resubmitAt int64
	outcome    *job.Outcome // if not nil, the job ends in this way, unless one of the master's workers had it
	number     uint32       // number of the submission; the entry is void if the job has a later one
	onlyDelay  bool         // the delay is to be sent again, and not the groups
}

func (m *machine) resubmitPending() {
	m.pendingResubmits = slices.DeleteFunc(m.pendingResubmits, func(p pendingResubmit) bool {
		if m.now < p.resubmitAt {
			return false
		}
		r := m.jobs.Get(p.id)
		switch {
		case r == nil || r.State.Ended():
		case p.onlyDelay && r.State.Waits():
			m.sendDelay(r)
		case p.onlyDelay: // it runs; the end of the run sets another delay
		case r.submitted && r.State.Waits():
			m.regroup(r)
		case r.submitted:
			r.stale = true
		case p.outcome != nil && r.op != opNone:
			return false
		case p.outcome != nil && r.State.Waits() && !r.handedOut && r.submission == p.number:
			m.recordAttempt(r, p.outcome)
		case r.State.Waits() || r.runInfo.run.brokerJob == nil:
			m.submitWaiting(r)
		}
		return true
	})
}

// onBrokerAnswer is called when a Gloom worker has ended a job, or was lost with it. If a run was
// lost, or failed while the master stood still, it may have been at one of the master's own
// workers, and its hand-out may not have been read yet. Then the run does not count. Only a Gloom
// worker asks for no retry.
func (m *machine) onBrokerAnswer(id job.ID, number uint32, o *job.Outcome, lost bool) {
	r := m.bySubmission(id, number)
	switch {
	case r == nil || r.State.Ended(): // the master itself has ended the job
	case m.needsOwnWorker(r):
		// The job still runs, or a Gloom worker for all types had the job without its argument.
		m.submitLater(r, nil)
	case r.op != opNone:
		r.addOnIdle(func() { m.onBrokerAnswer(id, number, o, lost) })
	case o.Retry && (lost || m.now < m.deadlinesFrom):
		m.submitLater(r, o)
	default:
		r.submitted = false
		m.recordAttempt(r, o)
	}
}

// recordAttempt writes an attempt of a Gloom worker, and then how it has ended.
func (m *machine) recordAttempt(r *record, o *job.Outcome) {
	if m.gloomWorker == nil {
		m.gloomWorker = &worker{Worker: job.Worker{Name: "socket", Leaving: true}, runs: make(map[*record]struct{}), removed: true}
	}
	j := r.nextState()
	j.State, j.Worker, j.Started, j.Finished = job.Running, job.ID{}, m.wallTime, 0
	j.Attempt++
	j.Retries = max(j.Retries, o.Retried)
	j.Deadline = m.wallTime + toMillis(m.TimeoutGrace)
	run := &run{worker: m.gloomWorker, stateBefore: r.State, deadline: never, delivered: true}
	r.ensureRunInfo().run = run
	m.write(opStart, r, j, 0, 0, func() {
		if m.checkResultRoom(r, o) != nil { // unlike other workers, a Gloom worker cannot report again
			o = &job.Outcome{Reason: job.Other, Retry: true, Message: fmt.Sprintf("there is no room for its result of %d bytes (max-bytes)", len(o.Result))}
		}
		m.end(r, o, true)
	})
	m.replaceJob(r, j)
	m.ledger.HandedOut++
}
