package clock

import (
	"testing"
	"time"
)

// TestClockStandsStillInPauses drives the clock through pauses in virtual time.
func TestClockStandsStillInPauses(t *testing.T) {
	var monotonic int64
	start := func() *Clock {
		monotonic = 0
		return newClock(func() int64 { return monotonic })
	}
	// letRun advances the time by d, and calls pulse when it is due.
	letRun := func(c *Clock, next *int64, d time.Duration) {
		for end := monotonic + int64(d); ; monotonic = *next {
			if *next > end {
				monotonic = end
				return
			}
			monotonic = max(monotonic, *next)
			before := c.Now()
			*next = monotonic + int64(c.pulse())
			if now := c.Now(); now < before {
				t.Fatalf("it went back from %d to %d", before, now)
			}
		}
	}
	t.Run("without a pause it is the system's", func(t *testing.T) {
		c, next := start(), int64(pulseInterval)
		letRun(c, &next, time.Hour)
		if c.Now() != int64(time.Hour) || c.Paused() {
			t.Errorf("after an hour it says %v", time.Duration(c.Now()))
		}
	})
	t.Run("a pause does not count", func(t *testing.T) {
		c, next := start(), int64(pulseInterval)
		letRun(c, &next, 10*time.Second)
		monotonic += int64(time.Hour)
		before := c.Now()
		if !c.Paused() || before > int64(10*time.Second)+maxAhead {
			t.Errorf("it says %v", time.Duration(before))
		}
		next = monotonic
		letRun(c, &next, CatchUpTime-1)
		if c.Now() != before || !c.Paused() {
			t.Error("it goes on before what has come is read")
		}
		letRun(c, &next, 5*time.Second)
		if d := time.Duration(c.Now() - before); c.Paused() || d < 4900*time.Millisecond || d > 5*time.Second {
			t.Errorf("in 5 s it has gone on by %v", d)
		}
	})
	t.Run("pauses that come again and again", func(t *testing.T) {
		for _, v := range []struct {
			runs, stops time.Duration
			least       float64 // the smallest share of the real time that the clock must show
		}{
			{20 * time.Millisecond, 80 * time.Millisecond, 0.5},
			{time.Millisecond, 99 * time.Millisecond, 0.4},
			{10 * time.Millisecond, time.Second, 0.04},
			{time.Second, 10 * time.Second, 0.09},
		} {
			c, next := start(), int64(pulseInterval)
			for range 1000 {
				letRun(c, &next, v.runs)
				monotonic += int64(v.stops)
			}
			if part := float64(c.Now()) / float64(monotonic); part < v.least || part > 1 {
				t.Errorf("%v of %v: it runs at %.3f of the time, want %.2f at least", v.runs, v.runs+v.stops, part, v.least)
			}
		}
	})
}
