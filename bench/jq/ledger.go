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
	sent    []time.Time
	runs    []atomic.Int32
	ends    atomic.Int64
	total   int64
	anyJobs bool          // set for the load Waiting: a round hands out only total of the queued jobs, whichever they are
	done    chan struct{} // closed when all jobs have ended, or at the first error

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

func (b *ledger) ran(n int) {
	if b.anyJobs {
		return
	}
	if n >= len(b.runs) {
		b.fail(fmt.Errorf("job %d was never enqueued", n))
	} else if b.runs[n].Add(1) != 1 {
		b.fail(fmt.Errorf("job %d ran twice", n))
	}
}

func (b *ledger) jobEnded(n int) {
	if !b.anyJobs {
		elapsed := time.Since(b.sent[n])
		b.mu.Lock()
		b.latency.RecordValue(elapsed.Microseconds())
		b.mu.Unlock()
	}
	if b.ends.Add(1) == b.total {
		b.fail(nil)
	}
}

// fail ends the round; only the first error counts.
func (b *ledger) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && !b.closed {
		b.err = err
	}
	if !b.closed {
		b.closed = true
		close(b.done)
	}
}

func (b *ledger) running() bool {
	select {
	case <-b.done:
		return false
	default:
		return true
	}
}

// wait returns when all jobs have ended.
func (b *ledger) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return fmt.Errorf("%d of %d jobs have ended: %w", b.ends.Load(), b.total, ctx.Err())
	}
}

func (b *ledger) quantile(q float64) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.latency.ValueAtQuantile(q)) / 1000
}
