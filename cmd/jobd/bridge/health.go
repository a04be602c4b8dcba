package bridge

import (
	"fmt"
	"sync"
	"time"
)

// health records whether a resource works for all its callers and, if not, why.
type health struct {
	condition string

	mu        sync.Mutex       // guards the fields below
	errs      map[string]error // by caller
	lastErr   error
	lastErrAt time.Time
}

// record records how a caller's last use of the resource went, and reports whether the health has
// changed.
func (h *health) record(caller string, err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	failing := len(h.errs) > 0
	if err == nil {
		delete(h.errs, caller)
	} else {
		if h.errs == nil {
			h.errs = make(map[string]error)
		}
		h.errs[caller], h.lastErr = err, err
	}
	changed = failing != (len(h.errs) > 0)
	if changed {
		h.lastErrAt = time.Now()
	}
	return changed
}

func (h *health) works() bool { return h.currentErr() == nil }

// currentErr returns nil if the resource works, and otherwise the last error.
func (h *health) currentErr() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s for %s: %w", h.condition, time.Since(h.lastErrAt).Round(time.Second), h.lastErr)
}
