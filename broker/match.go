package broker

import (
	"slices"

	"gloom/broker/container"
)

// match hands out jobs while a job may run and a worker with room serves it: the best job
// first, to the worker that has been idle longest.
func (b *Broker) match() {
	b.expiredCount, b.examinedCount, b.mustContinue = 0, 0, false
	if len(b.poolsByKey)+len(b.rules)+b.contenders.Len()+b.openGroups.Len() > 0 {
		b.mustContinue = !b.matchAmong()
	} else {
		b.mustContinue = !b.matchTypes()
	}
	if b.mustContinue {
		return
	}
	for _, p := range b.touchedPools {
		p.touched = false
	}
	b.touchedPools = b.touchedPools[:0]
}

// matchTypes is match for types that do not affect each other. It returns false if it has left
// something to the next command.
func (b *Broker) matchTypes() bool {
	for i := 0; i < len(b.touchedTypes); i++ {
		k := b.touchedTypes[i]
		for k.idleWorkers.Len() > 0 {
			q := b.runnableQueue(k)
			if q == nil {
				break
			}
			if !b.handOut(q, k.idleWorkers.First()) {
				b.mustContinue = true
				break
			}
		}
		if b.mustContinue {
			b.touchedTypes = slices.Delete(b.touchedTypes, 0, i)
			return false
		}
		k.touched = false
		b.reviewUse(k)
	}
	b.touchedTypes = b.touchedTypes[:0]
	return true
}

// matchAmong is match for types that share workers or groups.
func (b *Broker) matchAmong() bool {
	for {
		if !b.rankTouched() {
			return false
		}
		var q *queue
		var at container.Entry
		var w *worker
		consider := func(o *queue, x container.Entry, candidate *worker) {
			if q == nil || x.Before(&at) || o == q && candidate.idleNumber < w.idleNumber {
				q, at, w = o, x, candidate
			}
		}
		for _, p := range b.touchedPools {
			if p.idleWorkers.Len() > 0 {
				if o, x := b.bestReadyQueue(p); o != nil {
					consider(o, x, p.idleWorkers.First())
				}
			}
		}
		if o, x, candidate := b.bestContender(); o != nil {
			consider(o, x, candidate)
		}
		switch {
		case b.mustContinue:
			return false
		case len(b.touchedTypes) > 0:
			// bestContender has touched types, which must be ranked first.
		case b.mustOpenHeld() && (q == nil || b.openGroups.Top().Before(&at)):
			if !b.mayExamine() {
				return false
			}
			b.openBestHeld()
		case q == nil:
			return true
		default:
			if candidate := b.longestIdle(q.jobType, at); candidate != nil && candidate.idleNumber < w.idleNumber {
				w = candidate
			}
			if !b.handOut(q, w) {
				return false
			}
		}
	}
}

// rankTouched gives the touched types their places among the contenders. It returns false if it
// has left some of them to the next command.
func (b *Broker) rankTouched() bool {
	for n := len(b.touchedTypes) - 1; n >= 0; n = len(b.touchedTypes) - 1 {
		k := b.touchedTypes[n]
		q := b.runnableQueue(k)
		if b.mustContinue {
			return false
		}
		b.touchedTypes = slices.Delete(b.touchedTypes, n, n+1)
		k.touched = false
		if q != nil {
			at := b.bestKey(q)
			b.raiseKeys(k, at)
			at.Ref = k.number
			if k.contenderPos >= 0 {
				b.contenders.Fix(k.contenderPos, at)
			} else if k.idleWorkers.Len()+k.idlePairs.Len() > 0 {
				b.contenders.Push(at)
			}
		}
		b.reviewUse(k)
	}
	return true
}

func (b *Broker) setContenderPos(number uint32, pos int32) { b.types.At(number).contenderPos = pos }

// bestContender finds the contender with the best job, among those that have a job that may run
// and a worker for it. It returns the queue of the job, the job's key and the worker. The queue
// is nil if there is no such contender.
func (b *Broker) bestContender() (*queue, container.Entry, *worker) {
	for b.contenders.Len() > 0 {
		k := b.types.At(b.contenders.Top().Ref)
		q := b.runnableQueue(k)
		if b.mustContinue {
			break
		}
		var w *worker
		var at container.Entry
		if q != nil {
			at = b.bestKey(q)
			w = b.longestIdle(k, at)
		}
		if w == nil {
			b.contenders.Remove(0)
			k.contenderPos = -1
			b.reviewUse(k)
		} else if at.Ties(b.contenders.Top()) {
			return q, at, w
		} else {
			at.Ref = k.number
			b.contenders.Fix(0, at)
		}
	}
	return nil, container.Entry{}, nil
}

// runnableQueue returns the queue with a type's best job if that job may run now or has passed its
// deadline, otherwise nil.
func (b *Broker) runnableQueue(k *jobType) *queue {
	if k.line.Len() == 0 || k.paused || b.endsLeftovers {
		return nil
	}
	if c := k.limits.Concurrency; c > 0 && k.runningHere() >= c {
		return nil
	}
	q := b.nextQueue(k)
	if q == nil || k.limits.Rate > 0 && !b.pastDeadline(b.jobs.Get(b.firstJob(q))) && !b.rateAllows(k) {
		return nil
	}
	return q
}

// handOut gives the best job of a queue, which may run, to worker w. If the job is past its
// deadline because its timer is late, the job ends instead. It returns false if the command has
// met tickTimers such jobs, so that other commands get their turn.
//
// If a borrowed job with the same id is out on w, the job waits for ClashDelay, which delays no
// other job, and w goes to the end of its line.
func (b *Broker) handOut(q *queue, w *worker) bool {
	k := q.jobType
	r := b.firstJob(q)
	j := b.jobs.Get(r)
	h := b.holdingOf(j)
	if b.pastDeadline(j) {
		if b.expiredCount == tickTimers {
			return false
		}
		b.expiredCount++
		b.leaveQueue(r, j)
		b.expireJob(r, j)
		return true
	}
	if b.borrowedRuns > 0 && b.borrowedRunOn(w, b.id(j)) != 0 {
		since := b.stateSince(j)
		b.leaveQueue(r, j)
		b.waitUntil(h, r, j, b.now+int64(ClashDelay))
		b.timing(j).stateSince = since
		b.leaveIdleLine(w)
		b.enterIdleLine(w)
		return true
	}
	k.rate.take(b.now, &k.pace)
	t := q.tenant
	b.leaveQueue(r, j)
	if t != nil {
		b.recordTurn(t)
	}
	b.assign(w, h, r, j)
	return true
}

// assign gives job r, which is in no queue, to worker w.
func (b *Broker) assign(w *worker, h *holding, r uint32, j *job) {
	b.leaveIdleLine(w)
	b.startRun(w, h, r, j)
	if w.hasRoom() {
		b.enterIdleLine(w)
	}
}
