package broker

import "time"

// Submission is a job to be submitted. ID and Type are in the canonical form of package wire,
// which the core compares byte by byte.
type Submission struct {
	ID, Type, Body []byte
	Priority       int64
	// Delay is the time before the job can be handed out. Timeout bounds one run. Backoff is the
	// wait before the first retry, and doubles for each further retry; after the loss of a worker
	// there is no wait. Expires is the time until the deadline. 0 means none.
	Delay, Timeout, Backoff, Expires time.Duration
	// Retries is the number of runs that may follow the first run. If it is negative, Config.Retries
	// applies.
	Retries int32
	// StableBody says that nobody writes to Body again, so that it need not be copied. The
	// capacity of Body counts, because all of it stays allocated.
	StableBody bool
	// Detach lets the job outlive its submitter, which gets no frame about it after the
	// ack.
	Detach bool
	// NoAck suppresses the ack.
	NoAck bool
	// Progress asks for the progress of runs.
	Progress bool
	// Groups are the names of the groups that the job belongs to. They must differ from each
	// other; package wire bounds their number.
	Groups [][]byte
	// Age backdates the job: it is queued, and its waiting time is counted, as if it had been
	// submitted that long ago.
	Age time.Duration
	// Headers, at most 4 KiB, go to workers that ask for them.
	Headers []byte
	// Keep, above 0, lets the job outlive its submitter. The job's last frame is kept this long
	// after the job ends, for a submitter that attaches.
	Keep time.Duration
}

// Submit accepts a job from submitter p. The job is refused with IDExists, Overloaded (a limit is
// reached) or Draining.
func (b *Broker) Submit(now int64, p Peer, s *Submission) []Effect {
	b.begin(now)
	sub := b.submitter(p)
	if sub == nil {
		return b.end()
	}
	if len(b.cleanups) > 0 {
		b.runChores(&b.cleanups, submitSteps)
	}
	var found admission
	if code, reason := b.admit(sub, s, &found); code != 0 {
		b.refuse(p, code, s.ID, reason)
		return b.end()
	}
	b.accept(sub, s, &found)
	return b.end()
}

// admission passes findings from admit to accept: the type (nil if it is not known), the hash of
// the id, and the record of an abandoned job with the same id (0 if there is none).
type admission struct {
	jobType         *jobType
	hash            uint64
	abandonedRecord uint32
}

// admit returns why a submission is refused, or 0, and fills in found.
func (b *Broker) admit(sub *submitter, s *Submission, found *admission) (Code, Reason) {
	found.hash = b.jobIndex.Hash(s.ID)
	found.abandonedRecord = b.jobIndex.Find(found.hash, s.ID)
	if found.abandonedRecord != 0 && !b.isAbandoned(b.jobs.Get(found.abandonedRecord)) {
		if b.jobs.Get(found.abandonedRecord).state == stateEnded {
			return IDExists, Reason{Why: WhyOutcomeKept, Have: b.outcomeTimeLeft(b.jobs.Get(found.abandonedRecord))}
		}
		return IDExists, Reason{Why: WhyIDInUse}
	}
	if b.draining {
		return Draining, Reason{Why: WhyDraining}
	}
	if sub != nil && sub.lastHolding != nil && string(sub.lastHolding.jobType.name) == string(s.Type) {
		found.jobType = sub.lastHolding.jobType
	} else {
		found.jobType = b.typesByName[string(s.Type)]
	}
	if reason := b.exceededLimit(sub, found.jobType, s); reason.Why != 0 {
		return Overloaded, reason
	}
	return 0, Reason{}
}

// accept turns a submission into a job. sub is nil for a detached job that no connection submits.
func (b *Broker) accept(sub *submitter, s *Submission, found *admission) {
	jt := found.jobType
	if jt == nil {
		jt = b.typeFor(s.Type)
	}
	var set *groupSet
	if len(s.Groups) > 0 {
		set = b.groupSetFor(s.Groups)
	}
	var origin Peer
	if sub != nil && (s.Keep > 0 || s.Detach && jt.fair) {
		origin = sub.id
	}
	owner := sub
	if s.Detach {
		owner = nil
	}
	h := b.holdingFor(owner, jt, set, s.Keep > 0, origin)
	flags := uint16(0)
	if s.Detach {
		flags = flagDetached
	}
	rec, j := b.newJob(h, s, flags)
	b.bindID(rec, j, found.hash, found.abandonedRecord)
	retries := int(s.Retries)
	if retries < 0 {
		retries = b.cfg.Retries
	}
	j.retries = uint16(min(retries, maxRetries))
	if s.Timeout > 0 || s.Backoff > 0 || s.Expires > 0 || s.Delay > 0 || s.Keep > 0 {
		t := b.ensureTiming(rec, j)
		t.timeout, t.backoff, t.keepTime = int64(s.Timeout), int64(s.Backoff), int64(s.Keep)
		if s.Expires > 0 {
			t.deadline = b.now + int64(s.Expires)
		}
	}
	jt.Submitted++
	b.totals.Submitted++
	if sub != nil && !s.NoAck {
		b.replyOK(sub.id, b.id(j))
	}
	b.delayUntil(h, rec, j, b.now+int64(s.Delay))
	if s.Delay <= 0 && j.timing != 0 {
		b.timing(j).stateSince = j.submittedAt
	}
}

// newJob makes the record of a job, but puts it in no list.
func (b *Broker) newJob(h *holding, s *Submission, flags uint16) (uint32, *job) {
	rec, j := b.jobs.Take()
	b.lastArrival++
	j.arrival, j.submittedAt = b.lastArrival, b.now-int64(s.Age)
	j.holding = h.number
	j.flags = flags
	if s.Progress {
		j.flags |= flagProgress
	}
	b.storeJob(rec, j, s.ID, s.Priority, s.Headers, s.Body, s.StableBody)
	b.countAgainstLimits(h, rec, j, +1)
	return rec, j
}

// exceededLimit returns the limit that a submission would exceed, or a Reason whose Why is 0.
func (b *Broker) exceededLimit(sub *submitter, jt *jobType, s *Submission) Reason {
	cfg := &b.cfg
	weight := s.weight()
	if b.typeExceedsLimit(jt) {
		return b.tooManyTypes()
	}
	if jt == nil && cfg.MaxPairs > 0 && b.pairs.Len()+len(b.poolsByKey) > cfg.MaxPairs {
		return Reason{Why: WhyTooManyPairs, Have: int64(b.pairs.Len())}
	}
	var held, bytes int64
	if cfg.MaxJobs > 0 || cfg.MaxBytes > 0 {
		held, bytes = b.Usage()
	}
	switch {
	case cfg.MaxJobs > 0 && held >= int64(cfg.MaxJobs):
		return Reason{Why: WhyTooManyJobs, Have: held, Overdue: int32(b.overdueRuns)}
	case cfg.MaxBytes > 0 && bytes+weight > cfg.MaxBytes:
		return Reason{Why: WhyTooManyBytes, Have: bytes, Overdue: int32(b.overdueRuns), Need: weight, Limit: cfg.MaxBytes}
	}
	var typeJobs uint64
	var typeBytes int64
	if jt != nil {
		typeJobs, typeBytes = jt.Delayed+jt.Queued+jt.Running+uint64(jt.outcomes), jt.bytes
	}
	switch {
	case cfg.MaxTypeJobs > 0 && typeJobs >= uint64(cfg.MaxTypeJobs):
		return Reason{Why: WhyTooManyTypeJobs, Have: int64(typeJobs), Text: string(s.Type)}
	case cfg.MaxTypeBytes > 0 && typeBytes+weight > cfg.MaxTypeBytes:
		return Reason{Why: WhyTooManyTypeBytes, Have: typeBytes, Need: weight, Limit: cfg.MaxTypeBytes, Text: string(s.Type)}
	}
	if len(s.Groups) > 0 {
		if reason := b.tooManyGroups(s.Groups, nil); reason.Why != 0 {
			return reason
		}
	}
	if s.Detach {
		return Reason{}
	}
	switch {
	case cfg.MaxSubmitterJobs > 0 && sub.jobs >= cfg.MaxSubmitterJobs:
		return Reason{Why: WhyTooManySubmitterJobs, Have: int64(sub.jobs)}
	case cfg.MaxSubmitterBytes > 0 && sub.bytes+weight > cfg.MaxSubmitterBytes:
		return Reason{Why: WhyTooManySubmitterBytes, Have: sub.bytes, Need: weight, Limit: cfg.MaxSubmitterBytes}
	}
	return Reason{}
}

// weight returns how many bytes the job of a submission will count towards limits.
func (s *Submission) weight() int64 {
	n := len(s.Body)
	if s.StableBody && n >= bigBody {
		n = cap(s.Body)
	}
	for _, name := range s.Groups {
		n += len(name)
	}
	return int64(len(s.ID)) + int64(len(s.Headers)) + int64(n) + JobOverhead
}

// Usage returns how many jobs count against MaxJobs and how many bytes against MaxBytes. Kept
// outcomes, overdue runs and the structures around jobs count, too.
func (b *Broker) Usage() (jobs, bytes int64) {
	return int64(b.JobCount()) + int64(b.overdueRuns+b.outcomes),
		b.bytes + b.overdueBytes + b.heapBytes + b.queueBytes() + b.groupBytes() + int64(b.timings.Len())*timingSize +
			b.poolBytes + int64(b.pairs.Len())*pairSize + b.typeNameBytes
}

// Cancel ends a waiting job that submitter p may cancel: its own, a detached one, or a kept
// one without a connection. A running job becomes unwanted, a kept outcome is forgotten. Any
// other id is refused with UnknownID.
func (b *Broker) Cancel(now int64, p Peer, id []byte) []Effect {
	b.begin(now)
	sub := b.submitter(p)
	if sub == nil {
		return b.end()
	}
	h, rec, j := b.findOwn(sub, id)
	switch {
	case rec == 0:
		b.refuse(p, UnknownID, id, Reason{Why: WhyNotCancellable})
	case j.state == stateRunning && b.isUnwanted(j):
		b.refuse(p, UnknownID, id, Reason{Why: WhyAlreadyCancelled})
	case j.state == stateEnded && h.submitter != nil:
		b.refuse(p, UnknownID, id, Reason{Why: WhyOutcomeOnItsWay})
	case j.state == stateEnded:
		b.replyOK(p, b.id(j))
		b.forgetOutcome(rec, j)
	case j.state == stateRunning:
		b.replyOK(p, b.id(j))
		b.notifyUnwanted(rec, j)
		j.flags |= flagUnwanted
	default:
		b.replyOK(p, b.id(j))
		b.leaveQueue(rec, j)
		b.countEnd(h, rec, j, EndCancelled, &Reason{}, 0)
		b.freeEnded(h, rec, j)
	}
	return b.end()
}

// Revoke ends a waiting job for an operator and tells its submitter, or forgets a kept
// outcome. A running job becomes unwanted if running is true; otherwise Revoke returns
// NotProcessing. It returns UnknownID if no job has this id.
func (b *Broker) Revoke(now int64, id []byte, running bool) ([]Effect, Code) {
	b.begin(now)
	rec, j := b.findJob(id)
	if rec == 0 {
		return b.end(), UnknownID
	}
	switch {
	case j.state == stateRunning && !running:
		return b.end(), NotProcessing
	case j.state == stateEnded:
		b.forgetOutcome(rec, j)
	default:
		b.revoke(rec, j)
	}
	return b.end(), 0
}

// revoke cancels a job that has not ended. The submitter gets the last frame at once. If the job is
// kept and runs, the submitter gets the frame when the run ends, so that the outcome can be kept.
func (b *Broker) revoke(rec uint32, j *job) {
	h := b.holdingOf(j)
	switch {
	case j.state != stateRunning:
		b.leaveQueue(rec, j)
		b.endJob(rec, j, revokedFrame())
	case b.isUnwanted(j):
	default:
		b.notifyUnwanted(rec, j)
		j.flags |= flagUnwanted
		if h.isKept {
			j.flags |= flagRevoked
		} else {
			b.sendLastFrame(h, rec, j, revokedFrame())
		}
	}
}

func revokedFrame() *lastFrame { return &lastFrame{code: Cancelled, reason: Reason{Why: WhyRevoked}} }

// delayUntil makes a job wait until the given time. If that has passed, the job is ready at once.
func (b *Broker) delayUntil(h *holding, rec uint32, j *job, until int64) {
	b.appendTo(&h.jobs, holdingLink, rec, j)
	if j.timing != 0 {
		b.timing(j).stateSince = b.now
	}
	if until <= b.now {
		b.enqueue(h, rec, j)
		return
	}
	j.state = stateDelayed
	h.delayedJobs++
	h.jobType.Delayed++
	b.totals.Delayed++
	b.countJobs(h.queue.groupSet, +1, 0)
	t := b.ensureTiming(rec, j)
	t.stateSince, t.delayUntil = b.now, until
	if t.deadline != 0 {
		until = min(until, t.deadline)
	}
	b.startTimer(t.pos, j.timing, until)
}

// ensureTiming returns the timing record of job j, creating it if there is none.
func (b *Broker) ensureTiming(rec uint32, j *job) *timing {
	if j.timing != 0 {
		return b.timing(j)
	}
	var t *timing
	j.timing, t = b.timings.Take()
	t.rec, t.pos = rec, -1
	return t
}

// enqueue puts a job into its queue: it is ready now.
func (b *Broker) enqueue(h *holding, rec uint32, j *job) {
	b.addReady(h.queue, rec, j)
	h.queuedJobs++
	h.jobType.Queued++
	b.totals.Queued++
	b.countJobs(h.queue.groupSet, +1, 0)
	b.rank(h.queue)
	b.markForMatching(h.jobType)
	if j.timing != 0 {
		if t := b.timing(j); t.deadline != 0 {
			b.startTimer(t.pos, j.timing, t.deadline)
		}
	}
}

// leaveQueue takes a waiting job out of its queue, or out of the delayed jobs.
func (b *Broker) leaveQueue(rec uint32, j *job) {
	h := b.holdingOf(j)
	b.stopTimerOf(j)
	b.removeFrom(&h.jobs, holdingLink, j)
	b.countJobs(h.queue.groupSet, -1, 0)
	if j.state == stateDelayed {
		h.delayedJobs--
		h.jobType.Delayed--
		b.totals.Delayed--
		return
	}
	b.removeReady(h.queue, rec, j)
	b.rank(h.queue)
	h.queuedJobs--
	h.jobType.Queued--
	b.totals.Queued--
}

// countEnd counts and records the end of job j, before its body is freed. answerBytes is the
// length of its answer. A borrowed job is left to the broker that lent it, which counts it.
func (b *Broker) countEnd(h *holding, rec uint32, j *job, kind EndKind, reason *Reason, answerBytes int) {
	if j.flags&flagBorrowed != 0 {
		return
	}
	*h.jobType.endCounter(kind)++
	*b.totals.endCounter(kind)++
	b.recordEnd(h, rec, j, kind, reason, answerBytes)
}

// freeEnded frees a job that has ended and is in no list any more.
func (b *Broker) freeEnded(h *holding, rec uint32, j *job) {
	b.countAgainstLimits(h, rec, j, -1)
	b.freeJob(rec, j)
	b.retireIfEmpty(h)
}
