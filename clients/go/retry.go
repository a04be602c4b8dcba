package gloom

import (
	"errors"
	"math/rand/v2"
	"time"
)

// retry spaces attempts to connect: exponential backoff with full jitter. The returned function
// reports n and waits until the next attempt is due, or stop is closed. If n reports a lost
// connection, since is the time at which it was made.
func (c *config) retry() func(n Notice, since time.Time, stop <-chan struct{}) (stopped bool) {
	limit := c.backoffBase // of the next wait
	return func(n Notice, since time.Time, stop <-chan struct{}) bool {
		if n.Event == EventLost && time.Since(since) >= c.backoffMax {
			limit = c.backoffBase
		}
		n.Wait = rand.N(limit)
		limit += min(limit, c.backoffMax-limit)
		c.notify(n)
		t := time.NewTimer(n.Wait)
		defer t.Stop()
		select {
		case <-t.C:
			return false
		case <-stop:
			return true
		}
	}
}

// permanent reports whether another attempt would only get the same refusal.
func permanent(err error) bool {
	var r *RefusedError
	return errors.As(err, &r) && r.Code != ErrOverloaded && r.Code != ErrDraining && r.Code != ErrInvalidState
}
