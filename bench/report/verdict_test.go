package report

import (
	"testing"

	"gloom/bench/result"
)

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		m        *result.Metric
		old, new []float64
		want     string
		change   string
	}{
		"clearly more jobs":        {result.Rate, []float64{100, 101, 102, 103}, []float64{110, 111, 112, 113}, "better", "+9.9 %"},
		"clearly fewer jobs":       {result.Rate, []float64{110, 111, 112, 113}, []float64{100, 101, 102, 103}, "worse", "-9.0 %"},
		"clearly more latency":     {result.P99, []float64{100, 101, 102, 103}, []float64{110, 111, 112, 113}, "worse", "+9.9 %"},
		"clearly less latency":     {result.P99, []float64{110, 111, 112, 113}, []float64{100, 101, 102, 103}, "better", "-9.0 %"},
		"overlapping":              {result.Rate, []float64{100, 105, 110, 115}, []float64{102, 107, 112, 117}, "~", "~"},
		"the same":                 {result.Rate, []float64{100, 100, 100, 100}, []float64{100, 100, 100, 100}, "~", "~"},
		"one disturbed round":      {result.Rate, []float64{100, 101, 102, 103, 104}, []float64{50, 101, 102, 103, 105}, "~", "~"},
		"too few to tell anything": {result.Rate, []float64{1, 2, 3}, []float64{1000, 2000, 3000}, "~ (too few rounds to tell)", "~"},
		"one each":                 {result.Rate, []float64{1}, []float64{1000}, "~ (too few rounds to tell)", "~"},
	} {
		v, ok := Judge(c.m, c.old, c.new)
		if !ok || v.String() != c.want || v.Change() != c.change {
			t.Errorf("%s: %q, %q, want %q, %q (p %v)", name, v.String(), v.Change(), c.want, c.change, v.P)
		}
	}
	if _, ok := Judge(result.Rate, nil, []float64{1}); ok {
		t.Error("judged without a sample")
	}
}

func TestFigures(t *testing.T) {
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
		if got := figure(c.x, c.unit); got != c.want {
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
		if m, s := median(c.v), spread(c.v); m != c.median || s != c.spread {
			t.Errorf("%v: %v %q, want %v %q", c.v, m, s, c.median, c.spread)
		}
	}
}
