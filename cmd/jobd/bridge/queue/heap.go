package queue

// waiting is a heap of jobs: larger priority first, then arrival.
type waiting []*job

func (w waiting) Len() int { return len(w) }

func (w waiting) Less(a, b int) bool {
	if w[a].row.Priority != w[b].row.Priority {
		return w[a].row.Priority > w[b].row.Priority
	}
	return w[a].arrival < w[b].arrival
}

func (w waiting) Swap(a, b int) { w[a], w[b] = w[b], w[a] }

func (w *waiting) Push(j any) { *w = append(*w, j.(*job)) }

func (w *waiting) Pop() any {
	last := len(*w) - 1
	j := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return j
}
