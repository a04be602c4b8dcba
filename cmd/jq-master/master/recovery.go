package master

import (
	"cmp"
	"slices"

	"gloom/cmd/jq-master/job"
)

// load adds a stored job to the machine. The broker does not know the job yet.
func (c *machine) load(j *job.Job, forget, drop int64) {
	c.correctTimes(j)
	r := c.newRecord(j)
	c.restoreKey(r)
	if !j.State.Ended() {
		c.constraints.add(r, c.constraints.setFor(matchAll(c.constraints.enabled, &j.Attributes, nil)))
	}
	c.ledger.Enqueued++
	switch j.State {
	case job.Running:
		w := c.workers[j.Worker]
		if w == nil { // its worker is no longer registered; the run will time out
			w = &worker{Worker: job.Worker{ID: j.Worker, MaxJobs: 1, Names: []string{"*"}, Leaving: true}, lastSeen: c.now, runs: make(map[*record]struct{})}
			c.workers[j.Worker] = w
		}
		u := &run{worker: w, stateBefore: job.Queued, delivered: true, deadline: c.now + missedHeartbeats*toMillis(c.Heartbeat)}
		whole := toMillis(j.Timeout.Duration() + c.TimeoutGrace) // no run may last longer, even if a clock was set
		u.deadline = max(u.deadline, min(c.monoAt(j.Deadline), c.now+whole))
		if j.Retries > 0 {
			u.stateBefore = job.Retrying
		}
		r.ensureRunInfo().run = u
		w.runs[r] = struct{}{}
		c.timers.set(r, u.deadline)
	case job.Done:
		c.ledger.Done++
	case job.Failed:
		c.ledger.Failed++
	case job.Cancelled:
		c.ledger.Cancelled++
	}
	if j.State.Ended() {
		if forget = min(forget, c.wallTime+toMillis(c.KeepEnded)); drop != 0 {
			drop = c.wallTime + toMillis(c.ResultTTL)
		}
		c.addEnded(r, max(forget, drop), drop)
	}
}

// correctTimes corrects the times of a job that was stored while the store's clock was ahead. From
// now on the job waits, and holds its key, at most for the time that was set when it was enqueued.
func (c *machine) correctTimes(j *job.Job) {
	if j.Due > j.Enqueued {
		j.Due = min(j.Due, c.wallTime+j.Due-j.Enqueued)
	}
	if u := j.Unique; u != nil && u.Until > j.Enqueued {
		u.Until = min(u.Until, c.wallTime+u.Until-j.Enqueued)
	} else if u == nil && j.State == job.Retrying {
		j.Due = min(j.Due, c.wallTime+toMillis(c.BackoffCap))
	}
}

// loadKey adds a stored idempotency key.
func (c *machine) loadKey(until int64, size int) {
	c.keys.push(keyEntry{until, int64(size)})
	c.keyBytes += int64(size)
}

// loadWorker adds a stored worker.
func (c *machine) loadWorker(s *job.Worker) {
	c.workers[s.ID] = &worker{Worker: *s, lastSeen: c.now, runs: make(map[*record]struct{})}
}

// loaded is called when everything stored has been read.
func (c *machine) loaded() {
	slices.SortFunc(c.bySeq, func(a, b seqEntry) int { return cmp.Compare(a.seq, b.seq) })
	c.loading = false
	c.afterStep = nil // nobody waits for a reply yet
	c.forgetSubmissions()
	c.finishReplacing()
}

// forgetSubmissions is called when the connection to the broker is lost or new. The broker may have no jobs,
// so submitSlice then submits all of them.
func (c *machine) forgetSubmissions() {
	c.linked, c.runsRestored, c.allSubmitted, c.runsExpected, c.submitIndex, c.relinkStart, c.rejected = false, false, false, 0, 0, c.wallTime, nil
	for _, p := range c.bySeq {
		if r := p.rec; r != nil {
			r.submitted = false
			if u := r.currentRun(); u != nil {
				u.brokerJob = nil
			}
		}
	}
	for _, w := range c.workers {
		w.connected, w.hasResubmittedRuns = false, false
	}
	for _, k := range c.constraints.byID {
		c.emptyBuckets(k)
	}
}

// submitSlice submits some of the jobs to the broker, first the running ones and then the oldest, and
// reports whether more remain. Workers get no jobs until the broker has all of them. Without the
// lease submitSlice submits nothing, because it would overwrite rules of the master that has taken
// over.
func (c *machine) submitSlice(budget int) (more bool) {
	if c.allSubmitted || !c.env.store.Holds() {
		return false
	}
	if c.submitIndex == 0 {
		for _, k := range c.constraints.enabled {
			c.set(k)
		}
		for _, w := range c.workersByAge() { // running jobs come before the waiting ones: a full or stopping broker may not take all of them
			for _, r := range w.jobsByAge() {
				if !w.removed && r.runInfo.run.brokerJob == nil && !r.submitted {
					w.hasResubmittedRuns = true
					c.submit(r, 0)
				}
			}
		}
	}
	for ; budget > 0 && c.submitIndex < len(c.bySeq); budget-- {
		r := c.bySeq[c.submitIndex].rec
		c.submitIndex++
		if r != nil && !r.submitted && r.isWaiting() {
			c.submit(r, toBrokerDuration(c.relinkStart-r.Enqueued))
		}
	}
	if c.submitIndex < len(c.bySeq) {
		return true
	}
	c.allSubmitted = true
	// The broker must have all jobs and rules before the first worker joins.
	c.tellBroker(func(b brokerLink) {
		b.flush(func() {
			c.env.run(func() {
				c.runsRestored = c.env.broker == b
				c.serveAll()
				c.restoreRuns()
			})
		})
	})
	return false
}

// restoreRuns lets workers get waiting jobs once the broker has handed out all running jobs again. Until
// then the running jobs do not count in their groups. It does not wait long for a run that the
// broker refuses, or holds back because a group is full.
func (c *machine) restoreRuns() {
	if !c.runsRestored || c.linked {
		return
	}
	left := 0
	for _, w := range c.workers {
		for r := range w.runs {
			if u := r.runInfo.run; u.onlyThisWorker && u.brokerJob == nil {
				left++
			}
		}
	}
	if left != c.runsExpected {
		c.runsExpected, c.runsExpectedSince = left, c.now
	}
	if left == 0 || c.now-c.runsExpectedSince >= 2*toMillis(resubmitPause) {
		c.linked = true
		c.serveAll()
	}
}

// drain stops accepting jobs and handing them out.
func (c *machine) drain() {
	c.draining = true
	c.serveAll()
	for _, w := range c.workers {
		c.closePulls(w)
	}
	for _, p := range c.bySeq {
		if r := p.rec; r != nil && r.runInfo != nil && len(r.runInfo.pollers) > 0 {
			for _, p := range r.runInfo.pollers {
				c.runAfterStep(func() { p.reply(nil, errDraining) })
			}
			c.waiters -= len(r.runInfo.pollers)
			r.runInfo.pollers = nil
		}
	}
}

// storeChanged is called with the reason when the store has gone away, and with nil when it is
// back.
func (c *machine) storeChanged(away error) {
	if c.awayErr != nil && away == nil {
		c.deadlinesFrom = max(c.deadlinesFrom, c.now+toMillis(c.StoreWait)) // reports that workers have sent meanwhile are then read first
	}
	c.awayErr = away
	if away != nil { // requests do not wait for jobs whose start cannot be written now
		for _, w := range c.workers {
			for _, p := range w.pullers {
				p.deliverAll(c)
			}
		}
	}
	c.serveAll()
}

// onNotAtBroker is called if the broker has refused a job, or has ended it without the master.
func (c *machine) onNotAtBroker(id job.ID, bid uint32) {
	if r := c.bySubmission(id, bid); r != nil {
		c.submitLater(r, nil)
	}
}

// bySubmission returns the job of a submission, or nil if that is not the job's current submission.
func (c *machine) bySubmission(id job.ID, bid uint32) *record {
	if r := c.jobs.Get(id); r != nil && r.submitted && r.submission == bid {
		return r
	}
	return nil
}

// submitLater is called when the broker does not have a job. outcome says how a Gloom worker has
// ended it, nil if none has. A running job is submitted when its run is over.
func (c *machine) submitLater(r *record, outcome *job.Outcome) {
	r.submitted = false
	c.rejected = append(c.rejected, rejectedJob{r.ID, c.now + toMillis(resubmitPause), outcome, r.submission})
}

// onTooLong is called when a job's argument does not fit into a frame of the broker.
func (c *machine) onTooLong(id job.ID) {
	r := c.jobs.Get(id)
	if r == nil || !r.submitted {
		return
	}
	r.tooLong, r.submitted = true, false
	if r.isWaiting() {
		c.submitWaiting(r)
	}
}

// onGroupsRefused is called when the broker has refused to change a job's groups, because the job is
// just being handed out or given back.
func (c *machine) onGroupsRefused(id job.ID) {
	if r := c.jobs.Get(id); r != nil && r.submitted && r.isWaiting() {
		c.rejected = append(c.rejected, rejectedJob{id: id, resubmitAt: c.now + toMillis(resubmitPause)})
	} else if r != nil {
		r.stale = true
	}
}

// rejectedJob is a job that is to be submitted again, or whose groups are to be sent again.
type rejectedJob struct {
	id         job.ID
	resubmitAt int64
	outcome    *job.Outcome // if not nil, the job ends in this way, unless one of the master's workers had it
	bid        uint32       // number of the submission; the entry is void if the job has a later one
}

func (c *machine) resubmitRejected() {
	c.rejected = slices.DeleteFunc(c.rejected, func(l rejectedJob) bool {
		if c.now < l.resubmitAt {
			return false
		}
		r := c.jobs.Get(l.id)
		switch {
		case r == nil || r.State.Ended():
		case r.submitted && r.isWaiting():
			c.regroup(r)
		case r.submitted:
			r.stale = true
		case l.outcome != nil && r.op != opNone:
			return false
		case l.outcome != nil && r.isWaiting() && !r.handedOut && r.submission == l.bid:
			c.recordAttempt(r, l.outcome)
		case r.isWaiting() || r.runInfo.run.brokerJob == nil:
			c.submitWaiting(r)
		}
		return true
	})
}

// onBrokerAnswer is called when a Gloom worker has ended a job, or was lost with it. If a run was
// lost, or failed while the master stood still, it may have been at one of the master's own
// workers, and its hand-out may not have been read yet. Then the run does not count.
func (c *machine) onBrokerAnswer(id job.ID, bid uint32, o *job.Outcome, lost bool) {
	r := c.bySubmission(id, bid)
	switch {
	case r == nil || r.State.Ended(): // the master itself has ended the job
	case c.needsOwnWorker(r): // the job still runs, or a Gloom worker for all types had it, without the argument
		c.submitLater(r, nil)
	case r.op != opNone:
		r.addOnIdle(func() { c.onBrokerAnswer(id, bid, o, lost) })
	case !o.Success && (lost || c.now < c.deadlinesFrom):
		c.submitLater(r, o)
	default:
		r.submitted = false
		c.recordAttempt(r, o)
	}
}

// recordAttempt writes an attempt of a Gloom worker, and then how it has ended.
func (c *machine) recordAttempt(r *record, o *job.Outcome) {
	if c.socket == nil {
		c.socket = &worker{Worker: job.Worker{Name: "socket", Leaving: true}, runs: make(map[*record]struct{}), removed: true}
	}
	j := r.nextState()
	j.State, j.Worker, j.Started, j.Finished = job.Running, job.ID{}, c.wallTime, 0
	j.Attempt++
	j.Deadline = c.wallTime + toMillis(c.TimeoutGrace)
	u := &run{worker: c.socket, stateBefore: r.State, deadline: never, delivered: true}
	r.ensureRunInfo().run = u
	c.write(opStart, r, j, 0, 0, func() { c.end(r, o, true) })
	c.replaceJob(r, j)
	c.ledger.HandedOut++
}
