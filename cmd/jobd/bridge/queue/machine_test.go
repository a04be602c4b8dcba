package queue

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var seedFlag = flag.Uint64("seed", 0, "replay one simulation")

// simulation is a table of rows, the machine that serves it, a naive model of that machine, and the
// fetch and the runs in progress.
type simulation struct {
	t    *testing.T
	rng  *rand.Rand
	seed uint64

	machine *Machine
	naive   *naiveMachine
	limit   int // of a page

	table           map[int64]*tableRow
	nextID          int64
	fetchInProgress []FetchRequest // under way
	names           []string       // all targets that have existed
	running         map[int64]bool
	withoutPlace    int            // number of running rows whose places are free
	endedRows       map[int64]bool // rows whose run has ended in the table, but not yet in the machine
	log             []string
}

// tableRow is a row of the simulated table.
type tableRow struct {
	Row
	status  string // waiting, manual, accepted, running or done
	runs    int    // runs that have ended
	maxRuns int    // how many runs are due: one for each time that it was accepted and neither released nor merged
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	rng := rand.New(rand.NewPCG(seed, 6))
	w := &simulation{
		t: t, rng: rng, seed: seed, machine: New(), naive: &naiveMachine{}, limit: rng.IntN(8),
		table: map[int64]*tableRow{}, running: map[int64]bool{}, endedRows: map[int64]bool{},
	}
	w.machine.FetchBegins = rng.IntN(2) == 0
	w.naive.fetchBegins = w.machine.FetchBegins
	for i := range 1 + rng.IntN(4) {
		w.add(fmt.Sprint("t", i), 1+rng.IntN(5))
	}
	return w
}

func (w *simulation) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *simulation) fail(format string, args ...any) {
	w.t.Helper()
	from := max(0, len(w.log)-60)
	for _, line := range w.log[from:] {
		w.t.Log(line)
	}
	w.t.Fatalf("seed %d: "+format, append([]any{w.seed}, args...)...)
}

func (w *simulation) add(name string, concurrency int) {
	err := w.machine.Add(name, concurrency)
	if (err == nil) != (w.naive.findTarget(name) == nil) {
		w.fail("add %s: %v", name, err)
	}
	if err == nil {
		w.naive.targets = append(w.naive.targets, naiveTarget{name: name, limit: concurrency})
		if !slices.Contains(w.names, name) {
			w.names = append(w.names, name)
		}
	}
}

func (w *simulation) randomTargets() []string {
	if w.rng.IntN(4) == 0 {
		return nil
	}
	list := []string{}
	for _, name := range w.names {
		if w.rng.IntN(2) == 0 {
			list = append(list, name)
		}
	}
	return list
}

func (w *simulation) anyID(status ...string) int64 {
	var ids []int64
	for id, r := range w.table {
		if slices.Contains(status, r.status) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return -1
	}
	slices.Sort(ids)
	return ids[w.rng.IntN(len(ids))]
}

// step executes one random command or change of the table.
func (w *simulation) step() {
	r := w.rng
	name := w.names[r.IntN(len(w.names))]
	switch r.IntN(18) {
	case 0, 1, 2:
		for range 1 + r.IntN(6) {
			w.nextID++
			status := "waiting"
			if r.IntN(5) == 0 {
				status = "manual"
			}
			w.table[w.nextID] = &tableRow{Row: Row{ID: w.nextID, Target: w.names[r.IntN(len(w.names))], Priority: int64(r.IntN(3))}, status: status}
		}
		w.note("rows up to %d", w.nextID)
	case 3, 4:
		names := w.randomTargets()
		w.note("poll %v", names)
		w.machine.Poll(names)
		w.naive.eachTarget(names, func(t *naiveTarget) { t.wantsFetch = true })
	case 5:
		names := w.randomTargets()
		w.note("pause %v", names)
		w.machine.Pause(names)
		w.naive.eachTarget(names, func(t *naiveTarget) { t.paused = true })
	case 6, 7:
		names := w.randomTargets()
		w.note("continue %v", names)
		w.machine.Continue(names)
		w.naive.eachTarget(names, func(t *naiveTarget) { t.paused = false })
	case 8:
		c := 1 + r.IntN(5)
		w.note("resize %s %d", name, c)
		if err := w.machine.Resize(name, c); (err == nil) != (w.naive.findTarget(name) != nil) {
			w.fail("resize: %v", err)
		}
		if t := w.naive.findTarget(name); t != nil {
			t.limit = c
		}
	case 9:
		w.note("remove %s", name)
		err := w.machine.Remove(name)
		busy := w.naive.countRows(name, true)+w.naive.countRows(name, false) > 0
		if (err == ErrUnknown) != (w.naive.findTarget(name) == nil) || (err == ErrBusy) != busy {
			w.fail("remove: %v", err)
		}
		if err == nil {
			w.naive.targets = slices.DeleteFunc(w.naive.targets, func(t naiveTarget) bool { return t.name == name })
		}
	case 10:
		w.note("add %s", name)
		w.add(name, 1+r.IntN(5))
	case 11:
		// A client runs a few rows of any target by hand.
		var rows []Row
		for range 1 + r.IntN(3) {
			if row := w.table[w.anyID("manual")]; row != nil && w.machine.Has(row.Target) {
				row.status = "accepted"
				rows = append(rows, row.Row)
			}
		}
		w.note("manual %v", rows)
		w.countDueRuns(rows)
		w.machine.Accept(rows)
		w.naive.accept(rows)
	case 12:
		// Somebody resets the status of a row. The row may be queued or running.
		if row := w.table[w.anyID("done", "accepted", "running")]; row != nil {
			w.note("set back %d", row.ID)
			row.status = []string{"waiting", "manual"}[r.IntN(2)]
		}
	case 13:
		share := float64(r.IntN(9)) / 7
		w.note("expect %v of %s", share, name)
		w.machine.SetEndsPerFetch(name, share)
		if t := w.naive.findTarget(name); t != nil {
			t.endsPerFetch = share
		}
	case 14:
		if id := w.anyID("accepted", "running", "waiting"); w.running[id] && !w.naive.findRow(id).hasNoPlace {
			w.note("free place of %d", id)
			w.machine.FreePlace(id)
			w.naive.findRow(id).hasNoPlace = true
			w.withoutPlace++
		}
	case 15:
		w.machine.Resume()
		w.naive.lastFetchFailed = false
	default:
		w.completeSomething()
	}
	w.settle()
}

// completeSomething completes the fetch or a run.
func (w *simulation) completeSomething() {
	if w.fetchInProgress != nil && w.rng.IntN(2) == 0 {
		w.completeFetch()
		return
	}
	var ids []int64
	for id := range w.running {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	id := ids[w.rng.IntN(len(ids))]
	w.note("done %d", id)
	row := w.table[id]
	if w.naive.findRow(id).hasNoPlace {
		w.withoutPlace--
	}
	delete(w.running, id)
	delete(w.endedRows, id)
	row.runs++
	if (row.status == "accepted" || row.status == "running") && row.runs == row.maxRuns {
		row.status = "done"
	}
	if w.machine.Done(id) != w.naive.endRow(id) {
		w.fail("done %d differs", id)
	}
	if w.machine.Done(-5) {
		w.fail("an unknown row was running")
	}
}

func (w *simulation) completeFetch() {
	wantCounts, beginCounts := map[string]int{}, map[string]int{}
	var names []string
	for _, want := range w.fetchInProgress {
		names, wantCounts[want.Target], beginCounts[want.Target] = append(names, want.Target), want.Rows, want.MaxBegin
	}
	w.fetchInProgress = nil
	if w.rng.IntN(6) == 0 {
		w.note("fetch %v fails", names)
		w.machine.FetchFailed(names)
		w.naive.onFetchEnded()
		w.naive.lastFetchFailed = true
		w.naive.eachTarget(names, func(t *naiveTarget) { t.wantsFetch = true })
		return
	}
	var found []Row
	for _, r := range w.table {
		if r.status == "waiting" && slices.Contains(names, r.Target) {
			found = append(found, r.Row)
		}
	}
	slices.SortFunc(found, func(a, b Row) int { return int(a.ID - b.ID) })
	unfinished := []string{}
	left := w.limit
	found = slices.DeleteFunc(found, func(r Row) bool {
		if wantCounts[r.Target] == 0 || w.limit > 0 && left == 0 {
			unfinished = append(unfinished, r.Target)
			return true
		}
		wantCounts[r.Target]--
		left--
		return false
	})
	for i, r := range found {
		w.table[r.ID].status = "accepted"
		// A row that this daemon has claimed does not begin, unless it has just ended.
		if beginCounts[r.Target]--; beginCounts[r.Target] >= 0 && (!w.machine.HasRow(r.ID) || w.running[r.ID] && w.rng.IntN(4) == 0) {
			w.table[r.ID].status, found[i].StartedAt = "running", 1
			w.endedRows[r.ID] = w.running[r.ID]
		}
	}
	w.note("fetched %v, more %v", found, unfinished)
	w.countDueRuns(found)
	w.machine.Fetched(found, unfinished)
	w.naive.onFetchEnded()
	w.naive.eachTarget(unfinished, func(t *naiveTarget) { t.wantsFetch = true })
	w.naive.accept(found)
}

// countDueRuns counts the runs that are due for newly accepted rows.
func (w *simulation) countDueRuns(rows []Row) {
	for _, r := range rows {
		row, old := w.table[r.ID], w.naive.findRow(r.ID)
		if old == nil || old.isRunning && old.repeats == nil {
			row.maxRuns++
		}
	}
}

// settle compares the machine with its model, and carries out their effects.
func (w *simulation) settle() {
	got, want := w.machine.NextEffects(), w.naive.nextEffects()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.fail("effects %+v, want %+v", got, want)
	}
	for _, id := range got.Release {
		w.note("release %d", id)
		w.table[id].status, w.table[id].maxRuns = "waiting", w.table[id].maxRuns-1
	}
	for _, row := range got.Undo {
		w.note("undo %d", row.ID)
		w.table[row.ID].status, w.table[row.ID].maxRuns = "waiting", w.table[row.ID].maxRuns-1
		if w.running[row.ID] && !w.endedRows[row.ID] {
			w.fail("row %d is undone while it runs", row.ID)
		}
	}
	for _, row := range got.Start {
		w.note("start %v", row)
		if w.running[row.ID] {
			w.fail("row %d runs beside itself", row.ID)
		}
		w.running[row.ID] = true
	}
	if got.Fetch != nil {
		w.note("fetch %v", got.Fetch)
		if w.fetchInProgress != nil {
			w.fail("a second fetch while one is under way")
		}
		for _, want := range got.Fetch {
			t := w.naive.findTarget(want.Target)
			if length := w.naive.countRows(t.name, true) + w.naive.countRows(t.name, false); want.Rows < 1 || length+want.Rows > t.limit+2*t.endsDuringFetch() {
				w.fail("%d rows beside %d of %s, which has %d places", want.Rows, length, t.name, t.limit)
			}
		}
		w.fetchInProgress = got.Fetch
	}
	if nextEffects := w.machine.NextEffects(); nextEffects.Start != nil || nextEffects.Fetch != nil || nextEffects.Release != nil || nextEffects.Undo != nil {
		w.fail("effects come twice: %+v", nextEffects)
	}
	running := 0
	for i, s := range w.machine.Status() {
		t := w.naive.targets[i]
		if s != (Status{t.name, t.paused, t.limit, w.naive.countRows(t.name, false), w.naive.countRows(t.name, true)}) {
			w.fail("status %+v", s)
		}
		if !s.Paused && s.Queued > 0 && s.Running+t.fetching < s.Concurrency {
			w.fail("%s has queued rows and a free place", s.Name)
		}
		running += s.Running
	}
	if running != len(w.running)-w.withoutPlace {
		w.fail("%d rows run, %d of them without a place, %d counted", len(w.running), w.withoutPlace, running)
	}
	if len(got.Undo) > 0 {
		for _, row := range got.Undo {
			w.machine.Poll([]string{row.Target})
			w.naive.eachTarget([]string{row.Target}, func(t *naiveTarget) { t.wantsFetch = true })
		}
		w.settle()
	}
}

// finish completes all fetches and runs, and checks that every row has run as often as it was
// due.
func (w *simulation) finish() {
	for _, name := range w.names {
		w.add(name, 1+w.rng.IntN(3))
	}
	w.machine.Continue(nil)
	w.naive.eachTarget(nil, func(t *naiveTarget) { t.paused = false })
	w.machine.Poll(nil)
	w.naive.eachTarget(nil, func(t *naiveTarget) { t.wantsFetch = true })
	w.settle()
	for range 100_000 {
		w.machine.Resume()
		w.naive.lastFetchFailed = false
		w.settle()
		if w.fetchInProgress == nil && len(w.running) == 0 {
			break
		}
		w.completeSomething()
		w.settle()
	}
	for id, r := range w.table {
		if r.status != "done" && r.status != "manual" {
			w.fail("row %d is left %s", id, r.status)
		}
		if r.runs != r.maxRuns {
			w.fail("row %d ran %d times, was due %d times", id, r.runs, r.maxRuns)
		}
	}
}

func TestMachineInRandomSimulations(t *testing.T) {
	if *seedFlag != 0 {
		simulate(t, *seedFlag)
		return
	}
	base := rand.Uint64N(1 << 40)
	t.Logf("seeds from %d", base)
	for i := range uint64(150) {
		simulate(t, base+i)
	}
}

func simulate(t *testing.T, seed uint64) {
	w := newSimulation(t, seed)
	for range 400 {
		w.step()
	}
	if seed%4 == 0 {
		w.note("stop")
		w.machine.Stop()
		w.naive.stop()
		w.settle()
		for range 1000 {
			w.completeSomething()
			w.settle()
		}
		for _, s := range w.machine.Status() {
			if s.Running != 0 {
				w.fail("rows still run")
			}
		}
		for id, r := range w.table {
			if r.status == "accepted" {
				w.fail("row %d is left accepted", id)
			}
		}
		return
	}
	w.finish()
}

func TestLargerPriorityGoesFirst(t *testing.T) {
	m := New()
	m.Add("a", 1)
	var rows []Row
	for id := range int64(100) {
		rows = append(rows, Row{ID: id, Target: "a", Priority: id % 3})
	}
	m.Accept(rows)
	var got []int64
	for {
		e := m.NextEffects()
		if len(e.Start) == 0 {
			break
		}
		got = append(got, e.Start[0].ID)
		m.Done(e.Start[0].ID)
	}
	want := slices.Clone(rows)
	slices.SortStableFunc(want, func(a, b Row) int { return int(b.Priority - a.Priority) })
	for i, row := range want {
		if got[i] != row.ID {
			t.Fatalf("place %d: row %d, want %d", i, got[i], row.ID)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d started", len(got))
	}
}

func TestPollWaitsForRunningFetch(t *testing.T) {
	m := New()
	m.Add("a", 1)
	m.Add("b", 1)
	expect := func(name string, want Effects) {
		t.Helper()
		if got := m.NextEffects(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s: %+v, want %+v", name, got, want)
		}
	}
	a1 := Row{ID: 1, Target: "a"}
	m.Pause([]string{"a"})
	m.Poll(nil)
	expect("poll, a paused", Effects{Fetch: []FetchRequest{{"b", 1, 0}}})
	m.Fetched(nil, nil)
	expect("nothing for b", Effects{})
	m.Continue([]string{"a"})
	expect("pause over", Effects{Fetch: []FetchRequest{{"a", 1, 0}}})
	m.Fetched([]Row{a1}, []string{"a"})
	expect("a is full, and has more", Effects{Start: []Row{a1}})
	m.Poll([]string{"b", "nobody"})
	expect("b does not wait for a", Effects{Fetch: []FetchRequest{{"b", 1, 0}}})
	m.Done(1)
	expect("one fetch at a time", Effects{})
	m.FetchFailed([]string{"b"})
	expect("nothing before Resume", Effects{})
	m.Resume()
	expect("both are wanted still", Effects{Fetch: []FetchRequest{{"a", 1, 0}, {"b", 1, 0}}})
}

// TestStopReleasesRows: a row is accepted again while its earlier run has its place. When the
// machine stops, the row is given back at once, however long the earlier run takes.
func TestStopReleasesRows(t *testing.T) {
	m := New()
	m.Add("a", 3)
	rows := []Row{{ID: 1, Target: "a"}, {ID: 2, Target: "a"}, {ID: 3, Target: "a"}}
	m.Accept(rows)
	m.NextEffects()
	startedRow := Row{ID: 2, Target: "a", StartedAt: 5}
	m.Accept([]Row{rows[0], startedRow})
	m.Stop()
	if got, want := m.NextEffects(), (Effects{Release: []int64{1}, Undo: []Row{startedRow}}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, row := range rows {
		m.Done(row.ID)
	}
	if got := m.NextEffects(); fmt.Sprint(got) != fmt.Sprint(Effects{}) {
		t.Errorf("%+v after the runs", got)
	}
}

// TestHeldSlotDelaysRow: a row of another daemon takes up a place until it is done. If the row is
// accepted here before it is done, it runs afterwards.
func TestHeldSlotDelaysRow(t *testing.T) {
	m := New()
	if m.HoldSlot(Row{ID: 1, Target: "a"}) {
		t.Error("kept in an unknown target")
	}
	if err := m.Add("a", 2); err != nil {
		t.Fatal(err)
	}
	if !m.HoldSlot(Row{ID: 1, Target: "a"}) || m.HoldSlot(Row{ID: 1, Target: "a"}) {
		t.Error("HoldSlot did not succeed exactly once")
	}
	expectStarts := func(want ...int64) {
		t.Helper()
		var got []int64
		for _, r := range m.NextEffects().Start {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("started %v, want %v", got, want)
		}
	}
	m.Accept([]Row{{ID: 2, Target: "a"}, {ID: 1, Target: "a"}, {ID: 3, Target: "a"}})
	expectStarts(2)
	m.Done(1)
	expectStarts(3)
	m.Done(2)
	expectStarts(1)
}

// TestManyTargetsTakeTurns: a fetch has a limited number of targets. No target is left out because
// other targets are wanted again and again.
func TestManyTargetsTakeTurns(t *testing.T) {
	const n = 2*maxFetchTargets + 10
	m := New()
	for i := range n {
		m.Add(fmt.Sprint(i), 1)
	}
	fetched := make(map[string]int)
	for range 6 {
		m.Poll(nil)
		requests := m.NextEffects().Fetch
		if len(requests) != maxFetchTargets {
			t.Fatalf("%d targets in a fetch", len(requests))
		}
		for _, want := range requests {
			fetched[want.Target]++
		}
		m.Fetched(nil, nil)
	}
	if len(fetched) != n {
		t.Errorf("%d of %d targets were fetched", len(fetched), n)
	}
	for len(m.NextEffects().Fetch) > 0 { // those that the last Poll has left
		m.Fetched(nil, nil)
	}
}
