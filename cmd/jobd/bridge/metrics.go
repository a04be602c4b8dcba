package bridge

import (
	"time"

	"gloom/cmd/jobd/control"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters and histograms of a bridge. The labels of targets are bounded by
// maxTargetLabels.
type metrics struct {
	acceptedRows, lostRows, settledRows, endedRows *prometheus.CounterVec
	transactions                                   *prometheus.CounterVec
	fetchTime, writeTime, runTime                  prometheus.Histogram
	writeRows                                      prometheus.Histogram
}

// maxTargetLabels is the maximum number of targets that have a label of their own; all other
// targets share one label.
const maxTargetLabels = 200

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "jobd_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "jobd_" + name, Help: help, Buckets: buckets})
	}
	shortBuckets := prometheus.ExponentialBuckets(0.0005, 2, 15)
	return &metrics{
		acceptedRows: counter("rows_accepted_total", "Rows taken from the table, by poll or by hand.", "target", "by"),
		endedRows:    counter("rows_ended_total", "Rows that left the daemon, by outcome.", "target", "outcome"),
		lostRows:     counter("rows_lost_total", "Rows that no longer belonged to this daemon when it wrote them."),
		settledRows:  counter("rows_settled_total", "Rows of dead daemons that were settled, by outcome.", "outcome"),
		transactions: counter("transactions_total", "Transactions with the database, by outcome.", "kind", "outcome"),
		fetchTime:    histogram("fetch_seconds", "Time to accept a page of rows.", shortBuckets),
		writeTime:    histogram("write_seconds", "Time to write a batch of rows.", shortBuckets),
		writeRows:    histogram("write_rows", "Rows in a batch.", prometheus.ExponentialBuckets(1, 2, 9)),
		runTime:      histogram("run_seconds", "Time from a row's start to its end.", prometheus.ExponentialBuckets(0.001, 4, 12)),
	}
}

func (m *metrics) observeWrite(rows int, elapsed time.Duration, err error) {
	m.writeTime.Observe(elapsed.Seconds())
	m.writeRows.Observe(float64(rows))
	m.countTransaction("write", err)
}

func (m *metrics) observeFetch(elapsed time.Duration, err error) {
	m.fetchTime.Observe(elapsed.Seconds())
	m.countTransaction("fetch", err)
}

func (m *metrics) countTransaction(kind string, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.transactions.WithLabelValues(kind, outcome).Inc()
}

// collector adds the gauges, which are read at each scrape.
type collector struct {
	bridge *Bridge
	*metrics
}

var (
	descConcurrency = prometheus.NewDesc("jobd_target_concurrency", "Rows of a target that may run at once.", []string{"target"}, nil)
	descPaused      = prometheus.NewDesc("jobd_target_paused", "1 when a target is paused.", []string{"target"}, nil)
	descQueued      = prometheus.NewDesc("jobd_target_queued", "Accepted rows that wait for a place.", []string{"target"}, nil)
	descRunning     = prometheus.NewDesc("jobd_target_running", "Rows that are inside the broker.", []string{"target"}, nil)
	descManual      = prometheus.NewDesc("jobd_manual_waiting", "Jobs that a run-manual waits for.", nil, nil)
	descPending     = prometheus.NewDesc("jobd_writes_pending", "Row changes that wait for the database.", nil, nil)
	descBytes       = prometheus.NewDesc("jobd_writes_pending_bytes", "Outputs in memory that wait for the database.", nil, nil)
	descRefused     = prometheus.NewDesc("jobd_writes_refused", "Row changes that the database has refused for long.", nil, nil)
	descDatabase    = prometheus.NewDesc("jobd_database_up", "1 if the last statement was answered by the database.", nil, nil)
	descBroker      = prometheus.NewDesc("jobd_broker_up", "1 when the broker is connected.", nil, nil)
)

func (c collector) vectors() []prometheus.Collector {
	return []prometheus.Collector{c.acceptedRows, c.endedRows, c.lostRows, c.settledRows, c.transactions, c.fetchTime, c.writeTime, c.writeRows, c.runTime}
}

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.vectors() {
		v.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{descConcurrency, descPaused, descQueued, descRunning, descManual, descPending, descBytes, descRefused, descDatabase, descBroker} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, v := range c.vectors() {
		v.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	targets, manual := c.bridge.targetStatus()
	for i, t := range targets {
		if i == maxTargetLabels {
			break
		}
		gauge(descConcurrency, float64(t.Concurrency), t.Name)
		gauge(descPaused, boolFloat(t.Paused), t.Name)
		gauge(descQueued, float64(t.Queued), t.Name)
		gauge(descRunning, float64(t.Running), t.Name)
	}
	pending, bytes := c.bridge.writer.backlog()
	gauge(descManual, float64(manual))
	gauge(descPending, float64(pending))
	gauge(descBytes, float64(bytes))
	refused, _, _ := c.bridge.writer.refusal()
	gauge(descRefused, float64(refused))
	gauge(descDatabase, boolFloat(c.bridge.database.works()))
	gauge(descBroker, boolFloat(c.bridge.link.Health() == nil))
}

func boolFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var _ control.Daemon = (*Bridge)(nil)
