package queue

import (
	"cmp"
	"slices"
)

// naiveMachine is the machine written so that it can be checked by reading: plain
// lists, searched from the front every time.
type naiveMachine struct {
	targets         []naiveTarget
	rows            []naiveRow // queued and running, in the order of arrival
	fetchInProgress bool
	lastFetchFailed bool
	isStopped       bool
	fetchBegins     bool
	start           []Row
	release         []int64
	undo            []Row
}

// naiveTarget is a target as the naive machine knows it.
type naiveTarget struct {
	name         string
	limit        int
	endsPerFetch float64
	paused       bool
	wantsFetch   bool
	fetching     int
}

// endsDuringFetch counts the rows one by one; a remainder of at least a tenth of a row counts as a
// further row.
func (t *naiveTarget) endsDuringFetch() (rows int) {
	for t.endsPerFetch*float64(t.limit) > float64(rows)+0.1 {
		rows++
	}
	return rows
}

// naiveRow is a row as the naive machine knows it.
type naiveRow struct {
	Row
	isRunning  bool
	hasNoPlace bool
	repeats    []Row
}

func (n *naiveMachine) findTarget(name string) *naiveTarget {
	for i := range n.targets {
		if n.targets[i].name == name {
			return &n.targets[i]
		}
	}
	return nil
}

func (n *naiveMachine) findRow(id int64) *naiveRow {
	for i := range n.rows {
		if n.rows[i].ID == id {
			return &n.rows[i]
		}
	}
	return nil
}

func (n *naiveMachine) countRows(target string, running bool) int {
	c := 0
	for _, r := range n.rows {
		if r.Target == target && r.isRunning == running && !r.hasNoPlace {
			c++
		}
	}
	return c
}

func (n *naiveMachine) eachTarget(names []string, f func(*naiveTarget)) {
	for i := range n.targets {
		if names == nil || slices.Contains(names, n.targets[i].name) {
			f(&n.targets[i])
		}
	}
}

func (n *naiveMachine) onFetchEnded() {
	n.fetchInProgress = false
	n.eachTarget(nil, func(t *naiveTarget) { t.fetching = 0 })
}

func (n *naiveMachine) accept(rows []Row) {
	for _, r := range rows {
		old := n.findRow(r.ID)
		switch {
		case (n.findTarget(r.Target) == nil || n.isStopped) && r.StartedAt == 0:
			n.release = append(n.release, r.ID)
		case n.findTarget(r.Target) == nil || n.isStopped:
			n.undo = append(n.undo, r)
		case old != nil && old.isRunning:
			old.repeats = []Row{r}
		case old == nil && r.StartedAt != 0 && (n.findTarget(r.Target).paused || n.countRows(r.Target, true) >= n.findTarget(r.Target).limit):
			n.undo = append(n.undo, r)
		case old == nil && r.StartedAt != 0:
			n.rows = append(n.rows, naiveRow{Row: r, isRunning: true})
			n.start = append(n.start, r)
		case old == nil:
			n.rows = append(n.rows, naiveRow{Row: r})
		}
	}
}

func (n *naiveMachine) endRow(id int64) bool {
	r := n.findRow(id)
	if r == nil || !r.isRunning {
		return false
	}
	repeats := r.repeats
	n.rows = slices.DeleteFunc(n.rows, func(r naiveRow) bool { return r.ID == id })
	n.accept(repeats)
	return true
}

// stop stops the naive machine, and lists the released rows per target, best first, as the machine
// does.
func (n *naiveMachine) stop() {
	n.isStopped = true
	for _, t := range n.targets {
		for best := n.bestRow(t.name); best != nil; best = n.bestRow(t.name) {
			id := best.ID // a copy, because DeleteFunc moves what best points to
			n.release = append(n.release, id)
			n.rows = slices.DeleteFunc(n.rows, func(r naiveRow) bool { return r.ID == id })
		}
	}
	slices.SortFunc(n.rows, func(a, b naiveRow) int { return cmp.Compare(a.ID, b.ID) })
	for i := range n.rows {
		n.accept(n.rows[i].repeats) // which releases them
		n.rows[i].repeats = nil
	}
}

func (n *naiveMachine) bestRow(target string) *naiveRow {
	var best *naiveRow
	for i := range n.rows {
		r := &n.rows[i]
		if r.Target == target && !r.isRunning && (best == nil || r.Priority > best.Priority) {
			best = r
		}
	}
	return best
}

func (n *naiveMachine) nextEffects() Effects {
	e := Effects{Start: n.start, Release: n.release, Undo: n.undo}
	n.start, n.release, n.undo = nil, nil, nil
	if n.isStopped {
		return e
	}
	for _, t := range n.targets {
		for best := n.bestRow(t.name); best != nil && !t.paused && n.countRows(t.name, true)+t.fetching < t.limit; best = n.bestRow(t.name) {
			best.isRunning = true
			e.Start = append(e.Start, best.Row)
		}
	}
	if n.fetchInProgress || n.lastFetchFailed {
		return e
	}
	for i := range n.targets {
		t := &n.targets[i]
		if t.wantsFetch && !t.paused && n.countRows(t.name, true)+n.countRows(t.name, false) < t.limit+t.endsDuringFetch() {
			n.fetchInProgress = true
		}
	}
	for i := range n.targets {
		t := &n.targets[i]
		room := t.limit + 2*t.endsDuringFetch() - n.countRows(t.name, true) - n.countRows(t.name, false)
		if n.fetchInProgress && t.wantsFetch && !t.paused && room > 0 {
			t.wantsFetch = false
			if n.fetchBegins {
				t.fetching = max(0, t.limit-n.countRows(t.name, true)-n.countRows(t.name, false))
			}
			e.Fetch = append(e.Fetch, FetchRequest{t.name, room, t.fetching})
		}
	}
	return e
}
