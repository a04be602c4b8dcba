package store

import "github.com/prometheus/client_golang/prometheus"

// metrics holds the metrics of the writer.
type metrics struct {
	roundTime prometheus.Histogram
	roundSize prometheus.Histogram
	errors    *prometheus.CounterVec

	unreadable prometheus.Gauge
}

func newMetrics() metrics {
	m := metrics{
		roundTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gloom_jq_store_round_seconds", Help: "Round trips to Redis that carry transitions of jobs.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		roundSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gloom_jq_store_round_transitions", Help: "Transitions of a round trip.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gloom_jq_store_errors_total", Help: "Transitions that Redis did not accept: it was away, another master had the lease, it had lost data, it was full, or the transition was at fault.",
		}, []string{"kind"}),
	}
	m.unreadable = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gloom_jq_unreadable", Help: "Records in Redis that could not be read since the last takeover and are ignored; the log has their keys.",
	})
	for _, name := range kindNames {
		m.errors.WithLabelValues(name)
	}
	return m
}

// Describe implements prometheus.Collector.
func (r *Redis) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, ch) }

// Collect implements prometheus.Collector.
func (r *Redis) Collect(ch chan<- prometheus.Metric) {
	r.metrics.roundTime.Collect(ch)
	r.metrics.roundSize.Collect(ch)
	r.metrics.errors.Collect(ch)
	r.metrics.unreadable.Collect(ch)
}
