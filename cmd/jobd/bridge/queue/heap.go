package queue

// jobHeap is a heap of jobs: larger priority first, then arrival.
type jobHeap []*job

func (w jobHeap) Len() int { return len(w) }

func (w jobHeap) Less(a, b int) bool {
	if w[a].row.Priority != w[b].row.Priority {
		return w[a].row.Priority > w[b].row.Priority
	}
	return w[a].arrival < w[b].arrival
}

func (w jobHeap) Swap(a, b int) { w[a], w[b] = w[b], w[a] }

func (w *jobHeap) Push(j any) { *w = append(*w, j.(*job)) }

func (w *jobHeap) Pop() any {
	last := len(*w) - 1
	j := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return j
}
