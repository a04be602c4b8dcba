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

// pause reports n and waits until the next attempt is due, or stop is closed.
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

func (r *retry) lasted(d time.Duration) {
	if d >= r.conf.backoffMax {
		r.limit = r.conf.backoffBase
	}
}

// hopeless tells whether another attempt would only get the same refusal.
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
