package master

import "container/heap"

// timers is a heap of jobs by the time of their next timer: the deadline of a run, or the expiry of
// a result or of the job.
type timers []*record

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].runInfo.timerAt < t[j].runInfo.timerAt }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].runInfo.timerIndex, t[j].runInfo.timerIndex = i, j
}

func (t *timers) Push(x any) {
	r := x.(*record)
	r.runInfo.timerIndex = len(*t)
	*t = append(*t, r)
}

func (t *timers) Pop() any {
	last := len(*t) - 1
	r := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	r.runInfo.timerIndex = -1
	return r
}

// set sets the timer of a job.
func (t *timers) set(r *record, at int64) {
	p := r.ensureRunInfo()
	p.timerAt = at
	if p.timerIndex < 0 {
		heap.Push(t, r)
	} else {
		heap.Fix(t, p.timerIndex)
	}
}

func (t *timers) remove(r *record) {
	if r.runInfo != nil && r.runInfo.timerIndex >= 0 {
		heap.Remove(t, r.runInfo.timerIndex)
	}
}

// next returns the time of the first timer, or never.
func (t timers) next() int64 {
	if len(t) == 0 {
		return never
	}
	return t[0].runInfo.timerAt
}

const never = int64(1) << 62

// fifo is a first-in, first-out queue: append adds to it.
type fifo[T any] []T

func (q *fifo[T]) pop() T {
	var zero T
	v := (*q)[0]
	(*q)[0] = zero
	*q = (*q)[1:]
	return v
}
