package master

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/wire"
)

// onHandout is called when the broker hands out a job to a worker. alreadyRuns says that the worker
// already runs the job; the job was submitted again for this worker alone.
func (m *machine) onHandout(worker, id job.ID, alreadyRuns bool, h brokerJob) {
	w, r := m.workers[worker], m.jobs.Get(id)
	switch {
	case r == nil && !alreadyRuns, !m.env.store.HoldsLease(): // it is another master's job or was cancelled, or the lease has ended
		m.giveBack(h, resubmitPause)
		return
	case r == nil || r.State.Ended() || alreadyRuns && r.State != job.Running:
		m.runAfterStep(h.end)
		return
	case r.State == job.Running:
		if run := r.runInfo.run; !alreadyRuns {
			m.giveBack(h, resubmitPause)
		} else if run.brokerJob == nil && run.onlyThisWorker && run.worker == w {
			run.brokerJob = h
		} else {
			m.runAfterStep(h.end)
		}
		return
	case r.op != opNone:
		r.addOnIdle(func() { m.onHandout(worker, id, alreadyRuns, h) })
		return
	}
	r.handedOut = true
	switch {
	case w == nil || !w.mayTake(m):
		m.giveBack(h, 0)
		return
	case m.remainingWait(r) > 0: // the broker has requeued the job without the master, and so without the backoff
		m.giveBack(h, m.remainingWait(r))
		return
	case len(w.runs) >= w.MaxJobs, m.now < w.excludedUntil[r.Name]:
		m.giveBack(h, resubmitPause)
		return
	}
	m.start(r, w, h)
}

func (m *machine) giveBack(h brokerJob, delay time.Duration) {
	m.ledger.Released++
	m.runAfterStep(func() { h.release(delay) })
}

// start begins an attempt. The worker gets the job when the attempt is written.
func (m *machine) start(r *record, w *worker, h brokerJob) {
	before := r.State
	j := r.nextState()
	j.State = job.Running
	j.Attempt++
	j.Worker, j.Started, j.Finished = w.ID, m.wallTime, 0
	length := toMillis(r.Timeout.Duration() + m.TimeoutGrace)
	j.Deadline = m.wallTime + length
	run := &run{worker: w, brokerJob: h, handedAt: m.monotonic, startedAt: m.now, deadline: m.now + length, stateBefore: before}
	r.ensureRunInfo().run = run
	m.write(opStart, r, j, 0, 0, func() { m.handToWorker(r, run) })
	m.replaceJob(r, j)
	delete(w.cancelUntil, r.ID) // the job was retried after it was cancelled at this worker, which must not stop the new run
	m.ledger.HandedOut++
	m.metrics.waitSeconds.add(float64(m.wallTime-max(r.Enqueued, r.Due)) / 1000)
	w.runs[r] = struct{}{}
	if w.Pulls() {
		run.pullRequest = w.reserve()
	}
	m.timers.set(r, run.deadline)
}

// handToWorker gives the job to its worker, unless the worker may no longer get it.
func (m *machine) handToWorker(r *record, run *run) {
	if m.now > run.startedAt { // the time that the store took does not count towards the timeout
		run.deadline += m.now - run.startedAt
		m.timers.set(r, run.deadline)
	}
	if w := run.worker; !w.available(m) || !w.Pulls() && m.now < w.pausedUntil {
		if run.pullRequest != nil {
			run.pullRequest.onNotDelivered(m)
		}
		m.undoRun(r)
		return
	}
	h := &job.Handout{Job: r.Job, Deadline: m.wallAt(run.deadline - toMillis(m.TimeoutGrace))}
	if run.worker.Pulls() {
		if run.delivered = run.pullRequest.deliver(m, h); !run.delivered {
			m.undoRun(r)
		}
		return
	}
	run.delivered = true
	w := &run.worker.Worker
	m.runAfterStep(func() {
		m.env.push.Push(w, h, func(a Answer) { m.env.run(func() { m.onPushAnswer(r, run, h.Attempt, a) }) })
	})
}

// undoRun undoes a run: the job keeps its place, and its attempt does not count.
func (m *machine) undoRun(r *record) {
	run := r.runInfo.run
	j := r.nextState()
	j.State, j.Attempt, j.Deadline, j.Started = run.stateBefore, r.Attempt-1, 0, 0
	m.ledger.Released++
	m.write(opRelease, r, j, 0, 0, func() {
		m.leaveRun(r, run, func(h brokerJob) { h.release(0) })
		m.restoreCancelledRun(j) // start has forgotten it
		m.replyAll(run.replies, notAssigned)
	})
}

// leaveRun removes the run from its worker, and calls answer to answer the broker's hand-out. A nil
// answer means that the job has ended.
func (m *machine) leaveRun(r *record, run *run, answer func(brokerJob)) {
	r.runInfo.run = nil
	m.timers.remove(r)
	delete(run.worker.runs, r)
	switch h := run.brokerJob; {
	case h != nil:
		if answer == nil || run.onlyThisWorker {
			r.submitted = false
			m.runAfterStep(h.end)
			if answer != nil {
				m.submitWaiting(r)
			}
			break
		}
		if r.submitted && m.monotonic-run.handedAt < toMillis(r.Timeout.Duration()+m.TimeoutGrace+brokerGrace/2) {
			m.runAfterStep(func() { answer(h) })
			if r.stale {
				m.regroup(r)
			}
			break
		}
		// The broker has ended the job, or may have ended this run while the store or the
		// master stood still: the job is submitted again.
		m.runAfterStep(func() { h.release(resubmitPause) })
		r.submitted = true // the broker may still have the job
		fallthrough
	case r.submitted: // the broker still has the job and would hand it out again
		m.withdraw(r)
		fallthrough
	default:
		if answer != nil {
			m.submitWaiting(r)
		}
	}
	r.stale = false
	m.updateServing(run.worker)
	m.dismiss(run.worker)
}

// onPushAnswer is called with the outcome of a push.
func (m *machine) onPushAnswer(r *record, run *run, attempt int32, a Answer) {
	w := run.worker
	current := r.runInfo != nil && r.runInfo.run == run && r.Attempt == attempt
	if current && r.op != opNone && a.Kind != AnswerTaken {
		r.addOnIdle(func() { m.onPushAnswer(r, run, attempt, a) })
		return
	}
	m.metrics.pushes[a.Kind]++
	if a.Kind < AnswerBroken {
		m.markReachable(w)
	}
	switch a.Kind {
	case AnswerUnknownName:
		m.excludeName(w, r.Name)
	case AnswerBusy:
		pause := a.RetryAfter
		if pause <= 0 {
			pause = firstPause
		}
		m.setPause(w, min(pause, maxPause), a.Reason)
	}
	switch {
	case !current || a.Kind == AnswerTaken:
	case a.Kind == AnswerRefused || a.Kind == AnswerBroken:
		m.fail(r, job.Other, a.Reason)
	default:
		m.undoRun(r)
	}
	if a.Kind >= AnswerBroken {
		m.markUnreachable(w, a.Reason)
	}
}

var notAssigned = job.Refuse(job.NotAssigned, "", "the job is not assigned to this worker: it has timed out, was cancelled, or runs on another worker")

// report handles a worker's report that a run has ended.
func (m *machine) report(w *worker, p *Report, answer reply) {
	r := m.jobs.Get(p.Job)
	if r == nil {
		answer(job.Refuse(job.UnknownJob, "", "there is no job %v", p.Job))
		return
	}
	run := r.currentRun()
	mine := run != nil && run.worker == w && (p.Attempt == 0 || p.Attempt == r.Attempt)
	switch {
	case mine && run.ended:
		run.replies = append(run.replies, answer)
	case mine && run.delivered && r.op == opNone:
		if err := m.checkResultRoom(r, &p.Outcome); err != nil {
			// The worker reports again, and the run must not end before that.
			run.deadline = max(run.deadline, m.now+missedHeartbeats*toMillis(m.Heartbeat))
			m.timers.set(r, run.deadline)
			answer(err)
			return
		}
		run.ended = true
		run.replies = append(run.replies, answer)
		m.end(r, &p.Outcome, true)
	case mine && (run.delivered || r.op == opCancel || r.op == opRelease), run == nil && r.op != opNone:
		r.addOnIdle(func() { m.report(w, p, answer) })
	case m.hasReported(r, w.ID, p.Attempt):
		answer(nil)
	default:
		m.ledger.LateReports++
		delete(w.cancelUntil, r.ID)
		answer(notAssigned)
	}
}

// hasReported reports whether the worker w has already reported the end of an attempt. If attempt
// is 0, w's last attempt counts.
func (m *machine) hasReported(r *record, w job.ID, attempt int32) bool {
	for _, a := range slices.Backward(r.Attempts) {
		if a.Worker == w && (attempt == 0 || attempt == a.Number) {
			return a.Reported
		}
	}
	return false
}

func (m *machine) replyAll(replies []reply, err error) {
	for _, answer := range replies {
		answer(err)
	}
}

// fail ends a run that failed without a report from its worker.
func (m *machine) fail(r *record, reason job.Reason, message string) {
	m.end(r, &job.Outcome{Reason: reason, Retry: true, Message: message}, false)
}

// end writes how a run has ended. Then the job has ended, or waits for a retry.
func (m *machine) end(r *record, o *job.Outcome, reported bool) {
	run := r.runInfo.run
	o = m.limitOutcome(o)
	attemptMessage := o.Message
	if n := len(o.Error) + len(o.Message) + len(attemptMessage); n > 0 && m.usedBytes()+int64(n) > m.MaxBytes {
		attemptMessage = ""
		if len(o.Error) > 0 || len(o.Message) > shortMessage {
			o.Error, o.Message = nil, truncate(o.Message, shortMessage)+noRoom
		}
	}
	j := r.nextState()
	j.Finished, j.ReportedAt, j.Deadline = m.wallTime, o.ReportedAt, 0
	addAttempt(j, &job.Attempt{Success: o.Success, Reported: reported, Reason: o.Reason, Message: attemptMessage, Lost: o.Lost})
	m.metrics.runSeconds.add(float64(m.wallTime-j.Started) / 1000)
	if !o.Success {
		j.Error, j.Message, j.Reason = o.Error, o.Message, o.Reason
		if o.Retry && r.Retries < r.MaxRetry {
			m.retry(r, run, j, o.Delay)
			return
		}
		j.State = job.Failed
	} else {
		j.State = job.Done
		j.Error, j.Message, j.Reason = nil, "", job.NoReason
		if r.KeepResult {
			j.Result = o.Result
			if j.Result == nil {
				j.Result = nilValue
			}
		}
	}
	forgetAt := m.wallTime + toMillis(m.KeepEnded)
	var dropAt int64
	arriving := min(1, len(j.Result))
	m.resultsPending += arriving
	if j.Result != nil {
		dropAt = m.wallTime + toMillis(m.ResultTTL)
		forgetAt = max(forgetAt, dropAt)
	}
	m.write(opEnd, r, j, forgetAt, dropAt, func() {
		m.resultsPending -= arriving
		m.leaveRun(r, run, nil)
		m.addEnded(r, forgetAt, dropAt)
		if r.State == job.Done {
			m.ledger.Done++
		} else {
			m.ledger.Failed++
		}
		m.expire()
		m.replyAll(run.replies, nil)
	})
}

// At MaxBytes a failed job keeps no error, and at most shortMessage bytes of the message.
const (
	noRoom       = " [the rest is left out: max-bytes is reached]"
	shortMessage = 128
)

// nilValue is the result of a run whose worker returned none.
var nilValue = []byte{0xc0}

// retry lets a failed job wait for a delay or, if that is 0, for its backoff.
func (m *machine) retry(r *record, run *run, j *job.Job, delay time.Duration) {
	j.State = job.Retrying
	j.Retries++
	j.Due = m.wallTime + toMillis(cmp.Or(delay, m.backoff(j.Retries)))
	m.write(opEnd, r, j, 0, 0, func() {
		m.ledger.Retries++
		waitLeft := m.remainingWait(r)
		m.leaveRun(r, run, func(h brokerJob) { h.retry(waitLeft) })
		m.replyAll(run.replies, nil)
	})
}

// backoff returns a random wait before retry n (counted from 1), between half of maxBackoff and all
// of it.
func (m *machine) backoff(n int32) time.Duration {
	d := m.maxBackoff(n)
	return d/2 + time.Duration(m.rng.Int64N(int64(d-d/2)+1))
}

// maxBackoff returns the longest wait before retry n. It doubles with each retry, up to BackoffCap.
func (m *machine) maxBackoff(n int32) time.Duration {
	if m.BackoffBase > m.BackoffCap>>(n-1) {
		return m.BackoffCap
	}
	return m.BackoffBase << (n - 1)
}

// brokerRetries returns how many retries of a job the broker may make after failures of Gloom
// workers. It knows no BackoffCap, and adds up to a quarter to each wait.
func (m *machine) brokerRetries(r *record) (n int32) {
	for r.Retries+n < r.MaxRetry && m.maxBackoff(r.Retries+n+1) <= min(m.BackoffCap/5*4, maxBrokerBackoff) {
		n++
	}
	return n
}

// maxBrokerBackoff is the longest backoff that the broker takes.
const maxBrokerBackoff = wire.MaxBackoffMS * time.Millisecond

// addAttempt adds the run that has just ended to the attempts of a job.
func addAttempt(j *job.Job, a *job.Attempt) {
	a.Number, a.Worker, a.Started, a.Finished = j.Attempt, j.Worker, j.Started, j.Finished
	attempts := j.Attempts
	if len(attempts) >= job.MaxKeptAttempts {
		attempts = attempts[len(attempts)-job.MaxKeptAttempts+1:]
	}
	j.Attempts = append(slices.Clip(attempts), *a)
}

// limitOutcome drops the parts of an outcome that are too long to be kept.
func (m *machine) limitOutcome(o *job.Outcome) *job.Outcome {
	b := *o
	note := ""
	if n := len(b.Error); n > m.MaxError {
		note = fmt.Sprintf(" [its error of %d bytes is left out: at most %d are allowed (max-error)]", n, m.MaxError)
		b.Error = nil
	}
	b.Message = truncate(b.Message, job.MaxMessage-len(note)) + note
	return &b
}

// truncate shortens s to the given number of bytes, or a few less so that it splits no character.
func truncate(s string, limit int) string {
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}
