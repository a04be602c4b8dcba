package master

import (
	"gloom/cmd/internal/unique"
	"gloom/cmd/jq-master/job"
)

// uniqueKey is a unique key together with the name of the jobs among which it is unique.
type uniqueKey struct{ name, key string }

func keyOf(a *job.Attributes) uniqueKey { return uniqueKey{a.Name, a.Unique.Key} }

// claim says which job holds a unique key. Only the active master decides this, from the stored
// jobs. A key is stored as part of its job. So it survives whatever the job survives, and a master
// that has lost the lease cannot store it.
type claim struct {
	rec      *record  // the holder; nil until the store has accepted or refused the new holder
	replaced *record  // the job that gets the key back if the new holder is not stored; nil: none
	waiting  []func() // functions to be called when the new holder has been stored or refused
}

// shareKey finds the job that holds the key of a new job, and applies the mode to the holder. It
// reports whether the new job is to be enqueued now.
func (m *machine) shareKey(e *enqueueRequest) (goesOn bool) {
	n := e.jobs[0]
	if err := m.closedError(); err != nil {
		e.reply(nil, false, err)
		return false
	}
	s := n.UniqueRequest
	until := int64(0)
	if s.Period == unique.PeriodWindow {
		until = m.wallTime + toMillis(s.Window)
	}
	n.Unique = &job.Unique{Key: s.Key, Period: s.Period, Until: until}
	k := keyOf(&n.Attributes)
	switch holder := m.uniques[k]; {
	case holder == nil:
		m.uniques[k] = &claim{}
		return true
	case holder.rec == nil:
		holder.waiting = append(holder.waiting, func() { m.enqueue(e) })
		return false
	case holder.rec.op != opNone:
		holder.rec.addOnIdle(func() { m.enqueue(e) })
		return false
	case !holder.rec.HoldsKey(m.wallTime):
		m.uniques[k] = &claim{replaced: holder.rec}
		return true
	case s.Mode == unique.ModeReplace && holder.rec.State.Waits():
		n.Unique.Replaces, n.Unique.ReplacesRev = holder.rec.ID, holder.rec.Rev+1
		return true
	case s.Mode == unique.ModeExtend && holder.rec.State.Waits():
		m.postpone(holder.rec, n, e)
	default:
		m.replyHolder(e, holder.rec, unique.AnswerKept)
	}
	return false
}

// replyHolder replies to a pusher with the id of the job that holds the key.
func (m *machine) replyHolder(e *enqueueRequest, r *record, mode string) {
	e.unique = mode
	e.reply([]job.ID{r.ID}, false, nil)
}

// postpone delays r, which holds the key: r becomes due when the delay of the new job n, counted
// from now, has passed, but at most n.UniqueRequest.Max after r was enqueued. It never becomes due
// earlier than it was.
func (m *machine) postpone(r *record, n *NewJob, e *enqueueRequest) {
	due := m.wallTime + toMillis(n.Delay)
	if n.UniqueRequest.Max > 0 {
		due = min(due, r.Enqueued+toMillis(n.UniqueRequest.Max))
	}
	if due <= m.wallTime+r.dueAt-m.monotonic {
		m.replyHolder(e, r, unique.AnswerExtended)
		return
	}
	j := r.nextState()
	j.Due = due
	m.write(opPostpone, r, j, 0, 0, func() {
		m.sendDelay(r)
		m.replyHolder(e, r, unique.AnswerExtended)
	})
}

// replacedJob returns the job that a new one replaces, or nil. Commands about that job wait until
// settleUnique is called.
func (m *machine) replacedJob(n *NewJob) *record {
	if n.UniqueRequest == nil || n.Unique.Replaces.IsZero() {
		return nil
	}
	old := m.jobs.Get(n.Unique.Replaces)
	old.op = opCancel
	return old
}

// settleUnique settles a request for a unique key. r is the stored job that wanted the key, or nil
// if the job was refused. The job that r replaces is cancelled only after r is stored, so that no
// crash loses both.
func (m *machine) settleUnique(e *enqueueRequest, r, old *record) {
	if len(e.jobs) == 0 || e.jobs[0].UniqueRequest == nil {
		return
	}
	k := keyOf(&e.jobs[0].Attributes)
	holder := m.uniques[k]
	switch {
	case r != nil:
		m.uniques[k] = &claim{rec: r}
	case holder.rec != nil: // the key stays with the job that was to be replaced
	case holder.replaced != nil && m.jobs.Get(holder.replaced.ID) == holder.replaced:
		m.uniques[k] = &claim{rec: holder.replaced}
	default:
		delete(m.uniques, k)
	}
	if old != nil {
		old.op = opNone
		if r == nil {
			m.runWaiting(old)
		}
	}
	for _, f := range holder.waiting {
		f()
	}
}

// restoreKey gives a stored job its key back. If several stored jobs have the same key, the present
// holder gets the key or, without a holder, the job that was enqueued last. The others have
// released the key.
func (m *machine) restoreKey(r *record) {
	if r.Unique == nil || r.State.Ended() && !r.HoldsKey(m.wallTime) {
		return
	}
	k := keyOf(&r.Attributes)
	if holder := m.uniques[k]; holder == nil || isBetterHolder(r, holder.rec, m.wallTime) {
		m.uniques[k] = &claim{rec: r}
	}
}

func isBetterHolder(a, b *record, now int64) bool {
	if holds := a.HoldsKey(now); holds != b.HoldsKey(now) {
		return holds
	}
	return a.Seq > b.Seq
}

// finishReplacing cancels the replaced jobs that the last master had not cancelled yet. It does not
// cancel jobs that an operator has revived after their cancellation.
func (m *machine) finishReplacing() {
	for _, holder := range m.uniques {
		if r := holder.rec; r.State == job.Queued && r.Rev == 0 && !r.Unique.Replaces.IsZero() {
			old, rev := m.jobs.Get(r.Unique.Replaces), r.Unique.ReplacesRev
			if old != nil && old.State.Waits() && (rev == 0 || old.Rev == rev-1) {
				m.cancelNow(old, func(error) {})
			}
		}
	}
}

// takeKeyAgain gives the key back to an ended job that is to run again, unless another job holds
// the key.
func (m *machine) takeKeyAgain(r *record) error {
	if r.Unique == nil {
		return nil
	}
	k := keyOf(&r.Attributes)
	holder := m.uniques[k]
	switch {
	case holder == nil || holder.rec == r || holder.rec != nil && holder.rec.op == opNone && !holder.rec.HoldsKey(m.wallTime):
		m.uniques[k] = &claim{rec: r}
		return nil
	case holder.rec == nil:
		return job.Refuse(job.WrongState, "", "another job, which is being stored, holds its unique key %q", k.key)
	}
	return job.Refuse(job.WrongState, "", "the job %v holds its unique key %q", holder.rec.ID, k.key)
}

// releaseKey releases the key of a job that is being forgotten.
func (m *machine) releaseKey(r *record) {
	if r.Unique == nil {
		return
	}
	if k := keyOf(&r.Attributes); m.uniques[k] != nil && m.uniques[k].rec == r {
		delete(m.uniques, k)
	}
}
