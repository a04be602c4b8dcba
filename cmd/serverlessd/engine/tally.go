package engine

import (
	"sync"
	"time"

	"gloom/cmd/serverlessd/store"
)

const (
	// scrapeWait bounds how long a scrape, or a look, waits for a count of the jobs; after that it
	// gets the last one.
	scrapeWait = 100 * time.Millisecond
	// Between two counts of the jobs lies at least countShare times the duration of the first.
	countShare = 100
)

// countCache is the last count of the jobs, which scrapes and operators' pages share.
type countCache struct {
	mu      sync.Mutex              // guards the following
	last    map[string]store.Counts // nil: there was none, or the last one failed; it is never changed
	at      time.Time               // when it began
	running chan struct{}           // closed when the running count ends; nil: none runs
	next    time.Time               // no count begins before
}

// counted returns the last count of the jobs, by jobtype, and when it began; nil if there is none.
// It begins another one unless one is running or has just ended.
func (e *Engine) counted() (map[string]store.Counts, time.Time) {
	t := &e.tally
	t.mu.Lock()
	if now := time.Now(); t.running == nil && !now.Before(t.next) && e.life.Err() == nil {
		done := make(chan struct{})
		t.running = done
		go func() {
			types, err := e.approximateState(e.life)
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.last, t.at = types, now; err != nil {
				t.last = nil // the store's gauge says that it is away
			}
			t.running, t.next = nil, time.Now().Add(countShare*time.Since(now))
			close(done)
		}()
	}
	under := t.running
	t.mu.Unlock()
	if under != nil {
		timer := time.NewTimer(scrapeWait)
		defer timer.Stop()
		select {
		case <-under:
		case <-timer.C:
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last, t.at
}
