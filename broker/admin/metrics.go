package admin

import (
	"math"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"gloom/broker"
	"gloom/broker/server"
	"gloom/wire"
)

// otherLabel is the label of all types that the core may forget. Only types that it never forgets
// have labels of their own, because a label's counter must never be reset.
const otherLabel = "other"

// collector reads the broker's counts when it is scraped. It never walks jobs.
type collector struct {
	srv         *server.Server
	figureBytes *figureBytes
	descs       sync.Map // the *prometheus.Desc of each metric that was ever collected, by name
}

// Describe implements prometheus.Collector. It describes nothing, because each metric is declared
// next to the code that reads its value.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// metrics receives the metrics of one scrape. Each call names a metric, explains it, and gives its
// value and then the names and values of its labels.
type metrics struct {
	ch    chan<- prometheus.Metric
	descs *sync.Map
}

func (m metrics) desc(name, help string, labels []string) (d *prometheus.Desc, values []string) {
	var names []string
	for label := range slices.Chunk(labels, 2) {
		names, values = append(names, label[0]), append(values, label[1])
	}
	x, known := m.descs.Load(name)
	if !known {
		x, _ = m.descs.LoadOrStore(name, prometheus.NewDesc("gloom_"+name, help, names, nil))
	}
	return x.(*prometheus.Desc), values
}

func (m metrics) count(name, help string, v uint64, labels ...string) {
	d, values := m.desc(name, help, labels)
	m.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), values...)
}

func (m metrics) gauge(name, help string, v float64, labels ...string) {
	d, values := m.desc(name, help, labels)
	m.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, values...)
}

// histogram exports every second power of two: 64 µs, 256 µs, … 18 min.
func (m metrics) histogram(name, help string, durations *broker.Durations, labels ...string) {
	buckets := make(map[float64]uint64, 13)
	var n uint64
	for i, v := range durations.Buckets {
		n += v
		if i >= 6 && i <= 30 && i%2 == 0 {
			buckets[float64(uint64(1)<<i)/1e6] = n
		}
	}
	d, values := m.desc(name, help, labels)
	m.ch <- prometheus.MustNewConstHistogram(d, n, float64(durations.Sum)/1e9, buckets, values...)
}

// typeSum holds the sums over the types that share a label.
type typeSum struct {
	broker.TypeInfo
	stats       broker.TypeStats
	pausedTypes int
}

// addGauges adds the values that can decrease.
func (t *typeSum) addGauges(i *broker.TypeInfo) {
	t.Workers += i.Workers
	t.IdleWorkers += i.IdleWorkers
	t.Bytes += i.Bytes
	t.DeadLetters += i.DeadLetters
	t.HeldJobs += i.HeldJobs
	t.OldestAge = max(t.OldestAge, i.OldestAge)
	if i.Paused {
		t.pausedTypes++
	}
}

// sumByLabel reads all types. Counters are read in one piece, so that no job is counted twice and
// no counter appears to fall.
func (c *collector) sumByLabel() map[string]*typeSum {
	h := c.srv.Hub()
	survey := takeSurvey(h)
	other := &typeSum{}
	out := map[string]*typeSum{otherLabel: other}
	from := 0
	add := func(t *broker.TypeInfo, s *broker.TypeStats) {
		x := other
		if label := wire.Value(t.Name); t.IsKept && label != otherLabel {
			x = &typeSum{TypeInfo: broker.TypeInfo{Ledger: t.Ledger}, stats: *s}
			out[label] = x
			other.Ledger.Sub(&t.Ledger)
		} else if t.IsKept {
			other.stats.Add(s)
		}
		survey.Complete(t)
		x.addGauges(t)
	}
	h.View(func(core *broker.Broker, _ int64) {
		other.Ledger, other.stats = core.Totals(), *core.OtherStats()
		from = core.Types(0, math.MaxInt, add) // the core lists its permanent types first
	})
	for from >= 0 {
		h.View(func(core *broker.Broker, _ int64) { from = core.Types(from, math.MaxInt, add) })
	}
	return out
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	m := metrics{ch, &c.descs}
	for name, t := range c.sumByLabel() {
		m.collectType(name, t)
	}
	c.collectCore(m)
	c.collectServer(m)
	c.collectFleet(m)
}

func (m metrics) collectType(name string, t *typeSum) {
	m.count("jobs_submitted_total", "Jobs accepted.", t.Submitted, "type", name)
	m.count("jobs_dispatched_total", "Times a job was dispatched to a worker.", t.Dispatched, "type", name)
	m.count("jobs_requeued_total", "Times a job was requeued after a failed run.", t.Requeued, "type", name)
	m.count("runs_overdue_total", "Runs that passed their timeout.", t.Overdue, "type", name)
	for outcome, n := range map[string]uint64{"answered": t.Answered, "failed": t.Failed, "cancelled": t.Cancelled, "expired": t.Expired, "discarded": t.Discarded} {
		m.count("jobs_ended_total", "Jobs that ended, by outcome.", n, "type", name, "outcome", outcome)
	}
	for state, n := range map[string]uint64{"delayed": t.Delayed, "queued": t.Queued, "running": t.Running} {
		m.gauge("jobs", "Jobs held, by state.", float64(n), "type", name, "state", state)
	}
	m.gauge("job_bytes", "Bytes counted against limits for the jobs held.", float64(t.Bytes), "type", name)
	m.gauge("jobs_held_back", "Queued jobs that a rule of a group holds back.", float64(t.HeldJobs), "type", name)
	m.gauge("oldest_queued_seconds", "Age of the oldest queued job.", t.OldestAge.Seconds(), "type", name)
	for state, n := range map[string]int{"idle": t.IdleWorkers, "busy": t.Workers - t.IdleWorkers} {
		m.gauge("workers", "Workers joined, by state: idle ones have room for a job.", float64(n), "type", name, "state", state)
	}
	m.gauge("type_paused", "1 while the type is paused.", float64(t.pausedTypes), "type", name)
	m.gauge("dead_letters", "Failed jobs kept.", float64(t.DeadLetters), "type", name)
	m.histogram("wait_seconds", "Time from ready to dispatch.", &t.stats.Wait, "type", name)
	m.histogram("run_seconds", "Time from dispatch to the end of the run.", &t.stats.Run, "type", name)
}

func (c *collector) collectCore(m metrics) {
	var total broker.Ledger
	var submitters, workers, types, kept, groups int
	var keptBytes int64
	var deadDropped uint64
	var memory broker.Memory
	h := c.srv.Hub()
	h.View(func(core *broker.Broker, _ int64) {
		total, types, memory = core.Totals(), core.TypeCount(), core.Memory()
		submitters, workers = core.Peers()
		kept, keptBytes = core.Outcomes()
		groups, deadDropped = core.GroupCount(), core.DroppedLetters()
	})
	m.gauge("ledger_imbalance", "Error of the ledger of jobs; anything but 0 is a bug.", float64(total.Imbalance()))
	m.count("releases_total", "Times a worker released a job without running it.", total.Releases)
	m.count("dead_letters_dropped_total", "Failed jobs dropped, or never kept, because a limit was reached (--dead-letters per type, --dead-bytes in all).", deadDropped)
	m.gauge("types", "Types known.", float64(types))
	m.gauge("groups", "Groups with jobs.", float64(groups))
	m.gauge("kept_outcomes", "Jobs that have ended and whose outcome is kept.", float64(kept))
	m.gauge("kept_outcome_bytes", "Bytes counted against limits for kept outcomes.", float64(keptBytes))
	m.gauge("store_bytes", "Memory allocated by the job store, used or not.", float64(memory.Jobs()))
	c.collectMemory(m, &memory)
	for port, n := range map[string]int{"submit": submitters, "worker": workers} {
		m.gauge("connections", "Open connections.", float64(n), "port", port)
	}
	s := h.Stats()
	for _, code := range wire.Codes() {
		m.count("error_frames_total", "Error frames sent, by code.", s.Errors[code], "code", code.String())
	}
	for direction, n := range map[string]uint64{"in": s.FramesIn, "out": s.FramesOut} {
		m.count("frames_total", "Frames, by direction.", n, "direction", direction)
	}
	m.count("answers_undelivered_total", "Upper bound of the answers that were not written because their connection closed.", s.UndeliveredAnswers)
	m.count("progress_dropped_total", "Progress frames dropped because their submitter reads slowly.", s.DroppedProgress)
	m.count("outbound_overflows_total", "Connections closed because the peer did not read.", s.Overflows)
	_, sum, limit := h.Backlog()
	m.gauge("outbound_bytes", "Bytes not yet read by peers.", float64(sum))
	m.gauge("outbound_bytes_max", "Largest number of bytes not yet read by one peer.", float64(limit))
}

// collectMemory exports memory by part: of the core, and of the hub and the server for
// connections.
func (c *collector) collectMemory(m metrics, core *broker.Memory) {
	hubMemory := c.srv.Hub().Memory()
	for _, p := range []struct {
		part  string
		bytes int64
	}{
		{"jobs", core.Slabs + core.Bodies}, {"records", core.Records}, {"index", core.Index},
		{"queues", core.Queues}, {"heaps", core.Heaps}, {"dead", core.DeadLetters}, {"history", core.History}, {"types", core.Types},
		{"peers", core.Peers}, {"pools", core.Pools}, {"output", hubMemory.Unread}, {"spare", hubMemory.Spare}, {"input", hubMemory.Input}, {"tls", hubMemory.TLS}, {"fleet", hubMemory.Fleet}, {"rates", c.figureBytes.rates.Load()}, {"snapshot", c.figureBytes.snapshot.Load()},
	} {
		m.gauge("memory_bytes", "Memory allocated, used or not, by purpose; --max-memory bounds the sum.", float64(p.bytes), "part", p.part)
	}
}

func (c *collector) collectServer(m metrics) {
	counts := c.srv.Counts()
	for direction, bytes := range map[string]uint64{"in": counts.BytesIn, "out": counts.BytesOut} {
		m.count("network_bytes_total", "Bytes on connections, by direction.", bytes, "direction", direction)
	}
	m.count("connections_accepted_total", "Connections accepted.", counts.AcceptedConns)
	m.count("connections_refused_total", "Connections refused because too many were open.", counts.RefusedConns)
	m.count("accept_errors_total", "Failures to accept or serve a connection.", counts.AcceptErrors)
	m.count("unauthorized_total", "Wrong or missing tokens.", counts.UnauthorizedRequests)
	m.gauge("inbound_bytes", "Bytes of unfinished frames.", float64(counts.InboundBytes))
	m.gauge("loop_lag_seconds", "Longest delay of a task on an event loop since the last scrape.", c.srv.Lag(server.LagForMetrics).Seconds())
	m.gauge("memory_limit_bytes", "--max-memory, or its default.", float64(c.srv.Options().MaxMemory))
	m.gauge("connections_limit", "Connections allowed at a time.", float64(c.srv.MaxConns()))
	draining := 0.0
	if c.srv.Draining() {
		draining = 1
	}
	m.gauge("draining", "1 while the broker is shutting down.", draining)
	m.gauge("build_info", "1; the version is the label.", 1, "version", c.srv.Options().Version)
}
