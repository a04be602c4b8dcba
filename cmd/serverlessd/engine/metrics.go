package engine

import (
	"strconv"
	"time"

	"gloom/cmd/serverlessd/store"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics holds the counters of what this daemon does. The figures of stores and journal are read
// at each scrape.
type metrics struct {
	addedJobs, ingestedJobs, takenJobs, discardedJobs prometheus.Counter
	retries, badLines, sysidsLost, givenBack          prometheus.Counter
	expiredLocks, purgedJobs, expiredJobs             prometheus.Counter
	endedJobs, dueTimes                               *prometheus.CounterVec
	storeTime                                         *prometheus.HistogramVec
	waitTime, runTime                                 prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) metrics {
	factory := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: "gloom_sq_" + name, Help: help})
	}
	durations := func(name, help string) prometheus.Histogram {
		return factory.NewHistogram(prometheus.HistogramOpts{Name: "gloom_sq_" + name, Help: help, Buckets: []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 3600}})
	}
	return metrics{
		addedJobs:     counter("added_total", "Jobs accepted by this daemon, including follow-on jobs."),
		ingestedJobs:  counter("ingested_total", "Jobs that went from the journal to a store."),
		takenJobs:     counter("taken_total", "Jobs taken to be run."),
		discardedJobs: counter("discarded_runs_total", "Runs whose end did not count, because another daemon had taken the job."),
		retries:       counter("retries_total", "Runs after which the job waits for another run."),
		givenBack:     counter("given_back_total", "Jobs given back without having been begun."),
		badLines:      counter("bad_lines_total", "J: lines that made no job."),
		sysidsLost:    counter("sysids_lost_total", "How often locks could not be renewed in time."),
		expiredLocks:  counter("expired_locks_total", "Locks of lost daemons that were freed here."),
		expiredJobs:   counter("expired_total", "Jobs that were never run and have expired."),
		purgedJobs:    counter("purged_total", "Ended jobs that were forgotten."),
		endedJobs:     factory.NewCounterVec(prometheus.CounterOpts{Name: "gloom_sq_ended_total", Help: "Runs that ended, by code."}, []string{"code"}),
		dueTimes:      factory.NewCounterVec(prometheus.CounterOpts{Name: "gloom_sq_due_times_total", Help: "Due times of schedules that this daemon has handled, by result: a job was made, or why not."}, []string{"outcome"}),
		storeTime: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gloom_sq_store_seconds", Help: "Duration of calls to the store, by call.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"call"}),
		waitTime: durations("wait_seconds", "How long jobs had been due when their runs began."),
		runTime:  durations("run_seconds", "How long runs took."),
	}
}

// observeCall notes how long a call to a store took.
func (m *metrics) observeCall(call string, start time.Time) {
	m.storeTime.WithLabelValues(call).Observe(time.Since(start).Seconds())
}

func (m *metrics) observeEnd(end *store.RunEnd) {
	switch end.Action {
	case store.EndGiveBack:
		m.givenBack.Inc()
		return
	case store.EndRetry:
		m.retries.Inc()
	}
	m.endedJobs.WithLabelValues(end.Code).Inc()
	m.addedJobs.Add(float64(len(end.Follow)))
}

func (m *metrics) observeSettled(s *store.SettleResult) {
	m.addedJobs.Add(float64(len(s.Made)))
	m.dueTimes.WithLabelValues("made").Add(float64(len(s.Made)))
	for reason, n := range s.Skipped {
		m.dueTimes.WithLabelValues(reason).Add(float64(n))
	}
}

func (m *metrics) observeSweep(s *store.SweepResult) {
	m.expiredLocks.Add(float64(s.Freed))
	m.expiredJobs.Add(float64(s.Expired))
	m.purgedJobs.Add(float64(s.Purged))
	m.endedJobs.WithLabelValues("abandoned").Add(float64(s.Abandoned))
	m.addedJobs.Add(float64(len(s.FollowJobs)))
}

// gaugeDesc is a metric whose value is in a Snapshot.
type gaugeDesc struct {
	kind       prometheus.ValueType
	name, help string
	value      func(l *Snapshot) float64
}

var gaugeDescs = []gaugeDesc{
	{prometheus.GaugeValue, "journal_bytes", "Bytes in the journal that no store has yet.", func(l *Snapshot) float64 { return float64(l.Journal.Bytes) }},
	{prometheus.GaugeValue, "journal_jobs", "Jobs in the journal that no store has yet.", func(l *Snapshot) float64 { return float64(l.Journal.Jobs) }},
	{prometheus.GaugeValue, "journal_age_seconds", "Age of the oldest job in the journal that no store has yet.", func(l *Snapshot) float64 { return time.Duration(l.Journal.Age).Seconds() }},
	{prometheus.CounterValue, "journal_syncs_total", "How often the journal was synced.", func(l *Snapshot) float64 { return float64(l.Journal.Syncs) }},
	{prometheus.CounterValue, "journal_sync_seconds_total", "Total duration of syncs of the journal.", func(l *Snapshot) float64 { return time.Duration(l.Journal.SyncTime).Seconds() }},
	{prometheus.CounterValue, "journal_damaged_bytes_total", "Bytes that were missing, or could not be read and were set aside.", func(l *Snapshot) float64 { return float64(l.Journal.DamagedBytes) }},
	{prometheus.CounterValue, "journal_failures_total", "Writes and syncs that failed.", func(l *Snapshot) float64 { return float64(l.Journal.Failures) }},
	{prometheus.GaugeValue, "journal_bad_files", "Files with parts of the journal that could not be read.", func(l *Snapshot) float64 { return float64(l.Journal.AsideFiles) }},
	{prometheus.GaugeValue, "contexts", "Processes that are ready or run jobs.", func(l *Snapshot) float64 { return float64(l.Contexts) }},
	{prometheus.GaugeValue, "in_hand", "Jobs that were taken, and whose end is not written yet.", func(l *Snapshot) (n float64) {
		for _, s := range l.Stores {
			n += float64(s.InHand)
		}
		return n
	}},
	{prometheus.GaugeValue, "batches", "Batches that run.", func(l *Snapshot) float64 { return float64(l.Batches) }},
	{prometheus.GaugeValue, "running", "1 while jobs are handed out.", func(l *Snapshot) float64 { return boolValue(l.HandsOut) }},
	{prometheus.GaugeValue, "ledger_imbalance", "By how many jobs the stores' counts are wrong; anything but 0 is a bug.", func(l *Snapshot) float64 { return float64(l.Imbalance) }},
}

// boolValue returns 1 for true and 0 for false.
func boolValue(value bool) float64 {
	if value {
		return 1
	}
	return 0
}

// collector collects the figures of stores, journal and slots.
type collector struct{ engine *Engine }

// Describe implements prometheus.Collector. It describes nothing, because not all metrics are always
// there.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	snapshot := c.engine.Snapshot()
	send := func(kind prometheus.ValueType, name, help string, v float64, labels prometheus.Labels) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("gloom_sq_"+name, help, nil, labels), kind, v)
	}
	for _, f := range gaugeDescs {
		send(f.kind, f.name, f.help, f.value(snapshot), nil)
	}
	for i, s := range snapshot.Stores {
		send(prometheus.GaugeValue, "store_up", "1 while the store is reachable and refuses nothing.", boolValue(s.Error == ""), prometheus.Labels{"store": strconv.Itoa(i)})
	}
	if snapshot.Types == nil {
		return
	}
	sum := store.Total(snapshot.Types)
	for state, n := range map[string]int64{
		"waiting": sum.Waiting, "deferred": sum.Deferred, "running": sum.Running, "ok": sum.OK, "failed": sum.Failed,
		"abandoned": sum.Abandoned, "expired": sum.Expired, "deleted": sum.Deleted, "set_aside": sum.SetAside, "added": sum.Added,
	} {
		send(prometheus.GaugeValue, "jobs", "Jobs, by state, as last counted.", float64(n), prometheus.Labels{"state": state})
	}
	send(prometheus.GaugeValue, "oldest_seconds", "How long the oldest waiting job has been due, 0 if there is none.", time.Duration(sum.Oldest).Seconds(), nil)
}
