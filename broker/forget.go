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
	k := b.typesByName[string(name)]
	if k == nil {
		return u, false
	}
	return k.currentUse(), true
}

func (k *jobType) currentUse() TypeUse {
	return TypeUse{
		HasWorkers: k.workers+k.namingPools > 0, IsPaused: k.paused, HasSettings: k.hasSettings(), Running: int(k.Running) + int(k.borrowedRuns),
		Waiting: int(k.Delayed + k.Queued), Letters: k.letters.n, Outcomes: int(k.outcomes),
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
// reports whether there is more to do; at the end, f has the result. The type's counts stay
// in the totals. A discarded job ends as discarded: its submitter gets Cancelled, and
// nothing of the job is kept.
func (b *Broker) ForgetType(now int64, f *ForgetRequest) (fx []Effect, more bool) {
	b.begin(now)
	k := b.typesByName[string(f.Name)]
	if k == nil {
		f.Use = TypeUse{}
		return b.end(), false
	}
	f.Use = k.currentUse()
	switch {
	case f.Use.isActive() || !f.Discard && !f.Use.isUnused():
		return b.end(), false
	case f.next >= 0 && !f.Use.isUnused():
		for n := 0; n < maxWalkLetters && k.letters.n > 0; n++ {
			b.deadLetters.drop(b, k, k.letters.firstFrom(0))
			f.Letters++
		}
		n := 0
		f.next = b.eachJob(f.next, &JobFilter{Type: f.Name}, func(r uint32, j *job) bool {
			b.discard(f, r, j)
			n++
			return n < maxRevokeJobs
		})
		if k.letters.n > 0 {
			f.next = max(f.next, 0)
		}
		return b.end(), true
	case !f.Use.isUnused(): // something was added after the discarding
		return b.end(), false
	case k.inUse(): // jobs of lost submitters are still to be freed
		b.runChores(&b.cleanups, tickSteps)
		return b.end(), true
	}
	if b.isKept(k) {
		b.otherStats.Add(&k.stats)
	}
	b.forgetType(k)
	return b.end(), false
}

// discard ends a waiting job, or forgets a kept outcome, so that its type can be forgotten.
func (b *Broker) discard(f *ForgetRequest, r uint32, j *job) {
	if j.state == stateEnded {
		b.forgetOutcome(r, j)
		f.Outcomes++
		return
	}
	h := b.holdingOf(j)
	b.leaveQueue(r, j)
	l := &lastFrame{code: Cancelled, reason: Reason{Why: WhyTypeForgotten}}
	b.sendLastFrame(h, r, j, l)
	b.countEnd(h, r, j, EndDiscarded, &l.reason, 0)
	b.freeEnded(h, r, j)
	f.Waiting++
}
