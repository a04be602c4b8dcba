package report

import (
	"slices"

	"gloom/bench/result"
)

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// summary writes the median of a metric and its spread.
func summary(m *result.Metric, v []float64) string {
	if len(v) == 0 {
		return "–"
	}
	return figure(median(v), m.Unit)
}

// spread writes the half-width between the smallest and the largest value as a
// share of the median.
func spread(v []float64) string {
	mid := median(v)
	if len(v) < 2 || mid == 0 {
		return ""
	}
	return percent((slices.Max(v) - slices.Min(v)) / 2 / mid)
}
