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
	j.state, j.since, j.until, j.last = ended, o.now, o.now+int64(j.keep), last
	o.setTimer(j)
	// The core chooses the text of an error's reason, and so its length.
	if j.length = len(last.body); last.op == broker.OpEnd {
		i, _ := o.observed.job(j.id)
		j.length = i.Bytes
	}
}

func (o *oracle) sendLast(j *oracleJob, last frame) {
	last.peer, last.run = j.owner, j.run
	o.send(last)
	j.sent = true
}

// outcomeWritten handles the report that the kept outcome with this id has been written completely.
func (o *oracle) outcomeWritten(c *command) {
	if j := o.held[c.id]; j != nil && j.state == ended && j.sent {
		o.forget(j)
	}
}

// reaches reports whether submitter s may cancel or change job j.
func (o *oracle) reaches(s *oraclePeer, j *oracleJob) bool {
	return j.owner == s.number || j.detach || j.keep > 0 && j.owner == 0 && j.token == s.token
}

// attach carries out an attach: the frames of a kept job go to another connection from now on.
func (o *oracle) attach(c *command) {
	s, j := o.peer(c.peer), o.held[c.id]
	switch {
	case j == nil || j.keep == 0 || j.token != s.token || j.unwanted() && !j.revoked:
		o.refuse(s.number, broker.UnknownID, c.id)
		return
	case j.owner != s.number && j.state == ended && j.length > c.room:
		o.refuse(s.number, broker.Overloaded, c.id)
		return
	}
	if j.progress != c.progress {
		j.progress = c.progress
		if w := o.peer(j.worker); j.state == running && w.kind == borrowers {
			o.send(frame{op: broker.OpFollow, peer: w.number, id: j.id, loan: j.loan(o.now)})
		}
	}
	o.send(frame{op: broker.OpOK, peer: s.number, id: j.id, state: string(j.state)})
	if j.owner == s.number {
		return
	}
	if j.owner != 0 && j.state != ended {
		o.refuse(j.owner, broker.TakenOver, j.id)
	}
	j.owner = s.number
	if j.state == ended {
		o.sendLast(j, j.last)
	}
}
