// Package clock has a clock that stands still while the process does not run, and judges the silence
// of peers by it.
package clock

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	pulseInterval = 50 * time.Millisecond
	maxAhead      = int64(100 * time.Millisecond)
)

// For CatchUpTime after a pause the clock still stands, so that the broker can read the bytes that
// arrived during the pause.
const CatchUpTime = 20 * time.Millisecond

// Clock is a monotonic clock that stands still while the process does: while the process is
// stopped, gets no processor or is throttled. The broker measures all time by it, so no peer is
// charged for time that the broker itself lost. On a wall clock, timeouts, silences, leases,
// delays and ages therefore last longer by the length of such pauses.
//
// The clock stops maxAhead after the last pulse. The first pulse after a pause leaves the clock
// stopped for another CatchUpTime, in which everything that arrived during the pause is read. The
// pulse after that lets it run. So the clock advances by at least maxAhead with every two pulses:
// in a process that stops again and again, deadlines are late but do come.
//
// It is safe for concurrent use.
type Clock struct {
	monotonic func() int64 // the system's monotonic clock
	// lostTime is the total time for which the clock has stood still. The clock does not pass limit
	// before the next pulse.
	lostTime, limit atomic.Int64
	isCatchingUp    atomic.Bool

	pulseTimer *time.Timer
	isStopped  atomic.Bool
}

// Start returns a clock that begins at 0 and runs until Stop is called.
func Start() *Clock {
	start := time.Now()
	c := newClock(func() int64 { return int64(time.Since(start)) })
	c.pulseTimer = time.AfterFunc(math.MaxInt64, func() {
		if next := c.pulse(); !c.isStopped.Load() {
			c.pulseTimer.Reset(next)
		}
	})
	c.pulseTimer.Reset(pulseInterval)
	return c
}

// Stop ends the pulses. The clock stops within maxAhead.
func (c *Clock) Stop() {
	c.isStopped.Store(true)
	c.pulseTimer.Stop()
}

func newClock(monotonic func() int64) *Clock {
	c := &Clock{monotonic: monotonic}
	c.limit.Store(monotonic() + maxAhead)
	return c
}

// Now returns the time in nanoseconds.
//
// It reads the limit first. If it read lost first, it could use the old value of lost with a
// limit that has been raised since, and the clock would leap.
func (c *Clock) Now() int64 {
	limit := c.limit.Load()
	return min(c.monotonic()-c.lostTime.Load(), limit)
}

// Paused reports whether the clock stands still: during a pause, and while the bytes that arrived
// during the pause are being read.
func (c *Clock) Paused() bool {
	limit := c.limit.Load()
	return c.isCatchingUp.Load() || c.monotonic()-c.lostTime.Load() > limit
}

// pulse carries out one pulse, and returns the time until the next pulse.
func (c *Clock) pulse() time.Duration {
	now := c.monotonic() - c.lostTime.Load()
	if excess := now - c.limit.Load(); excess > 0 {
		if !c.isCatchingUp.Swap(true) {
			return CatchUpTime
		}
		c.lostTime.Add(excess)
		now -= excess
	}
	c.limit.Store(now + maxAhead)
	c.isCatchingUp.Store(false)
	return pulseInterval
}

// minGiveWay is the shortest time for which GiveWay sleeps. A shorter call holds up nobody, and a
// sleep takes longer than it should.
const minGiveWay = 100 * time.Microsecond

// GiveWay sleeps for as long as has passed since a piece of work began. A caller that does one piece
// after the other under a lock would otherwise get the lock again before most others.
func GiveWay(begun time.Time) {
	if took := time.Since(begun); took > minGiveWay {
		time.Sleep(took)
	}
}
