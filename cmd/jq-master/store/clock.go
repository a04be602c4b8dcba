package store

import (
	"sync"
	"time"
)

// clock is the time of a store, by which jobs are stored: how long a key is held, when a job is
// forgotten. It begins as the store tells it. From then on it goes like Uptime, and follows the store
// by a slewed share of that at most: a day makes up for 43 seconds. So a clock that somebody sets by
// an hour, this host's or the store's, makes a term of an hour wrong by two seconds.
type clock struct {
	mu   sync.Mutex    // guards what follows
	base time.Duration // since 1970, at up
	up   time.Duration // as Uptime tells it
}

// slewed is the part of the time that passes by which a clock may be corrected.
const slewed = 2000

// begin sets the clock to what the store tells.
func (c *clock) begin(told, up time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.up = told, up
}

// follow corrects the clock by what the store tells.
func (c *clock) follow(told, up time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := up - c.up
	if passed <= 0 {
		return
	}
	most := passed / slewed
	c.base += passed
	c.base += min(max(told-c.base, -most), most)
	c.up = up
}

// at is the time in milliseconds since 1970.
func (c *clock) at(up time.Duration) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (c.base + up - c.up).Milliseconds()
}

// since1970 is a time as the clock counts it.
func since1970(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }
