//go:build invariants

package broker

import "gloom/broker/container"

func (c *census) checkQueue(q *queue) {
	b := c.b
	n := 0
	if q.spill != nil {
		n = q.spill.byOrder.Len()
		mustHold(n == q.spill.byAge.Len(), "spill %d, ages %d", n, q.spill.byAge.Len())
		c.checkHeap("spill", &q.spill.byOrder, func(ref uint32) int32 { return int32(b.jobs.Get(ref).links[laneLink].next) })
		c.checkHeap("ages", &q.spill.byAge, func(ref uint32) int32 { return int32(b.jobs.Get(ref).links[laneLink].prev) })
	}
	for i, l := range q.lanes {
		mustHold(i == 0 || q.lanes[i-1].priority < l.priority, "lanes out of order")
		prev, last, before := uint32(0), container.Entry{}, n
		for rec := l.head; rec != 0; {
			j := b.jobs.Get(rec)
			mustHold(j.state == stateQueued && b.priority(j) == l.priority && b.holdingOf(j).queue == q, "a lane holds a job that does not belong there")
			mustHold(j.links[laneLink].prev == prev && (prev == 0 || last.Before(pointerTo(j.orderKey(rec, l.priority)))), "a lane is out of order")
			prev, last = rec, j.orderKey(rec, l.priority)
			rec = j.links[laneLink].next
			n++
		}
		mustHold(prev == l.tail && prev != 0 && n-before == l.n, "a lane's tail or count is wrong")
	}
	mustHold(n == q.readyJobs, "queue counts %d, but has %d", q.readyJobs, n)
}

func (c *census) checkHeap(name string, heap *container.Heap, pos func(uint32) int32) {
	mustPass(name, heap.Check(pos))
}
