package load

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"gloom/bench/poll"
)

// Totals holds what a generator has counted since its start. All numbers only grow.
type Totals struct {
	Submitted        int64 // frames given to the kernel, or about to be
	Acked            int64
	Answered         int64 // right answers to outstanding jobs
	Failed           int64 // jobs that ended in an error of the server
	Forgotten        int64 // jobs outstanding when their submitter hung up
	HandedOut        int64 // jobs that reached a worker; more than Submitted where jobs are redelivered
	Deferred         int64 // open loop: jobs that the generator itself sent more than a millisecond late
	BytesIn          int64 // from the sockets
	BytesOut         int64 // to the sockets
	WorkerHangups    int64 // workers that the churn disconnected
	SubmitterHangups int64 // submitters that the churn disconnected
}

func (c *Totals) add(o Totals) {
	c.Submitted += o.Submitted
	c.Acked += o.Acked
	c.Answered += o.Answered
	c.Failed += o.Failed
	c.Forgotten += o.Forgotten
	c.HandedOut += o.HandedOut
	c.Deferred += o.Deferred
	c.BytesIn += o.BytesIn
	c.BytesOut += o.BytesOut
	c.WorkerHangups += o.WorkerHangups
	c.SubmitterHangups += o.SubmitterHangups
}

// shard is one event loop with its share of the peers. Shards share nothing.
type shard struct {
	cfg  *Config
	body *Body
	loop *poll.Loop

	submitters []*Submitter
	workers    []*Worker
	window     int

	now                       int64
	readySubmitters           int
	readyWorkers              int
	totals                    Totals
	faults                    Faults
	recording                 bool
	latencies, spareLatencies *hdrhistogram.Histogram

	held          heldJobs
	schedule      *schedule // for an open loop
	nextSubmitter int       // index of the submitter that sends next
	churn         *churner

	waitCondition func() bool // the condition that the generator waits for
	conditionMet  chan<- int64
}

// newHistogram returns a histogram of latencies from 1 ns to 10 minutes, to three digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency, 3) }

const maxLatency = int64(600e9)

// recordLatency records a latency in nanoseconds.
func (l *shard) recordLatency(d int64) {
	_ = l.latencies.RecordValue(min(max(d, 1), maxLatency))
}

// step does the work that is due, after each round of events.
func (l *shard) step(now int64) (next int64) {
	l.now = now
	next = -1
	if l.held.count > 0 {
		l.answerDue(now)
		next = earliest(next, l.held.nextDue())
	}
	if l.schedule != nil {
		next = earliest(next, l.submitDue(now))
	}
	if l.churn != nil {
		next = earliest(next, l.churn.step(now))
	}
	if l.waitCondition != nil && l.waitCondition() {
		l.conditionMet <- now
		l.waitCondition = nil
	}
	return next
}

// earliest returns the earlier of two times; a negative time means never.
func earliest(a, b int64) int64 {
	if a < 0 || (b >= 0 && b < a) {
		return b
	}
	return a
}

// submitDue sends the jobs that should have left by now; submitters take turns.
func (l *shard) submitDue(now int64) (next int64) {
	for {
		intended, ok := l.schedule.nextDue(now)
		if !ok {
			return l.schedule.nextAt
		}
		if now-intended > 1e6 {
			l.totals.Deferred++
		}
		sent := false
		for range l.submitters {
			s := l.submitters[l.nextSubmitter]
			l.nextSubmitter = (l.nextSubmitter + 1) % len(l.submitters)
			if s.ready && s.submit(intended) {
				sent = true
				break
			}
		}
		if !sent {
			l.faults.add(Lost, "no submitter could take a job at %d ns", intended)
		}
	}
}

func (l *shard) hold(w *Worker, job Job) {
	l.held.push(l.now+int64(l.cfg.WorkTime), w, job)
}

func (l *shard) answerDue(now int64) {
	for l.held.count > 0 && l.held.nextDue() <= now {
		h := l.held.pop()
		if h.worker.connections == h.connection {
			h.worker.side.Answer(h.job)
		}
	}
}
