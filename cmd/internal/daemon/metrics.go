package daemon

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// CounterValue returns the value of a counter.
func CounterValue(c prometheus.Counter) uint64 {
	var m dto.Metric
	_ = c.Write(&m)
	return uint64(m.GetCounter().GetValue())
}

// HistogramBuckets returns the buckets of a histogram. Each bucket counts the values above the
// previous bound; the last counts those above all bounds.
func HistogramBuckets(h prometheus.Histogram) (bounds []float64, counts []uint64) {
	var m dto.Metric
	_ = h.Write(&m)
	before := uint64(0)
	for _, b := range m.GetHistogram().GetBucket() { // they are cumulative
		bounds, counts = append(bounds, b.GetUpperBound()), append(counts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	return bounds, append(counts, m.GetHistogram().GetSampleCount()-before)
}
