package broker

import (
	"math"
	"time"
)

// LossPause is how long the job of a lost worker waits if a worker that joined with the same types is
// idle. A process that dies closes its connections one after the other: without the pause, its job
// would go from one of them to the next and use up all its runs.
const LossPause = 100 * time.Millisecond

// pastDeadline reports whether the job's deadline has passed.
func (b *Broker) pastDeadline(j *job) bool {
	if j.timing == 0 {
		return false
	}
	t := b.timing(j)
	return t.deadline != 0 && t.deadline <= b.now
}

// startRun hands job j to worker w.
func (b *Broker) startRun(w *worker, h *holding, rec uint32, j *job) {
	jt := h.jobType
	if j.flags&flagBorrowed != 0 {
		jt.borrowedRuns++
		b.borrowedRuns++
	} else {
		b.recordWait(jt, b.now-b.stateSince(j))
		jt.Running++
		b.totals.Running++
		jt.Dispatched++
		b.totals.Dispatched++
	}
	j.state = stateRunning
	t := b.ensureTiming(rec, j)
	t.stateSince, t.worker = b.now, w.id.Slot()
	t.attempts++
	b.appendTo(&h.runs, holdingLink, rec, j)
	h.runBytes += b.weight(h, rec, j)
	b.appendTo(&w.runs, laneLink, rec, j)
	b.countRun(h.queue.groupSet)
	if t.timeout > 0 {
		b.startTimer(t.pos, j.timing, b.now+t.timeout)
	}
	e := b.toWorker(OpJob, w, rec, j)
	e.Type, e.Body, e.StableBody = jt.name, b.body(rec, j), j.flags&flagBig != 0
	if w.wantsHeaders {
		e.Headers = b.headers(j)
	}
	w.credit -= int64(len(e.ID) + len(e.Type) + len(e.Headers) + len(e.Body))
	e.CreditSpent = w.credit <= 0
}

// beginReport begins a command for a worker's frame about a run, and replies ok. rec is 0 if there
// is no such run.
func (b *Broker) beginReport(now int64, p Peer, id []byte) (w *worker, rec uint32, j *job) {
	b.begin(now)
	if w = b.worker(p); w == nil {
		return nil, 0, nil
	}
	if rec, j = b.namedRun(w, id); rec != 0 {
		b.replyOK(p, nil)
	}
	return w, rec, j
}

// takeRun is beginReport for a frame that ends the run, and takes the run from the worker. rec is
// also 0 if nobody waits for the run any more.
func (b *Broker) takeRun(now int64, p Peer, id []byte) (w *worker, h *holding, rec uint32, j *job) {
	w, rec, j = b.beginReport(now, p, id)
	if rec == 0 || b.endIfUnwanted(w, rec, j) {
		return w, nil, 0, nil
	}
	h = b.holdingOf(j)
	b.stopRun(w, h, rec, j)
	return w, h, rec, j
}

// lineUpAndEnd ends a command that takeRun began. The worker may have room for a job.
func (b *Broker) lineUpAndEnd(w *worker) []Effect {
	if w != nil && w.hasRoom() {
		b.lineUp(w)
	}
	return b.end()
}

// Respond ends a run with an answer. id names the job on connections whose answers carry
// ids, and is ignored on others. stable reports that nobody writes to body again. A refusal
// with NotProcessing or UnknownID changes nothing.
func (b *Broker) Respond(now int64, p Peer, id, body []byte, stable bool) []Effect {
	w, _, rec, j := b.takeRun(now, p, id)
	if rec != 0 {
		b.endJob(rec, j, &lastFrame{body: body, stableBody: stable})
	}
	return b.lineUpAndEnd(w)
}

// Failure is a worker's report of a failed run.
type Failure struct {
	ID     []byte
	Reason string
	// NoRetry ends the job even if retries are left.
	NoRetry bool
	// Delay replaces the backoff of this retry, unless it is negative.
	Delay int64
	// WorkerLost reports that a borrower lost the worker of the run. WorkerExpelled reports that the
	// borrower disconnected that worker because it broke the protocol; then NoRetry is set.
	WorkerLost, WorkerExpelled bool
}

// Fail ends a run without an answer. It is refused like Respond.
func (b *Broker) Fail(now int64, p Peer, failure *Failure) []Effect {
	w, h, rec, j := b.takeRun(now, p, failure.ID)
	if rec != 0 {
		code, reason := JobFailed, Reason{Text: failure.Reason}
		switch {
		case failure.WorkerLost:
			code, reason = JobLost, b.reasonFor(WhyWorkerLost, j, "")
		case failure.NoRetry && !failure.WorkerExpelled:
			code = JobNoRetry
		case failure.Delay >= 0 && !h.isKept:
			code = JobRetryLater
		}
		b.failRun(rec, j, code, reason, failure.NoRetry, failure.Delay)
	}
	return b.lineUpAndEnd(w)
}

// ReleaseRequest is a worker's request to give a job back.
type ReleaseRequest struct {
	ID []byte
	// Delay is how long the job waits before it may be handed out again.
	Delay time.Duration
	// NotStarted reports that a borrower could not start the run, so that the release is not
	// counted.
	NotStarted bool
}

// Release puts a job back in its old place, as if it had never been handed out. It is refused
// like Respond.
func (b *Broker) Release(now int64, p Peer, req *ReleaseRequest) []Effect {
	w, h, rec, j := b.takeRun(now, p, req.ID)
	if rec == 0 {
		return b.lineUpAndEnd(w)
	}
	t := b.timing(j)
	h.jobType.rate.undoTake(b.now, t.stateSince, &h.jobType.pace)
	b.refundGroups(h.queue.groupSet, t.stateSince)
	if j.flags&flagBorrowed != 0 {
		b.toSubmitter(OpReturn, h, rec, j).Delay = int64(req.Delay)
		b.freeEnded(h, rec, j)
		return b.lineUpAndEnd(w)
	}
	if !req.NotStarted {
		b.recordRun(h, rec, j, Reason{Why: WhyGivenBack}, false)
		t.releases = uint16(min(int(t.releases)+1, math.MaxUint16))
		h.jobType.Releases++
		b.totals.Releases++
	}
	t.attempts--
	switch {
	case b.pastDeadline(j):
		b.expireJob(rec, j)
	case req.NotStarted:
		b.delayUntil(h, rec, j, b.now+int64(req.Delay))
	default:
		b.requeue(h, rec, j, int64(req.Delay))
	}
	return b.lineUpAndEnd(w)
}

// Progress passes a worker's progress on to the submitter. It is refused like Respond.
func (b *Broker) Progress(now int64, p Peer, id, body []byte, stable bool) []Effect {
	_, rec, j := b.beginReport(now, p, id)
	if rec != 0 && j.state == stateRunning && j.flags&flagProgress != 0 && !b.isUnwanted(j) {
		if h := b.holdingOf(j); h.submitter != nil && !h.submitter.isLost {
			e := b.toSubmitter(OpProgress, h, rec, j)
			e.Body, e.StableBody = body, stable
		}
	}
	return b.end()
}

// namedRun finds the run that a worker's frame names, or refuses the frame.
func (b *Broker) namedRun(w *worker, id []byte) (uint32, *job) {
	if !w.namesJobs {
		if rec := w.runs.head; rec != 0 {
			return rec, b.jobs.Get(rec)
		}
		b.refuse(w.id, NotProcessing, nil, Reason{Why: WhyNothingRunning})
		return 0, nil
	}
	if rec := b.runOf(w, id); rec != 0 {
		return rec, b.jobs.Get(rec)
	}
	if w.overdueRuns > 0 {
		for rec := w.runs.head; rec != 0; {
			j := b.jobs.Get(rec)
			if j.state == stateOverdue && string(b.id(j)) == string(id) {
				return rec, j
			}
			rec = j.links[laneLink].next
		}
	}
	b.refuse(w.id, UnknownID, id, Reason{Why: WhyNotRunningHere})
	return 0, nil
}

// endIfUnwanted ends a run that nobody waits for any more, and reports whether it did.
func (b *Broker) endIfUnwanted(w *worker, rec uint32, j *job) bool {
	if j.state == stateOverdue {
		b.dropOverdue(w, rec, j)
		return true
	}
	if !b.isUnwanted(j) {
		return false
	}
	h := b.holdingOf(j)
	b.stopRun(w, h, rec, j)
	b.finishUnwanted(h, rec, j)
	return true
}

func (b *Broker) finishUnwanted(h *holding, rec uint32, j *job) {
	switch {
	case j.flags&flagBorrowed != 0:
		b.endJob(rec, j, &lastFrame{code: Cancelled})
	case j.flags&flagRevoked != 0:
		j.flags &^= flagUnwanted | flagRevoked
		b.endJob(rec, j, revokedFrame())
	default:
		kind := EndDiscarded
		if j.flags&flagUnwanted != 0 {
			kind = EndCancelled
		}
		b.countEnd(h, rec, j, kind, &Reason{}, 0)
		b.freeEnded(h, rec, j)
	}
}

// stopRun takes a running job from its worker.
func (b *Broker) stopRun(w *worker, h *holding, rec uint32, j *job) {
	b.removeFrom(&w.runs, laneLink, j)
	b.removeFrom(&h.runs, holdingLink, j)
	h.runBytes -= b.weight(h, rec, j)
	b.stopTimerOf(j)
	if j.flags&flagBorrowed != 0 {
		b.borrowedIndex.Remove(b.borrowedIndex.Hash(b.borrowedKey(w, b.id(j))), rec)
		h.jobType.borrowedRuns--
		b.borrowedRuns--
	} else {
		h.jobType.Running--
		b.totals.Running--
		b.recordRunTime(h.jobType, b.now-b.stateSince(j))
	}
	b.countJobs(h.queue.groupSet, 0, -1)
	b.markForMatching(h.jobType)
}

// failRun makes a job whose run has failed wait for a retry, or ends it with the given code.
func (b *Broker) failRun(rec uint32, j *job, code Code, reason Reason, noRetry bool, delay int64) {
	h := b.holdingOf(j)
	jt := h.jobType
	if noRetry || b.attempts(j) > j.retries {
		if j.flags&flagBorrowed == 0 {
			b.deadLetters.add(b, jt, rec, j, reason)
		} else if noRetry && code == JobFailed {
			code = JobExpelled
		}
		b.endJob(rec, j, &lastFrame{code: code, reason: reason, delay: delay})
		return
	}
	b.recordRun(h, rec, j, reason, code == JobLost)
	if b.pastDeadline(j) {
		b.expireJob(rec, j)
		return
	}
	// The loss of a worker says nothing about the job, so it causes no backoff.
	if t := b.timing(j); t.backoff > 0 && delay < 0 && code != JobLost {
		delay = b.backoff(t.backoff, int(t.attempts))
	}
	b.requeue(h, rec, j, delay)
}

// requeue makes a job that was out wait for its next run.
func (b *Broker) requeue(h *holding, rec uint32, j *job, delay int64) {
	h.jobType.Requeued++
	b.totals.Requeued++
	b.delayUntil(h, rec, j, b.now+max(delay, 0))
}

// backoff returns the wait before retry n (from 1). It doubles each time up to MaxBackoff, and up
// to a quarter is added at random.
func (b *Broker) backoff(base int64, n int) int64 {
	wait := int64(MaxBackoff)
	if n-1 < 40 && base<<(n-1)>>(n-1) == base && base<<(n-1) < wait {
		wait = base << (n - 1)
	}
	return wait + int64(b.rng.Uint64()%uint64(wait/4+1))
}

// loseWorker requeues or ends the jobs that are out on a lost worker.
func (b *Broker) loseWorker(w *worker, expulsion string) {
	delay := int64(-1)
	b.leaveIdleLine(w)
	if w.runs.n > 0 && !w.isBorrower {
		if other := w.idleLine().idleWorkers.First(); other != nil && !other.isBorrower { // borrowers are last
			delay = int64(LossPause)
		}
	}
	b.leaveType(w)
	alone := w.runs.n == 1
	for w.runs.n > 0 {
		rec := w.runs.head
		j := b.jobs.Get(rec)
		if b.endIfUnwanted(w, rec, j) {
			continue
		}
		b.stopRun(w, b.holdingOf(j), rec, j)
		if expulsion != "" && alone {
			b.failRun(rec, j, JobFailed, Reason{Why: WhyWorkerClosed, Text: expulsion}, true, -1)
		} else {
			b.failRun(rec, j, JobLost, b.reasonFor(WhyWorkerLost, j, ""), false, delay)
		}
	}
}
