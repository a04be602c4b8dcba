//go:build invariants

package broker

func (v *census) queue(q *queue) {
	b := v.b
	n := 0
	if q.out != nil {
		n = q.out.spill.n
		must(n == q.out.ages.n, "spill %d, ages %d", n, q.out.ages.n)
		v.heap("spill", &q.out.spill, func(ref uint32) int32 { return int32(b.jobs.get(ref).next) })
		v.heap("ages", &q.out.ages, func(ref uint32) int32 { return int32(b.jobs.get(ref).prev) })
	}
	for i, l := range q.lanes {
		must(i == 0 || q.lanes[i-1].prio < l.prio, "lanes out of order")
		prev, last := uint32(0), entry{}
		for r := l.head; r != 0; {
			j := b.jobs.get(r)
			must(j.state == stQueued && j.prio == l.prio && b.holder(j).queue == q, "a lane holds what is not its")
			must(j.prev == prev && (prev == 0 || last.before(ptr(j.standing(r)))), "a lane is out of order")
			prev, last = r, j.standing(r)
			r = j.next
			n++
		}
		must(prev == l.tail && prev != 0, "a lane's tail is wrong")
	}
	must(n == q.n, "queue counts %d, has %d", q.n, n)
}

func (v *census) heap(name string, h *heap, pos func(uint32) int32) {
	for i := range h.n {
		must(pos(h.at(i).ref) == int32(i), "%s: element %d thinks it is at %d", name, i, pos(h.at(i).ref))
		must(i == 0 || !h.at(i).before(h.at((i-1)/4)), "%s: out of order at %d", name, i)
	}
}
