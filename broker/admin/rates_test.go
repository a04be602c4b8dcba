package admin

import (
	"math/rand/v2"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
)

// TestRatesMatchNaiveSums takes snapshots of two days of jobs at odd times, and compares the rates
// with naive sums.
func TestRatesMatchNaiveSums(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 0))
	rates := newRates()
	at := time.Unix(1e9, 0)
	var c counts
	var stats broker.TypeStats
	shortSums, longSums := map[int64]uint64{}, map[int64]uint64{}
	rates.add(at, c, &stats)
	for range 20000 {
		at = at.Add(time.Duration(rnd.IntN(10)) * time.Second)
		if rnd.IntN(2000) == 0 {
			at = at.Add(time.Duration(rnd.IntN(300)) * time.Minute) // no snapshots
		}
		n := uint64(rnd.IntN(5))
		c.submitted += n
		c.answered += n
		c.failed += n
		c.queued = uint64(rnd.IntN(9))
		stats.Run.Buckets[10] += n // 512 to 1,024 µs
		rates.add(at, c, &stats)
		shortSums[at.Unix()/60] += n
		longSums[at.Unix()/600] += n
	}
	hour := uint64(0)
	for number := at.Unix()/60 - 59; number <= at.Unix()/60; number++ {
		hour += shortSums[number]
	}
	if got := rates.shortSteps.countFailed(60, rates); got != hour {
		t.Errorf("seed %d: %d failed in the last hour, want %d", seed, got, hour)
	}
	for _, v := range []struct {
		s      *steps
		n      int
		length time.Duration
		sums   map[int64]uint64
	}{{&rates.shortSteps, shortStepCount, time.Minute, shortSums}, {&rates.longSteps, longStepCount, longStep, longSums}} {
		h := v.s.apiHistory(v.s.currentNumber, v.n, v.length, rates)
		first, err := time.Parse(time.RFC3339, h.From)
		if err != nil || len(h.Submitted) != v.n || len(h.RunP95) != v.n || h.StepMS != v.length.Milliseconds() {
			t.Fatalf("%v: from %q, %d and %d steps of %d ms", v.length, h.From, len(h.Submitted), len(h.RunP95), h.StepMS)
		}
		for i, in := range h.Submitted {
			number := first.Unix()/int64(v.length.Seconds()) + int64(i)
			sum, seen := v.sums[number]
			if seen != (in != nil) || seen && (*in != float64(sum) || *h.Answered[i] != *in) {
				t.Fatalf("seed %d, %v: step %d has %v, want %d (%v)", seed, v.length, i, in, sum, seen)
			}
			if p := h.RunP50[i]; seen && (p != nil) != (sum > 0) || p != nil && (*p < 0.512 || *p > 1.024) {
				t.Fatalf("seed %d, %v: step %d of %d jobs has half of the runs below %v ms", seed, v.length, i, sum, p)
			}
		}
	}
}

// TestBusiestTypesHaveRows: the busiest types have rows of their own, as many as are allowed; all
// other types share one row.
func TestBusiestTypesHaveRows(t *testing.T) {
	d := dayRates{total: newRates(), otherTypes: newRates(), types: map[string]*rates{}}
	at, stats := time.Unix(1e9, 0), broker.TypeStats{}
	rows := map[string]*row{}
	look := func(jobs map[string]uint64) {
		at = at.Add(5 * time.Second)
		var sum api.Ledger
		for name, n := range jobs {
			x := rows[name]
			if x == nil {
				x = &row{Type: api.Type{Type: name}}
				rows[name] = x
			}
			current := x.Type
			current.Ledger.Submitted += n
			current.Ledger.Answered += n
			d.add(at, x, &x.Type, &current, &stats, 2)
			x.update(at, &current)
		}
		for _, x := range rows {
			sum.Submitted += x.Ledger.Submitted
			sum.Answered += x.Ledger.Answered
		}
		d.addTotals(at, &sum, &stats)
	}
	for range 3 {
		look(map[string]uint64{"a": 1, "b": 100})
	}
	for range 9 {
		look(map[string]uint64{"a": 1, "b": 100, "c": 50})
	}
	if len(d.types) != 2 || d.types["b"] == nil || d.types["c"] == nil {
		t.Fatalf("%d types have rows: %v", len(d.types), d.types)
	}
	sum := func(rates *rates) (n float64) {
		for _, v := range rates.shortSteps.apiHistory(rates.shortSteps.currentNumber, shortStepCount, time.Minute, rates).Submitted {
			if v != nil {
				n += *v
			}
		}
		return n
	}
	if total := sum(d.total); total != 12+1200+450 {
		t.Errorf("all types: %v jobs, want 1,662", total)
	}
	if b := sum(d.types["b"]); b != 1200 {
		t.Errorf("b: %v jobs, want 1,200", b)
	}
	if others := sum(d.otherTypes); others < 9 || others > 9+4*50 {
		t.Errorf("others: %v jobs", others)
	}
	// A forgotten type makes room, however busy it was.
	delete(rows, "b")
	at = at.Add(longStep)
	for range 3 {
		look(map[string]uint64{"c": 50, "d": 1})
	}
	if len(d.types) != 2 || d.types["c"] == nil || d.types["d"] == nil {
		t.Errorf("after b was forgotten, %d types have rows: %v", len(d.types), d.types)
	}
}
