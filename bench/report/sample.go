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

// formatMedian formats the median of a metric.
func formatMedian(m *result.Metric, v []float64) string {
	if len(v) == 0 {
		return "–"
	}
	return formatValue(median(v), m.Unit)
}

// formatSpread formats half the distance between the quartiles as a share of the median, which a single
// disturbed round does not change much.
func formatSpread(v []float64) string {
	mid := median(v)
	if len(v) < 2 || mid == 0 {
		return ""
	}
	return formatPercent((quantile(v, 0.75) - quantile(v, 0.25)) / 2 / mid)
}

// quantile returns the value below which the share q, from 0 to 1, of the values lies. It interpolates
// between the two values around that place.
func quantile(v []float64, q float64) float64 {
	v = slices.Sorted(slices.Values(v))
	at := q * float64(len(v)-1)
	i := min(int(at), len(v)-2)
	if i < 0 {
		return v[0]
	}
	return v[i] + (v[i+1]-v[i])*(at-float64(i))
}
