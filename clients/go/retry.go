package gloom

import (
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// retry spaces attempts to connect.
type retry struct {
	policy backoff.ExponentialBackOff
	conf   *config
}

func newRetry(c *config) *retry {
	// The policy draws from 0 … 2 × its interval when its factor is 1: with half of
	// the limits that is full jitter, from 0 to the limit.
	r := &retry{conf: c, policy: backoff.ExponentialBackOff{
		InitialInterval:     max(c.backoffBase/2, 1),
		MaxInterval:         max(c.backoffMax/2, 1),
		Multiplier:          2,
		RandomizationFactor: 1,
	}}
	r.policy.Reset()
	return r
}

// pause tells what went wrong and waits until the next attempt is due, unless
// stop is closed first.
func (r *retry) pause(n Notice, stop <-chan struct{}) (stopped bool) {
	n.Wait = r.policy.NextBackOff()
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
		r.policy.Reset()
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
