// Package queue decides what a jobd daemon does next: for which targets to fetch rows,
// and which accepted rows to give to the broker. It is a state machine: commands go in,
// Effects come out. It has no database, broker, clock or goroutine, and is not safe for
// concurrent use.
//
// The rules:
//
//   - A poll marks its targets as wanted. A wanted target is fetched when it is not
//     paused and has room: fewer rows queued and running than its concurrency plus
//     the rows that end during a fetch (see SetEndsPerFetch). Until then the mark stays, so
//     that no poll is lost to a pause or to a full target.
//   - A fetch asks for as many rows as there are free places, plus the rows that will have ended
//     when the next fetch is done: with more, it would take rows that other daemons of the
//     target could start.
//   - Only one fetch is in progress at a time, for all wanted targets that can take
//     rows, or for maxFetchTargets of them, which take turns: a fetch reads each of its
//     targets, however few rows it may accept. A poll during a fetch marks its targets again, because the fetch may have
//     missed rows. Targets whose rows did not fit into a page, and those of a failed
//     fetch, stay wanted.
//   - An accepted row queues for its target, larger priorities first, then in the
//     order of arrival, and starts when fewer than concurrency rows of the target run
//     and the target is not paused. Rows of manual runs queue in the same way, even if the
//     target is full.
//   - If fetched rows may begin at once (FetchBegins), the free places of a target are kept for
//     the rows of a fetch, which have begun when the fetch is done. If the target of such a
//     row is paused, full or gone by then, the row is undone: it waits again.
//   - A row that is accepted again while it runs here (because its status was reset)
//     runs again afterwards, never twice at once.
//   - After Stop no row is fetched or started; rows that have not started are
//     released.
package queue

import (
	"container/heap"
	"errors"
	"maps"
	"math"
	"slices"
)

// Add, Remove and Resize return these errors.
var (
	ErrExists  = errors.New("target exists")
	ErrUnknown = errors.New("target is unknown")
	ErrBusy    = errors.New("target has rows")
)

// Row is an accepted row.
type Row struct {
	ID        int64
	Target    string
	Priority  int64
	StartedAt int64 // when it began, if it is written as running; 0 otherwise
}

// Effects tells the caller what to do now. Each effect is returned once.
type Effects struct {
	Start   []Row          // submit these to the broker
	Fetch   []FetchRequest // accept waiting rows of these targets, then call Fetched or FetchFailed
	Release []int64        // return these accepted rows to the table
	Undo    []Row          // make these begun rows wait again, then poll their targets
}

// FetchRequest says how many rows of a target to fetch at most, and how many of them may begin at
// once.
type FetchRequest struct {
	Target   string
	Rows     int
	MaxBegin int
}

// Status describes one target.
type Status struct {
	Name        string
	Paused      bool
	Concurrency int
	Queued      int // accepted, not started
	Running     int
}

// Machine holds the state. The zero value is not usable; see New.
type Machine struct {
	FetchBegins bool // fetched rows begin at once if there are places; set it before the first command

	targets        map[string]*target
	targetsInOrder []*target
	jobs           map[int64]*job
	lastArrival    uint64

	nextFetchTarget int  // index of the target at which the next fetch begins
	fetchInProgress bool // a fetch is in progress
	lastFetchFailed bool // the last fetch failed, and Resume has not been called
	isStopped       bool

	startRows, undoRows []Row // begun rows
	releaseIDs          []int64
}

// target is a target and its queue.
type target struct {
	name           string
	concurrency    int
	endsPerFetch   float64 // set by SetEndsPerFetch
	paused         bool
	wantsFetch     bool
	running        int
	reservedPlaces int // free places kept for rows that the fetch in progress may begin
	queue          jobHeap
}

func (t *target) rowCount() int { return t.running + len(t.queue) }
func (t *target) canFetch() bool {
	return t.wantsFetch && !t.paused && t.rowCount() < t.concurrency+t.endsDuringFetch()
}
func (t *target) fetchLimit() int { return t.concurrency + 2*t.endsDuringFetch() - t.rowCount() }

// endsDuringFetch returns how many rows end during a fetch. It rounds up, but ignores less than a
// tenth of a row: a place that is empty so briefly costs little.
func (t *target) endsDuringFetch() int {
	return int(math.Ceil(min(float64(t.concurrency)*t.endsPerFetch, math.MaxInt32) - 0.1))
}

// job is a row that the machine has accepted.
type job struct {
	row        Row
	arrival    uint64
	isRunning  bool // no longer in its target's queue
	hasNoPlace bool // see FreePlace
	rerunRow   *Row
}

// New returns a machine without targets.
func New() *Machine {
	return &Machine{targets: make(map[string]*target), jobs: make(map[int64]*job)}
}

// Add adds a target with a concurrency of at least 1.
func (m *Machine) Add(name string, concurrency int) error {
	if m.targets[name] != nil {
		return ErrExists
	}
	t := &target{name: name, concurrency: concurrency}
	m.targets[name] = t
	m.targetsInOrder = append(m.targetsInOrder, t)
	return nil
}

// Remove removes a target that has no rows.
func (m *Machine) Remove(name string) error {
	t := m.targets[name]
	switch {
	case t == nil:
		return ErrUnknown
	case t.rowCount() > 0:
		return ErrBusy
	}
	delete(m.targets, name)
	m.targetsInOrder = slices.DeleteFunc(m.targetsInOrder, func(other *target) bool { return other == t })
	return nil
}

// Resize changes a target's concurrency. Running rows continue.
func (m *Machine) Resize(name string, concurrency int) error {
	t := m.targets[name]
	if t == nil {
		return ErrUnknown
	}
	t.concurrency = concurrency
	return nil
}

// SetEndsPerFetch sets how many rows of a target end during a fetch on average, for each row that
// the target may run at a time. The default is 0.
func (m *Machine) SetEndsPerFetch(name string, share float64) {
	if t := m.targets[name]; t != nil {
		t.endsPerFetch = share
	}
}

// Poll marks targets as wanted; nil means all. Unknown names are skipped.
func (m *Machine) Poll(names []string) {
	m.eachTarget(names, func(t *target) { t.wantsFetch = true })
}

// Pause keeps rows of targets from being fetched and started; nil means all targets.
func (m *Machine) Pause(names []string) {
	m.eachTarget(names, func(t *target) { t.paused = true })
}

// Continue ends a pause; nil means all targets.
func (m *Machine) Continue(names []string) {
	m.eachTarget(names, func(t *target) { t.paused = false })
}

func (m *Machine) eachTarget(names []string, f func(*target)) {
	if names == nil {
		for _, t := range m.targetsInOrder {
			f(t)
		}
		return
	}
	for _, name := range names {
		if t := m.targets[name]; t != nil {
			f(t)
		}
	}
}

// Has reports whether there is a target with this name.
func (m *Machine) Has(name string) bool { return m.targets[name] != nil }

// Fetched is called with the rows that a fetch has accepted and the targets that may have more.
func (m *Machine) Fetched(rows []Row, unfinished []string) {
	m.onFetchEnded()
	m.Poll(append([]string{}, unfinished...))
	m.Accept(rows)
}

// FetchFailed is called when a fetch has failed: its targets are wanted again, and no fetch begins
// before Resume.
func (m *Machine) FetchFailed(names []string) {
	m.onFetchEnded()
	m.lastFetchFailed = true
	m.Poll(append([]string{}, names...))
}

func (m *Machine) onFetchEnded() {
	m.fetchInProgress = false
	for _, t := range m.targetsInOrder {
		t.reservedPlaces = 0
	}
}

// Resume allows fetching again after FetchFailed.
func (m *Machine) Resume() { m.lastFetchFailed = false }

// Accept queues rows that were accepted other than by a fetch. Rows of unknown targets are
// released.
func (m *Machine) Accept(rows []Row) {
	for _, row := range rows {
		t := m.targets[row.Target]
		if t == nil || m.isStopped {
			m.giveBack(row)
			continue
		}
		if j := m.jobs[row.ID]; j != nil {
			if j.isRunning {
				j.rerunRow = &row
			}
			continue // the row is still queued, and runs only once
		}
		switch {
		case row.StartedAt == 0:
			m.enqueue(t, row)
		case t.paused || t.running >= t.concurrency:
			m.giveBack(row)
		default:
			t.running++
			m.jobs[row.ID] = &job{row: row, isRunning: true}
			m.startRows = append(m.startRows, row)
		}
	}
}

// HoldSlot makes a row of another daemon occupy a place of its target until Done, as if the row ran
// here. It returns false if there is no such target or the machine already knows the row.
func (m *Machine) HoldSlot(r Row) bool {
	t := m.targets[r.Target]
	if t == nil || m.jobs[r.ID] != nil {
		return false
	}
	t.running++
	m.jobs[r.ID] = &job{row: r, isRunning: true}
	return true
}

// giveBack gives a row that has not started back to the table.
func (m *Machine) giveBack(row Row) {
	if row.StartedAt != 0 {
		m.undoRows = append(m.undoRows, row)
	} else {
		m.releaseIDs = append(m.releaseIDs, row.ID)
	}
}

func (m *Machine) enqueue(t *target, row Row) {
	m.lastArrival++
	j := &job{row: row, arrival: m.lastArrival}
	m.jobs[row.ID] = j
	heap.Push(&t.queue, j)
}

// HasRow reports whether a row is queued or running here.
func (m *Machine) HasRow(id int64) bool { return m.jobs[id] != nil }

// FreePlace frees the place of a started row before Done. If the row is accepted again, it still runs
// only after Done.
func (m *Machine) FreePlace(id int64) {
	if j := m.jobs[id]; j != nil && j.isRunning && !j.hasNoPlace {
		j.hasNoPlace = true
		m.leavePlace(j)
	}
}

func (m *Machine) leavePlace(j *job) {
	if t := m.targets[j.row.Target]; t != nil {
		t.running--
	}
}

// Done is called when a started row has left the broker. It reports whether the row was running
// here.
func (m *Machine) Done(id int64) bool {
	j := m.jobs[id]
	if j == nil || !j.isRunning {
		return false
	}
	delete(m.jobs, id)
	if !j.hasNoPlace {
		m.leavePlace(j)
	}
	if j.rerunRow != nil {
		m.Accept([]Row{*j.rerunRow})
	}
	return true
}

// Stop ends fetching and starting for good, and releases all rows that have not started, even those
// that were accepted again while their earlier run still keeps its place.
func (m *Machine) Stop() {
	m.isStopped = true
	for _, t := range m.targetsInOrder {
		for len(t.queue) > 0 {
			j := heap.Pop(&t.queue).(*job)
			delete(m.jobs, j.row.ID)
			m.releaseIDs = append(m.releaseIDs, j.row.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) { // all of these rows are running
		if j := m.jobs[id]; j.rerunRow != nil {
			m.giveBack(*j.rerunRow)
			j.rerunRow = nil
		}
	}
}

// Status returns the status of all targets, in the order in which they were added.
func (m *Machine) Status() []Status {
	list := make([]Status, 0, len(m.targetsInOrder))
	for _, t := range m.targetsInOrder {
		list = append(list, Status{Name: t.name, Paused: t.paused, Concurrency: t.concurrency, Queued: len(t.queue), Running: t.running})
	}
	return list
}

// NextEffects returns the effects that the caller must carry out now. Call it after every
// command.
func (m *Machine) NextEffects() Effects {
	e := Effects{Start: m.startRows, Release: m.releaseIDs, Undo: m.undoRows}
	m.startRows, m.releaseIDs, m.undoRows = nil, nil, nil
	if m.isStopped {
		return e
	}
	for _, t := range m.targetsInOrder {
		for !t.paused && t.running+t.reservedPlaces < t.concurrency && len(t.queue) > 0 {
			j := heap.Pop(&t.queue).(*job)
			j.isRunning = true
			t.running++
			e.Start = append(e.Start, j.row)
		}
	}
	if m.fetchInProgress || m.lastFetchFailed {
		return e
	}
	if !slices.ContainsFunc(m.targetsInOrder, (*target).canFetch) {
		return e
	}
	e.Fetch = m.nextFetch()
	m.fetchInProgress = true
	return e
}

// maxFetchTargets is the maximum number of targets of one fetch.
const maxFetchTargets = 256

// nextFetch returns the targets of the next fetch, in their order.
func (m *Machine) nextFetch() (requests []FetchRequest) {
	var indexes []int
	for i := range m.targetsInOrder {
		at := (m.nextFetchTarget + i) % len(m.targetsInOrder)
		if t := m.targetsInOrder[at]; t.wantsFetch && !t.paused && t.fetchLimit() > 0 {
			if len(indexes) == maxFetchTargets {
				m.nextFetchTarget = at
				break
			}
			indexes = append(indexes, at)
		}
	}
	slices.Sort(indexes)
	for _, at := range indexes {
		t := m.targetsInOrder[at]
		t.wantsFetch = false
		if m.FetchBegins {
			t.reservedPlaces = max(0, t.concurrency-t.rowCount())
		}
		requests = append(requests, FetchRequest{t.name, t.fetchLimit(), t.reservedPlaces})
	}
	return requests
}
