package load

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"gloom/bench/poll"
)

// Count has totals since the start. All numbers only grow.
type Count struct {
	Submitted        int64 // frames given to the kernel, or about to be
	Acked            int64
	Answered         int64 // right answers to outstanding jobs
	Failed           int64 // jobs that ended in an error of the server
	Forgotten        int64 // jobs outstanding when their submitter hung up
	Handed           int64 // jobs that reached a worker; more than Submitted where jobs are redelivered
	Deferred         int64 // open loop: jobs that the generator itself sent more than a millisecond late
	BytesIn          int64 // from the sockets
	BytesOut         int64 // to the sockets
	WorkerHangups    int64 // workers that left or died on purpose
	SubmitterHangups int64 // submitters that did
}

func (c *Count) add(o Count) {
	c.Submitted += o.Submitted
	c.Acked += o.Acked
	c.Answered += o.Answered
	c.Failed += o.Failed
	c.Forgotten += o.Forgotten
	c.Handed += o.Handed
	c.Deferred += o.Deferred
	c.BytesIn += o.BytesIn
	c.BytesOut += o.BytesOut
	c.WorkerHangups += o.WorkerHangups
	c.SubmitterHangups += o.SubmitterHangups
}

// lane is one event loop with its share of the peers. Lanes share nothing.
type lane struct {
	cfg  *Config
	body *Body
	loop *poll.Loop

	submitters []*Submitter
	workers    []*Worker
	window     int

	now             int64
	readySubmitters int
	readyWorkers    int
	count           Count
	faults          Faults
	recording       bool
	hist, spareHist *hdrhistogram.Histogram

	held          heldJobs
	sched         *schedule // for an open loop
	nextSubmitter int       // index of the submitter that sends next
	churn         *churner

	await  func() bool // the condition that the generator waits for
	waiter chan<- int64
}

// newHistogram returns a histogram of latencies from 1 ns to 10 minutes, to three digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency, 3) }

const maxLatency = int64(600e9)

func (l *lane) record(d int64) {
	_ = l.hist.RecordValue(min(max(d, 1), maxLatency))
}

// step does the work that is due, after each round of events.
func (l *lane) step(now int64) (next int64) {
	l.now = now
	next = -1
	if l.held.n > 0 {
		l.answerDue(now)
		next = earlier(next, l.held.due())
	}
	if l.sched != nil {
		next = earlier(next, l.submitDue(now))
	}
	if l.churn != nil {
		next = earlier(next, l.churn.step(now))
	}
	if l.await != nil && l.await() {
		l.waiter <- now
		l.await = nil
	}
	return next
}

func earlier(a, b int64) int64 {
	if a < 0 || (b >= 0 && b < a) {
		return b
	}
	return a
}

// submitDue sends the jobs that should have left by now; submitters take turns.
func (l *lane) submitDue(now int64) (next int64) {
	for {
		intended, ok := l.sched.nextDue(now)
		if !ok {
			return l.sched.next
		}
		if now-intended > 1e6 {
			l.count.Deferred++
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

func (l *lane) hold(w *Worker, job Job) {
	l.held.push(l.now+int64(l.cfg.WorkTime), w, job)
}

func (l *lane) answerDue(now int64) {
	for l.held.n > 0 && l.held.due() <= now {
		h := l.held.pop()
		if h.worker.connections == h.connection {
			h.worker.side.Answer(h.job)
		}
	}
}
