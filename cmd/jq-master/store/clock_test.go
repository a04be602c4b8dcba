package store

import (
	"testing"
	"time"

	"gloom/cmd/internal/boot"
)

// TestClock: a store's clock follows the store's time without jumps.
func TestClock(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for _, set := range []time.Duration{-hour, hour, -20 * 365 * 24 * hour} {
		start := 400_000 * hour
		c := &clock{}
		c.start(start, hour)
		if got := c.at(hour + time.Second); got != (start + time.Second).Milliseconds() {
			t.Errorf("after a second it is %d", got-start.Milliseconds())
		}
		for s := range time.Duration(3600) { // the store's clock is set, and its time is read every second
			c.follow(start+set+(s+1)*time.Second, hour+(s+1)*time.Second)
		}
		if off := time.Duration(c.at(2*hour))*time.Millisecond - start - hour; off.Abs() > 2*time.Second || off.Abs() < time.Second || off > 0 != (set > 0) {
			t.Errorf("set by %v, it is off by %v an hour later", set, off)
		}
	}
	c := &clock{} // a clock of the store that runs too fast, but evenly, is followed
	c.start(0, 0)
	for s := range time.Duration(86400) {
		c.follow((s+1)*time.Second*10001/10000, (s+1)*time.Second)
	}
	if off := time.Duration(c.at(24*hour))*time.Millisecond - 24*hour*10001/10000; off.Abs() > 10*time.Millisecond {
		t.Errorf("it is off by %v after a day", off)
	}
}

// TestAt: all masters of a Redis use its clock. A master without Redis uses the time that this
// host's clock had at first, even if the clock is set later.
func TestAt(t *testing.T) {
	t.Parallel()
	first := open(t, shared)
	first.clock.start(0, boot.Since()) // like the clock of a host whose time is wrong
	acquire(t, first)
	if off := time.Since(time.UnixMilli(first.At(boot.Since()))); off.Abs() > time.Second {
		t.Errorf("the clock is off by %v", off)
	}
	m := NewMemory()
	m.now = func() time.Time { return time.Now().Add(-time.Hour) }
	m.At(boot.Since())
	if off := time.Since(time.UnixMilli(m.At(boot.Since()))); off.Abs() > time.Second {
		t.Errorf("the clock of the memory is off by %v", off)
	}
}
