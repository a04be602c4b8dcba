package hub

import (
	"math"
	"time"

	"gloom/broker"
	"gloom/broker/clock"
)

// tickPause is the shortest time between two ticks, so that commands get their turn when the
// core has much to do.
const tickPause = 500 * time.Microsecond

// armTimer makes the timer fire at next, which is earlier than timerAt.
func (h *Hub) armTimer(next int64) {
	if !h.ticking && !h.isClosed {
		h.timerAt = next
		h.timer.Reset(max(time.Duration(next-h.clock()), tickPause))
	}
}

// tick ticks the core once everything that has arrived is read, so that no run times out while
// its answer waits to be read.
func (h *Hub) tick() {
	h.mu.Lock()
	h.ticking = true
	h.mu.Unlock()
	h.AfterReading(h.runTick)
}

func (h *Hub) runTick(now int64) {
	h.Update(func(int64) {
		h.timerAt, h.ticking = broker.Never, false
		if h.isClosed {
			return
		}
		h.stats.Ticks++
		h.appendEffects(h.core.TickUntil(now))
		if h.fleet != nil && h.fleet.NextTick() <= now {
			h.fleet.Tick(now)
		}
	})
}

// AfterReading calls a function once everything that has arrived by now is read. The call may be on
// any goroutine. It is for code that concludes something from a peer's silence.
func (h *Hub) AfterReading(fn func(now int64)) {
	if h.ownClock != nil && h.ownClock.Paused() {
		time.AfterFunc(clock.CatchUpTime, func() { h.AfterReading(fn) })
		return
	}
	now := h.clock()
	if read := h.readAll.Load(); read != nil {
		(*read)(func() { fn(now) })
		return
	}
	fn(now)
}

// SetReadAll sets the function with which AfterReading reads everything. It must call its argument
// afterwards, or never if the connections are closed.
func (h *Hub) SetReadAll(read func(fn func())) { h.readAll.Store(&read) }

// After calls f once the duration d has passed on the hub's clock and everything that arrived by
// then has been read. Stopping the timer prevents the call unless it is about to happen.
func (h *Hub) After(d time.Duration, f func()) *time.Timer {
	due := h.clock() + int64(d)
	var t *time.Timer
	t = time.AfterFunc(math.MaxInt64, func() {
		if wait := due - h.clock(); wait > 0 {
			t.Reset(time.Duration(wait))
			return
		}
		h.AfterReading(func(int64) { f() })
	})
	t.Reset(d)
	return t
}
