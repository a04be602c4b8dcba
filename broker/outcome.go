package broker

// A kept job (Submission.Keep) is in a holding that outlives its submitter. When the job has
// ended, its record stays, with the last frame in place of the body: this is its kept outcome, for
// short outcome in this file. It holds the id and counts against limits on jobs and bytes; the
// ledger has counted the end already. If the holding has a submitter, the frame is on its way
// there. If not, it waits until a submitter attaches.

// lastFrame is the last frame of a job: a result or, with a code, an error.
type lastFrame struct {
	code   Code
	reason Reason
	delay  int64 // set if the code is JobRetryLater
	body   []byte
	// stableBody reports that nobody writes to body again, so that it need not be copied.
	stableBody bool
}

// SetOwner sets the owner of the kept jobs that submitter p submits from now on. Only
// submitters with the same owner may attach to them. Without a call, the owner is 0.
func (b *Broker) SetOwner(p Peer, owner uint64) {
	if s := b.submitter(p); s != nil {
		s.owner = owner
	}
}

// endJob ends a job with its last frame. The job must be in no list any more. The frame goes
// to the submitter, if there is one, and is kept if the job is kept.
func (b *Broker) endJob(r uint32, j *job, l *lastFrame) {
	h := b.holdingOf(j)
	b.sendLastFrame(h, r, j, l)
	b.countEnd(h, r, j, endKindOf(l.code), &l.reason, len(l.body))
	if !h.isKept {
		b.freeEnded(h, r, j)
		return
	}
	b.countAgainstLimits(h, r, j, -1)
	b.storeOutcome(r, j, l)
	j.state = stateEnded
	b.appendTo(&h.jobs, holdingLink, r, j)
	b.countAgainstLimits(h, r, j, +1)
	h.endedJobs++
	h.jobType.outcomes++
	b.outcomes++
	b.outcomeBytes += b.weight(h, r, j)
	t := b.timing(j)
	t.stateSince, t.code, t.why = b.now, l.code, l.reason.Why
	b.startTimer(t.pos, j.timing, b.now+t.keepTime)
}

// sendLastFrame sends a job's last frame to the submitter of its holding, if there is one.
func (b *Broker) sendLastFrame(h *holding, r uint32, j *job, l *lastFrame) {
	if h.submitter == nil || h.submitter.isLost {
		return
	}
	e := b.toSubmitter(OpResult, h, r, j)
	if e.Body, e.StableBody = l.body, l.stableBody; l.code != 0 {
		e.Op, e.Delay = OpEnd, l.delay
		e.setCode(b, l.code, l.reason)
	}
	if h.isKept {
		e.Outcome = outcomeNumber(r, j)
	}
}

func outcomeNumber(r uint32, j *job) uint64 { return uint64(r)<<32 | uint64(j.arrival) }

// OutcomeOf returns the number of the kept outcome with this id, or 0, and the submitter to
// which it is on its way, or 0.
func (b *Broker) OutcomeOf(id []byte) (uint64, Peer) {
	r, j := b.findJob(id)
	if r == 0 {
		return 0, 0
	}
	h := b.holdingOf(j)
	if j.state != stateEnded || h.submitter == nil {
		return 0, 0
	}
	return outcomeNumber(r, j), h.submitter.id
}

// storeOutcome stores the last frame in place of the job's body.
func (b *Broker) storeOutcome(r uint32, j *job, l *lastFrame) {
	if l.code != 0 {
		l.body, l.stableBody = []byte(l.reason.Text), true
	}
	b.storeJob(r, j, b.id(j), b.priority(j), nil, l.body, l.stableBody)
}

// loadOutcome returns the last frame of an ended job.
func (b *Broker) loadOutcome(r uint32, j *job) *lastFrame {
	t := b.timing(j)
	l := &lastFrame{code: t.code}
	if body := b.body(r, j); l.code != 0 {
		l.reason = b.reasonFor(t.why, j, string(body))
	} else {
		l.body, l.stableBody = body, j.flags&flagBig != 0
	}
	return l
}

func (b *Broker) forgetOutcome(r uint32, j *job) {
	h := b.holdingOf(j)
	h.endedJobs--
	h.jobType.outcomes--
	b.outcomes--
	b.outcomeBytes -= b.weight(h, r, j)
	b.countAgainstLimits(h, r, j, -1)
	b.removeFrom(&h.jobs, holdingLink, j)
	b.freeJob(r, j)
	b.retireIfEmpty(h)
}

// OutcomeWritten forgets a kept outcome (Effect.Outcome) whose frame has been written
// completely.
func (b *Broker) OutcomeWritten(now int64, outcome uint64) []Effect {
	b.begin(now)
	r := uint32(outcome >> 32)
	if b.jobs.Has(r) {
		if j := b.jobs.Get(r); j.state == stateEnded && j.arrival == uint32(outcome) {
			b.forgetOutcome(r, j)
		}
	}
	return b.end()
}

// outcomeTimeLeft returns how long the outcome of a job will still be kept, in nanoseconds.
func (b *Broker) outcomeTimeLeft(j *job) int64 {
	if j.timing == 0 || b.timing(j).pos < 0 {
		return 0
	}
	return max(int64(b.timers.At(int(b.timing(j).pos)).A)-b.now, 0)
}

// Outcomes returns how many outcomes are kept, and their bytes.
func (b *Broker) Outcomes() (int, int64) { return b.outcomes, b.outcomeBytes }

// findOwn returns the job with this id that a submitter may cancel or change: its own, a detached
// one, or a kept one of the same owner without a connection. r is 0 if there is none.
func (b *Broker) findOwn(s *submitter, id []byte) (h *holding, r uint32, j *job) {
	if r, j = b.findJob(id); r == 0 {
		return nil, 0, nil
	}
	h = b.holdingOf(j)
	b.orphanKept(h)
	if h.submitter == s || j.flags&flagDetached != 0 || h.isKept && h.submitter == nil && h.owner == s.owner {
		return h, r, j
	}
	return nil, 0, nil
}

// Attach sends the frames of a kept job to submitter p from now on. room limits the further bytes
// that may wait for p: if the outcome does not fit, the request is refused with Overloaded. A job
// that is not kept, has another owner or is unwanted is refused with UnknownID. The connection that
// had the job gets TakenOver.
func (b *Broker) Attach(now int64, p Peer, id []byte, progress bool, room int) []Effect {
	b.begin(now)
	sub := b.submitter(p)
	if sub == nil {
		return b.end()
	}
	r, j := b.findJob(id)
	if r == 0 {
		b.refuse(p, UnknownID, id, Reason{Why: WhyNotKept})
		return b.end()
	}
	h := b.holdingOf(j)
	b.orphanKept(h)
	switch {
	case !h.isKept || h.owner != sub.owner || j.flags&(flagUnwanted|flagRevoked) == flagUnwanted:
		b.refuse(p, UnknownID, id, Reason{Why: WhyNotKept})
		return b.end()
	case j.state == stateEnded && h.submitter != sub && len(b.body(r, j)) > room:
		b.refuse(p, Overloaded, id, Reason{Why: WhyFrameTooLong})
		return b.end()
	}
	if progress != (j.flags&flagProgress != 0) {
		j.flags ^= flagProgress
		if j.state == stateRunning && b.workerOf(j).isBorrower {
			b.toWorker(OpFollow, b.workerOf(j), r, j)
		}
	}
	b.effect(OpOK, p, b.id(j)).State = j.state
	if h.submitter == sub {
		return b.end()
	}
	if h.submitter != nil && j.state != stateEnded {
		b.refuse(h.submitter.id, TakenOver, b.id(j), Reason{Why: WhyAttachedTo})
	}
	target := b.holdingFor(sub, h.jobType, h.queue.groupSet, true, h.origin)
	b.moveJob(r, j, h, target)
	if j.state == stateEnded {
		b.sendLastFrame(target, r, j, b.loadOutcome(r, j))
	}
	return b.end()
}

// String returns the state's name in replies and listings.
func (s state) String() string {
	switch s {
	case stateDelayed:
		return "delayed"
	case stateRunning:
		return "running"
	case stateEnded:
		return "ended"
	}
	return "queued"
}
