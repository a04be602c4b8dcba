package broker

import (
	"unsafe"

	"gloom/broker/container"
)

// maxLanes limits the priorities of one queue that are kept as FIFO lanes. If a queue has more
// distinct priorities at a time, the others share a heap.
const maxLanes = 64

// queue holds the ready jobs of one type that have the same groups, whoever submitted them.
// Larger priorities come first, and among equals the oldest job. In a fair type, the jobs
// without groups are in a queue for each submitter.
//
// Jobs that arrive in order are in lanes, one FIFO for each priority, at the cost of two links
// each. A job that comes out of order (requeued, delayed, with an age), or whose priority has no
// lane, is in two heaps. One is ordered by priority and age. The other is ordered by age alone, and
// finds the oldest job.
type queue struct {
	number     uint32
	pos        int32 // position in its heap (see line.go); -1 if it has no ready jobs
	bestJobPos int32 // position in heldIn.byBestJob, or -1
	queueKey
	lanes     []lane // by priority, the largest last; no lane is empty
	readyJobs int
	spill     *spillHeaps // nil if no job is out of order
	// tenant is the queue's tenant in a fair type. heldIn is where the queue is parked, or was
	// parked last.
	tenant *tenant
	heldIn *heldQueues
	parked bool
	// jobs counts its waiting and running jobs, holdings the holdings in it.
	jobs, holdings int
}

// queueKey identifies a queue.
type queueKey struct {
	jobType  *jobType
	groupSet *groupSet // nil for no groups
	origin   Peer      // the submitter of jobs without groups in a fair type, otherwise 0
}

// queueFor returns the queue with this key, creating it if it does not exist.
func (b *Broker) queueFor(jt *jobType, set *groupSet, origin Peer) *queue {
	key := queueKey{jt, set, origin}
	q := jt.plainQueue
	if set != nil || origin != 0 {
		q = b.queuesByKey[key]
	}
	if q != nil {
		return q
	}
	q = &queue{queueKey: key, pos: -1, bestJobPos: -1}
	q.number = b.queues.Add(q)
	if set != nil {
		set.queueCount++
	}
	if set != nil || origin != 0 {
		b.queuesByKey[key] = q
	} else {
		jt.plainQueue = q
	}
	if jt.fair {
		b.attachTenant(q)
	}
	return q
}

// dropQueue forgets a queue without holdings.
func (b *Broker) dropQueue(q *queue) {
	b.detachTenant(q)
	b.detachHeld(q)
	b.shrinkQueue(q)
	b.laneBytes -= int64(cap(q.lanes)) * laneSize
	if q == q.jobType.plainQueue {
		q.jobType.plainQueue = nil
	} else {
		delete(b.queuesByKey, q.queueKey)
	}
	b.queues.Drop(q.number)
	if s := q.groupSet; s != nil {
		if s.queueCount--; s.queueCount == 0 {
			b.dropSet(s)
		}
	}
}

// spillHeaps order the spilled jobs of a queue: as they are handed out, and by age alone.
type spillHeaps struct{ byOrder, byAge container.Heap }

// lane holds the ready jobs of one priority, first in, first out.
type lane struct {
	priority int64
	jobList
}

const (
	queueSize = int64(unsafe.Sizeof(queue{})) + 96 // 96: its entries in the map and in the table
	laneSize  = int64(unsafe.Sizeof(lane{}))
	spillSize = int64(unsafe.Sizeof(spillHeaps{}))
)

// hasSpilled reports whether the queue has jobs that came out of order.
func (q *queue) hasSpilled() bool { return q.spill != nil && q.spill.byOrder.Len() > 0 }

// prioKey returns the key of a priority; larger priorities have smaller keys.
func prioKey(prio int64) uint64 { return ^(uint64(prio) ^ 1<<63) }

// timeKey returns the key of a time; earlier times have smaller keys.
func timeKey(at int64) uint64 { return uint64(at) ^ 1<<63 }

// orderKey returns the key that orders ready jobs: priority, age, arrival.
func (j *job) orderKey(rec uint32, prio int64) container.Entry {
	return container.Entry{Major: prioKey(prio), Minor: timeKey(j.submittedAt), Ref: rec, Serial: j.arrival}
}

// findLane returns the index of the lane with this priority, or where that lane belongs.
func (q *queue) findLane(prio int64) (int, bool) {
	lo, hi := 0, len(q.lanes)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if q.lanes[mid].priority < prio {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(q.lanes) && q.lanes[lo].priority == prio
}

// addReady adds job j to the ready jobs.
func (b *Broker) addReady(q *queue, rec uint32, j *job) {
	q.readyJobs++
	prio := b.priority(j)
	i, found := q.findLane(prio)
	switch {
	case found:
		l := &q.lanes[i]
		tail := b.jobs.Get(l.tail)
		if tail.submittedAt > j.submittedAt || tail.submittedAt == j.submittedAt && int32(tail.arrival-j.arrival) > 0 {
			break
		}
		j.state = stateQueued
		b.appendTo(&l.jobList, laneLink, rec, j)
		return
	case len(q.lanes) < maxLanes:
		j.state = stateQueued
		if n := len(q.lanes); n == cap(q.lanes) {
			b.resizeLanes(q, max(1, 2*n))
		}
		q.lanes = append(q.lanes, lane{})
		copy(q.lanes[i+1:], q.lanes[i:])
		q.lanes[i] = lane{priority: prio}
		b.appendTo(&q.lanes[i].jobList, laneLink, rec, j)
		return
	}
	if q.spill == nil {
		q.spill = &spillHeaps{
			byOrder: container.Heap{SetPos: b.posSetters.spillOrder, Bytes: &b.heapBytes},
			byAge:   container.Heap{SetPos: b.posSetters.spillAge, Bytes: &b.heapBytes},
		}
		b.laneBytes += spillSize
	}
	j.state = stateSpilled
	q.spill.byOrder.Push(j.orderKey(rec, prio))
	q.spill.byAge.Push(container.Entry{Major: timeKey(j.submittedAt), Ref: rec})
}

// queueBytes returns the size of all holdings and queues, without their heaps.
func (b *Broker) queueBytes() int64 {
	return int64(b.holdings.Len())*holdingSize + int64(b.queues.Len())*queueSize + b.laneBytes
}

// resizeLanes sets how many lanes q has room for.
func (b *Broker) resizeLanes(q *queue, room int) {
	b.laneBytes += int64(room-cap(q.lanes)) * laneSize
	q.lanes = append(make([]lane, 0, room), q.lanes...)
}

// shrinkQueue frees the memory of an empty queue, except for a few lanes.
func (b *Broker) shrinkQueue(q *queue) {
	if n := cap(q.lanes); n > 4 {
		b.laneBytes -= int64(n) * laneSize
		q.lanes = nil
	}
	if q.spill != nil {
		q.spill.byOrder.Release()
		q.spill.byAge.Release()
		q.spill = nil
		b.laneBytes -= spillSize
	}
}

// bestKey returns the key of the job that goes first. The queue must not be empty.
func (b *Broker) bestKey(q *queue) container.Entry {
	var key container.Entry
	if n := len(q.lanes); n > 0 {
		l := &q.lanes[n-1]
		key = b.jobs.Get(l.head).orderKey(l.head, l.priority)
		if !q.hasSpilled() || key.Before(q.spill.byOrder.Top()) {
			return key
		}
	}
	return *q.spill.byOrder.Top()
}

// firstJob returns the job that goes first. The queue must not be empty.
func (b *Broker) firstJob(q *queue) uint32 {
	if !q.hasSpilled() {
		return q.lanes[len(q.lanes)-1].head
	}
	return b.bestKey(q).Ref
}

// removeReady takes job j out of the queue.
func (b *Broker) removeReady(q *queue, rec uint32, j *job) {
	q.readyJobs--
	if j.state == stateSpilled {
		at := &j.links[laneLink]
		q.spill.byOrder.Remove(int32(at.next))
		q.spill.byAge.Remove(int32(at.prev))
		*at = listLink{}
		return
	}
	i, _ := q.findLane(b.priority(j))
	b.removeFrom(&q.lanes[i].jobList, laneLink, j)
	if q.lanes[i].n == 0 {
		q.lanes = append(q.lanes[:i], q.lanes[i+1:]...)
		if room := cap(q.lanes); room > 8 && len(q.lanes) <= room/8 {
			b.resizeLanes(q, room/4)
		}
	}
}

// maxSkippedJobs bounds the jobs that one call of skipAbandoned takes out. Taking jobs out costs
// far less than freeing them.
const maxSkippedJobs = 64

// skipAbandoned takes the first job j, which is abandoned, out of its queue, together with the jobs
// of the same holding that follow it in its lane. They are moved to the delayed jobs and freed
// later.
func (b *Broker) skipAbandoned(q *queue, h *holding, rec uint32, j *job) {
	if j.state == stateSpilled {
		b.sweepJob(h, rec, j)
		return
	}
	for n := 0; rec != 0 && n < maxSkippedJobs; n++ {
		if j = b.jobs.Get(rec); j.holding != h.number {
			break
		}
		next := j.links[laneLink].next
		b.removeReady(q, rec, j)
		j.state = stateDelayed
		h.queuedJobs--
		h.delayedJobs++
		rec = next
	}
	b.rank(q)
}

// oldestSubmit returns the time at which the oldest ready job was submitted. It looks at each
// lane once. The queue must not be empty.
func (b *Broker) oldestSubmit(q *queue) int64 {
	at := int64(Never)
	if q.hasSpilled() {
		at = b.jobs.Get(q.spill.byAge.Top().Ref).submittedAt
	}
	for i := range q.lanes {
		at = min(at, b.jobs.Get(q.lanes[i].head).submittedAt)
	}
	return at
}
