package queue

// jobHeap is a heap of jobs: larger priority first, then arrival.
type jobHeap []*job

func (h jobHeap) Len() int { return len(h) }

func (h jobHeap) Less(a, b int) bool {
	if h[a].row.Priority != h[b].row.Priority {
		return h[a].row.Priority > h[b].row.Priority
	}
	return h[a].arrival < h[b].arrival
}

func (h jobHeap) Swap(a, b int) { h[a], h[b] = h[b], h[a] }

func (h *jobHeap) Push(j any) { *h = append(*h, j.(*job)) }

func (h *jobHeap) Pop() any {
	last := len(*h) - 1
	j := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return j
}
