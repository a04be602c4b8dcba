package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// Look is what operators see of the daemon at a glance. What it does not have in memory was counted
// before, so it takes little time however many jobs there are.
type Look struct {
	// Types are the jobs by jobtype, as of Counted; nil: the last count failed, or there was none
	// yet. They are never changed.
	Types   map[string]store.Counts
	Counted time.Time
	// Imbalance is by how many jobs the stores' counts are off; anything but 0 is a bug.
	Imbalance int64

	// Of this daemon, since its start.
	Added, Retries int64
	Ended          map[string]int64 // runs, by code
	Wait, Run      Times

	Journal    journal.Stats
	JournalAge time.Duration // of the oldest job that no store has
	Stores     []StoreLook
	Broker     error // why the broker is away; nil: it is not, or no handler needs it
	Batches    int   // at work
	Contexts   int
	HandsOut   bool
}

// Times are how long something took: Counts[i] times up to Bounds[i] seconds and longer than the bound
// before, the last count longer than all bounds.
type Times struct {
	Bounds []float64
	Counts []uint64
}

// StoreLook is a store as this daemon sees it.
type StoreLook struct {
	Name   string
	Ails   error  // why it is away, or what it refuses; nil: neither
	Away   bool   // it cannot be reached
	Sysid  string // of this daemon there; "": none, so it takes no jobs
	InHand int    // jobs that this daemon has taken, and whose end is not written
}

// Look looks at the daemon.
func (e *Engine) Look() *Look {
	l := &Look{
		Added: number(e.meter.added), Retries: number(e.meter.retries), Ended: make(map[string]int64),
		Wait: times(e.meter.waitTime), Run: times(e.meter.runTime),
		Journal: e.journal.Stats(), JournalAge: e.journal.Age(), Contexts: e.runner.Contexts(),
	}
	l.Types, l.Counted = e.counted()
	l.Stores, l.Imbalance = e.stores()
	l.Batches, l.HandsOut = e.batchesAtWork()
	if e.handlers.needBroker() {
		l.Broker = e.link.Health()
	}
	codes := make(chan prometheus.Metric)
	go func() {
		defer close(codes)
		e.meter.endedJobs.Collect(codes)
	}()
	for m := range codes {
		var told dto.Metric
		if m.Write(&told) == nil {
			l.Ended[told.Label[0].GetValue()] = int64(told.Counter.GetValue())
		}
	}
	return l
}

// number is the value of a counter.
func number(c prometheus.Counter) int64 {
	var told dto.Metric
	_ = c.Write(&told)
	return int64(told.Counter.GetValue())
}

func times(h prometheus.Histogram) (t Times) {
	var told dto.Metric
	_ = h.Write(&told)
	before := uint64(0)
	for _, b := range told.Histogram.Bucket { // they are cumulative
		t.Bounds = append(t.Bounds, b.GetUpperBound())
		t.Counts = append(t.Counts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	t.Counts = append(t.Counts, told.Histogram.GetSampleCount()-before)
	return t
}

// stores looks at the stores. off is by how many jobs their counts are wrong.
func (e *Engine) stores() (all []StoreLook, off int64) {
	for _, b := range e.backends {
		s := StoreLook{Name: b.store.Name(), Ails: b.health()}
		b.mu.Lock()
		s.Away, s.Sysid, s.InHand = b.away != nil, b.sysid, len(b.hand)
		off += b.off
		b.mu.Unlock()
		all = append(all, s)
	}
	return all, off
}

// batchesAtWork counts the batches, and tells whether jobs are handed out.
func (e *Engine) batchesAtWork() (n int, handsOut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.batches), !e.stopped && !e.leaving
}
