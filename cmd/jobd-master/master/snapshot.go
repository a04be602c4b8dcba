package master

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gloom/broker/admin/finding"
	"gloom/cmd/jobd/overview"
	"gloom/cmd/jobd/peer"
)

const (
	// A snapshot is valid for Period: all requests in that time get the same snapshot.
	Period = 2 * time.Second
	// reportTimeout limits each of the three rounds of requests that a snapshot needs.
	reportTimeout = 2 * time.Second
	// maxCountAge is the age up to which counts of rows are used while the rows cannot be counted
	// again, for example because the database is slow.
	maxCountAge = 30 * time.Second
	// recentWindow is the time over which findings judge what happened to rows lately.
	recentWindow = 15 * time.Second
	// maxLeft limits the remembered targets that have lost their last worker. They are remembered
	// for rememberLeft. maxUnserved is the maximum number of poked targets without a worker that a
	// snapshot lists.
	maxLeft, rememberLeft, maxUnserved = 1000, time.Hour, 100
	// maxNew is the maximum number of targets that a worker may report without having registered
	// them: they may be new.
	maxNew = 100
)

// Snapshot is a snapshot of the fleet.
type Snapshot struct {
	At       time.Time
	Workers  []Worker // in the order of registration
	Targets  []Target // the busiest first
	Findings finding.List
	Bounds   []float64 // the bounds of Runs, as in overview.Daemon
	Runs     []uint64

	reporters    map[string]workerRef // by target that no worker serves: the worker that has reported rows of the target
	tableWorkers []workerRef          // one worker for each table
}

// Worker is a worker in a snapshot.
type Worker struct {
	Name          string            `json:"name"`
	Address       string            `json:"address"`
	Since         time.Time         `json:"since"`
	Targets       []overview.Target `json:"targets"`
	Manual        int               `json:"manual"`  // jobs for which a run-manual waits
	Trouble       string            `json:"trouble"` // why it cannot work; "" if it can
	Refused       string            `json:"refused"` // which rows its database refuses, and why; "" for none
	Silent        bool              `json:"silent"`  // the worker has not answered
	ReportsNoRows bool              `json:"old"`     // the worker is of a kind that does not report rows
	// CountError says why the worker could not count the rows of its table. It is "" if the worker has
	// counted them, or if another worker of the table was asked.
	CountError string `json:"uncounted"`
	table      string
}

// Target is a target in a snapshot: the sums over its workers, and the counts of its table.
type Target struct {
	overview.Target
	Workers     int        `json:"workers"`
	PausedBy    int        `json:"paused_by"` // number of workers; paused is true if all have paused it
	RowsCounted bool       `json:"known"`     // its rows are counted in a table
	Waiting     int        `json:"waiting"`   // rows in the table
	Manual      int        `json:"manual"`
	More        bool       `json:"more"`   // the counts are lower bounds
	Oldest      *time.Time `json:"oldest"` // when the first waiting row was created
	Poked       bool       `json:"poked"`  // it was poked, and no worker serves it
	LeftAt      *time.Time `json:"left_at"`
}

// load returns the number by which targets are sorted.
func (t *Target) load() int { return t.Waiting + t.Manual + t.Queued + t.Running }

// snapshotState holds the last snapshot, and counts from earlier snapshots.
type snapshotState struct {
	hasChanged atomic.Bool // an operator has changed something since the last snapshot

	mu          sync.Mutex
	last        *Snapshot
	history     []countSample
	findings    finding.Tracker
	tableCounts map[string]tableCount // by table
}

// tableCount holds the last counts of a table.
type tableCount struct {
	at     time.Time
	counts overview.Waiting
}

// countSample holds the counts of rows at one time, by target.
type countSample struct {
	at       time.Time
	byTarget map[string][3]uint64 // accepted, ok, fail; targets without any are left out
}

// Snapshot returns a snapshot of the fleet, which may be as old as Period.
func (m *Master) Snapshot() *Snapshot {
	m.snapshots.mu.Lock()
	defer m.snapshots.mu.Unlock()
	now := m.clock.Now()
	if m.snapshots.last != nil && now.Sub(m.snapshots.last.At) < Period && !m.snapshots.hasChanged.Swap(false) {
		return m.snapshots.last
	}
	snapshot := m.takeSnapshot(now)
	snapshot.Findings = m.snapshots.findFindings(snapshot)
	m.snapshots.last = snapshot
	return snapshot
}

// takeSnapshot asks all workers about themselves, then one worker of each table for the counts of
// waiting rows; m.snapshots.mu is held.
func (m *Master) takeSnapshot(now time.Time) *Snapshot {
	snapshot := &Snapshot{At: now, reporters: make(map[string]workerRef)}
	workers := m.workerRefs()
	answers := m.selfReports(workers)
	places := make(map[string]int)        // by target: its index in snapshot.Targets
	target := func(name string) *Target { // valid until the next call
		i, ok := places[name]
		if !ok && len(snapshot.Targets) >= maxTargets/targetBytes {
			return new(Target) // there is no room: workers report more targets than they could register
		}
		if !ok {
			i = len(snapshot.Targets)
			places[name], snapshot.Targets = i, append(snapshot.Targets, Target{Target: overview.Target{Target: name}})
		}
		return &snapshot.Targets[i]
	}
	for i, w := range workers {
		call := answers[i]
		row := Worker{Name: w.name, Address: w.conn.Remote().String(), Since: w.since, ReportsNoRows: w.isWithoutOverview.Load()}
		var report overview.Daemon
		switch {
		case call.err == nil && row.ReportsNoRows:
			report = overviewFromStatus(call.answer)
		case call.err == nil:
			_ = json.Unmarshal(call.answer, &report)
		case call.timedOut:
			row.Silent = true
		default:
			row.Trouble = call.err.Error()
		}
		row.Targets, row.Manual, row.table = report.Targets, report.Manual, report.Table
		row.Trouble, row.Refused = cmp.Or(row.Trouble, report.Trouble), report.Refused
		if row.Targets == nil { // there is no answer, so list the targets that the worker has registered
			for _, t := range w.targets {
				row.Targets = append(row.Targets, overview.Target{Target: t})
			}
		}
		row.Targets = row.Targets[:min(len(row.Targets), len(w.targets)+maxNew)]
		snapshot.Workers = append(snapshot.Workers, row)
		for _, t := range row.Targets {
			target(t.Target).add(t)
		}
		snapshot.addRuns(report)
	}
	m.countWaiting(snapshot, workers, target)
	m.mu.Lock()
	for _, t := range m.pokes.remembered.list[:min(maxUnserved, len(m.pokes.remembered.list))] {
		target(t).Poked = true
	}
	for name, at := range m.leftAt {
		if now.Sub(at) > rememberLeft {
			delete(m.leftAt, name)
		} else if t := target(name); t.Workers == 0 {
			t.LeftAt = new(at)
		}
	}
	m.mu.Unlock()
	for i := range snapshot.Targets {
		t := &snapshot.Targets[i]
		t.Paused = t.Workers > 0 && t.PausedBy == t.Workers
	}
	slices.SortFunc(snapshot.Targets, func(a, b Target) int {
		return cmp.Or(cmp.Compare(b.load(), a.load()), strings.Compare(a.Target.Target, b.Target.Target))
	})
	return snapshot
}

// selfReports sends each worker the request "look" or, if the worker does not know it, "status".
func (m *Master) selfReports(workers []workerRef) []workerCall {
	answers := make([]workerCall, len(workers))
	for _, typ := range []string{"look", "status"} {
		var calls []workerCall
		var workerIndex []int
		for i, w := range workers {
			if w.isWithoutOverview.Load() == (typ == "status") {
				calls, workerIndex = append(calls, workerCall{worker: w}), append(workerIndex, i)
			}
		}
		m.callAll(context.Background(), typ, min(reportTimeout, m.options.WorkerTimeout), calls)
		for i, c := range calls {
			if answers[workerIndex[i]] = c; typ == "look" && isUnknownRequest(c.err) {
				c.worker.isWithoutOverview.Store(true)
			}
		}
	}
	return answers
}

// isUnknownRequest reports whether an error says that a worker does not know a request.
func isUnknownRequest(err error) bool {
	var refusal *peer.RemoteError
	return errors.As(err, &refusal) && strings.HasPrefix(refusal.Text, "unknown request type")
}

// overviewFromStatus makes an overview.Daemon from a status, which every worker can report.
func overviewFromStatus(answer json.RawMessage) (daemon overview.Daemon) {
	var status struct {
		Targets map[string]struct {
			Paused              bool
			Concurrency, Length int
		}
		JobPromisesCount int
	}
	_ = json.Unmarshal(answer, &status)
	for name, t := range status.Targets {
		running := min(t.Length, t.Concurrency)
		daemon.Targets = append(daemon.Targets, overview.Target{Target: name, Paused: t.Paused, Concurrency: t.Concurrency, Running: running, Queued: t.Length - running})
	}
	slices.SortFunc(daemon.Targets, func(a, b overview.Target) int { return strings.Compare(a.Target, b.Target) })
	daemon.Manual = status.JobPromisesCount
	return daemon
}

func (t *Target) add(o overview.Target) {
	t.Workers++
	if o.Paused {
		t.PausedBy++
	}
	t.Concurrency += o.Concurrency
	t.Queued += o.Queued
	t.Running += o.Running
	t.Accepted += o.Accepted
	t.OK += o.OK
	t.Fail += o.Fail
}

// addRuns adds the histogram of a worker's run times. All versions so far have the same bounds.
func (s *Snapshot) addRuns(report overview.Daemon) {
	if s.Runs == nil {
		s.Bounds, s.Runs = report.Bounds, slices.Clone(report.Runs)
		return
	}
	for i, n := range report.Runs[:min(len(report.Runs), len(s.Runs))] {
		s.Runs[i] += n
	}
}

// countWaiting asks one worker of each table for the counts of waiting rows; m.snapshots.mu is held.
func (m *Master) countWaiting(snapshot *Snapshot, workers []workerRef, target func(string) *Target) {
	var calls []workerCall
	var workerIndex []int
	done := make(map[string]bool)
	for i, w := range snapshot.Workers {
		if w.table != "" && w.Trouble == "" && !done[w.table] {
			done[w.table] = true
			workerIndex = append(workerIndex, i)
			calls = append(calls, workerCall{worker: workers[i]})
			snapshot.tableWorkers = append(snapshot.tableWorkers, workers[i])
		}
	}
	m.callAll(context.Background(), "waiting", min(reportTimeout, m.options.WorkerTimeout), calls)
	tables := make(map[string]string) // by target: the first table that reports the target
	before := m.snapshots.tableCounts
	m.snapshots.tableCounts = make(map[string]tableCount, len(calls))
	room := maxTargets / targetBytes
	for i, call := range calls {
		w := &snapshot.Workers[workerIndex[i]]
		now := tableCount{at: snapshot.At}
		if call.err == nil {
			call.err = json.Unmarshal(call.answer, &now.counts)
		}
		if call.err != nil {
			old, ok := before[w.table]
			if !ok || snapshot.At.Sub(old.at) > maxCountAge {
				w.CountError = call.err.Error()
				continue
			}
			now = old
		}
		now.counts.Waiting, now.counts.Manual = limitCounts(now.counts.Waiting, &room), limitCounts(now.counts.Manual, &room)
		m.snapshots.tableCounts[w.table] = now
		counts := now.counts
		reporter := call.worker.conn.Remote().String()
		targetOf := func(n overview.Count) *Target {
			t := target(n.Target)
			if t.Workers == 0 {
				snapshot.reporters[n.Target] = call.worker
			}
			if cmp.Or(tables[n.Target], reporter) != reporter {
				return nil
			}
			tables[n.Target], t.RowsCounted, t.More = reporter, true, t.More || n.More
			return t
		}
		for _, n := range counts.Waiting {
			if t := targetOf(n); t != nil {
				t.Waiting, t.Oldest = n.Rows, n.Oldest
			}
		}
		for _, n := range counts.Manual {
			if t := targetOf(n); t != nil {
				t.Manual = n.Rows
			}
		}
		for _, t := range call.worker.targets {
			target(t).RowsCounted = true
		}
	}
}

// limitCounts returns as many counts of a report as there is room for, and reduces the room.
func limitCounts(counts []overview.Count, room *int) []overview.Count {
	if len(counts) > *room {
		counts = slices.Clone(counts[:*room]) // this is a copy, so that the other counts can be freed
	}
	*room -= len(counts)
	return counts
}

// findFindings records the counts of a snapshot and returns its findings; s.mu is held.
func (s *snapshotState) findFindings(snapshot *Snapshot) finding.List {
	now := countSample{snapshot.At, make(map[string][3]uint64)}
	for i := range snapshot.Targets {
		t := &snapshot.Targets[i]
		if n := [3]uint64{t.Accepted, t.OK, t.Fail}; n != [3]uint64{} {
			now.byTarget[t.Target.Target] = n
		}
	}
	s.history = slices.DeleteFunc(append(s.history, now), func(p countSample) bool { return snapshot.At.Sub(p.at) > recentWindow })
	return s.findings.Update(findFindings(snapshot, func(target string) recentCounts {
		first := s.history[0]
		a, b := first.byTarget[target], now.byTarget[target]
		if b[0] < a[0] || b[1] < a[1] || b[2] < a[2] { // a worker has gone or restarted
			return recentCounts{}
		}
		return recentCounts{snapshot.At.Sub(first.at), b[0] - a[0], b[1] - a[1], b[2] - a[2]}
	}), snapshot.At)
}
