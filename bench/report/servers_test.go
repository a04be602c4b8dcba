package report

import (
	"testing"

	"gloom/bench/result"
)

// TestComparisonCell: gloomd wins or loses if the rounds of the two servers differ by more than
// noise. The factor is above 1 if gloomd is better.
func TestComparisonCell(t *testing.T) {
	run := func(m *result.Metric, v []float64) *result.Run {
		r := &result.Run{}
		for _, x := range v {
			round := &result.Round{Seconds: 1, Jobs: int64(x)}
			if m == result.P99 {
				round = &result.Round{Latency: &result.Latency{P99: int64(x)}}
			}
			r.Rounds = append(r.Rounds, round)
		}
		return r
	}
	for name, c := range map[string]struct {
		m           *result.Metric
		ours, other []float64
		want        string
	}{
		"more jobs":    {result.Rate, []float64{110, 111, 112, 113}, []float64{100, 101, 102, 103}, "1.10 × won"},
		"fewer jobs":   {result.Rate, []float64{100, 101, 102, 103}, []float64{110, 111, 112, 113}, "0.91 × lost"},
		"more latency": {result.P99, []float64{110, 111, 112, 113}, []float64{100, 101, 102, 103}, "0.91 × lost"},
		"less latency": {result.P99, []float64{100, 101, 102, 103}, []float64{110, 111, 112, 113}, "1.10 × won"},
		"overlapping":  {result.Rate, []float64{102, 107, 112, 117}, []float64{100, 105, 110, 115}, "1.02 × ~"},
		"the same":     {result.Rate, []float64{100, 100, 100, 100}, []float64{100, 100, 100, 100}, "1.00 × ~"},
		"too few":      {result.Rate, []float64{1000, 2000, 3000}, []float64{1, 2, 3}, "1000.00 × ~"},
		"none":         {result.Rate, nil, []float64{1}, "–"},
	} {
		if got := comparisonCell(c.m, run(c.m, c.ours), run(c.m, c.other)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestFiguresAreRounded(t *testing.T) {
	for _, c := range []struct {
		x    float64
		unit result.Unit
		want string
	}{
		{136_312, result.PerSecond, "136,300"}, {1_234_567, result.PerSecond, "1,235,000"}, {999, result.PerSecond, "999"},
		{9_999, result.PerSecond, "9,999"}, {0, result.PerSecond, "0"}, {-12_345, result.PerSecond, "-12,350"},
		{563, result.Nanoseconds, "0.56 µs"}, {5_500, result.Nanoseconds, "5.50 µs"}, {99_960, result.Nanoseconds, "100 µs"},
		{1_870_000, result.Nanoseconds, "1.87 ms"}, {2_500_000_000, result.Nanoseconds, "2.50 s"},
		{283, result.Bytes, "283 B"}, {9_999, result.Bytes, "9,999 B"}, {20_480, result.Bytes, "20.0 KiB"},
		{25.6 * (1 << 20), result.Bytes, "25.6 MiB"}, {0.07, result.Processors, "0.07"},
	} {
		if got := formatValue(c.x, c.unit); got != c.want {
			t.Errorf("%v is written %q, want %q", c.x, got, c.want)
		}
	}
}

func TestMedianAndSpread(t *testing.T) {
	for _, c := range []struct {
		v      []float64
		median float64
		spread string
	}{
		{[]float64{3}, 3, ""}, {[]float64{1, 3}, 2, "±25 %"}, {[]float64{90, 100, 110, 5000, 100}, 100, "±5 %"},
		{[]float64{0, 0}, 0, ""},
	} {
		if m, s := median(c.v), formatSpread(c.v); m != c.median || s != c.spread {
			t.Errorf("%v: %v %q, want %v %q", c.v, m, s, c.median, c.spread)
		}
	}
}
