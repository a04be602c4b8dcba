package broker

import (
	"slices"

	"gloom/broker/container"
)

// A queue with ready jobs is in one heap, ordered by its best job:
//
//	type.line ──┬── queue
//	            ├── tenant.line ── queue     in a fair type
//	            └── heldQueues ─── queue     while their group lets them go
//	group.parked ── heldQueues ─── queue     while it does not
//
// A type's line orders tenants by the priority of their best jobs, then by when they were last
// served. A heldQueues has the queues of one type that one group holds back. While it is parked,
// nobody looks at it. When the group opens, its held queues come back type by type, the best
// first, while somebody asks for jobs. The next job may shut the group again, so it would be
// useless to look at the held queues of ten thousand types.

const (
	// refTenant and refHeld mark references to tenants and held queues in a type's line.
	refTenant = 1 << 31
	refHeld   = 1 << 30
	refMarks  = refTenant | refHeld
)

func (b *Broker) setLinePos(ref uint32, pos int32) {
	switch number := ref &^ refMarks; ref & refMarks {
	case refTenant:
		b.tenants.At(number).pos = pos
	case refHeld:
		b.heldQueues.At(number).pos = pos
	default:
		b.queues.At(number).pos = pos
	}
}

func (b *Broker) setBestJobPos(number uint32, pos int32) { b.queues.At(number).bestJobPos = pos }

// heap returns the heap that a queue with ready jobs belongs in.
func (q *queue) heap() *container.Heap {
	switch {
	case q.parked:
		return &q.heldIn.queues
	case q.tenant != nil:
		return &q.tenant.line
	}
	return &q.jobType.line
}

// isParkedByTurn reports whether the queue is parked in the order of its tenants' turns.
func (q *queue) isParkedByTurn() bool { return q.parked && q.tenant != nil }

// rank corrects the position of a queue after its best job has changed.
func (b *Broker) rank(q *queue) {
	if q.readyJobs == 0 {
		if q.pos >= 0 {
			b.unrank(q)
		}
		return
	}
	if q.pos < 0 {
		if g := q.shutGroup(); g != nil {
			b.attachHeld(q, g)
			q.parked = true
		}
	}
	key := b.bestKey(q)
	key.Ref = q.number
	moved := false
	if q.isParkedByTurn() {
		moved = q.heldIn.byBestJob.Put(q.bestJobPos, key)
		key.Minor, key.Serial = q.tenant.lastTurn, 0
	}
	if q.heap().Put(q.pos, key) || moved {
		b.rankParent(q)
	}
}

// unrank takes a queue out of its heap.
func (b *Broker) unrank(q *queue) {
	q.heap().Remove(q.pos)
	q.pos = -1
	if q.isParkedByTurn() {
		q.heldIn.byBestJob.Remove(q.bestJobPos)
		q.bestJobPos = -1
	}
	b.rankParent(q)
	q.parked = false
}

// rerank moves a queue with ready jobs to the heap that it belongs in now.
func (b *Broker) rerank(q *queue) {
	b.unrank(q)
	b.rank(q)
}

// rankParent corrects the position of q's held queues or tenant after q has moved in its heap.
func (b *Broker) rankParent(q *queue) {
	if q.parked {
		b.rankHeld(q.heldIn)
	} else if q.tenant != nil {
		b.rankTenant(q.tenant)
	}
}

// rankEntry corrects an element of heap that stands for n queues: if n is 0, the element is taken
// out, otherwise it gets the key. pos is the element's position, or -1 if the element is not in
// heap.
func rankEntry(heap *container.Heap, pos int32, n int, key container.Entry) {
	switch {
	case n > 0:
		heap.Put(pos, key)
	case pos >= 0:
		ref := heap.At(int(pos)).Ref
		heap.Remove(pos)
		heap.SetPos(ref, -1)
	}
}

// maxExamined bounds the jobs and queues that one command examines without handing a job out.
const maxExamined = 1024

// mayExamine counts an examination, and returns false if the command has made maxExamined already.
func (b *Broker) mayExamine() bool {
	b.workLeft = b.workLeft || b.examinedCount == maxExamined
	if !b.workLeft {
		b.examinedCount++
	}
	return !b.workLeft
}

// nextQueue returns the queue whose best job a type hands out next, nil if there is none or all
// are held back. It drops jobs of lost submitters that it meets.
func (b *Broker) nextQueue(jt *jobType) *queue {
	if jt.fair && jt.parked.Len() > 0 && b.openGroups.Len() > 0 {
		b.openHeld(jt)
	}
	for hasMore := !b.workLeft; hasMore && jt.line.Len() > 0; hasMore = b.mayExamine() {
		ref := jt.line.Top().Ref
		switch number := ref &^ refMarks; ref & refMarks {
		case refTenant:
			ref = b.tenants.At(number).line.Top().Ref
		case refHeld:
			hq := b.heldQueues.At(number)
			if hq.group.shut {
				b.moveHeld(hq, false)
				continue
			}
			if ref = hq.queues.Top().Ref; b.queues.At(ref).tenant != nil {
				b.unparkTenant(hq)
				continue
			}
		}
		q := b.queues.At(ref)
		if s := q.groupSet; s != nil {
			if b.revisionsInProgress > 0 {
				b.applyNewRules(s)
			}
			if s.shutGroup() != nil {
				b.rerank(q)
				continue
			}
		}
		rec := b.firstJob(q)
		j := b.jobs.Get(rec)
		h := b.holdingOf(j)
		if h.submitter != nil && h.submitter.isLost {
			b.orphan(h)
		}
		if h.isDead {
			b.skipAbandoned(q, h, rec, j)
			continue
		}
		if jt.fair {
			b.watchGroups(jt, q.groupSet)
		}
		return q
	}
	return nil
}

// watcher links a fair type to a group of its next job. When the group shuts, the type is matched
// again, because the next tenant may have an older job.
type watcher struct {
	group *group
	link  container.Link[jobType] // in group.watchers
}

// watchGroups sets the groups that a fair type watches.
func (b *Broker) watchGroups(jt *jobType, set *groupSet) {
	if jt.watchedSet == set {
		return
	}
	for i := range jt.watchers {
		x := &jt.watchers[i]
		x.group.watchers.Remove(&x.link)
	}
	jt.watchedSet, jt.watchers = nil, jt.watchers[:0]
	if set == nil || len(b.poolsByKey)+len(b.rules) == 0 {
		return
	}
	jt.watchedSet, jt.watchers = set, slices.Grow(jt.watchers, len(set.groups))[:len(set.groups)]
	for i, g := range set.groups {
		jt.watchers[i] = watcher{group: g}
		g.watchers.Push(&jt.watchers[i].link, jt)
	}
}
