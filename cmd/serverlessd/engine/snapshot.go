package engine

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"gloom/broker/admin/moments"
	"gloom/cmd/internal/daemon"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// Snapshot holds the current figures of the daemon, as they are shown in answers. Figures that are
// not in memory come from an earlier count, so a Snapshot takes little time however many jobs there
// are.
type Snapshot struct {
	// Types holds the counts of jobs by jobtype at the time Counted. It is nil if the last count
	// failed or there was none. The map must not be changed.
	Types   map[string]store.Counts `json:"-"`
	Counted time.Time               `json:"-"`
	// Imbalance is the number of jobs by which the stores' counts are wrong. It is 0 unless there
	// is a bug.
	Imbalance int64 `json:"imbalance"`

	// The fields below have counts since the start of this daemon.
	Added   int64              `json:"added"`
	Retries int64              `json:"retries"`
	Ended   map[string]int64   `json:"ended"` // runs, by code
	Times   moments.Histograms `json:"times"`

	Journal  journal.Stats   `json:"journal"`
	Stores   []StoreSnapshot `json:"stores"`
	Broker   error           `json:"-"`        // why the broker is away; nil: it is reachable, or no handler needs it
	Batches  int             `json:"batches"`  // that run
	Contexts int             `json:"contexts"` // handler processes
	HandsOut bool            `json:"handing_out"`
	// HandlersUnread says that the handlers of a store have not been read yet. So a type that seems to
	// have no handler may have one.
	HandlersUnread bool `json:"handlers_unread,omitempty"`
}

// StoreSnapshot is a store as this daemon sees it.
type StoreSnapshot struct {
	Name    string `json:"name"`
	Sysid   string `json:"sysid"`           // this daemon's sysid in the store; "": none, so it takes no jobs
	InHand  int    `json:"in_hand"`         // jobs that this daemon has taken, and whose end is not written
	Away    bool   `json:"away"`            // the store cannot be reached
	Error   string `json:"error,omitempty"` // why the store is away, or what it refuses; "": neither
	Damaged bool   `json:"-"`               // its file is damaged
}

// Snapshot returns the daemon's state.
func (e *Engine) Snapshot() *Snapshot {
	snapshot := &Snapshot{
		Added: int64(daemon.CounterValue(e.metrics.addedJobs)), Retries: int64(daemon.CounterValue(e.metrics.retries)), Ended: make(map[string]int64),
		Journal: e.journal.Stats(), Contexts: e.runner.Processes(),
	}
	snapshot.Times.Bounds, snapshot.Times.Waits = daemon.HistogramBuckets(e.metrics.waitTime)
	_, snapshot.Times.Runs = daemon.HistogramBuckets(e.metrics.runTime)
	snapshot.Types, snapshot.Counted = e.counts()
	snapshot.Stores, snapshot.Imbalance = e.stores()
	snapshot.Batches, snapshot.HandsOut = e.runningBatches()
	snapshot.HandlersUnread = e.handlers.handledFunc() == nil
	if e.needsBroker() {
		snapshot.Broker = e.link.Health()
	}
	codes := make(chan prometheus.Metric)
	go func() {
		defer close(codes)
		e.metrics.endedJobs.Collect(codes)
	}()
	for m := range codes {
		var value dto.Metric
		if m.Write(&value) == nil {
			snapshot.Ended[value.Label[0].GetValue()] = int64(value.Counter.GetValue())
		}
	}
	return snapshot
}

// stores returns the known facts about each store, and the number of jobs by which the stores'
// counts are wrong.
func (e *Engine) stores() (snapshots []StoreSnapshot, imbalance int64) {
	for _, b := range e.backends {
		s := StoreSnapshot{Name: b.store.Name()}
		if err := b.health(); err != nil {
			s.Error, s.Damaged = err.Error(), errors.Is(err, store.ErrDamaged)
		}
		b.mu.Lock()
		s.Away, s.Sysid, s.InHand = b.awayReason != nil, b.sysid, len(b.runsInHand)
		imbalance += b.miscounted
		b.mu.Unlock()
		snapshots = append(snapshots, s)
	}
	return snapshots, imbalance
}

// runningBatches returns the number of running batches, and whether jobs are handed out.
func (e *Engine) runningBatches() (n int, handsOut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.batches), !e.stopped && !e.leaving
}
