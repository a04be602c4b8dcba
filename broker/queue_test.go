package broker

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// queuedJob is a job in the sorted list with which a queue is compared.
type queuedJob struct {
	record   uint32
	priority int64
	seq      uint64
}

// queueTwin is a queue and a sorted slice with the same jobs.
type queueTwin struct {
	t     *testing.T
	b     *Broker
	queue *queue
	want  []queuedJob // best first
	seq   uint64
	// spilledCount counts jobs that went to the heaps, laneCount counts jobs that went to a lane.
	spilledCount, laneCount int
}

func newQueueTwin(t *testing.T) *queueTwin {
	b := New(Config{})
	return &queueTwin{t: t, b: b, queue: &queue{}}
}

func orderQueued(x, y queuedJob) int {
	switch {
	case x.priority != y.priority && x.priority > y.priority, x.priority == y.priority && x.seq < y.seq:
		return -1
	}
	return 1
}

// push adds a job with number seq, or with the next number if seq is 0.
func (tw *queueTwin) push(prio int64, seq uint64) {
	if seq == 0 {
		tw.seq++
		seq = tw.seq
	}
	rec, j := tw.b.jobs.Take()
	j.arrival, j.submittedAt = uint32(seq), int64(seq)
	tw.b.storeJob(rec, j, nil, prio, nil, nil, false)
	tw.b.addReady(tw.queue, rec, j)
	if j.state == stateSpilled {
		tw.spilledCount++
	} else {
		tw.laneCount++
	}
	e := queuedJob{rec, prio, seq}
	i, _ := slices.BinarySearchFunc(tw.want, e, orderQueued)
	tw.want = slices.Insert(tw.want, i, e)
}

func (tw *queueTwin) pullJob(i int) queuedJob {
	e := tw.want[i]
	tw.b.removeReady(tw.queue, e.record, tw.b.jobs.Get(e.record))
	tw.b.jobs.Put(e.record)
	tw.want = slices.Delete(tw.want, i, i+1)
	return e
}

func (tw *queueTwin) check() {
	tw.t.Helper()
	if tw.queue.readyJobs != len(tw.want) {
		tw.t.Fatalf("%d jobs, want %d", tw.queue.readyJobs, len(tw.want))
	}
	if len(tw.want) == 0 {
		return
	}
	if got := tw.b.bestKey(tw.queue); got.Ref != tw.want[0].record {
		j := tw.b.jobs.Get(got.Ref)
		tw.t.Fatalf("the best has priority %d and number %d, want %+v", tw.b.priority(j), j.arrival, tw.want[0])
	}
	oldest := tw.want[0].seq
	for _, e := range tw.want {
		oldest = min(oldest, e.seq)
	}
	if got := tw.b.oldestSubmit(tw.queue); got != int64(oldest) {
		tw.t.Fatalf("the oldest has number %d, want %d", got, oldest)
	}
}

// TestQueueAgainstSort pushes jobs in order and out of order, with few and with many
// priorities, pulls the best job and others, and compares the queue with a sorted slice.
func TestQueueAgainstSort(t *testing.T) {
	spilledJobs, laneJobs := 0, 0
	for seed := range repeats(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		x := newQueueTwin(t)
		span := []int{1, 3, maxLanes, maxLanes + 2, 1000}[seed%5]
		prio := func() int64 {
			if span == 1000 && r.IntN(10) == 0 {
				return int64(r.Uint64())
			}
			return int64(r.IntN(span) - span/2)
		}
		var takenJobs []queuedJob
		grow := 45 + r.IntN(30)
		for range 1200 {
			switch n := r.IntN(100); {
			case n < grow || len(x.want) == 0:
				x.push(prio(), 0)
			case n < 80:
				// Take the best job, as a hand-out does. Some of these jobs come back later.
				e := x.pullJob(0)
				if r.IntN(3) == 0 {
					takenJobs = append(takenJobs, e)
				}
			case n < 90:
				x.pullJob(r.IntN(len(x.want)))
			case len(takenJobs) > 0:
				i := r.IntN(len(takenJobs))
				x.push(takenJobs[i].priority, takenJobs[i].seq)
				takenJobs = slices.Delete(takenJobs, i, i+1)
			}
			x.check()
		}
		for len(x.want) > 0 {
			x.pullJob(0)
			x.check()
		}
		if len(x.queue.lanes) != 0 || x.queue.hasSpilled() {
			t.Fatalf("seed %d: an empty queue has %d lanes and some spilled", seed, len(x.queue.lanes))
		}
		spilledJobs += x.spilledCount
		laneJobs += x.laneCount
	}
	if spilledJobs < 500 || laneJobs < 500 {
		t.Errorf("%d jobs were spilled, %d in lanes: one of the ways is hardly tried", spilledJobs, laneJobs)
	}
}

// TestQueueIsFIFO: thousands of jobs with the same priority leave the queue in the order in which
// they came.
func TestQueueIsFIFO(t *testing.T) {
	x := newQueueTwin(t)
	for i := range 5000 {
		x.push(int64(i%3), 0)
	}
	var lastJob queuedJob
	for i := range 5000 {
		e := x.b.jobs.Get(x.b.bestKey(x.queue).Ref)
		if got := (queuedJob{priority: x.b.priority(e), seq: uint64(e.arrival)}); i > 0 && (got.priority > lastJob.priority || got.priority == lastJob.priority && got.seq < lastJob.seq) {
			t.Fatalf("job %d, %+v, comes after %+v", i, got, lastJob)
		}
		lastJob = x.pullJob(0)
	}
	if x.spilledCount > 0 {
		t.Errorf("%d jobs in order were spilled", x.spilledCount)
	}
}
