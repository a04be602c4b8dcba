package broker

import (
	"math"
	"time"
)

// pastDeadline reports whether the job's deadline has passed.
func (b *Broker) pastDeadline(j *job) bool {
	if j.timing == 0 {
		return false
	}
	t := b.timing(j)
	return t.deadline != 0 && t.deadline <= b.now
}

// startRun hands job r to worker w.
func (b *Broker) startRun(w *worker, h *holding, r uint32, j *job) {
	k := h.jobType
	if j.flags&flagBorrowed != 0 {
		k.borrowedRuns++
		b.borrowedRuns++
	} else {
		b.recordWait(k, b.now-b.stateSince(j))
		k.Running++
		b.totals.Running++
		k.Dispatched++
		b.totals.Dispatched++
	}
	j.state = stateRunning
	t := b.ensureTiming(r, j)
	t.stateSince, t.worker = b.now, w.id.Slot()
	t.attempts++
	b.appendTo(&h.runs, holdingLink, r, j)
	h.runBytes += b.weight(h, r, j)
	b.appendTo(&w.runs, laneLink, r, j)
	b.countRun(h.queue.groupSet)
	if t.timeout > 0 {
		b.startTimer(t.pos, j.timing, b.now+t.timeout)
	}
	e := b.toWorker(OpJob, w, r, j)
	e.Type, e.Body, e.StableBody = k.name, b.body(r, j), j.flags&flagBig != 0
	if w.wantsHeaders {
		e.Headers = b.headers(j)
	}
	w.credit -= int64(len(e.ID) + len(e.Type) + len(e.Headers) + len(e.Body))
	e.CreditSpent = w.credit <= 0
}

// beginReport begins a command for a worker's frame about a run, and replies ok. r is 0 if
// there is no such run.
func (b *Broker) beginReport(now int64, p Peer, id []byte) (w *worker, r uint32, j *job) {
	b.begin(now)
	if w = b.worker(p); w == nil {
		return nil, 0, nil
	}
	if r, j = b.namedRun(w, id); r != 0 {
		b.replyOK(p, nil)
	}
	return w, r, j
}

// takeRun is beginReport for a frame that ends the run, and takes the run from the worker. r is
// also 0 if nobody waits for the run any more.
func (b *Broker) takeRun(now int64, p Peer, id []byte) (w *worker, h *holding, r uint32, j *job) {
	w, r, j = b.beginReport(now, p, id)
	if r == 0 || b.endIfUnwanted(w, r, j) {
		return w, nil, 0, nil
	}
	h = b.holdingOf(j)
	b.stopRun(w, h, r, j)
	return w, h, r, j
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
	w, _, r, j := b.takeRun(now, p, id)
	if r != 0 {
		b.endJob(r, j, &lastFrame{body: body, stableBody: stable})
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
func (b *Broker) Fail(now int64, p Peer, q *Failure) []Effect {
	w, h, r, j := b.takeRun(now, p, q.ID)
	if r != 0 {
		code, reason := JobFailed, Reason{Text: q.Reason}
		switch {
		case q.WorkerLost:
			code, reason = JobLost, b.reasonFor(WhyWorkerLost, j, "")
		case q.NoRetry && !q.WorkerExpelled:
			code = JobNoRetry
		case q.Delay >= 0 && !h.isKept:
			code = JobRetryLater
		}
		b.failRun(r, j, code, reason, q.NoRetry, q.Delay)
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
func (b *Broker) Release(now int64, p Peer, q *ReleaseRequest) []Effect {
	w, h, r, j := b.takeRun(now, p, q.ID)
	if r == 0 {
		return b.lineUpAndEnd(w)
	}
	t := b.timing(j)
	h.jobType.rate.undoTake(b.now, t.stateSince, &h.jobType.pace)
	b.refundGroups(h.queue.groupSet, t.stateSince)
	if j.flags&flagBorrowed != 0 {
		b.toSubmitter(OpReturn, h, r, j).Delay = int64(q.Delay)
		b.freeEnded(h, r, j)
		return b.lineUpAndEnd(w)
	}
	if !q.NotStarted {
		b.recordRun(h, r, j, Reason{Why: WhyGivenBack}, false)
		t.releases = uint16(min(int(t.releases)+1, math.MaxUint16))
		h.jobType.Releases++
		b.totals.Releases++
	}
	t.attempts--
	switch {
	case b.pastDeadline(j):
		b.expireJob(r, j)
	case q.NotStarted:
		b.waitUntil(h, r, j, b.now+int64(q.Delay))
	default:
		b.requeue(h, r, j, int64(q.Delay))
	}
	return b.lineUpAndEnd(w)
}

// Progress passes a worker's progress on to the submitter. It is refused like Respond.
func (b *Broker) Progress(now int64, p Peer, id, body []byte, stable bool) []Effect {
	_, r, j := b.beginReport(now, p, id)
	if r != 0 && j.state == stateRunning && j.flags&flagProgress != 0 && !b.isUnwanted(j) {
		if h := b.holdingOf(j); h.submitter != nil && !h.submitter.isLost {
			e := b.toSubmitter(OpProgress, h, r, j)
			e.Body, e.StableBody = body, stable
		}
	}
	return b.end()
}

// namedRun finds the run that a worker's frame names, or refuses the frame.
func (b *Broker) namedRun(w *worker, id []byte) (uint32, *job) {
	if !w.namesJobs {
		if r := w.runs.head; r != 0 {
			return r, b.jobs.Get(r)
		}
		b.refuse(w.id, NotProcessing, nil, Reason{Why: WhyNothingRunning})
		return 0, nil
	}
	if r := b.runOf(w, id); r != 0 {
		return r, b.jobs.Get(r)
	}
	if w.overdueRuns > 0 {
		for r := w.runs.head; r != 0; {
			j := b.jobs.Get(r)
			if j.state == stateOverdue && string(b.id(j)) == string(id) {
				return r, j
			}
			r = j.links[laneLink].next
		}
	}
	b.refuse(w.id, UnknownID, id, Reason{Why: WhyNotRunningHere})
	return 0, nil
}

// endIfUnwanted ends a run that nobody waits for any more, and reports whether it did.
func (b *Broker) endIfUnwanted(w *worker, r uint32, j *job) bool {
	if j.state == stateOverdue {
		b.dropOverdue(w, r, j)
		return true
	}
	if !b.isUnwanted(j) {
		return false
	}
	h := b.holdingOf(j)
	b.stopRun(w, h, r, j)
	b.finishUnwanted(h, r, j)
	return true
}

func (b *Broker) finishUnwanted(h *holding, r uint32, j *job) {
	switch {
	case j.flags&flagBorrowed != 0:
		b.endJob(r, j, &lastFrame{code: Cancelled})
	case j.flags&flagRevoked != 0:
		j.flags &^= flagUnwanted | flagRevoked
		b.endJob(r, j, revokedFrame())
	default:
		kind := EndDiscarded
		if j.flags&flagUnwanted != 0 {
			kind = EndCancelled
		}
		b.countEnd(h, r, j, kind, &Reason{}, 0)
		b.freeEnded(h, r, j)
	}
}

// stopRun takes a running job from its worker.
func (b *Broker) stopRun(w *worker, h *holding, r uint32, j *job) {
	b.removeFrom(&w.runs, laneLink, j)
	b.removeFrom(&h.runs, holdingLink, j)
	h.runBytes -= b.weight(h, r, j)
	b.stopTimerOf(j)
	if j.flags&flagBorrowed != 0 {
		b.borrowedIndex.Remove(b.borrowedIndex.Hash(b.borrowedKey(w, b.id(j))), r)
		h.jobType.borrowedRuns--
		b.borrowedRuns--
	} else {
		h.jobType.Running--
		b.totals.Running--
		b.recordRunTime(h.jobType, b.now-b.stateSince(j))
	}
	b.countJobs(h.queue.groupSet, 0, -1)
	b.markTouched(h.jobType)
}

// failRun makes a job whose run has failed wait for a retry, or ends it with the given code.
func (b *Broker) failRun(r uint32, j *job, code Code, reason Reason, noRetry bool, delay int64) {
	h := b.holdingOf(j)
	k := h.jobType
	if noRetry || b.attempts(j) > j.retries {
		if j.flags&flagBorrowed == 0 {
			b.deadLetters.add(b, k, r, j, reason)
		} else if noRetry && code == JobFailed {
			code = JobExpelled
		}
		b.endJob(r, j, &lastFrame{code: code, reason: reason, delay: delay})
		return
	}
	b.recordRun(h, r, j, reason, code == JobLost)
	if b.pastDeadline(j) {
		b.expireJob(r, j)
		return
	}
	// The loss of a worker says nothing about the job, so it causes no backoff.
	if t := b.timing(j); t.backoff > 0 && delay < 0 && code != JobLost {
		delay = b.backoff(t.backoff, int(t.attempts))
	}
	b.requeue(h, r, j, delay)
}

// requeue makes a job that was out wait for its next run.
func (b *Broker) requeue(h *holding, r uint32, j *job, delay int64) {
	h.jobType.Requeued++
	b.totals.Requeued++
	b.waitUntil(h, r, j, b.now+max(delay, 0))
}

// backoff returns the wait before retry n (from 1). It doubles each time up to MaxBackoff, and up
// to a quarter is added at random.
func (b *Broker) backoff(base int64, n int) int64 {
	d := int64(MaxBackoff)
	if n-1 < 40 && base<<(n-1)>>(n-1) == base && base<<(n-1) < d {
		d = base << (n - 1)
	}
	return d + int64(b.rng.Uint64()%uint64(d/4+1))
}

// loseWorker requeues or ends the jobs that are out on a lost worker.
func (b *Broker) loseWorker(w *worker, expelled string) {
	b.leaveType(w)
	alone := w.runs.n == 1
	for w.runs.n > 0 {
		r := w.runs.head
		j := b.jobs.Get(r)
		if b.endIfUnwanted(w, r, j) {
			continue
		}
		b.stopRun(w, b.holdingOf(j), r, j)
		if expelled != "" && alone {
			b.failRun(r, j, JobFailed, Reason{Why: WhyWorkerClosed, Text: expelled}, true, -1)
		} else {
			b.failRun(r, j, JobLost, b.reasonFor(WhyWorkerLost, j, ""), false, -1)
		}
	}
}
