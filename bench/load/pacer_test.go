package load

import (
	"math"
	"testing"
	"time"
)

func TestConstantPacer(t *testing.T) {
	for _, c := range []struct {
		rate float64
		n    int64
		want time.Duration
	}{
		{1000, 0, 0},
		{1000, 1, time.Millisecond},
		{1000, 2500, 2500 * time.Millisecond},
		{3, 1, 333333333},
		{3, 3, time.Second},                // no errors accumulate
		{3, 3e9, 1e9 * time.Second},        // not even after thirty years
		{0.5, 3, 6 * time.Second},          // slower than one per second
		{250_000, 1, 4 * time.Microsecond}, // faster than any clock tick
	} {
		if got := (Constant{c.rate}).At(c.n); got != c.want {
			t.Errorf("rate %v, job %d: at %v, want %v", c.rate, c.n, got, c.want)
		}
	}
}

func TestPoissonPacer(t *testing.T) {
	const rate, seed, n = 1000, 42, 200_000
	p, twin := NewPoisson(rate, seed), NewPoisson(rate, seed)
	var last time.Duration
	var gaps, squares float64
	for i := range int64(n) {
		at := p.At(i)
		if at < last {
			t.Fatalf("seed %d: job %d at %v, before its predecessor at %v", seed, i, at, last)
		}
		if twin.At(i) != at {
			t.Fatalf("seed %d: job %d differs from run to run", seed, i)
		}
		gap := (at - last).Seconds()
		gaps += gap
		squares += gap * gap
		last = at
	}
	mean := gaps / n
	deviation := math.Sqrt(squares/n - mean*mean)
	if math.Abs(mean*rate-1) > 0.02 || math.Abs(deviation*rate-1) > 0.02 {
		t.Errorf("seed %d: gaps have mean %.4f and deviation %.4f of 1/rate, both should be 1", seed, mean*rate, deviation*rate)
	}
}

func TestNewPacerRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		rate float64
	}{{"constant", 0}, {"constant", -1}, {"poisson", math.NaN()}, {"constant", math.Inf(1)}, {"bursts", 10}, {"", 10}} {
		if _, err := NewPacer(c.name, c.rate, 1); err == nil {
			t.Errorf("arrivals %q at rate %v: accepted", c.name, c.rate)
		}
	}
}

// A schedule returns all jobs that are due, each once, with its intended time, however late take is
// called.
func TestScheduleCatchesUp(t *testing.T) {
	const start = 5_000
	s := newSchedule(Constant{1e6}, start) // every microsecond
	if _, ok := s.nextDue(start - 1); ok {
		t.Fatal("a job before the start")
	}
	var got []int64
	for _, now := range []int64{start, start + 500, start + 1000, start + 10_400} {
		for at, ok := s.nextDue(now); ok; at, ok = s.nextDue(now) {
			if at > now {
				t.Fatalf("job for %d given out at %d", at, now)
			}
			got = append(got, at)
		}
	}
	if len(got) != 11 {
		t.Fatalf("%d jobs, want 11", len(got))
	}
	for i, at := range got {
		if want := start + int64(i)*1000; at != want {
			t.Errorf("job %d was meant for %d, want %d", i, at, want)
		}
	}
}
