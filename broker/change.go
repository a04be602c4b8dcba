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

// Change changes a waiting job that submitter p may cancel. The request is refused with
// NotProcessing if the job runs, with Overloaded if there would be too many groups, and with
// UnknownID in all other cases.
func (b *Broker) Change(now int64, p Peer, req *ChangeRequest) []Effect {
	b.begin(now)
	sub := b.submitter(p)
	if sub == nil {
		return b.end()
	}
	_, rec, j := b.findOwn(sub, req.ID)
	if rec == 0 {
		b.refuse(p, UnknownID, req.ID, Reason{Why: WhyNotChangeable})
		return b.end()
	}
	if code, reason := b.changeJob(rec, j, req); code != 0 {
		b.refuse(p, code, req.ID, reason)
		return b.end()
	}
	b.replyOK(p, b.id(j))
	return b.end()
}

// Amend changes any waiting job for an operator. If the change is refused, Amend returns the code
// and the reason.
func (b *Broker) Amend(now int64, req *ChangeRequest) ([]Effect, Code, Reason) {
	b.begin(now)
	rec, j := b.findJob(req.ID)
	if rec == 0 {
		return b.end(), UnknownID, Reason{Why: WhyNotWaiting}
	}
	code, reason := b.changeJob(rec, j, req)
	return b.end(), code, reason
}

func (b *Broker) changeJob(rec uint32, j *job, req *ChangeRequest) (Code, Reason) {
	switch {
	case j.state == stateEnded:
		return UnknownID, Reason{Why: WhyAlreadyEnded}
	case j.state == stateRunning && b.isUnwanted(j):
		return UnknownID, Reason{Why: WhyAlreadyCancelled}
	case j.state == stateRunning:
		return NotProcessing, Reason{Why: WhyIsRunning}
	}
	h := b.holdingOf(j)
	if req.SetGroups {
		if reason := b.tooManyGroups(req.Groups, h.queue.groupSet); reason.Why != 0 {
			return Overloaded, reason
		}
	}
	since, until := b.stateSince(j), int64(0)
	delayed := j.state == stateDelayed
	if delayed {
		until = b.timing(j).delayUntil
	}
	if req.Delay >= 0 {
		until = b.now + int64(req.Delay)
	}
	b.leaveQueue(rec, j)
	if req.SetPriority {
		b.setPriority(rec, j, req.Priority)
	}
	if req.SetGroups {
		if target := b.holdingWithGroups(h, b.groupSetFor(req.Groups)); target != h {
			b.setHolding(rec, j, h, target)
			b.retireIfEmpty(h)
			h = target
		}
	}
	b.delayUntil(h, rec, j, until)
	if j.timing != 0 && delayed == (j.state == stateDelayed) {
		b.timing(j).stateSince = since
	}
	return 0, Reason{}
}
