package broker

import (
	"slices"

	"gloom/broker/container"
)

// This file names most containers of the core: line, queue, holding, pool, pair, contender, tenant.
// doc.go draws them under "Data model".

// match hands out jobs while a job may run and a worker with room serves it: the best job
// first, to the worker that has been idle longest.
func (b *Broker) match() {
	b.expiredCount, b.examinedCount, b.workLeft = 0, 0, false
	if len(b.poolsByKey)+len(b.rules)+b.contenders.Len()+b.openGroups.Len() > 0 {
		b.workLeft = !b.matchShared()
	} else {
		b.workLeft = !b.matchTypes()
	}
	if b.workLeft {
		return
	}
	for _, p := range b.poolsToMatch {
		p.isMarked = false
	}
	b.poolsToMatch = b.poolsToMatch[:0]
}

// matchTypes is match for types that do not affect each other. It returns false if it has left work
// for the next command.
func (b *Broker) matchTypes() bool {
	for i := 0; i < len(b.typesToMatch); i++ {
		jt := b.typesToMatch[i]
		for jt.idleWorkers.Len() > 0 {
			q := b.runnableQueue(jt)
			if q == nil {
				break
			}
			if !b.handOut(q, jt.idleWorkers.First()) {
				b.workLeft = true
				break
			}
		}
		if b.workLeft {
			b.typesToMatch = slices.Delete(b.typesToMatch, 0, i)
			return false
		}
		jt.isMarked = false
		b.updateUnusedRing(jt)
	}
	b.typesToMatch = b.typesToMatch[:0]
	return true
}

// matchShared is match for types that share workers or groups.
func (b *Broker) matchShared() bool {
	for {
		if !b.rankMarked() {
			return false
		}
		var best *queue
		var bestKey container.Entry
		var bestWorker *worker
		consider := func(q *queue, key container.Entry, w *worker) {
			if best == nil || key.Before(&bestKey) || q == best && w.idleNumber < bestWorker.idleNumber {
				best, bestKey, bestWorker = q, key, w
			}
		}
		for _, p := range b.poolsToMatch {
			if p.idleWorkers.Len() > 0 {
				if q, key := b.bestReadyQueue(p); q != nil {
					consider(q, key, p.idleWorkers.First())
				}
			}
		}
		if q, key, w := b.bestContender(); q != nil {
			consider(q, key, w)
		}
		switch {
		case b.workLeft:
			return false
		case len(b.typesToMatch) > 0:
			// bestContender has marked types, which must be ranked first.
		case b.mustOpenHeld() && (best == nil || b.openGroups.Top().Before(&bestKey)):
			if !b.mayExamine() {
				return false
			}
			b.openBestHeld()
		case best == nil:
			return true
		default:
			if w := b.longestIdle(best.jobType, bestKey); w != nil && w.idleNumber < bestWorker.idleNumber {
				bestWorker = w
			}
			if !b.handOut(best, bestWorker) {
				return false
			}
		}
	}
}

// rankMarked gives the marked types their places among the contenders. It returns false if it has
// left some of them for the next command.
func (b *Broker) rankMarked() bool {
	for n := len(b.typesToMatch) - 1; n >= 0; n = len(b.typesToMatch) - 1 {
		jt := b.typesToMatch[n]
		q := b.runnableQueue(jt)
		if b.workLeft {
			return false
		}
		b.typesToMatch = slices.Delete(b.typesToMatch, n, n+1)
		jt.isMarked = false
		if q != nil {
			key := b.bestKey(q)
			b.improvePairKeys(jt, key)
			key.Ref = jt.number
			if jt.contenderPos >= 0 {
				b.contenders.Fix(jt.contenderPos, key)
			} else if jt.idleWorkers.Len()+jt.idlePairs.Len() > 0 {
				b.contenders.Push(key)
			}
		}
		b.updateUnusedRing(jt)
	}
	return true
}

func (b *Broker) setContenderPos(number uint32, pos int32) { b.types.At(number).contenderPos = pos }

// bestContender finds the contender with the best job, among those that have a job that may run
// and a worker for it. It returns the queue of the job, the job's key and the worker. The queue
// is nil if there is no such contender.
func (b *Broker) bestContender() (*queue, container.Entry, *worker) {
	for b.contenders.Len() > 0 {
		jt := b.types.At(b.contenders.Top().Ref)
		q := b.runnableQueue(jt)
		if b.workLeft {
			break
		}
		var w *worker
		var key container.Entry
		if q != nil {
			key = b.bestKey(q)
			w = b.longestIdle(jt, key)
		}
		if w == nil {
			b.contenders.Remove(0)
			jt.contenderPos = -1
			b.updateUnusedRing(jt)
		} else if key.Ties(b.contenders.Top()) {
			return q, key, w
		} else {
			key.Ref = jt.number
			b.contenders.Fix(0, key)
		}
	}
	return nil, container.Entry{}, nil
}

// runnableQueue returns the queue with a type's best job if that job may run now or has passed its
// deadline, otherwise nil.
func (b *Broker) runnableQueue(jt *jobType) *queue {
	if jt.line.Len() == 0 || jt.paused || b.handOutStopped {
		return nil
	}
	if c := jt.limits.Concurrency; c > 0 && jt.runningHere() >= c {
		return nil
	}
	q := b.nextQueue(jt)
	if q == nil || jt.limits.Rate > 0 && !b.pastDeadline(b.jobs.Get(b.firstJob(q))) && !b.rateAllows(jt) {
		return nil
	}
	return q
}

// handOut gives worker w the best job of a queue that may run. If the job is past its
// deadline because its timer is late, the job ends instead. handOut returns false if this command has
// met maxTickTimers such jobs, so that other commands get their turn.
//
// If w runs a borrowed job with the same id, the job waits for ClashDelay and w goes to the end of
// its line. Other jobs are not delayed.
func (b *Broker) handOut(q *queue, w *worker) bool {
	jt := q.jobType
	rec := b.firstJob(q)
	j := b.jobs.Get(rec)
	h := b.holdingOf(j)
	if b.pastDeadline(j) {
		if b.expiredCount == maxTickTimers {
			return false
		}
		b.expiredCount++
		b.leaveQueue(rec, j)
		b.expireJob(rec, j)
		return true
	}
	if b.borrowedRuns > 0 && b.borrowedRunOn(w, b.id(j)) != 0 {
		since := b.stateSince(j)
		b.leaveQueue(rec, j)
		b.delayUntil(h, rec, j, b.now+int64(ClashDelay))
		b.timing(j).stateSince = since
		b.leaveIdleLine(w)
		b.enterIdleLine(w)
		return true
	}
	jt.rate.take(b.now, &jt.pace)
	t := q.tenant
	b.leaveQueue(rec, j)
	if t != nil {
		b.recordTurn(t)
	}
	b.assign(w, h, rec, j)
	return true
}

// assign gives job j, which is in no queue, to worker w.
func (b *Broker) assign(w *worker, h *holding, rec uint32, j *job) {
	b.leaveIdleLine(w)
	b.startRun(w, h, rec, j)
	if w.hasRoom() {
		b.enterIdleLine(w)
	}
}
