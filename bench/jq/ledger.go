package jq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ledger records what has happened to each job of a round.
type ledger struct {
	sendTimes     []time.Time
	runs          []atomic.Int32
	ends          atomic.Int64
	total         int64
	skipJobChecks bool // set for the load Waiting: a round hands out only total of the queued jobs, whichever they are

	running context.Context // ends with all jobs, or at the first error, which is its cause
	fail    context.CancelCauseFunc

	mu      sync.Mutex // guards latency
	latency *hdrhistogram.Histogram
}

// errAllEnded is the cause with which a round ends well.
var errAllEnded = errors.New("all jobs have ended")

func newLedger(ctx context.Context, jobs int) *ledger {
	l := &ledger{
		sendTimes: make([]time.Time, jobs), runs: make([]atomic.Int32, jobs), total: int64(jobs),
		latency: hdrhistogram.New(1, int64(10*time.Minute/time.Microsecond), 3),
	}
	l.running, l.fail = context.WithCancelCause(ctx)
	return l
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
		elapsed := time.Since(l.sendTimes[n])
		l.mu.Lock()
		l.latency.RecordValue(elapsed.Microseconds())
		l.mu.Unlock()
	}
	if l.ends.Add(1) == l.total {
		l.fail(errAllEnded)
	}
}

// wait returns when all jobs have ended.
func (l *ledger) wait() error {
	<-l.running.Done()
	switch err := context.Cause(l.running); {
	case err == errAllEnded:
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%d of %d jobs have ended: %w", l.ends.Load(), l.total, err)
	default:
		return err
	}
}

// latencyMS returns the percentile q of the latencies, in milliseconds.
func (l *ledger) latencyMS(q float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.latency.ValueAtQuantile(q)) / 1000
}
