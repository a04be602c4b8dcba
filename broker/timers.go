package broker

import (
	"math"

	"gloom/broker/container"
)

// typeTimer marks the timers of type rates, and groupTimer marks those of groups. All other timers
// belong to jobs.
const (
	typeTimer  = 1 << 31
	groupTimer = 1 << 30
)

// Never is later than any time.
const Never = math.MaxInt64

func (b *Broker) setTimerPos(ref uint32, pos int32) {
	if ref&typeTimer != 0 {
		b.types.At(ref &^ typeTimer).timerPos = pos
		return
	}
	if ref&groupTimer != 0 {
		b.groups.At(ref &^ groupTimer).timerPos = pos
		return
	}
	b.timings.Get(ref).pos = pos
}

// startTimer sets the timer at pos, or a new one if pos is -1.
func (b *Broker) startTimer(pos int32, ref uint32, at int64) {
	b.timerNumber++
	b.timers.Put(pos, container.Entry{Major: uint64(at), Minor: b.timerNumber, Ref: ref})
}

// stopTimer stops the timer at pos, if there is one.
func (b *Broker) stopTimer(pos *int32) {
	if *pos >= 0 {
		b.timers.Remove(*pos)
		*pos = -1
	}
}

// stopTimerOf stops the timer of a job.
func (b *Broker) stopTimerOf(j *job) {
	if j.timing != 0 {
		b.stopTimer(&b.timing(j).pos)
	}
}

// maxTickTimers bounds the timers that one Tick handles.
const maxTickTimers = 512

// NextTick returns the time at which Tick has something to do, or Never. If it has passed, Tick should be
// called at once, but after the commands that are already waiting.
func (b *Broker) NextTick() int64 {
	at := int64(Never)
	if b.timers.Len() > 0 {
		at = int64(b.timers.Top().Major)
	}
	if l := b.deadLetters.byAge.First(); l != nil {
		at = min(at, l.FailedAt+int64(b.cfg.DeadAge))
	}
	if (b.workLeft || len(b.chores)+len(b.notifications)+len(b.cleanups) > 0) && b.now < at {
		at = b.now
	}
	return at
}

// Tick handles what is due, up to a bound. NextTick says when to call it again.
func (b *Broker) Tick(now int64) []Effect { return b.TickUntil(max(now, b.now)) }

// TickUntil is like Tick, but handles only timers that were due at a given time. This time may be
// earlier than the time of other commands: a caller can first handle the frames that have arrived
// since then, and then judge timeouts.
func (b *Broker) TickUntil(due int64) []Effect {
	b.begin(due)
	for n := 0; n < maxTickTimers && b.timers.Len() > 0 && int64(b.timers.Top().Major) <= due; n++ {
		ref := b.timers.Top().Ref
		b.timers.Remove(0)
		b.setTimerPos(ref, -1)
		switch {
		case ref&typeTimer != 0:
			b.markForMatching(b.types.At(ref &^ typeTimer))
		case ref&groupTimer != 0:
			b.updateGroup(b.groups.At(ref &^ groupTimer))
		default:
			b.timerFired(b.timings.Get(ref))
		}
	}
	b.runChores(&b.notifications, tickSteps)
	b.runChores(&b.cleanups, tickSteps)
	b.deadLetters.expireBefore(b, b.now-int64(b.cfg.DeadAge))
	return b.end()
}

// timerFired handles the timer of a job that is due. The job's state decides what the timer means.
func (b *Broker) timerFired(t *timing) {
	rec := t.rec
	j := b.jobs.Get(rec)
	h := b.holdingOf(j)
	if h.submitter != nil && h.submitter.isLost {
		b.orphan(h)
	}
	switch {
	case b.isAbandoned(j):
		b.sweepJob(h, rec, j)
	case j.state == stateRunning:
		b.timeOutRun(rec, j)
	case j.state == stateEnded:
		b.forgetOutcome(rec, j)
	case b.pastDeadline(j):
		b.leaveQueue(rec, j)
		b.expireJob(rec, j)
	default:
		b.leaveQueue(rec, j)
		b.delayUntil(h, rec, j, b.now)
	}
}

func (b *Broker) expireJob(rec uint32, j *job) {
	b.endJob(rec, j, &lastFrame{code: Expired, reason: Reason{Why: WhyDeadlinePassed}})
}
