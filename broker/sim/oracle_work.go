package sim

import (
	"fmt"
	"slices"
	"time"

	"gloom/broker"
)

func (o *oracle) join(c *command) {
	w := o.peer(c.peer)
	next := oraclePeer{types: c.types, except: c.except, allow: c.allow}
	if c.types == nil {
		next.types = []string{c.typ}
	}
	if o.tooManyTypes(next.names()...) {
		o.refuse(w.number, broker.Overloaded, "")
		return
	}
	for _, name := range next.names() {
		o.typeNamed(name)
	}
	w.typ, w.types, w.except, w.allow = c.typ, next.types, c.except, c.allow
	w.joined, w.room, w.notices, w.headers, w.left = true, max(1, c.prefetch), c.notices, c.wantHeaders, false
	w.named = w.named || c.prefetch > 0
	w.position = 0 // a worker that joins goes to the end of the line
	o.ok(w.number, "")
}

func (o *oracle) credit(c *command) {
	o.peer(c.peer).credit = c.room
}

func (o *oracle) leave(c *command) {
	o.peer(c.peer).left = true
	o.ok(c.peer, "")
}

// runFor finds the run that a worker's frame names, and replies ok. If there is no such run, it
// refuses the frame and returns nil.
func (o *oracle) runFor(c *command) (w *oraclePeer, i int) {
	w = o.peer(c.peer)
	switch {
	case w.named:
		i = slices.IndexFunc(w.out, func(r run) bool { return r.id == c.id })
		if i < 0 {
			o.refuse(w.number, broker.UnknownID, c.id)
			return nil, 0
		}
	case len(w.out) == 0:
		o.refuse(w.number, broker.NotProcessing, "")
		return nil, 0
	}
	o.ok(w.number, "")
	return w, i
}

// endRun takes a run from its worker and returns the job, unless the run was overdue or the
// job is unwanted.
func (o *oracle) endRun(w *oraclePeer, i int) *oracleJob {
	j := w.out[i].job
	w.out = slices.Delete(w.out, i, i+1)
	if j != nil && j.unwanted() {
		o.endUnwanted(j)
		return nil
	}
	return j
}

// endReportedRun ends a run as its worker reports. It returns the run's job, or nil if
// the run is no longer wanted.
func (o *oracle) endReportedRun(c *command) *oracleJob {
	if w, i := o.runFor(c); w != nil {
		return o.endRun(w, i)
	}
	return nil
}

// endUnwanted ends a job whose run was unwanted.
func (o *oracle) endUnwanted(j *oracleJob) {
	if j.borrowed {
		o.end(j, broker.Cancelled, "")
		return
	}
	if j.revoked {
		j.cancelled, j.revoked = false, false
		o.typeNamed(j.typ).Cancelled++
		o.end(j, broker.Cancelled, "")
		return
	}
	if j.cancelled {
		o.typeNamed(j.typ).Cancelled++
	} else {
		o.typeNamed(j.typ).Discarded++
	}
	o.forget(j)
}

func (o *oracle) respond(c *command) {
	if j := o.endReportedRun(c); j != nil {
		o.count(j, &o.typeNamed(j.typ).Answered)
		o.conclude(j, frame{op: broker.OpResult, id: j.id, body: c.body})
	}
}

func (o *oracle) fail(c *command) {
	if j := o.endReportedRun(c); j != nil {
		code, reason := broker.JobFailed, c.reason
		switch {
		case c.lost && !c.noRetry:
			code, reason = broker.JobLost, ""
		case c.noRetry && !c.lost:
			code = broker.JobNoRetry
		case c.noRetry:
		case c.failDelay >= 0 && j.keep == 0:
			code = broker.JobRetryLater
		}
		o.failRun(j, code, reason, c.noRetry, c.failDelay)
	}
}

func (o *oracle) progress(c *command) {
	w, i := o.runFor(c)
	if w == nil {
		return
	}
	if j := w.out[i].job; j != nil && j.progress && j.owner != 0 && !j.unwanted() {
		o.send(frame{op: broker.OpProgress, peer: j.owner, id: j.id, body: c.body, run: j.run})
	}
}

// failRun ends a run without an answer: the job is requeued or fails. An empty reason stands for
// one that the core writes itself.
func (o *oracle) failRun(j *oracleJob, code broker.Code, reason string, noRetry bool, delay int64) {
	ot := o.typeNamed(j.typ)
	if noRetry || j.attempts >= 1+j.retries {
		last := frame{op: broker.OpEnd, code: code, id: j.id, reason: reason}
		if code == broker.JobRetryLater {
			last.delay = delay
		}
		if j.borrowed && noRetry && code == broker.JobFailed {
			last.code = broker.JobExpelled
		}
		if !j.borrowed {
			o.keepLetter(j, reason)
		}
		o.count(j, &ot.Failed)
		o.conclude(j, last)
		return
	}
	if o.lapsed(j) {
		o.expire(j)
		return
	}
	if delay < 0 && code != broker.JobLost {
		delay = o.backoff(j)
	}
	o.requeue(j, delay)
}

// requeue puts a job that was out on a worker back into the queue.
func (o *oracle) requeue(j *oracleJob, delay int64) {
	o.typeNamed(j.typ).Requeued++
	j.stateSince, j.worker, j.state = o.now, 0, queued
	if delay > 0 {
		j.state, j.until = delayed, o.now+delay
	}
	o.setTimer(j)
}

// release puts a job back at its old place, as if it had never been handed out. If a borrower
// could not start it, the release is not counted.
func (o *oracle) release(c *command) {
	j := o.endReportedRun(c)
	if j == nil {
		return
	}
	ot := o.typeNamed(j.typ)
	ot.rateState.giveBack(j, o.now)
	o.eachRate(j, func(rate *rateState, _ quota) { rate.giveBack(j, o.now) })
	if j.borrowed {
		o.send(frame{op: broker.OpReturn, peer: j.owner, id: j.id, run: j.run, delay: int64(c.delay)})
		o.forget(j)
		return
	}
	j.attempts--
	hasBegun := c.verb == release
	if hasBegun {
		j.releases++
		ot.Releases++
	}
	if o.lapsed(j) {
		o.expire(j)
		return
	}
	if o.requeue(j, int64(c.delay)); !hasBegun {
		ot.Requeued--
	}
}

// backoff returns the wait before the next retry. The core chooses it; the oracle checks that
// it is in the protocol's range.
func (o *oracle) backoff(j *oracleJob) int64 {
	if j.backoff == 0 {
		return 0
	}
	minDelay := j.backoff
	for n := 1; n < j.attempts && minDelay < 24*time.Hour; n++ {
		minDelay *= 2
	}
	minDelay = min(minDelay, 24*time.Hour)
	maxDelay := minDelay + minDelay/4
	wait, found := o.observed.delay(j.id)
	if !found || wait > int64(maxDelay) || wait < int64(minDelay) {
		o.complaint = fmt.Sprintf("retry %d of %q waits %v, allowed are %v to %v", j.attempts, j.id, time.Duration(wait), minDelay, maxDelay)
	}
	return wait
}

// gone handles a connection that is lost, or that is closed because of a bad frame.
func (o *oracle) gone(c *command) {
	i := slices.IndexFunc(o.peers, func(p *oraclePeer) bool { return p.number == c.peer })
	p := o.peers[i]
	o.peers = slices.Delete(o.peers, i, i+1)
	if p.kind&(workers|borrowers) != 0 {
		o.workerGone(p, c.reason)
	} else {
		o.submitterGone(p)
	}
}

// workerGone gives a lost worker's jobs to others, while their retries last, after a pause if an
// idle worker may be a connection of the same process. If a bad frame closed the worker while
// exactly one job was out on it, this job fails.
func (o *oracle) workerGone(w *oraclePeer, reason string) {
	guilty, code := reason != "" && len(w.out) == 1, broker.JobLost
	if guilty {
		code = broker.JobFailed
	}
	delay := int64(-1)
	if w.kind == workers && slices.ContainsFunc(o.peers, func(p *oraclePeer) bool { return p.kind == workers && p.position != 0 && p.free() && p.joinedAs(w) }) {
		delay = int64(broker.LossPause)
	}
	for len(w.out) > 0 {
		if j := o.endRun(w, 0); j != nil {
			o.failRun(j, code, "", guilty, delay)
		}
	}
}
