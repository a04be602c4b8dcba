package engine

import (
	"strconv"
	"time"

	"gloom/cmd/serverlessd/store"

	"github.com/prometheus/client_golang/prometheus"
)

// meter counts what this daemon does. The figures of stores and journal are read at each scrape.
type meter struct {
	added, ingestedJobs, takenJobs, discarded prometheus.Counter
	retries, badLines, sysidsLost, givenBack  prometheus.Counter
	expiredLocks, purged, expired             prometheus.Counter
	endedJobs, dueTimes                       *prometheus.CounterVec
	storeTime                                 *prometheus.HistogramVec
	waitTime, runTime                         prometheus.Histogram
}

func newMeter(r prometheus.Registerer) meter {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "gloom_sq_" + name, Help: help})
		r.MustRegister(c)
		return c
	}
	m := meter{
		added:        counter("added_total", "Jobs accepted by this daemon, including follow-on jobs."),
		ingestedJobs: counter("ingested_total", "Jobs that went from the journal to a store."),
		takenJobs:    counter("taken_total", "Jobs taken to be run."),
		discarded:    counter("discarded_runs_total", "Runs whose end did not count, because another daemon had taken the job."),
		retries:      counter("retries_total", "Runs after which the job waits for another run."),
		givenBack:    counter("given_back_total", "Jobs given back without having been begun."),
		badLines:     counter("bad_lines_total", "J: lines that made no job."),
		sysidsLost:   counter("sysids_lost_total", "How often locks could not be renewed in time."),
		expiredLocks: counter("expired_locks_total", "Locks of lost daemons that were freed here."),
		expired:      counter("expired_total", "Jobs that were never run and have expired."),
		purged:       counter("purged_total", "Ended jobs that were forgotten."),
		endedJobs:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gloom_sq_ended_total", Help: "Runs that ended, by code."}, []string{"code"}),
		dueTimes:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gloom_sq_due_times_total", Help: "Due times of schedules that this daemon has handled, by result: a job was made, or why not."}, []string{"outcome"}),
		storeTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gloom_sq_store_seconds", Help: "Duration of calls to the store, by call.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"call"}),
	}
	spans := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "gloom_sq_" + name, Help: help, Buckets: []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 3600}})
	}
	m.waitTime = spans("wait_seconds", "How long jobs had been due when their runs began.")
	m.runTime = spans("run_seconds", "How long runs took.")
	r.MustRegister(m.endedJobs, m.dueTimes, m.storeTime, m.waitTime, m.runTime)
	return m
}

func (m *meter) ingested(jobs int, took time.Duration) {
	m.ingestedJobs.Add(float64(jobs))
	m.storeTime.WithLabelValues("ingest").Observe(took.Seconds())
}

func (m *meter) asked(took time.Duration) {
	m.storeTime.WithLabelValues("waiting").Observe(took.Seconds())
}

func (m *meter) took(jobs int, took time.Duration) {
	m.takenJobs.Add(float64(jobs))
	m.storeTime.WithLabelValues("take").Observe(took.Seconds())
}

func (m *meter) renewed(took time.Duration) {
	m.storeTime.WithLabelValues("renew").Observe(took.Seconds())
}

func (m *meter) wrote(took time.Duration) {
	m.storeTime.WithLabelValues("end").Observe(took.Seconds())
}

func (m *meter) ended(end *store.Ending) {
	switch end.Fate {
	case store.GiveBack:
		m.givenBack.Inc()
		return
	case store.Again:
		m.retries.Inc()
	}
	m.endedJobs.WithLabelValues(end.Code).Inc()
	m.added.Add(float64(len(end.Follow)))
}

func (m *meter) settled(s *store.Settled, took time.Duration) {
	m.storeTime.WithLabelValues("settle").Observe(took.Seconds())
	m.added.Add(float64(len(s.Made)))
	m.dueTimes.WithLabelValues("made").Add(float64(len(s.Made)))
	for why, n := range s.Skipped {
		m.dueTimes.WithLabelValues(why).Add(float64(n))
	}
}

func (m *meter) swept(s *store.Swept) {
	m.expiredLocks.Add(float64(s.Freed))
	m.expired.Add(float64(s.Expired))
	m.purged.Add(float64(s.Purged))
	m.endedJobs.WithLabelValues("abandoned").Add(float64(s.Abandoned))
	m.added.Add(float64(len(s.Made)))
}

// collector collects the figures of stores, journal and slots.
type collector struct{ e *Engine }

var (
	descBacklogBytes = prometheus.NewDesc("gloom_sq_journal_bytes", "Bytes in the journal that no store has yet.", nil, nil)
	descBacklogJobs  = prometheus.NewDesc("gloom_sq_journal_jobs", "Jobs in the journal that no store has yet.", nil, nil)
	descBacklogAge   = prometheus.NewDesc("gloom_sq_journal_age_seconds", "Age of the oldest job in the journal that no store has yet.", nil, nil)
	descSyncs        = prometheus.NewDesc("gloom_sq_journal_syncs_total", "How often the journal was synced.", nil, nil)
	descSyncTime     = prometheus.NewDesc("gloom_sq_journal_sync_seconds_total", "Total duration of syncs of the journal.", nil, nil)
	descDamaged      = prometheus.NewDesc("gloom_sq_journal_damaged_bytes_total", "Bytes that were missing, or could not be read and were set aside.", nil, nil)
	descFailures     = prometheus.NewDesc("gloom_sq_journal_failures_total", "Writes and syncs that failed.", nil, nil)
	descBad          = prometheus.NewDesc("gloom_sq_journal_bad_files", "Files with parts of the journal that could not be read.", nil, nil)
	descUp           = prometheus.NewDesc("gloom_sq_store_up", "1 while the store is reachable and refuses nothing.", []string{"store"}, nil)
	descContexts     = prometheus.NewDesc("gloom_sq_contexts", "Processes that are ready or run jobs.", nil, nil)
	descInHand       = prometheus.NewDesc("gloom_sq_in_hand", "Jobs that were taken, and whose end is not written yet.", nil, nil)
	descBatches      = prometheus.NewDesc("gloom_sq_batches", "Batches that run.", nil, nil)
	descHandsOut     = prometheus.NewDesc("gloom_sq_running", "1 while jobs are handed out.", nil, nil)
	descJobs         = prometheus.NewDesc("gloom_sq_jobs", "Jobs, by state, as last counted.", []string{"state"}, nil)
	descOldest       = prometheus.NewDesc("gloom_sq_oldest_seconds", "How long the oldest waiting job has been due, 0 if there is none.", nil, nil)
	descImbalance    = prometheus.NewDesc("gloom_sq_ledger_imbalance", "By how many jobs the stores' counts are wrong; anything but 0 is a bug.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descBacklogBytes, descBacklogJobs, descBacklogAge, descSyncs, descSyncTime, descDamaged, descFailures,
		descBad, descOldest, descUp, descContexts, descInHand, descBatches, descHandsOut, descJobs, descImbalance,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
	}
	j := c.e.journal.Stats()
	gauge(descBacklogBytes, float64(j.Bytes))
	gauge(descBacklogJobs, float64(j.Jobs))
	gauge(descBacklogAge, c.e.journal.Age().Seconds())
	count(descSyncs, float64(j.Syncs))
	count(descSyncTime, j.SyncTime.Seconds())
	count(descDamaged, float64(j.Damaged))
	count(descFailures, float64(j.Failures))
	gauge(descBad, float64(j.Bad))
	gauge(descContexts, float64(c.e.runner.Contexts()))
	stores, off := c.e.stores()
	hand := 0
	for i, s := range stores {
		up := 0.0
		if s.Refuses == nil {
			up = 1
		}
		gauge(descUp, up, strconv.Itoa(i))
		hand += s.InHand
	}
	gauge(descInHand, float64(hand))
	gauge(descImbalance, float64(off))
	batches, out := c.e.batchesAtWork()
	gauge(descBatches, float64(batches))
	if out {
		gauge(descHandsOut, 1)
	} else {
		gauge(descHandsOut, 0)
	}
	c.collectJobs(gauge)
}

func (c collector) collectJobs(gauge func(*prometheus.Desc, float64, ...string)) {
	types, _ := c.e.counted()
	if types == nil {
		return
	}
	var sum store.Counts
	for _, t := range types {
		sum.Sum(&t)
	}
	for state, n := range map[string]int64{
		"waiting": sum.Waiting, "deferred": sum.Deferred, "running": sum.Running, "ok": sum.OK, "failed": sum.Failed,
		"abandoned": sum.Abandoned, "expired": sum.Expired, "deleted": sum.Deleted, "set_aside": sum.SetAside, "added": sum.Added,
	} {
		gauge(descJobs, float64(n), state)
	}
	gauge(descOldest, time.Duration(sum.Oldest).Seconds())
}
