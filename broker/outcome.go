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

// endJob ends a job with its last frame. The job must be in no list any more. The frame goes to the
// job's submitter, if any, and is kept if the job is kept.
func (b *Broker) endJob(rec uint32, j *job, frame *lastFrame) {
	h := b.holdingOf(j)
	b.sendLastFrame(h, rec, j, frame)
	b.countEnd(h, rec, j, endKindOf(frame.code), &frame.reason, len(frame.body))
	if !h.isKept {
		b.freeEnded(h, rec, j)
		return
	}
	b.countAgainstLimits(h, rec, j, -1)
	b.storeOutcome(rec, j, frame)
	j.state = stateEnded
	b.appendTo(&h.jobs, holdingLink, rec, j)
	b.countAgainstLimits(h, rec, j, +1)
	h.endedJobs++
	h.jobType.outcomes++
	b.outcomes++
	b.outcomeBytes += b.weight(h, rec, j)
	t := b.timing(j)
	t.stateSince, t.code, t.why = b.now, frame.code, frame.reason.Why
	b.startTimer(t.pos, j.timing, b.now+t.keepTime)
}

// sendLastFrame sends a job's last frame to the submitter of its holding, if there is one.
func (b *Broker) sendLastFrame(h *holding, rec uint32, j *job, frame *lastFrame) {
	if h.submitter == nil || h.submitter.isLost {
		return
	}
	e := b.toSubmitter(OpResult, h, rec, j)
	e.Body, e.StableBody = frame.body, frame.stableBody
	if frame.code != 0 {
		e.Op, e.Delay = OpEnd, frame.delay
		e.setCode(b, frame.code, frame.reason)
	}
	if h.isKept {
		e.Outcome = jobNumber(rec, j)
	}
}

func jobNumber(rec uint32, j *job) uint64 { return uint64(rec)<<32 | uint64(j.arrival) }

// OutcomeOf returns the number of the kept outcome with this id, or 0, and the submitter to
// which it is on its way, or 0.
func (b *Broker) OutcomeOf(id []byte) (uint64, Peer) {
	rec, j := b.findJob(id)
	if rec == 0 {
		return 0, 0
	}
	h := b.holdingOf(j)
	if j.state != stateEnded || h.submitter == nil {
		return 0, 0
	}
	return jobNumber(rec, j), h.submitter.id
}

// storeOutcome stores the last frame in place of the job's body.
func (b *Broker) storeOutcome(rec uint32, j *job, frame *lastFrame) {
	if frame.code != 0 {
		frame.body, frame.stableBody = []byte(frame.reason.Text), true
	}
	b.storeJob(rec, j, b.id(j), b.priority(j), nil, frame.body, frame.stableBody)
}

// loadOutcome returns the last frame of an ended job.
func (b *Broker) loadOutcome(rec uint32, j *job) *lastFrame {
	t := b.timing(j)
	frame := &lastFrame{code: t.code}
	if body := b.body(rec, j); frame.code != 0 {
		frame.reason = b.reasonFor(t.why, j, string(body))
	} else {
		frame.body, frame.stableBody = body, j.flags&flagBig != 0
	}
	return frame
}

func (b *Broker) forgetOutcome(rec uint32, j *job) {
	h := b.holdingOf(j)
	h.endedJobs--
	h.jobType.outcomes--
	b.outcomes--
	b.outcomeBytes -= b.weight(h, rec, j)
	b.countAgainstLimits(h, rec, j, -1)
	b.removeFrom(&h.jobs, holdingLink, j)
	b.freeJob(rec, j)
	b.retireIfEmpty(h)
}

// OutcomeWritten forgets a kept outcome (Effect.Outcome) whose frame has been written
// completely.
func (b *Broker) OutcomeWritten(now int64, outcome uint64) []Effect {
	b.begin(now)
	rec := uint32(outcome >> 32)
	if b.jobs.Has(rec) {
		if j := b.jobs.Get(rec); j.state == stateEnded && j.arrival == uint32(outcome) {
			b.forgetOutcome(rec, j)
		}
	}
	return b.end()
}

// outcomeTimeLeft returns how long the outcome of a job will still be kept, in nanoseconds.
func (b *Broker) outcomeTimeLeft(j *job) int64 {
	if j.timing == 0 || b.timing(j).pos < 0 {
		return 0
	}
	return max(int64(b.timers.At(int(b.timing(j).pos)).Major)-b.now, 0)
}

// Outcomes returns how many outcomes are kept, and their bytes.
func (b *Broker) Outcomes() (int, int64) { return b.outcomes, b.outcomeBytes }

// findOwn returns the job with this id that a submitter may cancel or change: its own, a detached
// one, or a kept one of the same owner without a connection. rec is 0 if there is none.
func (b *Broker) findOwn(s *submitter, id []byte) (h *holding, rec uint32, j *job) {
	if rec, j = b.findJob(id); rec == 0 {
		return nil, 0, nil
	}
	h = b.holdingOf(j)
	b.orphanKept(h)
	if h.submitter == s || j.flags&flagDetached != 0 || h.isKept && h.submitter == nil && h.owner == s.owner {
		return h, rec, j
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
	rec, j := b.findJob(id)
	if rec == 0 {
		b.refuse(p, UnknownID, id, Reason{Why: WhyNotKept})
		return b.end()
	}
	h := b.holdingOf(j)
	b.orphanKept(h)
	switch {
	case !h.isKept || h.owner != sub.owner || j.flags&(flagUnwanted|flagRevoked) == flagUnwanted:
		b.refuse(p, UnknownID, id, Reason{Why: WhyNotKept})
		return b.end()
	case j.state == stateEnded && h.submitter != sub && len(b.body(rec, j)) > room:
		b.refuse(p, Overloaded, id, Reason{Why: WhyFrameTooLong})
		return b.end()
	}
	if progress != (j.flags&flagProgress != 0) {
		j.flags ^= flagProgress
		if j.state == stateRunning && b.workerOf(j).isBorrower {
			b.toWorker(OpFollow, b.workerOf(j), rec, j)
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
	b.moveJob(rec, j, h, target)
	if j.state == stateEnded {
		b.sendLastFrame(target, rec, j, b.loadOutcome(rec, j))
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
