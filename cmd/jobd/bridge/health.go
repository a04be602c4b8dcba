package bridge

import (
	"fmt"
	"sync"
	"time"
)

// health remembers whether something works, and since when it does not.
type health struct {
	what string

	mu    sync.Mutex // guards the following
	err   error
	since time.Time
}

// note takes the outcome of the last try and tells whether that is news.
func (h *health) note(err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = (err == nil) != (h.err == nil)
	if changed {
		h.since = time.Now()
	}
	h.err = err
	return changed
}

func (h *health) ok() bool { return h.check() == nil }

// check is nil when it works.
func (h *health) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		return nil
	}
	return fmt.Errorf("%s for %s: %w", h.what, time.Since(h.since).Round(time.Second), h.err)
}
