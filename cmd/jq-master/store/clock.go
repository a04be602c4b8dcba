package store

import (
	"sync"
	"time"
)

// clock is the clock for stored times, such as when a key expires or a job is forgotten. It starts
// at the store's time. Then it runs like boot.Since, and is corrected towards the store's time by
// at most 1/slewDivisor of the time that passes, which is 43 seconds a day. So if the clock of this
// host or of the store is set by an hour, a period of an hour is wrong by at most two seconds.
type clock struct {
	mu       sync.Mutex    // guards the fields below
	unixTime time.Duration // the time since 1970 at the last correction
	uptime   time.Duration // the value of boot.Since at the last correction
}

// slewDivisor limits corrections to 1/slewDivisor of the time that passes.
const slewDivisor = 2000

// start sets the clock to the store's time.
func (c *clock) start(storeTime, uptime time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unixTime, c.uptime = storeTime, uptime
}

// follow corrects the clock towards the store's time.
func (c *clock) follow(storeTime, uptime time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := uptime - c.uptime
	if elapsed <= 0 {
		return
	}
	maxStep := elapsed / slewDivisor
	c.unixTime += elapsed
	c.unixTime += min(max(storeTime-c.unixTime, -maxStep), maxStep)
	c.uptime = uptime
}

// at returns the time at an uptime, in milliseconds since 1970.
func (c *clock) at(uptime time.Duration) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (c.unixTime + uptime - c.uptime).Milliseconds()
}

// since1970 returns the time since 1970, as clock counts it.
func since1970(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }
