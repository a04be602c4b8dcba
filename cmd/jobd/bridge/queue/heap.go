package queue

// heap orders jobs: larger priority first, then arrival. Every job knows its
// place, so that it can be taken out of the middle.
type heap []*job

func (h heap) before(a, b int) bool {
	if h[a].row.Priority != h[b].row.Priority {
		return h[a].row.Priority > h[b].row.Priority
	}
	return h[a].arrival < h[b].arrival
}

func (h heap) swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].place, h[b].place = a, b
}

func (h *heap) push(j *job) {
	j.place = len(*h)
	*h = append(*h, j)
	h.up(j.place)
}

func (h *heap) pop() *job {
	j := (*h)[0]
	h.remove(j)
	return j
}

func (h *heap) remove(j *job) {
	at, last := j.place, len(*h)-1
	h.swap(at, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	j.place = -1
	if at < last {
		h.up(at)
		h.down(at)
	}
}

func (h heap) up(at int) {
	for at > 0 && h.before(at, (at-1)/2) {
		h.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
}

func (h heap) down(at int) {
	for {
		child := 2*at + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h.before(child+1, child) {
			child++
		}
		if !h.before(child, at) {
			return
		}
		h.swap(at, child)
		at = child
	}
}
