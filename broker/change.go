package broker

import "time"

// ChangeRequest is a request to change a waiting job. Fields that are not set leave the job as it is.
type ChangeRequest struct {
	ID          []byte
	Priority    int64
	SetPriority bool
	// Groups replace the groups of the job.
	Groups    [][]byte
	SetGroups bool
	// Delay is the time from now until the job can be handed out. A negative value leaves the job's
	// delay as it is.
	Delay time.Duration
}

// Change changes a waiting job that submitter p may cancel. It is refused with NotProcessing if
// the job runs, with Overloaded if there would be too many groups, and otherwise with
// UnknownID.
func (b *Broker) Change(now int64, p Peer, q *ChangeRequest) []Effect {
	b.begin(now)
	sub := b.submitter(p)
	if sub == nil {
		return b.end()
	}
	_, r, j := b.findOwn(sub, q.ID)
	if r == 0 {
		b.refuse(p, UnknownID, q.ID, Reason{Why: WhyNotChangeable})
		return b.end()
	}
	if c, reason := b.changeJob(r, j, q); c != 0 {
		b.refuse(p, c, q.ID, reason)
		return b.end()
	}
	b.replyOK(p, b.id(j))
	return b.end()
}

// Amend is Change for an operator, for any waiting job. It returns why it was refused.
func (b *Broker) Amend(now int64, q *ChangeRequest) ([]Effect, Code, Reason) {
	b.begin(now)
	r, j := b.findJob(q.ID)
	if r == 0 {
		return b.end(), UnknownID, Reason{Why: WhyNotWaiting}
	}
	c, reason := b.changeJob(r, j, q)
	return b.end(), c, reason
}

func (b *Broker) changeJob(r uint32, j *job, q *ChangeRequest) (Code, Reason) {
	switch {
	case j.state == stateEnded:
		return UnknownID, Reason{Why: WhyAlreadyEnded}
	case j.state == stateRunning && b.isUnwanted(j):
		return UnknownID, Reason{Why: WhyAlreadyCancelled}
	case j.state == stateRunning:
		return NotProcessing, Reason{Why: WhyIsRunning}
	}
	h := b.holdingOf(j)
	if q.SetGroups {
		if reason := b.tooManyGroups(q.Groups, h.queue.groupSet); reason.Why != 0 {
			return Overloaded, reason
		}
	}
	since, until := b.stateSince(j), int64(0)
	delayed := j.state == stateDelayed
	if delayed {
		until = b.timing(j).delayUntil
	}
	if q.Delay >= 0 {
		until = b.now + int64(q.Delay)
	}
	b.leaveQueue(r, j)
	if q.SetPriority {
		b.setPriority(r, j, q.Priority)
	}
	if q.SetGroups {
		if target := b.holdingWithGroups(h, b.groupSetFor(q.Groups)); target != h {
			b.setHolding(r, j, h, target)
			b.retireIfEmpty(h)
			h = target
		}
	}
	b.waitUntil(h, r, j, until)
	if j.timing != 0 && delayed == (j.state == stateDelayed) {
		b.timing(j).stateSince = since
	}
	return 0, Reason{}
}
