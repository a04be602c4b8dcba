package master

import "github.com/prometheus/client_golang/prometheus"

// metrics are the counters of a master.
type metrics struct {
	pokes, polls prometheus.Counter
}

func newMetrics(registry prometheus.Registerer, m *Master) metrics {
	counters := metrics{
		pokes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "jobd_master_pokes_total", Help: "Pokes that clients have made."}),
		polls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "jobd_master_polls_total", Help: "Polls sent to workers."}),
	}
	if registry == nil {
		return counters
	}
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			return float64(value())
		})
	}
	registry.MustRegister(counters.pokes, counters.polls,
		gauge("jobd_master_workers", "Workers that are registered.", func() int { return len(m.workers) }),
		gauge("jobd_master_remembered_pokes", "Poked targets without a worker.",
			func() int { return len(m.pokes.remembered.list) }))
	return counters
}
