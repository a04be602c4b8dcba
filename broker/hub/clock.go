package hub

import (
	"math"
	"sync/atomic"
	"time"
)

// The hub's clock stands while the process does: stopped, starved of its processor, or
// throttled. All time that the broker measures is this clock's, so no peer is charged
// with what the broker itself lost: a timeout, a silence, a lease, a delay and an age are
// longer by that than a clock on the wall says.
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
	// lost is the time that it stood. It goes no further than to limit before a pulse.
	lost, limit atomic.Int64
	catchingUp  atomic.Bool
}

func newClock(real func() int64) *clock {
	c := &clock{real: real}
	c.limit.Store(real() + mostAhead)
	return c
}

// now reads the limit first: together with what was lost before it was raised, it would
// let the clock leap.
func (c *clock) now() int64 {
	limit := c.limit.Load()
	return min(c.real()-c.lost.Load(), limit)
}

// stands tells that a pause is not over, or that what came meanwhile is still read.
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

// ReadFirst calls then, on any goroutine, once all has been read that had arrived by the
// time that it is given. Whoever judges a peer by what did not come has it done so.
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

// Reads says how ReadFirst has read what has arrived: read calls then after that, or
// never once the connections have closed.
func (h *Hub) Reads(read func(then func())) { h.readAll.Store(&read) }

// Timer is one of After's.
type Timer struct {
	hub   *Hub
	due   int64
	timer *time.Timer
	f     func()
}

// After calls f once d has passed on the hub's clock, and what had arrived by then has
// been read.
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

// Stop keeps f from being called, unless it is about to be.
func (t *Timer) Stop() { t.timer.Stop() }
