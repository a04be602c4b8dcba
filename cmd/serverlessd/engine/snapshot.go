package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// Snapshot has the current figures of the daemon. Figures that are not in memory come from an
// earlier count, so a Snapshot takes little time however many jobs there are.
type Snapshot struct {
	// Types has the counts of jobs by jobtype at the time Counted. It is nil if the last count
	// failed or there was none. The map must not be changed.
	Types   map[string]store.Counts
	Counted time.Time
	// Imbalance is by how many jobs the stores' counts are wrong; anything but 0 is a bug.
	Imbalance int64

	// The fields below have counts since the start of this daemon.
	Added, Retries int64
	Ended          map[string]int64 // runs, by code
	Wait, Run      Times

	Journal    journal.Stats
	JournalAge time.Duration // age of the oldest job that no store has
	Stores     []StoreSnapshot
	Broker     error // why the broker is away; nil: it is reachable, or no handler needs it
	Batches    int   // that run
	Contexts   int
	HandsOut   bool
}

// Times is a histogram of durations: Counts[i] of them took at most Bounds[i] seconds, but more
// than the bound before it. The last count has those above all bounds.
type Times struct {
	Bounds []float64
	Counts []uint64
}

// StoreSnapshot is a store as this daemon sees it.
type StoreSnapshot struct {
	Name    string
	Refuses error  // why the store is away, or what it refuses; nil: neither
	Away    bool   // the store cannot be reached
	Sysid   string // this daemon's sysid in the store; "": none, so it takes no jobs
	InHand  int    // jobs that this daemon has taken, and whose end is not written
}

// Snapshot returns the daemon's state.
func (e *Engine) Snapshot() *Snapshot {
	l := &Snapshot{
		Added: number(e.meter.added), Retries: number(e.meter.retries), Ended: make(map[string]int64),
		Wait: times(e.meter.waitTime), Run: times(e.meter.runTime),
		Journal: e.journal.Stats(), JournalAge: e.journal.Age(), Contexts: e.runner.Contexts(),
	}
	l.Types, l.Counted = e.counted()
	l.Stores, l.Imbalance = e.stores()
	l.Batches, l.HandsOut = e.batchesAtWork()
	if e.needBroker() {
		l.Broker = e.link.Health()
	}
	codes := make(chan prometheus.Metric)
	go func() {
		defer close(codes)
		e.meter.endedJobs.Collect(codes)
	}()
	for m := range codes {
		var value dto.Metric
		if m.Write(&value) == nil {
			l.Ended[value.Label[0].GetValue()] = int64(value.Counter.GetValue())
		}
	}
	return l
}

// number returns the value of a counter.
func number(c prometheus.Counter) int64 {
	var value dto.Metric
	_ = c.Write(&value)
	return int64(value.Counter.GetValue())
}

func times(h prometheus.Histogram) (t Times) {
	var value dto.Metric
	_ = h.Write(&value)
	before := uint64(0)
	for _, b := range value.Histogram.Bucket { // they are cumulative
		t.Bounds = append(t.Bounds, b.GetUpperBound())
		t.Counts = append(t.Counts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	t.Counts = append(t.Counts, value.Histogram.GetSampleCount()-before)
	return t
}

// stores returns what is known of each store, and by how many jobs their counts are wrong.
func (e *Engine) stores() (all []StoreSnapshot, off int64) {
	for _, b := range e.backends {
		s := StoreSnapshot{Name: b.store.Name(), Refuses: b.health()}
		b.mu.Lock()
		s.Away, s.Sysid, s.InHand = b.awayReason != nil, b.sysid, len(b.hand)
		off += b.miscounted
		b.mu.Unlock()
		all = append(all, s)
	}
	return all, off
}

// batchesAtWork returns the number of running batches, and whether jobs are handed out.
func (e *Engine) batchesAtWork() (n int, handsOut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.batches), !e.stopped && !e.leaving
}
