package gloom

import (
	"errors"
	"math/rand/v2"
	"time"
)

// retry spaces attempts to connect: exponential backoff with full jitter.
type retry struct {
	conf  *config
	limit time.Duration // of the next wait
}

func newRetry(c *config) *retry { return &retry{conf: c, limit: c.backoffBase} }

// pause tells what went wrong and waits until the next attempt is due, unless
// stop is closed first.
func (r *retry) pause(n Notice, stop <-chan struct{}) (stopped bool) {
	n.Wait = rand.N(r.limit)
	r.limit += min(r.limit, r.conf.backoffMax-r.limit)
	r.conf.notify(n)
	t := time.NewTimer(n.Wait)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-stop:
		return true
	}
}

// lasted tells how long the last connection stood.
func (r *retry) lasted(d time.Duration) {
	if d >= r.conf.backoffMax {
		r.limit = r.conf.backoffBase
	}
}

// hopeless reports whether trying again would only get the same refusal.
func hopeless(err error) bool {
	var r *RefusedError
	if !errors.As(err, &r) {
		return false
	}
	switch r.Code {
	case ErrOverloaded, ErrDraining, ErrInvalidState:
		return false
	}
	return true
}
