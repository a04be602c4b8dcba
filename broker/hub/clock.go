package hub

import (
	"math"
	"sync/atomic"
	"time"
)

// The hub's clock stands still while the process does: when it is stopped, gets no processor
// or is throttled. The broker measures all time by this clock, so no peer is charged for
// time that the broker itself lost. A timeout, a silence, a lease, a delay and an age last
// longer by that time than a clock on the wall says.
//
// It stands from mostAhead after the last pulse on. The first pulse after a pause leaves
// it standing for catchUp, in which what came meanwhile is read; the next one lets it go
// on. So it goes on for mostAhead at least with every two pulses: a process that stands
// still again and again delays what falls due, and does not put it off for ever.
const (
	pulse     = 50 * time.Millisecond
	mostAhead = int64(100 * time.Millisecond)
	catchUp   = 20 * time.Millisecond
)

// clock is a monotonic clock, in nanoseconds. Any goroutine may read it, one pulses.
type clock struct {
	real func() int64 // of the system
	// lost is the time for which it stood still. Before the next pulse the clock goes no
	// further than limit.
	lost, limit atomic.Int64
	catchingUp  atomic.Bool
}

func newClock(real func() int64) *clock {
	c := &clock{real: real}
	c.limit.Store(real() + mostAhead)
	return c
}

// now reads the limit first. Read after a pulse has raised it, together with the old value
// of lost, it would let the clock leap.
func (c *clock) now() int64 {
	limit := c.limit.Load()
	return min(c.real()-c.lost.Load(), limit)
}

// stands tells that a pause is not over, or that what arrived in it is still being read.
func (c *clock) stands() bool {
	limit := c.limit.Load()
	return c.catchingUp.Load() || c.real()-c.lost.Load() > limit
}

// beat is one pulse. It returns when the next one is due.
func (c *clock) beat() time.Duration {
	now := c.real() - c.lost.Load()
	if over := now - c.limit.Load(); over > 0 {
		if !c.catchingUp.Swap(true) {
			return catchUp
		}
		c.lost.Add(over)
		now -= over
	}
	c.limit.Store(now + mostAhead)
	c.catchingUp.Store(false)
	return pulse
}

// runClock has the clock pulse until Close.
func (h *Hub) runClock() func() int64 {
	start := time.Now()
	h.awake = newClock(func() int64 { return int64(time.Since(start)) })
	h.pulses = time.AfterFunc(math.MaxInt64, func() {
		next := h.awake.beat()
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.closed {
			h.pulses.Reset(next)
		}
	})
	h.pulses.Reset(pulse)
	return h.awake.now
}

// ReadFirst calls the function then, on any goroutine, when everything has been read that
// had arrived when ReadFirst was called. It is for those who judge a peer by what did not
// arrive.
func (h *Hub) ReadFirst(then func(now int64)) {
	if h.awake != nil && h.awake.stands() {
		time.AfterFunc(catchUp, func() { h.ReadFirst(then) })
		return
	}
	now := h.clock()
	if read := h.readAll.Load(); read != nil {
		(*read)(func() { then(now) })
		return
	}
	then(now)
}

// Reads sets how ReadFirst has everything read: read calls then after that, or never if the
// connections have been closed.
func (h *Hub) Reads(read func(then func())) { h.readAll.Store(&read) }

// Timer is what After returns.
type Timer struct {
	hub   *Hub
	due   int64
	timer *time.Timer
	f     func()
}

// After calls f when d has passed on the hub's clock and everything has been read that had
// arrived by then.
func (h *Hub) After(d time.Duration, f func()) *Timer {
	t := &Timer{hub: h, due: h.clock() + int64(d), f: f}
	t.timer = time.AfterFunc(math.MaxInt64, t.fire)
	t.timer.Reset(d)
	return t
}

func (t *Timer) fire() {
	if left := t.due - t.hub.clock(); left > 0 {
		t.timer.Reset(time.Duration(left))
		return
	}
	t.hub.ReadFirst(func(int64) { t.f() })
}

// Stop keeps f from being called unless the call is about to happen.
func (t *Timer) Stop() { t.timer.Stop() }
