package result

// Metric is one figure of a round.
type Metric struct {
	Name           string // its name in tables and on the command line
	Unit           Unit
	HigherIsBetter bool // more is better
	value          func(r *Round) (float64, bool)
}

// Unit says how a figure is written.
type Unit uint8

const (
	PerSecond Unit = iota
	Nanoseconds
	Bytes
	Processors
)

// Value returns the figure of a round, or false if the round does not have it.
func (m *Metric) Value(r *Round) (float64, bool) { return m.value(r) }

// Values returns the figure of each round that has one.
func (m *Metric) Values(r *Run) []float64 {
	var v []float64
	for _, round := range r.Rounds {
		if x, ok := m.value(round); ok {
			v = append(v, x)
		}
	}
	return v
}

func perJob(total func(r *Round) (float64, bool)) func(r *Round) (float64, bool) {
	return func(r *Round) (float64, bool) {
		x, ok := total(r)
		if !ok || r.Jobs == 0 {
			return 0, false
		}
		return x / float64(r.Jobs), true
	}
}

func latency(value func(l *Latency) int64) func(r *Round) (float64, bool) {
	return func(r *Round) (float64, bool) {
		if r.Latency == nil {
			return 0, false
		}
		return float64(value(r.Latency)), true
	}
}

// The metrics, in the order of tables.
var (
	Rate = &Metric{"jobs/s", PerSecond, true, func(r *Round) (float64, bool) {
		return float64(r.Jobs) / r.Seconds, r.Seconds > 0
	}}
	ServerCPU = &Metric{"server CPU/job", Nanoseconds, false, perJob(func(r *Round) (float64, bool) {
		return float64(r.ServerCPU), r.ServerCPU > 0
	})}
	P50   = &Metric{"p50", Nanoseconds, false, latency(func(l *Latency) int64 { return l.P50 })}
	P90   = &Metric{"p90", Nanoseconds, false, latency(func(l *Latency) int64 { return l.P90 })}
	P99   = &Metric{"p99", Nanoseconds, false, latency(func(l *Latency) int64 { return l.P99 })}
	P999  = &Metric{"p99.9", Nanoseconds, false, latency(func(l *Latency) int64 { return l.P999 })}
	P9999 = &Metric{"p99.99", Nanoseconds, false, latency(func(l *Latency) int64 { return l.P9999 })}
	Max   = &Metric{"max", Nanoseconds, false, latency(func(l *Latency) int64 { return l.Max })}
	Fill  = &Metric{"fill jobs/s", PerSecond, true, func(r *Round) (float64, bool) {
		if r.Backlog == nil || r.Backlog.FillSeconds == 0 {
			return 0, false
		}
		return float64(r.Jobs) / r.Backlog.FillSeconds, true
	}}
	FillCPU = &Metric{"fill CPU/job", Nanoseconds, false, perJob(func(r *Round) (float64, bool) {
		if r.Backlog == nil {
			return 0, false
		}
		return float64(r.Backlog.FillCPU), r.Backlog.FillCPU > 0
	})}
	JobMemory = &Metric{"memory/queued job", Bytes, false, perJob(func(r *Round) (float64, bool) {
		if r.Backlog == nil || r.Backlog.RSSFull == 0 {
			return 0, false
		}
		return float64(r.Backlog.RSSFull - r.Backlog.RSSEmpty), true
	})}
	IdleMemory = &Metric{"memory/idle worker", Bytes, false, func(r *Round) (float64, bool) {
		if r.Idle == nil || r.Idle.RSSAfter == 0 || r.Idle.Workers == 0 {
			return 0, false
		}
		return float64(r.Idle.RSSAfter-r.Idle.RSSBefore) / float64(r.Idle.Workers), true
	}}
	RSS = &Metric{"RSS", Bytes, false, func(r *Round) (float64, bool) {
		if r.Server == nil {
			return 0, false
		}
		return float64(r.Server.RSS), true
	}}
	Traffic = &Metric{"bytes/job", Bytes, false, perJob(func(r *Round) (float64, bool) {
		return float64(r.BytesIn + r.BytesOut), true
	})}
	GeneratorCPU = &Metric{"generator CPU/job", Nanoseconds, false, perJob(func(r *Round) (float64, bool) {
		return float64(r.GeneratorCPU), true
	})}
	Noise = &Metric{"others' CPUs", Processors, false, func(r *Round) (float64, bool) { return r.OthersCPU, true }}
)

// Metrics returns all metrics, in the order of tables.
func Metrics() []*Metric {
	return []*Metric{Rate, ServerCPU, P50, P90, P99, P999, P9999, Max, Fill, FillCPU, JobMemory, IdleMemory, RSS, Traffic,
		GeneratorCPU, Noise}
}
