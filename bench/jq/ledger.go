package jq

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ledger records what has happened to each job of a round.
type ledger struct {
	sent          []time.Time
	runs          []atomic.Int32
	ends          atomic.Int64
	total         int64
	skipJobChecks bool          // set for the load Waiting: a round hands out only total of the queued jobs, whichever they are
	done          chan struct{} // closed when all jobs have ended, or at the first error

	mu      sync.Mutex // guards the following
	latency *hdrhistogram.Histogram
	err     error
	closed  bool
}

func newLedger(jobs int) *ledger {
	return &ledger{
		sent: make([]time.Time, jobs), runs: make([]atomic.Int32, jobs), total: int64(jobs), done: make(chan struct{}),
		latency: hdrhistogram.New(1, int64(10*time.Minute/time.Microsecond), 3),
	}
}

func (l *ledger) recordRun(n int) {
	if l.skipJobChecks {
		return
	}
	if n >= len(l.runs) {
		l.fail(fmt.Errorf("job %d was never enqueued", n))
	} else if l.runs[n].Add(1) != 1 {
		l.fail(fmt.Errorf("job %d ran twice", n))
	}
}

func (l *ledger) recordEnd(n int) {
	if !l.skipJobChecks {
		elapsed := time.Since(l.sent[n])
		l.mu.Lock()
		l.latency.RecordValue(elapsed.Microseconds())
		l.mu.Unlock()
	}
	if l.ends.Add(1) == l.total {
		l.fail(nil)
	}
}

// fail ends the round; only the first error counts.
func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !l.closed {
		l.err = err
	}
	if !l.closed {
		l.closed = true
		close(l.done)
	}
}

func (l *ledger) running() bool {
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

// wait returns when all jobs have ended.
func (l *ledger) wait(ctx context.Context) error {
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return fmt.Errorf("%d of %d jobs have ended: %w", l.ends.Load(), l.total, ctx.Err())
	}
}

func (l *ledger) quantile(q float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.latency.ValueAtQuantile(q)) / 1000
}
