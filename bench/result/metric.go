package result

import (
	"cmp"
	"math"
)

// Metric is one figure of a round.
type Metric struct {
	Name           string // its name in tables and on the command line
	Unit           Unit
	HigherIsBetter bool                   // a larger figure is better
	value          func(r *Round) float64 // NaN or infinite if the round does not have it
}

// Unit is the unit of a figure. It decides how the figure is formatted.
type Unit uint8

const (
	PerSecond Unit = iota
	Nanoseconds
	Bytes
	Processors
)

// Value returns the figure of a round, or false if the round does not have it.
func (m *Metric) Value(r *Round) (float64, bool) {
	x := m.value(r)
	return x, !math.IsNaN(x) && !math.IsInf(x, 0)
}

// Values returns the figures of all rounds that have a figure.
func (m *Metric) Values(r *Run) []float64 {
	var v []float64
	for _, round := range r.Rounds {
		if x, ok := m.Value(round); ok {
			v = append(v, x)
		}
	}
	return v
}

func perJob(total func(r *Round) float64) func(r *Round) float64 {
	return func(r *Round) float64 { return total(r) / float64(r.Jobs) }
}

func latency(value func(l *Latency) int64) func(r *Round) float64 {
	return func(r *Round) float64 {
		if r.Latency == nil {
			return math.NaN()
		}
		return float64(value(r.Latency))
	}
}

// ifKnown returns x, or NaN if the value from which x was computed is 0, which stands for unknown.
func ifKnown(from int64, x float64) float64 {
	if from <= 0 {
		return math.NaN()
	}
	return x
}

func backlog(r *Round) *Backlog { return cmp.Or(r.Backlog, &Backlog{}) }

// The metrics, in the order of tables.
var (
	Rate      = &Metric{"jobs/s", PerSecond, true, func(r *Round) float64 { return float64(r.Jobs) / r.Seconds }}
	ServerCPU = &Metric{"server CPU/job", Nanoseconds, false, perJob(func(r *Round) float64 { return ifKnown(r.ServerCPU, float64(r.ServerCPU)) })}
	P50       = &Metric{"p50", Nanoseconds, false, latency(func(l *Latency) int64 { return l.P50 })}
	P90       = &Metric{"p90", Nanoseconds, false, latency(func(l *Latency) int64 { return l.P90 })}
	P99       = &Metric{"p99", Nanoseconds, false, latency(func(l *Latency) int64 { return l.P99 })}
	P999      = &Metric{"p99.9", Nanoseconds, false, latency(func(l *Latency) int64 { return l.P999 })}
	P9999     = &Metric{"p99.99", Nanoseconds, false, latency(func(l *Latency) int64 { return l.P9999 })}
	Max       = &Metric{"max", Nanoseconds, false, latency(func(l *Latency) int64 { return l.Max })}
	Fill      = &Metric{"fill jobs/s", PerSecond, true, func(r *Round) float64 { return float64(r.Jobs) / backlog(r).FillSeconds }}
	FillCPU   = &Metric{"fill CPU/job", Nanoseconds, false, perJob(func(r *Round) float64 { return ifKnown(backlog(r).FillCPU, float64(backlog(r).FillCPU)) })}
	JobMemory = &Metric{"memory/queued job", Bytes, false, perJob(func(r *Round) float64 {
		return ifKnown(backlog(r).RSSFull, float64(backlog(r).RSSFull-backlog(r).RSSEmpty))
	})}
	IdleMemory = &Metric{"memory/idle worker", Bytes, false, func(r *Round) float64 {
		idle := cmp.Or(r.Idle, &Idle{})
		return ifKnown(idle.RSSAfter, float64(idle.RSSAfter-idle.RSSBefore)) / float64(idle.Workers)
	}}
	RSS = &Metric{"RSS", Bytes, false, func(r *Round) float64 {
		if r.Server == nil {
			return math.NaN()
		}
		return float64(r.Server.RSS)
	}}
	Traffic      = &Metric{"bytes/job", Bytes, false, perJob(func(r *Round) float64 { return float64(r.BytesIn + r.BytesOut) })}
	GeneratorCPU = &Metric{"generator CPU/job", Nanoseconds, false, perJob(func(r *Round) float64 { return float64(r.GeneratorCPU) })}
	Noise        = &Metric{"others' CPUs", Processors, false, func(r *Round) float64 { return r.OthersCPU }}
)

// Metrics returns all metrics, in the order of tables.
func Metrics() []*Metric {
	return []*Metric{Rate, ServerCPU, P50, P90, P99, P999, P9999, Max, Fill, FillCPU, JobMemory, IdleMemory, RSS, Traffic,
		GeneratorCPU, Noise}
}
