package master

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"gloom/cmd/jq-master/job"
)

// Describe implements prometheus.Collector.
func (m *Master) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect implements prometheus.Collector.
func (m *Master) Collect(to chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help string, v float64, label []string) {
		to <- prometheus.MustNewConstMetric(newDesc(name, help, label[:len(label)/2]...), kind, v, label[len(label)/2:]...)
	}
	// label is empty, or has the name of a label and its value.
	gauge := func(name, help string, v float64, label ...string) {
		send(prometheus.GaugeValue, name, help, v, label)
	}
	count := func(name, help string, v uint64, label ...string) {
		send(prometheus.CounterValue, name, help, float64(v), label)
	}
	active := func(is bool) {
		gauge("active", "Whether this master is the active one of its namespace.", map[bool]float64{true: 1}[is])
	}
	m.mu.Lock()
	mc := m.machine
	if mc == nil {
		m.mu.Unlock()
		active(false)
		return
	}
	ledger, counters, counts := mc.balance(), mc.metrics, mc.counts
	workers, slots := len(mc.workers), 0
	for _, w := range mc.workers {
		slots += w.MaxJobs
	}
	results, waiters, bytes, storeUp := mc.results, mc.waiters, mc.usedBytes(), mc.awayErr == nil
	keys := len(mc.keys)
	schedules, due := len(mc.schedules.byName), maps.Clone(mc.schedules.queued)
	m.mu.Unlock()

	active(m.opt.Store.HoldsLease())
	count("enqueued_total", "Jobs accepted, including those found in the store at the start.", ledger.Enqueued)
	count("revived_total", "Jobs that had ended and were revived.", ledger.Revived)
	count("handed_out_total", "Attempts that began.", ledger.HandedOut)
	count("released_total", "Hand-outs that were taken back and do not count as attempts.", ledger.Released)
	for outcome, n := range map[string]uint64{"done": ledger.Done, "error": ledger.Failed, "cancelled": ledger.Cancelled} {
		count("ended_total", "Jobs that ended, by outcome.", n, "outcome", outcome)
	}
	count("retries_total", "Retries that were scheduled.", ledger.Retries)
	count("timeouts_total", "Attempts that timed out.", ledger.Timeouts)
	count("lost_runs_total", "Attempts that ended because the worker was lost.", ledger.LostRuns)
	count("discarded_answers_total", "Answers of workers that came too late.", ledger.LateReports)
	for s, n := range counts {
		gauge("jobs", "Jobs held, by status.", float64(n), "status", job.State(s).String())
	}
	gauge("workers", "Workers that are registered.", float64(workers))
	gauge("slots", "Jobs that all workers together can run at once.", float64(slots))
	for kind, n := range counters.pushes {
		count("pushes_total", "Answers to pushes, by kind.", n, "answer", answerNames[kind])
	}
	gauge("results_kept", "Results that wait to be fetched.", float64(results))
	count("results_fetched_total", "Results that were fetched.", counters.fetched)
	count("results_expired_total", "Results that expired before they were fetched.", counters.expired)
	gauge("waiters", "Requests that wait for the end of a job, or for a job.", float64(waiters))
	gauge("bytes", "Bytes of arguments, results, errors and idempotency keys held.", float64(bytes))
	gauge("idempotency_keys", "Idempotency keys that are remembered.", float64(keys))
	gauge("schedules", "Schedules.", float64(schedules))
	for outcome, n := range due {
		count("due_times_total", "Due times of schedules that were handled, by result: a job was made, or why not.", n, "outcome", outcome)
	}
	// Scrapes need no token, and in a broker with many groups it takes a long time to find what each
	// constraint holds back. So scrapes that follow each other closely share one result.
	view, _ := m.scrapedConstraints.get(func() ([]*ConstraintView, bool, error) {
		view, err := m.Constraints()
		return view, true, err
	})
	for _, k := range view {
		if k.Blocked < 0 {
			continue
		}
		gauge("blocked", "Jobs that a constraint holds back.", float64(k.Blocked), "constraint", k.ID)
	}
	gauge("store_up", "Whether the store accepts writes.", map[bool]float64{true: 1}[storeUp])
	gauge("ledger_imbalance", "Difference in the ledger of jobs; anything but 0 is a bug.", float64(ledger.imbalance()))
	to <- counters.waitSeconds.metric("wait_seconds", "How long jobs waited before an attempt, not counting delays.")
	to <- counters.runSeconds.metric("run_seconds", "How long attempts took.")
}

// newDesc returns the description of a metric whose name begins with gloom_jq_.
func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gloom_jq_"+name, help, labels, nil)
}

// imbalance returns by how much the ledger is off; anything but 0 is a bug.
func (l *Ledger) imbalance() int64 {
	n := int64(l.Enqueued + l.Revived - l.Waiting - l.Running - l.Done - l.Failed - l.Cancelled)
	return max(n, -n)
}

func (h *histogram) metric(name, help string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(bounds))
	var sum uint64
	for i, limit := range bounds {
		sum += h.buckets[i]
		buckets[limit] = sum
	}
	return prometheus.MustNewConstHistogram(newDesc(name, help), sum+h.buckets[len(bounds)], h.sum, buckets)
}
