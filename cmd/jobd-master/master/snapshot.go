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
	"gloom/cmd/jobd/look"
	"gloom/cmd/jobd/peer"
)

const (
	// Period is how long a Look is valid: all requests in that time get the same one.
	Period = 2 * time.Second
	// lookTime limits each of the three rounds of requests of a Look.
	lookTime = 2 * time.Second
	// countedFor is how long old counts of rows are used if the rows cannot be counted again,
	// because a database may be slow for a while.
	countedFor = 30 * time.Second
	// window is the time over which findings judge what happened to rows lately.
	window = 15 * time.Second
	// maxLeft is the maximum number of remembered targets that have lost their last worker,
	// leftTime how long they are remembered. maxUnserved is the maximum number of poked targets
	// without a worker that a Look lists.
	maxLeft, leftTime, maxUnserved = 1000, time.Hour, 100
	// maxNew is the maximum number of targets that a worker may report without having registered
	// them: they may be new.
	maxNew = 100
)

// Look is a snapshot of the fleet.
type Look struct {
	At       time.Time
	Workers  []Worker // in the order of registration
	Targets  []Target // the busiest first
	Findings finding.List
	Bounds   []float64 // the bounds of Runs, as in look.Daemon
	Runs     []uint64

	from   map[string]workerRef // the worker that has reported the rows of a target, by target; only targets that no worker serves
	tables []workerRef          // one worker for each table
}

// Worker is a worker in a Look.
type Worker struct {
	Name    string        `json:"name"`
	Address string        `json:"address"`
	Since   time.Time     `json:"since"`
	Targets []look.Target `json:"targets"`
	Manual  int           `json:"manual"`  // jobs for which a run-manual waits
	Trouble string        `json:"trouble"` // why it cannot work; "" if it can
	Silent  bool          `json:"silent"`  // the worker has not answered
	Old     bool          `json:"old"`     // the worker is of a kind that does not report rows
	// Uncounted is why it could not count the rows of its table; "" if it could, or if another
	// worker of the table was asked.
	Uncounted string `json:"uncounted"`
	table     string
}

// Target is a target in a Look: the sums over its workers, and the counts of its table.
type Target struct {
	look.Target
	Workers  int        `json:"workers"`
	PausedBy int        `json:"paused_by"` // number of workers; paused is true if all have paused it
	Known    bool       `json:"known"`     // its rows are counted in a table
	Waiting  int        `json:"waiting"`   // rows in the table
	Manual   int        `json:"manual"`
	More     bool       `json:"more"`   // the counts are lower bounds
	Oldest   *time.Time `json:"oldest"` // when the first waiting row was created
	Poked    bool       `json:"poked"`  // it was poked, and no worker serves it
	LeftAt   *time.Time `json:"left_at"`
}

// load returns the number by which targets are ordered.
func (t *Target) load() int { return t.Waiting + t.Manual + t.Queued + t.Running }

// seen holds the last Look, and counts from earlier ones.
type seen struct {
	changed atomic.Bool // an operator has changed something since the last Look

	mu      sync.Mutex
	last    *Look
	moments []moment
	since   finding.Memory
	counted map[string]counted // by table
}

// counted holds the last counts of a table.
type counted struct {
	at     time.Time
	counts look.Waiting
}

// moment holds the counts of rows at one time, by target.
type moment struct {
	at       time.Time
	byTarget map[string][3]uint64 // accepted, ok, fail; targets without any are left out
}

// Look returns a snapshot of the fleet, which may be as old as Period.
func (m *Master) Look() *Look {
	m.seen.mu.Lock()
	defer m.seen.mu.Unlock()
	now := m.clock.Now()
	if m.seen.last != nil && now.Sub(m.seen.last.At) < Period && !m.seen.changed.Swap(false) {
		return m.seen.last
	}
	l := m.look(now)
	l.Findings = m.seen.judge(l)
	m.seen.last = l
	return l
}

// look asks all workers about themselves, then one worker of each table for the counts of waiting
// rows; m.seen.mu is held.
func (m *Master) look(now time.Time) *Look {
	l := &Look{At: now, from: make(map[string]workerRef)}
	workers := m.snapshot()
	answers := m.selfReports(workers)
	places := make(map[string]int)        // by target: in l.Targets
	target := func(name string) *Target { // valid until the next call
		i, ok := places[name]
		if !ok && len(l.Targets) >= maxTargets/targetBytes {
			return new(Target) // there is no room: workers report more targets than they could register
		}
		if !ok {
			i = len(l.Targets)
			places[name], l.Targets = i, append(l.Targets, Target{Target: look.Target{Target: name}})
		}
		return &l.Targets[i]
	}
	for i, w := range workers {
		c := answers[i]
		row := Worker{Name: w.name, Address: w.conn.Remote().String(), Since: w.since, Old: w.old.Load()}
		var report look.Daemon
		switch {
		case c.err == nil && row.Old:
			report = ofStatus(c.answer)
		case c.err == nil:
			_ = json.Unmarshal(c.answer, &report)
		case c.timedOut:
			row.Silent = true
		default:
			row.Trouble = c.err.Error()
		}
		row.Targets, row.Manual, row.table = report.Targets, report.Manual, report.Table
		row.Trouble = cmp.Or(row.Trouble, report.Trouble)
		if row.Targets == nil { // no answer: list the targets that it has registered
			for _, t := range w.targets {
				row.Targets = append(row.Targets, look.Target{Target: t})
			}
		}
		row.Targets = row.Targets[:min(len(row.Targets), len(w.targets)+maxNew)]
		l.Workers = append(l.Workers, row)
		for _, t := range row.Targets {
			target(t.Target).add(t)
		}
		l.addRuns(report)
	}
	m.count(l, workers, target)
	m.mu.Lock()
	for _, t := range m.pokes.remembered.list[:min(maxUnserved, len(m.pokes.remembered.list))] {
		target(t).Poked = true
	}
	for name, at := range m.left {
		if now.Sub(at) > leftTime {
			delete(m.left, name)
		} else if t := target(name); t.Workers == 0 {
			t.LeftAt = new(at)
		}
	}
	m.mu.Unlock()
	for i := range l.Targets {
		t := &l.Targets[i]
		t.Paused = t.Workers > 0 && t.PausedBy == t.Workers
	}
	slices.SortFunc(l.Targets, func(a, b Target) int {
		return cmp.Or(cmp.Compare(b.load(), a.load()), strings.Compare(a.Target.Target, b.Target.Target))
	})
	return l
}

// selfReports sends each worker the request "look" or, if the worker does not know it, "status".
func (m *Master) selfReports(workers []workerRef) []call {
	answers := make([]call, len(workers))
	for _, typ := range []string{"look", "status"} {
		var calls []call
		var at []int
		for i, w := range workers {
			if w.old.Load() == (typ == "status") {
				calls, at = append(calls, call{to: w}), append(at, i)
			}
		}
		m.callAll(context.Background(), typ, min(lookTime, m.opt.WorkerTimeout), calls)
		for i, c := range calls {
			if answers[at[i]] = c; typ == "look" && isUnknown(c.err) {
				c.to.old.Store(true)
			}
		}
	}
	return answers
}

// isUnknown reports whether an error says that a worker does not know a request.
func isUnknown(err error) bool {
	var refused *peer.RemoteError
	return errors.As(err, &refused) && strings.HasPrefix(refused.Text, "unknown request type")
}

// ofStatus makes a look.Daemon from a status, which every worker can report.
func ofStatus(answer json.RawMessage) (l look.Daemon) {
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
		l.Targets = append(l.Targets, look.Target{Target: name, Paused: t.Paused, Concurrency: t.Concurrency, Running: running, Queued: t.Length - running})
	}
	slices.SortFunc(l.Targets, func(a, b look.Target) int { return strings.Compare(a.Target, b.Target) })
	l.Manual = status.JobPromisesCount
	return l
}

func (t *Target) add(o look.Target) {
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
func (l *Look) addRuns(report look.Daemon) {
	if l.Runs == nil {
		l.Bounds, l.Runs = report.Bounds, slices.Clone(report.Runs)
		return
	}
	for i, n := range report.Runs[:min(len(report.Runs), len(l.Runs))] {
		l.Runs[i] += n
	}
}

// count asks one worker of each table for the counts of waiting rows; m.seen.mu is held.
func (m *Master) count(l *Look, workers []workerRef, target func(string) *Target) {
	var calls []call
	var at []int
	done := make(map[string]bool)
	for i, w := range l.Workers {
		if w.table != "" && w.Trouble == "" && !done[w.table] {
			done[w.table] = true
			at = append(at, i)
			calls = append(calls, call{to: workers[i]})
			l.tables = append(l.tables, workers[i])
		}
	}
	m.callAll(context.Background(), "waiting", min(lookTime, m.opt.WorkerTimeout), calls)
	tables := make(map[string]string) // by target: the first table that reports the target
	before := m.seen.counted
	m.seen.counted = make(map[string]counted, len(calls))
	room := maxTargets / targetBytes
	for i, c := range calls {
		w := &l.Workers[at[i]]
		now := counted{at: l.At}
		if c.err == nil {
			c.err = json.Unmarshal(c.answer, &now.counts)
		}
		if c.err != nil {
			old, ok := before[w.table]
			if !ok || l.At.Sub(old.at) > countedFor {
				w.Uncounted = c.err.Error()
				continue
			}
			now = old
		}
		now.counts.Waiting, now.counts.Manual = takeCounts(now.counts.Waiting, &room), takeCounts(now.counts.Manual, &room)
		m.seen.counted[w.table] = now
		counts := now.counts
		reporter := c.to.conn.Remote().String()
		targetOf := func(n look.Count) *Target {
			t := target(n.Target)
			if t.Workers == 0 {
				l.from[n.Target] = c.to
			}
			if cmp.Or(tables[n.Target], reporter) != reporter {
				return nil
			}
			tables[n.Target], t.Known, t.More = reporter, true, t.More || n.More
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
		for _, t := range c.to.targets {
			target(t).Known = true
		}
	}
}

// takeCounts returns the counts of a report for which there is room, and takes the room.
func takeCounts(counts []look.Count, room *int) []look.Count {
	if len(counts) > *room {
		counts = slices.Clone(counts[:*room]) // a copy, so that the counts left out can be freed
	}
	*room -= len(counts)
	return counts
}

// judge records the counts of a Look and returns its findings; s.mu is held.
func (s *seen) judge(l *Look) finding.List {
	now := moment{l.At, make(map[string][3]uint64)}
	for i := range l.Targets {
		t := &l.Targets[i]
		if n := [3]uint64{t.Accepted, t.OK, t.Fail}; n != [3]uint64{} {
			now.byTarget[t.Target.Target] = n
		}
	}
	s.moments = slices.DeleteFunc(append(s.moments, now), func(p moment) bool { return l.At.Sub(p.at) > window })
	return s.since.Note(find(l, func(target string) recentCounts {
		first := s.moments[0]
		a, b := first.byTarget[target], now.byTarget[target]
		if b[0] < a[0] || b[1] < a[1] || b[2] < a[2] { // a worker has gone or restarted
			return recentCounts{}
		}
		return recentCounts{l.At.Sub(first.at), b[0] - a[0], b[1] - a[1], b[2] - a[2]}
	}), l.At)
}
