package master

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gloom/cmd/jq-master/job"
)

// newDesc returns the description of a metric whose name begins with gloom_jq_.
func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gloom_jq_"+name, help, labels, nil)
}

var (
	descEnqueued  = newDesc("enqueued_total", "Jobs accepted, including those found in the store at the start.")
	descRevived   = newDesc("revived_total", "Jobs that had ended and were revived.")
	descHandedOut = newDesc("handed_out_total", "Attempts that began.")
	descReleased  = newDesc("released_total", "Hand-outs that were taken back and do not count as attempts.")
	descEnded     = newDesc("ended_total", "Jobs that ended, by outcome.", "outcome")
	descRetries   = newDesc("retries_total", "Retries that were scheduled.")
	descTimeouts  = newDesc("timeouts_total", "Attempts that timed out.")
	descLostRuns  = newDesc("lost_runs_total", "Attempts that ended because the worker was lost.")
	descDiscarded = newDesc("discarded_answers_total", "Answers of workers that came too late.")
	descJobs      = newDesc("jobs", "Jobs held, by status.", "status")
	descWorkers   = newDesc("workers", "Workers that are registered.")
	descSlots     = newDesc("slots", "Jobs that all workers together can run at once.")
	descPushes    = newDesc("pushes_total", "Answers to pushes, by kind.", "answer")
	descResults   = newDesc("results_kept", "Results that wait to be fetched.")
	descFetched   = newDesc("results_fetched_total", "Results that were fetched.")
	descExpired   = newDesc("results_expired_total", "Results that expired before they were fetched.")
	descWaiters   = newDesc("waiters", "Requests that wait for the end of a job, or for a job.")
	descBytes     = newDesc("bytes", "Bytes of arguments, results, errors and idempotency keys held.")
	descKeys      = newDesc("idempotency_keys", "Idempotency keys that are remembered.")
	descStoreUp   = newDesc("store_up", "Whether the store accepts writes.")
	descImbalance = newDesc("ledger_imbalance", "Difference in the ledger of jobs; anything but 0 is a bug.")
	descActive    = newDesc("active", "Whether this master is the active one of its namespace.")
	descBlocked   = newDesc("blocked", "Jobs that a constraint holds back.", "constraint")
	descSchedules = newDesc("schedules", "Schedules.")
	descDueTimes  = newDesc("due_times_total", "Due times of schedules that were handled, by result: a job was made, or why not.", "outcome")
	descWait      = newDesc("wait_seconds", "How long jobs waited before an attempt, not counting delays.")
	descRun       = newDesc("run_seconds", "How long attempts took.")
)

// Describe implements prometheus.Collector.
func (m *Master) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// scraped caches the constraints for scrapes of the metrics. Scrapes need no token, and if the
// broker has many groups, it takes long to find what each constraint holds back.
type scraped struct {
	mu   sync.Mutex // guards the fields below
	at   time.Time
	view []*ConstraintView
}

const scrapedFor = time.Second

func (s *scraped) constraints(m *Master) []*ConstraintView {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) >= scrapedFor {
		s.view, _ = m.Constraints()
		s.at = time.Now()
	}
	return s.view
}

// Collect implements prometheus.Collector.
func (m *Master) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	m.mu.Lock()
	c := m.c
	if c == nil {
		m.mu.Unlock()
		gauge(descActive, 0)
		return
	}
	l, more, counts := c.ledger, c.more, c.counts
	workers, slots := len(c.workers), 0
	for _, w := range c.workers {
		slots += w.MaxJobs
	}
	results, waiters, bytes, up := c.results, c.waiters, c.held(), c.away == nil
	keys := c.keys.len()
	schedules, due := len(c.schedules.byName), maps.Clone(c.schedules.due)
	m.mu.Unlock()

	gauge(descActive, map[bool]float64{true: 1}[m.opt.Store.Holds()])
	count(descEnqueued, l.Enqueued)
	count(descRevived, l.Revived)
	count(descHandedOut, l.HandedOut)
	count(descReleased, l.Released)
	count(descEnded, l.Done, "done")
	count(descEnded, l.Failed, "error")
	count(descEnded, l.Cancelled, "cancelled")
	count(descRetries, l.Retries)
	count(descTimeouts, l.Timeouts)
	count(descLostRuns, l.LostRuns)
	count(descDiscarded, l.Discarded)
	for s, n := range counts {
		gauge(descJobs, float64(n), job.State(s).String())
	}
	gauge(descWorkers, float64(workers))
	gauge(descSlots, float64(slots))
	count(descPushes, more.taken, "taken")
	count(descPushes, more.unknown, "unknown_name")
	count(descPushes, more.busy, "busy")
	count(descPushes, more.refused, "refused")
	count(descPushes, more.broken, "broken")
	count(descPushes, more.unreachable, "unreachable")
	gauge(descResults, float64(results))
	count(descFetched, more.fetched)
	count(descExpired, more.expired)
	gauge(descWaiters, float64(waiters))
	gauge(descBytes, float64(bytes))
	gauge(descKeys, float64(keys))
	gauge(descSchedules, float64(schedules))
	for outcome, n := range due {
		count(descDueTimes, n, outcome)
	}
	for _, k := range m.scraped.constraints(m) {
		gauge(descBlocked, float64(k.Blocked), k.ID)
	}
	gauge(descStoreUp, map[bool]float64{true: 1}[up])
	gauge(descImbalance, float64(l.imbalance(&counts)))
	to <- more.waitSeconds.metric(descWait)
	to <- more.runSeconds.metric(descRun)
}

// imbalance returns by how much the ledger is off; anything but 0 is a bug.
func (l *Ledger) imbalance(counts *[6]int) int64 {
	in := int64(l.Enqueued + l.Revived)
	out := int64(l.Waiting + l.Running + l.Done + l.Failed + l.Cancelled)
	waiting := int64(l.Waiting) - int64(counts[job.Queued]+counts[job.Retrying])
	running := int64(l.Running) - int64(counts[job.Running])
	return abs(in-out) + abs(waiting) + abs(running)
}

func abs(n int64) int64 { return max(n, -n) }

func (h *histogram) metric(d *prometheus.Desc) prometheus.Metric {
	buckets := make(map[float64]uint64, len(bounds))
	var sum uint64
	for i, limit := range bounds {
		sum += h.buckets[i]
		buckets[limit] = sum
	}
	return prometheus.MustNewConstHistogram(d, sum+h.buckets[len(bounds)], h.sum, buckets)
}
