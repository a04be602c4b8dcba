package load

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"gloom/bench/poll"
)

// Totals holds what a generator has counted since its start. No number ever decreases.
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

	heldJobs      heldJobs
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
func (sh *shard) recordLatency(d int64) {
	_ = sh.latencies.RecordValue(min(max(d, 1), maxLatency))
}

// step does the work that is due, after each round of events.
func (sh *shard) step(now int64) (next int64) {
	sh.now = now
	next = -1
	if sh.heldJobs.count > 0 {
		sh.answerDue(now)
		next = earliest(next, sh.heldJobs.nextDue())
	}
	if sh.schedule != nil {
		next = earliest(next, sh.submitDue(now))
	}
	if sh.churn != nil {
		next = earliest(next, sh.churn.step(now))
	}
	if sh.waitCondition != nil && sh.waitCondition() {
		sh.conditionMet <- now
		sh.waitCondition = nil
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
func (sh *shard) submitDue(now int64) (next int64) {
	for {
		intended, ok := sh.schedule.nextDue(now)
		if !ok {
			return sh.schedule.nextAt
		}
		if now-intended > 1e6 {
			sh.totals.Deferred++
		}
		sent := false
		for range sh.submitters {
			s := sh.submitters[sh.nextSubmitter]
			sh.nextSubmitter = (sh.nextSubmitter + 1) % len(sh.submitters)
			if s.ready && s.submit(intended) {
				sent = true
				break
			}
		}
		if !sent {
			sh.faults.add(Lost, "no submitter could take a job at %d ns", intended)
		}
	}
}

func (sh *shard) hold(w *Worker, job Job) {
	sh.heldJobs.push(sh.now+int64(sh.cfg.WorkTime), w, job)
}

func (sh *shard) answerDue(now int64) {
	for sh.heldJobs.count > 0 && sh.heldJobs.nextDue() <= now {
		h := sh.heldJobs.pop()
		if h.worker.connections == h.connection {
			h.worker.side.Answer(h.job)
		}
	}
}
