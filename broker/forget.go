package broker

// TypeUse is everything that keeps a type from being forgotten.
type TypeUse struct {
	// HasWorkers reports whether workers have joined with the type's name; patterns do not count.
	HasWorkers bool
	// IsPaused and HasSettings report what operators have set; HasSettings means that the type has
	// limits or is fair.
	IsPaused, HasSettings bool
	// Running counts the runs of its jobs, and of other brokers' jobs that run here.
	Running int
	// Waiting, Letters and Outcomes count what else the type holds: delayed and queued jobs, dead
	// letters, and kept outcomes.
	Waiting, Letters, Outcomes int
}

// isActive reports whether workers, settings or running jobs keep the type from being forgotten.
func (u *TypeUse) isActive() bool {
	return u.HasWorkers || u.IsPaused || u.HasSettings || u.Running > 0
}

// Discardable reports whether only jobs and records, which can be discarded, keep the type from being
// forgotten.
func (u *TypeUse) Discardable() bool { return !u.isActive() && !u.isUnused() }

// isUnused reports whether the type may be forgotten.
func (u *TypeUse) isUnused() bool { return *u == TypeUse{} }

// TypeUse returns what keeps a type from being forgotten, and whether the type exists.
func (b *Broker) TypeUse(name []byte) (u TypeUse, known bool) {
	jt := b.typesByName[string(name)]
	if jt == nil {
		return u, false
	}
	return jt.currentUse(), true
}

func (jt *jobType) currentUse() TypeUse {
	return TypeUse{
		HasWorkers: jt.workers+jt.namingPools > 0, IsPaused: jt.paused, HasSettings: jt.hasSettings(), Running: int(jt.Running) + int(jt.borrowedRuns),
		Waiting: int(jt.Delayed + jt.Queued), Letters: jt.letters.n, Outcomes: int(jt.outcomes),
	}
}

// ForgetRequest is an operator's command to forget a type.
type ForgetRequest struct {
	Name []byte
	// Discard first discards the type's jobs and records, if nothing else keeps the type from
	// being forgotten.
	Discard bool
	// Use says why the type was not forgotten. It is zero if the type was forgotten.
	Use TypeUse
	// Waiting, Letters and Outcomes count what was discarded.
	Waiting, Letters, Outcomes int

	next int // the number of the record to continue from, -1 if all have been visited
}

// ForgetType forgets a type that nobody serves and that holds nothing, piece by piece. It
// reports whether there is more to do; at the end, req has the result. The type's counts stay
// in the totals. A discarded job ends as discarded: its submitter gets Cancelled, and
// nothing of the job is kept.
func (b *Broker) ForgetType(now int64, req *ForgetRequest) (effects []Effect, more bool) {
	b.begin(now)
	jt := b.typesByName[string(req.Name)]
	if jt == nil {
		req.Use = TypeUse{}
		return b.end(), false
	}
	req.Use = jt.currentUse()
	switch {
	case req.Use.isActive() || !req.Discard && !req.Use.isUnused():
		return b.end(), false
	case req.next >= 0 && !req.Use.isUnused():
		for n := 0; n < maxWalkLetters && jt.letters.n > 0; n++ {
			b.deadLetters.drop(b, jt, jt.letters.firstFrom(0))
			req.Letters++
		}
		n := 0
		req.next = b.eachJob(req.next, &JobFilter{Type: req.Name}, func(rec uint32, j *job) bool {
			b.discard(req, rec, j)
			n++
			return n < maxRevokeJobs
		})
		if jt.letters.n > 0 {
			req.next = max(req.next, 0)
		}
		return b.end(), true
	case !req.Use.isUnused(): // something was added after the discarding
		return b.end(), false
	case jt.inUse(): // jobs of lost submitters are still to be freed
		b.runChores(&b.cleanups, tickSteps)
		return b.end(), true
	}
	if b.isKept(jt) {
		b.otherStats.Add(&jt.stats)
	}
	b.forgetType(jt)
	return b.end(), false
}

// discard ends a waiting job, or forgets a kept outcome, so that its type can be forgotten.
func (b *Broker) discard(req *ForgetRequest, rec uint32, j *job) {
	if j.state == stateEnded {
		b.forgetOutcome(rec, j)
		req.Outcomes++
		return
	}
	h := b.holdingOf(j)
	b.leaveQueue(rec, j)
	frame := &lastFrame{code: Cancelled, reason: Reason{Why: WhyTypeForgotten}}
	b.sendLastFrame(h, rec, j, frame)
	b.countEnd(h, rec, j, EndDiscarded, &frame.reason, 0)
	b.freeEnded(h, rec, j)
	req.Waiting++
}
