package broker

import (
	"unsafe"

	"gloom/broker/container"
)

// heldQueues has the queues of one type that one group held back when they were last looked at. The
// set exists as long as a queue refers to it. It is parked, in group.parked, or open, in the line
// of its type.
type heldQueues struct {
	number  uint32
	pos     int32 // position in jobType.line if open, in group.parked if not; -1 if in neither
	open    bool
	jobType *jobType
	group   *group
	// queues orders the queues by their best jobs. In a fair type it orders them by the last
	// turns of their tenants, as these were when the queue was put here, and byBestJob orders
	// them by their best jobs.
	queues, byBestJob container.Heap
	refs              int                        // how many queues refer to it
	parkedLink        container.Link[heldQueues] // in jobType.parked
}

const heldQueuesSize = int64(unsafe.Sizeof(heldQueues{})) + 96

// attachHeld puts a queue among the held queues of a group, creating these if they do not exist.
func (b *Broker) attachHeld(q *queue, g *group) {
	hq := q.jobType.heldQueues[g]
	if hq == nil {
		hq = &heldQueues{jobType: q.jobType, group: g, pos: -1}
		hq.queues = container.Heap{SetPos: b.posSetters.line, Bytes: &b.heapBytes}
		hq.byBestJob = container.Heap{SetPos: b.posSetters.bestJob, Bytes: &b.heapBytes}
		hq.number = b.heldQueues.Add(hq)
		if q.jobType.heldQueues == nil {
			q.jobType.heldQueues = map[*group]*heldQueues{}
		}
		q.jobType.heldQueues[g] = hq
	}
	hq.refs++
	b.detachHeld(q)
	q.heldIn = hq
}

// detachHeld removes a queue that is in no heap from its held queues.
func (b *Broker) detachHeld(q *queue) {
	hq := q.heldIn
	if hq == nil {
		return
	}
	q.heldIn = nil
	if hq.refs--; hq.refs == 0 {
		hq.queues.Release()
		hq.byBestJob.Release()
		if delete(hq.jobType.heldQueues, hq.group); len(hq.jobType.heldQueues) == 0 {
			hq.jobType.heldQueues = nil
		}
		b.heldQueues.Drop(hq.number)
	}
}

// rankHeld corrects the position of hq after its best queue has changed.
func (b *Broker) rankHeld(hq *heldQueues) {
	key := *hq.queues.Top()
	if !hq.open && hq.byBestJob.Len() > 0 {
		key = *hq.byBestJob.Top()
	}
	key.Ref = hq.number | refHeld
	if hq.open {
		rankEntry(&hq.jobType.line, hq.pos, hq.queues.Len(), key)
		return
	}
	rankEntry(&hq.group.parked, hq.pos, hq.queues.Len(), key)
	if in := hq.pos >= 0; in && !hq.parkedLink.InRing() {
		hq.jobType.parked.Push(&hq.parkedLink, hq)
	} else if !in && hq.parkedLink.InRing() {
		hq.jobType.parked.Remove(&hq.parkedLink)
	}
	b.rankOpenGroup(hq.group)
}

// moveHeld moves held queues to the line of their type (open), or parks them with their group.
func (b *Broker) moveHeld(hq *heldQueues, open bool) {
	heap := &hq.group.parked
	if hq.open {
		heap = &hq.jobType.line
	}
	heap.Remove(hq.pos)
	hq.pos, hq.open = -1, open
	if open {
		hq.jobType.parked.Remove(&hq.parkedLink)
		b.rankOpenGroup(hq.group)
	}
	b.rankHeld(hq)
}

// openHeld opens the held queues of a fair type whose groups are open, because some of these queues
// may be the next tenant's.
func (b *Broker) openHeld(jt *jobType) {
	if jt.parked.Len() < b.openGroups.Len() {
		for next := jt.parked.First(); next != nil; {
			hq := next
			next = hq.parkedLink.Next()
			if !hq.group.shut {
				b.moveHeld(hq, true)
			}
		}
		return
	}
	for i := 0; i < b.openGroups.Len(); i++ {
		if hq := jt.heldQueues[b.groups.At(b.openGroups.At(i).Ref)]; hq != nil && hq.parkedLink.InRing() {
			b.moveHeld(hq, true)
			i = -1 // moveHeld has changed the heap
		}
	}
}

// rankOpenGroup corrects the position of a group in Broker.openGroups.
func (b *Broker) rankOpenGroup(g *group) {
	n := g.parked.Len()
	if g.shut {
		n = 0
	}
	key := *g.parked.Top()
	key.Ref = g.number
	rankEntry(&b.openGroups, g.openPos, n, key)
}

func (b *Broker) setOpenGroupPos(number uint32, pos int32) { b.groups.At(number).openPos = pos }

// unparkTenant moves the queues of the tenant whose turn is next from open held queues to that
// tenant's line.
func (b *Broker) unparkTenant(hq *heldQueues) {
	q := b.queues.At(hq.queues.Top().Ref)
	if hq.queues.Top().Minor != q.tenant.lastTurn { // the tenant has been served since the queue was put here
		b.rank(q)
		return
	}
	for t := q.tenant; q.tenant == t; q = b.queues.At(hq.queues.Top().Ref) {
		if b.rerank(q); hq.queues.Len() == 0 {
			return
		}
	}
}

// mustOpenHeld reports whether parked queues of open groups must return to their lines. They must
// if there is an idle worker, or a fleet, which must learn of jobs that it could lend.
func (b *Broker) mustOpenHeld() bool {
	return b.openGroups.Len() > 0 && (b.trackIdle || b.idleLines.Len() > 0)
}

// openBestHeld finds the best job in all parked queues of open groups, and opens the held queues
// that it is in.
func (b *Broker) openBestHeld() {
	g := b.groups.At(b.openGroups.Top().Ref)
	hq := b.heldQueues.At(g.parked.Top().Ref &^ refHeld)
	b.moveHeld(hq, true)
	b.markForMatching(hq.jobType)
}
