package sim

import "gloom/broker"

// conclude ends a job with its last frame; a kept job continues to hold its id and the
// frame.
func (o *oracle) conclude(j *oracleJob, last frame) {
	if j.owner != 0 {
		o.sendLast(j, last)
	}
	if j.keep == 0 {
		o.forget(j)
		return
	}
	j.groups = nil
	j.state, j.stateSince, j.until, j.last = ended, o.now, o.now+int64(j.keep), last
	o.setTimer(j)
	// The core chooses the text of an error's reason, and so its length.
	j.outcomeBytes = len(last.body)
	if last.op == broker.OpEnd {
		info, _ := o.observed.job(j.id)
		j.outcomeBytes = info.Bytes
	}
}

func (o *oracle) sendLast(j *oracleJob, last frame) {
	last.peer, last.run = j.owner, j.run
	o.send(last)
	j.sent = true
}

// outcomeWritten handles the report that the kept outcome with this id has been written completely.
func (o *oracle) outcomeWritten(c *command) {
	if j := o.jobsByID[c.id]; j != nil && j.state == ended && j.sent {
		o.forget(j)
	}
}

// reaches reports whether submitter sub may cancel or change job j.
func (o *oracle) reaches(sub *oraclePeer, j *oracleJob) bool {
	return j.owner == sub.number || j.detach || j.keep > 0 && j.owner == 0 && j.token == sub.token
}

// attach carries out an attach: the frames of a kept job go to another connection from now on.
func (o *oracle) attach(c *command) {
	sub, j := o.peer(c.peer), o.jobsByID[c.id]
	switch {
	case j == nil || j.keep == 0 || j.token != sub.token || j.unwanted() && !j.revoked:
		o.refuse(sub.number, broker.UnknownID, c.id)
		return
	case j.owner != sub.number && j.state == ended && j.outcomeBytes > c.room:
		o.refuse(sub.number, broker.Overloaded, c.id)
		return
	}
	if j.progress != c.progress {
		j.progress = c.progress
		if w := o.peer(j.worker); j.state == running && w.kind == borrowers {
			o.send(frame{op: broker.OpFollow, peer: w.number, id: j.id, loan: j.loan(o.now)})
		}
	}
	o.send(frame{op: broker.OpOK, peer: sub.number, id: j.id, state: string(j.state)})
	if j.owner == sub.number {
		return
	}
	if j.owner != 0 && j.state != ended {
		o.refuse(j.owner, broker.TakenOver, j.id)
	}
	j.owner = sub.number
	if j.state == ended {
		o.sendLast(j, j.last)
	}
}
