package admin

import (
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"gloom/broker"
	"gloom/broker/server"
	"gloom/wire"
)

// otherLabel is the label of all types that the core may forget. Only types that the core
// never forgets have labels of their own, because the counter of a label must never be reset.
const otherLabel = "other"

// collector reads the broker's counts when it is scraped. It never walks jobs.
type collector struct {
	srv  *server.Server
	held *heldBytes
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gloom_"+name, help, labels, nil)
}

var (
	descSubmitted   = desc("jobs_submitted_total", "Jobs accepted.", "type")
	descDispatched  = desc("jobs_dispatched_total", "Times a job was dispatched to a worker.", "type")
	descRequeued    = desc("jobs_requeued_total", "Times a job was requeued after a failed run.", "type")
	descOverdue     = desc("runs_overdue_total", "Runs that passed their timeout.", "type")
	descEnded       = desc("jobs_ended_total", "Jobs that ended, by outcome.", "type", "outcome")
	descJobs        = desc("jobs", "Jobs held, by state.", "type", "state")
	descBytes       = desc("job_bytes", "Bytes counted against limits for the jobs held.", "type")
	descOldest      = desc("oldest_queued_seconds", "Age of the oldest queued job.", "type")
	descWorkers     = desc("workers", "Workers joined, by state: idle ones have room for a job.", "type", "state")
	descPaused      = desc("type_paused", "1 while the type is paused.", "type")
	descDead        = desc("dead_letters", "Failed jobs kept.", "type")
	descDeadDropped = desc("dead_letters_dropped_total", "Failed jobs dropped, or never kept, because a limit was reached (--dead-letters per type, --dead-bytes in all).")
	descWait        = desc("wait_seconds", "Time from ready to dispatch.", "type")
	descRun         = desc("run_seconds", "Time from dispatch to the end of the run.", "type")
	descKept        = desc("kept_outcomes", "Jobs that have ended and whose outcome is kept.")
	descKeptBytes   = desc("kept_outcome_bytes", "Bytes counted against limits for kept outcomes.")
	descReleases    = desc("releases_total", "Times a worker released a job without running it.")
	descGroups      = desc("groups", "Groups with jobs.")
	descHeldBack    = desc("jobs_held_back", "Queued jobs that a rule of a group holds back.", "type")
	descTypes       = desc("types", "Types known.")
	descConns       = desc("connections", "Open connections.", "port")
	descMaxConns    = desc("connections_limit", "Connections allowed at a time.")
	descAccepted    = desc("connections_accepted_total", "Connections accepted.")
	descRefusedConn = desc("connections_refused_total", "Connections refused because too many were open.")
	descAcceptErr   = desc("accept_errors_total", "Failures to accept or serve a connection.")
	descUnauth      = desc("unauthorized_total", "Wrong or missing tokens.")
	descErrors      = desc("error_frames_total", "Error frames sent, by code.", "code")
	descFrames      = desc("frames_total", "Frames, by direction.", "direction")
	descNetBytes    = desc("network_bytes_total", "Bytes on connections, by direction.", "direction")
	descBacklog     = desc("outbound_bytes", "Bytes not yet read by peers.")
	descBacklogMax  = desc("outbound_bytes_max", "Largest number of bytes not yet read by one peer.")
	descOverflows   = desc("outbound_overflows_total", "Connections closed because the peer did not read.")
	descPartial     = desc("inbound_bytes", "Bytes of unfinished frames.")
	descLag         = desc("loop_lag_seconds", "Longest delay of a task on an event loop since the last scrape.")
	descUndelivered = desc("answers_undelivered_total", "Upper bound of the answers that were not written because their connection closed.")
	descDropped     = desc("progress_dropped_total", "Progress frames dropped because their submitter reads slowly.")
	descImbalance   = desc("ledger_imbalance", "Error of the ledger of jobs; anything but 0 is a bug.")
	descMemory      = desc("memory_bytes", "Memory allocated, used or not, by purpose; --max-memory bounds the sum.", "part")
	descMemoryLimit = desc("memory_limit_bytes", "--max-memory, or its default.")
	descStore       = desc("store_bytes", "Memory allocated by the job store, used or not.")
	descDraining    = desc("draining", "1 while the broker is shutting down.")
	descInfo        = desc("build_info", "1; the version is the label.", "version")
)

var brokerDescs = []*prometheus.Desc{
	descSubmitted, descDispatched, descRequeued, descOverdue, descEnded, descJobs, descBytes,
	descOldest, descWorkers, descPaused, descDead, descDeadDropped, descWait, descRun, descKept, descKeptBytes, descReleases, descGroups, descHeldBack, descTypes, descConns,
	descMaxConns, descAccepted, descRefusedConn, descAcceptErr, descUnauth, descErrors,
	descFrames, descNetBytes, descBacklog, descBacklogMax, descOverflows, descPartial,
	descLag, descUndelivered, descDropped, descImbalance, descMemory, descMemoryLimit, descStore, descDraining, descInfo,
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range slices.Concat(brokerDescs, fleetDescs) {
		ch <- d
	}
}

// typeSum holds the sums over the types that share a label.
type typeSum struct {
	broker.TypeInfo
	stats  broker.TypeStats
	paused int
}

// addGauges adds the values that can decrease.
func (t *typeSum) addGauges(i *broker.TypeInfo) {
	t.Workers += i.Workers
	t.Idle += i.Idle
	t.Bytes += i.Bytes
	t.Dead += i.Dead
	t.Held += i.Held
	t.Oldest = max(t.Oldest, i.Oldest)
	if i.Paused {
		t.paused++
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
		if label := wire.Value(t.Name); t.Kept && label != otherLabel {
			x = &typeSum{TypeInfo: broker.TypeInfo{Ledger: t.Ledger}, stats: *s}
			out[label] = x
			other.Ledger.Sub(&t.Ledger)
		} else if t.Kept {
			other.stats.Add(s)
		}
		survey.Complete(t)
		x.addGauges(t)
	}
	h.View(func(b *broker.Broker, _ int64) {
		other.Ledger, other.stats = b.Totals(), *b.OtherStats()
		from = b.Types(0, math.MaxInt, add) // the core lists its permanent types first
	})
	for from >= 0 {
		h.View(func(b *broker.Broker, _ int64) { from = b.Types(from, math.MaxInt, add) })
	}
	return out
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for name, t := range c.sumByLabel() {
		collectType(ch, name, t)
	}
	c.collectCore(ch)
	c.collectServer(ch)
	c.collectFleet(ch)
}

func count(ch chan<- prometheus.Metric, d *prometheus.Desc, v uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func collectType(ch chan<- prometheus.Metric, name string, t *typeSum) {
	count(ch, descSubmitted, t.Submitted, name)
	count(ch, descDispatched, t.Dispatched, name)
	count(ch, descRequeued, t.Requeued, name)
	count(ch, descOverdue, t.Overdue, name)
	count(ch, descEnded, t.Answered, name, "answered")
	count(ch, descEnded, t.Failed, name, "failed")
	count(ch, descEnded, t.Cancelled, name, "cancelled")
	count(ch, descEnded, t.Expired, name, "expired")
	count(ch, descEnded, t.Discarded, name, "discarded")
	gauge(ch, descJobs, float64(t.Delayed), name, "delayed")
	gauge(ch, descJobs, float64(t.Queued), name, "queued")
	gauge(ch, descJobs, float64(t.Running), name, "running")
	gauge(ch, descBytes, float64(t.Bytes), name)
	gauge(ch, descHeldBack, float64(t.Held), name)
	gauge(ch, descOldest, t.Oldest.Seconds(), name)
	gauge(ch, descWorkers, float64(t.Idle), name, "idle")
	gauge(ch, descWorkers, float64(t.Workers-t.Idle), name, "busy")
	gauge(ch, descPaused, float64(t.paused), name)
	gauge(ch, descDead, float64(t.Dead), name)
	histogram(ch, descWait, &t.stats.Wait, t.stats.WaitSum, name)
	histogram(ch, descRun, &t.stats.Run, t.stats.RunSum, name)
}

// histogram exports every second power of two: 64 µs, 256 µs, … 18 min.
func histogram(ch chan<- prometheus.Metric, d *prometheus.Desc, b *[broker.StatBuckets]uint64, sum uint64, labels ...string) {
	shown := make(map[float64]uint64, 13)
	var n uint64
	for i, v := range b {
		n += v
		if i >= 6 && i <= 30 && i%2 == 0 {
			shown[float64(uint64(1)<<i)/1e6] = n
		}
	}
	ch <- prometheus.MustNewConstHistogram(d, n, float64(sum)/1e9, shown, labels...)
}

func (c *collector) collectCore(ch chan<- prometheus.Metric) {
	var total broker.Ledger
	var submitters, workers, types, kept, groups int
	var keptBytes int64
	var deadDropped uint64
	var held broker.Memory
	h := c.srv.Hub()
	h.View(func(b *broker.Broker, _ int64) {
		total, types, held = b.Totals(), b.TypeCount(), b.Memory()
		submitters, workers = b.Peers()
		kept, keptBytes = b.Outcomes()
		groups, deadDropped = b.GroupCount(), b.DeadDropped()
	})
	gauge(ch, descImbalance, float64(total.Imbalance()))
	count(ch, descReleases, total.Releases)
	count(ch, descDeadDropped, deadDropped)
	gauge(ch, descTypes, float64(types))
	gauge(ch, descGroups, float64(groups))
	gauge(ch, descKept, float64(kept))
	gauge(ch, descKeptBytes, float64(keptBytes))
	gauge(ch, descStore, float64(held.Jobs()))
	c.collectMemory(ch, &held)
	gauge(ch, descConns, float64(submitters), "submit")
	gauge(ch, descConns, float64(workers), "worker")
	s := h.Stats()
	for _, code := range wire.Codes() {
		count(ch, descErrors, s.Errors[code], code.String())
	}
	count(ch, descFrames, s.Frames, "in")
	count(ch, descFrames, s.FramesOut, "out")
	count(ch, descUndelivered, s.Undelivered)
	count(ch, descDropped, s.Dropped)
	count(ch, descOverflows, s.Overflows)
	_, sum, limit := h.Backlog()
	gauge(ch, descBacklog, float64(sum))
	gauge(ch, descBacklogMax, float64(limit))
}

// collectMemory exports memory by part: of the core, and of the hub and the server for
// connections.
func (c *collector) collectMemory(ch chan<- prometheus.Metric, core *broker.Memory) {
	m := c.srv.Hub().Memory()
	for _, p := range []struct {
		part  string
		bytes int64
	}{
		{"jobs", core.Slabs + core.Bodies}, {"records", core.Records}, {"index", core.Index},
		{"queues", core.Queues}, {"heaps", core.Heaps}, {"dead", core.Dead}, {"history", core.History}, {"types", core.Types},
		{"peers", core.Peers}, {"pools", core.Pools}, {"output", m.Unread}, {"spare", m.Spare}, {"input", m.Input}, {"tls", m.TLS}, {"fleet", m.Fleet}, {"rates", c.held.rates.Load()}, {"snapshot", c.held.snapshot.Load()},
	} {
		gauge(ch, descMemory, float64(p.bytes), p.part)
	}
}

func (c *collector) collectServer(ch chan<- prometheus.Metric) {
	n := c.srv.Counts()
	count(ch, descNetBytes, n.BytesIn, "in")
	count(ch, descNetBytes, n.BytesOut, "out")
	count(ch, descAccepted, n.Accepted)
	count(ch, descRefusedConn, n.RefusedConns)
	count(ch, descAcceptErr, n.AcceptErrors)
	count(ch, descUnauth, n.Unauthorized)
	gauge(ch, descPartial, float64(n.Inbound))
	gauge(ch, descLag, c.srv.Lag(server.ForMetrics).Seconds())
	gauge(ch, descMemoryLimit, float64(c.srv.Options().MaxMemory))
	gauge(ch, descMaxConns, float64(c.srv.MaxConns()))
	draining := 0.0
	if c.srv.Draining() {
		draining = 1
	}
	gauge(ch, descDraining, draining)
	gauge(ch, descInfo, 1, c.srv.Options().Version)
}
