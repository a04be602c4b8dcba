package engine

import (
	"cmp"
	"sync"
	"time"

	"gloom/cmd/serverlessd/store"
)

const (
	// scrapeWait bounds how long a scrape or a snapshot waits for a count of the jobs. After that
	// it uses the result of the last count.
	scrapeWait = 100 * time.Millisecond
	// After a count of the jobs, the next one begins no earlier than after countShare times the
	// time that counting takes.
	countShare = 100
)

// countCache holds the last count of the jobs, which scrapes and operators' pages share.
type countCache struct {
	mu        sync.Mutex              // guards the following
	counts    map[string]store.Counts // nil: there was no count, or the last one failed; the map is never changed
	countedAt time.Time               // when it began
	running   chan struct{}           // closed when the current count ends; nil if none runs
	nextCount time.Time               // no count begins before this time
	duration  time.Duration           // by the last count that has not failed; 0 if there was none
	failures  int                     // of counts in a row
}

// pause returns how long to wait after one count before the next one begins. A count that failed,
// or that took far longer than the count before it, has probably waited for a locked table. It
// shows nothing about the usual duration of a count. After more failures in a row, the pause grows.
// The caller holds mu.
func (t *countCache) pause(duration time.Duration, err error) time.Duration {
	if err != nil {
		t.failures++
		return duration * time.Duration(min(countShare, 1<<min(t.failures-1, 7)))
	}
	before := t.duration
	t.duration, t.failures = duration, 0
	return countShare * min(duration, cmp.Or(before, duration/10)) // the first one may have waited, too
}

// counts returns the last count of the jobs, by jobtype, and when it began; nil if there is none.
// It begins another one unless one is running or has just ended.
func (e *Engine) counts() (map[string]store.Counts, time.Time) {
	t := &e.countCache
	t.mu.Lock()
	if now := time.Now(); t.running == nil && !now.Before(t.nextCount) && e.ctx.Err() == nil {
		done := make(chan struct{})
		t.running = done
		go func() {
			types, err := e.count(e.ctx, "", false)
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.counts, t.countedAt = types, now; err != nil {
				t.counts = nil // no log: the gauge of the store says that it is away
			}
			t.running, t.nextCount = nil, time.Now().Add(t.pause(time.Since(now), err))
			close(done)
		}()
	}
	current := t.running
	t.mu.Unlock()
	if current != nil {
		timer := time.NewTimer(scrapeWait)
		defer timer.Stop()
		select {
		case <-current:
		case <-timer.C:
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts, t.countedAt
}
