package admin

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/admin/findings"
	"gloom/broker/admin/moments"
	"gloom/wire"
)

const (
	// snapshotPeriod is the minimum time between the starts of two snapshots of all types. If a
	// snapshot takes long, this time is pausePerSnapshot times its duration, at most maxSnapshotPeriod.
	snapshotPeriod    = 500 * time.Millisecond
	maxSnapshotPeriod = 2 * time.Second
	pausePerSnapshot  = 50
	// idleSnapshotPeriod is the interval of snapshots without a request. If snapshots are slow, this
	// interval grows, at most to moments.Period. So a condition that lasts long enough for a
	// finding appears in two consecutive snapshots.
	idleSnapshotPeriod = moments.Period / 16
	// smoothing is the time constant of the moving average of rates.
	smoothing = 2 * time.Second
)

// snapshot is the latest snapshot of all types, which all requests share.
type snapshot struct {
	mu       sync.Mutex
	takenAt  time.Time     // when the last snapshot began
	coreTime time.Duration // the broker's clock at that time
	duration time.Duration // how long it took
	nextAt   time.Time
	total    row
	stats    broker.TypeStats // the sums over all types
	rows     map[string]*row
	dayRates dayRates
	// sortedRows are sorted rows that have been requested since the last snapshot.
	sortedRows map[typeOrder][]*row
	// groups are snapshots of the groups of a type ("" for all jobs) that were requested
	// lately; nextGroupsAt is when the next is due.
	groups       map[string]groupsSnapshot
	nextGroupsAt time.Time
	// findings are derived from the snapshot.
	findings findings.State
	// encoded is the JSON of the snapshot taken at encodedAt.
	encoded   []byte
	encodedAt time.Time
}

// row is the snapshot of one type, or of the sum of all types.
type row struct {
	api.Type
	takenAt  time.Time
	rates    api.Rates
	hasRates bool // the type was in two snapshots, so its rates are known
	// figures are further figures for findings.
	figures findings.Type
}

// rowSize is the number of bytes that a row takes, with its places in rows and in lists, but
// without the two copies of its name.
const rowSize = int64(unsafe.Sizeof(row{})) + 64 + 8*maxLists

// update adds a new snapshot of a type and updates its rates.
func (r *row) update(now time.Time, t *api.Type) {
	if elapsed := now.Sub(r.takenAt).Seconds(); !r.takenAt.IsZero() && elapsed > 0 {
		weight := 1.0
		if r.hasRates {
			weight = -math.Expm1(-elapsed / smoothing.Seconds())
		}
		updateAverage := func(rate *float64, old, new uint64) {
			if new >= old { // otherwise the type was forgotten, and its counts began at 0 again
				*rate += weight * (float64(new-old)/elapsed - *rate)
			}
			if *rate < 0.005 {
				*rate = 0
			}
		}
		updateAverage(&r.rates.In, r.Ledger.Submitted, t.Ledger.Submitted)
		updateAverage(&r.rates.Out, r.Ledger.Ended(), t.Ledger.Ended())
		updateAverage(&r.rates.Failed, r.Ledger.Failed, t.Ledger.Failed)
		r.hasRates = true
	}
	name := r.Type.Type
	r.Type, r.takenAt = *t, now
	r.Type.Type = name
	if r.hasRates {
		r.Rates = &r.rates
	}
}

// clone returns a copy that the caller may keep.
func (r *row) clone() api.Type {
	t := r.Type
	if t.Rates != nil {
		rates := *t.Rates
		t.Rates = &rates
	}
	return t
}

// withSnapshot calls fn with the current snapshot, after taking a new one if it is due. fn must not
// keep its argument.
func (a *API) withSnapshot(fn func(snap *snapshot)) {
	snap := &a.snapshot
	snap.mu.Lock()
	defer snap.mu.Unlock()
	if start := time.Now(); !start.Before(snap.nextAt) {
		snap.refresh(a, start)
		// Those who waited for a snapshot use it, too, even if it took longer than the longest period.
		snap.nextAt = start.Add(max(2*snap.duration, min(max(snapshotPeriod, pausePerSnapshot*snap.duration), maxSnapshotPeriod)))
	}
	fn(snap)
}

// refreshIfStale takes snapshots while no client asks for snapshots. So a finding begins when its
// condition begins, and not at the next request.
func (a *API) refreshIfStale() {
	snap := &a.snapshot
	snap.mu.Lock()
	defer snap.mu.Unlock()
	if now := time.Now(); now.Sub(snap.takenAt) >= min(max(snapshotPeriod, pausePerSnapshot*snap.duration), moments.Period) {
		snap.refresh(a, now)
	}
}

func (snap *snapshot) refresh(a *API, now time.Time) {
	h := a.srv.Hub()
	survey := takeSurvey(h)
	if now.Sub(snap.nextGroupsAt) > moments.Period {
		snap.groups = nil // not requested lately
	}
	if snap.rows == nil {
		snap.rows, snap.dayRates = map[string]*row{}, dayRates{total: newRates(), otherTypes: newRates(), types: map[string]*rates{}}
	}
	maxTypes := a.srv.Options().HistoryTypes
	from := 0
	h.View(func(core *broker.Broker, _ int64) { snap.stats = *core.OtherStats() })
	var sum api.Type
	add := func(t *broker.TypeInfo, s *broker.TypeStats) {
		survey.Complete(t)
		current := snap.rows[string(t.Name)]
		if current == nil {
			current = &row{Type: api.Type{Type: wire.Value(t.Name)}}
			snap.rows[string(t.Name)] = current
		}
		latest := apiType(t)
		if !snap.takenAt.IsZero() {
			current.figures.Update(&current.Type, &latest, now, survey.Time()-snap.coreTime)
		}
		snap.dayRates.add(now, current, &current.Type, &latest, s, maxTypes)
		current.figures.HeldJobs, current.figures.UsualWait, current.figures.MeanRun = t.HeldJobs, usualWait(&s.Wait), time.Duration(s.Run.Sum/max(s.Run.Count(), 1))
		current.update(now, &latest)
		if t.IsKept {
			snap.stats.Add(s)
		}
		sum.OldestSeconds = max(sum.OldestSeconds, latest.OldestSeconds)
		sum.Dead += latest.Dead
	}
	for from >= 0 {
		h.View(func(core *broker.Broker, _ int64) { from = core.Types(from, math.MaxInt, add) })
	}
	usedBytes := int64(0)
	for name, current := range snap.rows {
		if current.takenAt != now {
			delete(snap.rows, name)
		} else {
			usedBytes += rowSize + 2*int64(len(name))
		}
	}
	h.View(func(core *broker.Broker, _ int64) {
		total := core.Totals()
		sum.Ledger = apiLedger(&total)
	})
	snap.total.update(now, &sum)
	snap.dayRates.addTotals(now, &sum.Ledger, &snap.stats)
	a.figureBytes.rates.Store(snap.dayRates.bytes())
	a.figureBytes.snapshot.Store(usedBytes)
	snap.takenAt, snap.coreTime, snap.sortedRows = now, survey.Time(), map[typeOrder][]*row{}
	a.updateFindings(snap)
	snap.duration = time.Since(now)
}

// typeOrder selects types and says how to sort them.
type typeOrder struct {
	key, filter string
	reverse     bool
}

// maxLists bounds the sorted lists that are kept for other requests of the same order.
const maxLists = 4

// typeSortKeys are the keys that types can be sorted by. Larger values come first; names are in
// ascending order.
var typeSortKeys = map[string]func(x, y *row) int{
	"type":    func(x, y *row) int { return 0 },
	"queued":  func(x, y *row) int { return cmp.Compare(y.Queued, x.Queued) },
	"delayed": func(x, y *row) int { return cmp.Compare(y.Delayed, x.Delayed) },
	"running": func(x, y *row) int { return cmp.Compare(y.Running, x.Running) },
	"oldest":  func(x, y *row) int { return cmp.Compare(y.OldestSeconds, x.OldestSeconds) },
	"workers": func(x, y *row) int { return cmp.Compare(y.Workers, x.Workers) },
	"idle":    func(x, y *row) int { return cmp.Compare(y.Idle, x.Idle) },
	"failed":  func(x, y *row) int { return cmp.Compare(y.Ledger.Failed, x.Ledger.Failed) },
	"dead":    func(x, y *row) int { return cmp.Compare(y.Dead, x.Dead) },
	"in":      func(x, y *row) int { return cmp.Compare(y.rates.In, x.rates.In) },
	"out":     func(x, y *row) int { return cmp.Compare(y.rates.Out, x.rates.Out) },
}

const orderNames = "type, queued, delayed, running, oldest, workers, idle, failed, dead, in, out"

// sorted returns the types whose names contain the filter, sorted.
func (snap *snapshot) sorted(o typeOrder) []*row {
	if found, ok := snap.sortedRows[o]; ok {
		return found
	}
	found := make([]*row, 0, len(snap.rows))
	for _, x := range snap.rows {
		if o.filter == "" || strings.Contains(strings.ToLower(x.Type.Type), o.filter) {
			found = append(found, x)
		}
	}
	slices.SortFunc(found, func(x, y *row) int {
		c := typeSortKeys[o.key](x, y)
		if c == 0 {
			c = cmp.Compare(x.Type.Type, y.Type.Type)
		}
		if o.reverse {
			c = -c
		}
		return c
	})
	if len(snap.sortedRows) < maxLists {
		snap.sortedRows[o] = found
	}
	return found
}

// busiest returns the n types with the most queued jobs; among equals, those with more running
// jobs come first.
func (snap *snapshot) busiest(n int) []*row {
	var top []*row
	for _, x := range snap.rows {
		i, _ := slices.BinarySearchFunc(top, x, func(x, y *row) int {
			return cmp.Or(cmp.Compare(y.Queued, x.Queued), cmp.Compare(y.Running, x.Running),
				cmp.Compare(y.Dispatched, x.Dispatched), cmp.Compare(x.Type.Type, y.Type.Type))
		})
		if i < n {
			top = slices.Insert(top, i, x)
			top = top[:min(len(top), n)]
		}
	}
	return top
}
