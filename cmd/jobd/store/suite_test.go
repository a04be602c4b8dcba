package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/internal/testing/storetest"
	. "gloom/cmd/jobd/store"
)

func TestMain(m *testing.M) { os.Exit(mariadbtest.Main(m)) }

// testTable is a table of jobs as another client sees it.
type testTable interface {
	insert(t *testing.T, r storetest.Record)
	read(t *testing.T, id int64) storetest.Record
	remove(t *testing.T, id int64)
	claimCount(t *testing.T) int
	open(t *testing.T, name string, lease time.Duration) Store
}

// onAllTables runs a test on the database, with and without SKIP LOCKED, and on the table in
// memory.
func onAllTables(t *testing.T, f func(t *testing.T, table testTable)) {
	t.Run("sql", func(t *testing.T) { f(t, newSQLTable(t)) })
	t.Run("old sql", func(t *testing.T) {
		table := newSQLTable(t)
		table.withoutSkipLocked = true
		f(t, table)
	})
	t.Run("memory", func(t *testing.T) { f(t, memoryTable{storetest.NewTable()}) })
}

// memoryTable is a table of jobs in memory.
type memoryTable struct{ *storetest.Table }

func (m memoryTable) insert(_ *testing.T, r storetest.Record) { m.Put(r) }
func (m memoryTable) read(_ *testing.T, id int64) storetest.Record {
	r, _ := m.Get(id)
	return r
}
func (m memoryTable) remove(_ *testing.T, id int64) { m.Delete(id) }
func (m memoryTable) claimCount(*testing.T) int     { return m.ClaimCount() }
func (m memoryTable) open(t *testing.T, name string, lease time.Duration) Store {
	return register(t, m.Open(name, lease, Process{}))
}

func register(t *testing.T, s Store) Store {
	t.Helper()
	if err := s.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

const longLease = time.Hour

func insertRows(t *testing.T, table testTable, status string, targets ...string) {
	t.Helper()
	for i, target := range targets {
		table.insert(t, storetest.Record{Row: Row{ID: int64(i + 1), Target: target}, Status: status})
	}
}

// wantRows asks for all rows of targets.
func wantRows(targets ...string) []AcceptRequest {
	list := make([]AcceptRequest, len(targets))
	for i, target := range targets {
		list[i] = AcceptRequest{Target: target, Rows: 1 << 30}
	}
	return list
}

func accept(t *testing.T, s Store, limit int, targets ...string) Page {
	t.Helper()
	p, err := s.Accept(t.Context(), wantRows(targets...), limit)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func write(t *testing.T, s Store, b Batch) WriteResult {
	t.Helper()
	w, err := s.Write(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.FailedRows) > 0 {
		t.Fatalf("failed: %v", w.FailedRows)
	}
	return w
}

func formatIDs(rows []Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%d%s ", r.ID, r.Target)
	}
	return strings.TrimSpace(b.String())
}

func formatStatuses(t *testing.T, table testTable, n int64) string {
	t.Helper()
	var list []string
	for id := int64(1); id <= n; id++ {
		list = append(list, table.read(t, id).Status)
	}
	return strings.Join(list, " ")
}

func checkEqual(t *testing.T, name string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s: %v, want %v", name, got, want)
	}
}

func TestLowestIDsAreAcceptedFirst(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "b", "c", "a", "b", "c", "a", "b", "c", "a")
		table.insert(t, storetest.Record{Row: Row{ID: 11, Target: "a"}, Status: Manual})
		table.insert(t, storetest.Record{Row: Row{ID: 12, Target: "a"}, Status: Done})
		s := table.open(t, "d", longLease)
		p := accept(t, s, 4, "a", "c")
		checkEqual(t, "rows", formatIDs(p.Rows), "1a 3c 4a 6c")
		checkEqual(t, "more", p.MoreTargets, "[a c]")
		p = accept(t, s, 4, "c", "a")
		checkEqual(t, "rows", formatIDs(p.Rows), "7a 9c 10a")
		checkEqual(t, "more", p.MoreTargets, "[]")
		p = accept(t, s, 0, "a", "b", "c")
		checkEqual(t, "rows", formatIDs(p.Rows), "2b 5b 8b")
		checkEqual(t, "claims", table.claimCount(t), 10)
		p = accept(t, s, 4, "a", "b", "c", "nobody")
		checkEqual(t, "nothing is left", formatIDs(p.Rows), "")
		checkEqual(t, "statuses", formatStatuses(t, table, 12), strings.Repeat("accepted ", 10)+"manual done")
	})
}

// TestPageHasLowestIDs: every page has the lowest ids of all its targets, however the ids are
// spread.
func TestPageHasLowestIDs(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		const rows = 60
		rng := rand.New(rand.NewPCG(1, 2))
		targets := make([]string, rows)
		for i := range targets {
			targets[i] = []string{"a", "b", "b", "b", "c"}[min(rng.IntN(5)+i/30, 4)]
		}
		insertRows(t, table, Waiting, targets...)
		s := table.open(t, "d", longLease)
		const limit = 7
		for from := 0; from < rows; from += limit {
			var want []Row
			for i := from; i < min(from+limit, rows); i++ {
				want = append(want, Row{ID: int64(i + 1), Target: targets[i]})
			}
			checkEqual(t, "rows", formatIDs(accept(t, s, limit, "c", "a", "b").Rows), formatIDs(want))
		}
		p := accept(t, s, limit, "a", "b", "c")
		checkEqual(t, "nothing is left", fmt.Sprint(formatIDs(p.Rows), p.MoreTargets), "[]")
	})
}

// TestReturnedRowBehindPosition: a row has a lower id than the rows that were accepted last. It is
// found before an Accept says that there are no more rows.
func TestReturnedRowBehindPosition(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a")
		s := table.open(t, "d", longLease)
		checkEqual(t, "rows", formatIDs(accept(t, s, 3, "a").Rows), "1a 2a 3a")
		checkEqual(t, "rows", formatIDs(accept(t, s, 3, "a").Rows), "4a 5a 6a")
		write(t, s, Batch{ReturnRows: []int64{2}})
		var found []Row
		for more := true; more; {
			p := accept(t, s, 3, "a")
			found, more = append(found, p.Rows...), len(p.MoreTargets) > 0
		}
		slices.SortFunc(found, func(a, b Row) int { return int(a.ID - b.ID) })
		checkEqual(t, "rows", formatIDs(found), "2a 7a 8a 9a 10a 11a 12a")
	})
}

// TestLowerIDsAreAccepted: a row with a lower id is accepted even if rows with higher ids are
// inserted all the time.
func TestLowerIDsAreAccepted(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "a")
		s := table.open(t, "d", longLease)
		checkEqual(t, "rows", formatIDs(accept(t, s, 1, "a").Rows), "1a")
		write(t, s, Batch{ReturnRows: []int64{1}})
		for next := int64(3); ; next++ {
			table.insert(t, storetest.Record{Row: Row{ID: next, Target: "a"}, Status: Waiting})
			if formatIDs(accept(t, s, 1, "a").Rows) == "1a" {
				return
			}
			if next > 10_000 {
				t.Fatal("the row still waits")
			}
		}
	})
}

// TestAcceptWritesBegunRowsAsRunning: an Accept writes the rows that begin as running. The
// exception are rows that were set back by hand and are still ours.
func TestAcceptWritesBegunRowsAsRunning(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "b", "a", "a", "b")
		s := table.open(t, "d", longLease)
		start := time.Now().Unix()
		p, err := s.Accept(t.Context(), []AcceptRequest{{"a", 3, 2}, {"b", 2, 5}}, 10)
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "statuses", formatStatuses(t, table, 5), "running running running accepted running")
		for _, row := range p.Rows {
			r := table.read(t, row.ID)
			if r.TimeStarted != row.StartedAt || (row.StartedAt >= start) != (row.ID != 4) {
				t.Errorf("row %d began at %d, and the table says %d", row.ID, row.StartedAt, r.TimeStarted)
			}
		}
		checkEqual(t, "claims", table.claimCount(t), 5)
		checkEqual(t, "lost", write(t, s, Batch{RequeueRows: []int64{1}, StartRows: []int64{4}, StartedAt: start, FinishRows: []Result{{ID: 2, OK: true, At: start}}}).LostRows, "map[]")
		checkEqual(t, "statuses", formatStatuses(t, table, 5), "waiting done running running running")
		checkEqual(t, "time_started", table.read(t, 1).TimeStarted, 0)

		r := table.read(t, 3)
		r.Status = Waiting
		table.insert(t, r)
		if p, err = s.Accept(t.Context(), []AcceptRequest{{"a", 9, 9}}, 10); err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "rows", formatIDs(p.Rows), "1a 3a")
		checkEqual(t, "statuses", formatStatuses(t, table, 5), "running done accepted running running")
	})
}

func TestTargetsMatchExactly(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "low", "LOW", "Löw", "low", "lów", "?")
		s := table.open(t, "d", longLease)
		checkEqual(t, "rows", formatIDs(accept(t, s, 10, "low").Rows), "1low 4low")
		checkEqual(t, "rows", formatIDs(accept(t, s, 10, "LOW", "😀", "Löw").Rows), "2LOW 3Löw")
		checkEqual(t, "status of a row whose name looks like one that cannot be", table.read(t, 6).Status, Waiting)
	})
}

func TestRowLifecycle(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "a", "a", "a", "a")
		s := table.open(t, "d", longLease)
		accept(t, s, 10, "a")
		w := write(t, s, Batch{StartRows: []int64{1, 2, 3}, StartedAt: 1000, ReturnRows: []int64{4}})
		checkEqual(t, "lost", w.LostRows, "map[]")
		checkEqual(t, "statuses", formatStatuses(t, table, 5), "running running running waiting accepted")
		if r := table.read(t, 1); r.TimeStarted != 1000 || r.Result != nil || r.Code != nil || r.Stdout != nil {
			t.Fatalf("%+v", r)
		}
		write(t, s, Batch{StartRows: []int64{5}, StartedAt: 1001, RequeueRows: []int64{3}, FinishRows: []Result{
			{ID: 1, OK: true, Code: 0, Stdout: "out'\\\x00\n", Stderr: "ärr", At: 2000},
			{ID: 2, Code: -1, Signal: "SIGRTMIN+9", At: 2001},
		}})
		checkEqual(t, "statuses", formatStatuses(t, table, 5), "done done waiting waiting running")
		checkEqual(t, "claims", table.claimCount(t), 1)
		r := table.read(t, 1)
		checkEqual(t, "row 1", []any{*r.Result, *r.Code, r.Signal == nil, *r.Stdout, *r.Stderr, r.TimeFinished}, []any{"ok", 0, true, "out'\\\x00\n", "ärr", 2000})
		r = table.read(t, 2)
		checkEqual(t, "row 2", []any{*r.Result, r.Code == nil, *r.Signal, r.TimeFinished}, []any{"fail", true, "SIGRTMIN+9", 2001})
		if r := table.read(t, 3); r.TimeStarted != 0 {
			t.Fatalf("a row that waits again says it started at %d", r.TimeStarted)
		}
	})
}

func TestManualRowsAreAccepted(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		for i, status := range []string{Manual, Waiting, Done, Running, Accepted, Ignored, Manual, Manual} {
			target := "a"
			if i == 6 {
				target = "nobody"
			}
			table.insert(t, storetest.Record{Row: Row{ID: int64(i + 1), Target: target}, Status: status})
		}
		s := table.open(t, "d", longLease)
		answers, err := s.AcceptManual(t.Context(), []int64{8, 7, 6, 5, 4, 3, 2, 1, 99, -1}, func(target string) bool { return target == "a" })
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range answers {
			got = append(got, fmt.Sprintf("%d %v %v %s", a.Row.ID, a.WasFound, a.WasAccepted, a.Status))
		}
		checkEqual(t, "answers", strings.Join(got, ", "), "8 true true , 7 true false manual, 6 true false ignored, 5 true false accepted, "+
			"4 true false running, 3 true false done, 2 true false waiting, 1 true true , 99 false false , -1 false false ")
		checkEqual(t, "target of 7", answers[1].Row.Target, "nobody")
		checkEqual(t, "statuses", formatStatuses(t, table, 8), "accepted ignored done running accepted ignored ignored accepted")
		write(t, s, Batch{ReturnRows: []int64{8}})
		checkEqual(t, "rows that came by hand become manual again", table.read(t, 8).Status, Manual)
	})
}

func TestForeignChangesAreNoticed(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "a", "a", "a", "a", "a", "a", "a")
		s := table.open(t, "d", longLease)
		accept(t, s, 10, "a")
		set := func(id int64, status string) {
			r := table.read(t, id)
			r.Status = status
			table.insert(t, r)
		}
		write(t, s, Batch{StartRows: []int64{5, 6, 7, 8}, StartedAt: 1})
		set(1, Ignored)
		table.remove(t, 2)
		set(3, Ignored)
		set(5, Waiting)
		table.remove(t, 6)
		set(7, Done)
		w := write(t, s, Batch{StartRows: []int64{1, 2}, ReturnRows: []int64{3, 4}, FinishRows: []Result{{ID: 5}, {ID: 6}, {ID: 8}}, RequeueRows: []int64{7}})
		var lostIDs []int64
		for id := range w.LostRows {
			lostIDs = append(lostIDs, id)
		}
		slices.Sort(lostIDs)
		checkEqual(t, "lost", lostIDs, "[1 2 3 5 6 7]")
		checkEqual(t, "claims", table.claimCount(t), 0)
		checkEqual(t, "statuses", formatStatuses(t, table, 8), "ignored  ignored waiting waiting  done done")
	})
}

func TestRowSetBackIsAcceptedAgain(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a")
		s := table.open(t, "d", longLease)
		accept(t, s, 10, "a")
		write(t, s, Batch{StartRows: []int64{1}, StartedAt: 1})
		table.insert(t, storetest.Record{Row: Row{ID: 1, Target: "a"}, Status: Waiting})
		checkEqual(t, "rows", formatIDs(accept(t, s, 10, "a").Rows), "1a")
		w := write(t, s, Batch{FinishRows: []Result{{ID: 1}}})
		checkEqual(t, "lost", len(w.LostRows), 1)
		checkEqual(t, "the new claim stays", table.claimCount(t), 1)
		write(t, s, Batch{StartRows: []int64{1}, StartedAt: 2})
		write(t, s, Batch{FinishRows: []Result{{ID: 1, OK: true}}})
		checkEqual(t, "status", formatStatuses(t, table, 1), Done)
		checkEqual(t, "claims", table.claimCount(t), 0)
	})
}

func TestSettleFreesRowsOfDeadOwner(t *testing.T) {
	for _, requeue := range []bool{false, true} {
		onAllTables(t, func(t *testing.T, table testTable) {
			insertRows(t, table, Waiting, "a", "b", "a", "b", "a")
			table.insert(t, storetest.Record{Row: Row{ID: 6, Target: "c"}, Status: Manual})
			table.insert(t, storetest.Record{Row: Row{ID: 7, Target: "a"}, Status: Accepted}) // without claim
			table.insert(t, storetest.Record{Row: Row{ID: 8, Target: "a"}, Status: Running})
			table.insert(t, storetest.Record{Row: Row{ID: 9, Target: "c"}, Status: Manual})
			deadStore := table.open(t, "dead", time.Millisecond)
			living := table.open(t, "living", longLease)
			accept(t, deadStore, 3, "a", "b")
			accept(t, living, 3, "a", "b")
			if _, err := deadStore.AcceptManual(t.Context(), []int64{6, 9}, func(string) bool { return true }); err != nil {
				t.Fatal(err)
			}
			write(t, deadStore, Batch{StartRows: []int64{2, 9}, StartedAt: 5})
			write(t, living, Batch{StartRows: []int64{4}, StartedAt: 5})

			o := awaitExpiry(t, living, deadStore.Token())
			sum, err := living.Settle(t.Context(), o, OrphanPolicy{Requeue: requeue, Reason: "daemon died", FinishedAt: 77})
			if err != nil {
				t.Fatal(err)
			}
			if requeue {
				checkEqual(t, "sum", sum, "{5 map[] [a b] false}")
				checkEqual(t, "statuses", formatStatuses(t, table, 9), "waiting waiting waiting running accepted manual accepted running manual")
			} else {
				checkEqual(t, "sum", sum, "{3 map[2:b 9:c] [a] false}")
				checkEqual(t, "statuses", formatStatuses(t, table, 9), "waiting done waiting running accepted manual accepted running done")
				r := table.read(t, 2)
				checkEqual(t, "row 2", []any{*r.Result, r.Code == nil, r.Signal == nil, *r.Stderr, r.TimeFinished}, []any{"fail", true, true, "daemon died", 77})
			}
			if owners, err := living.Owners(t.Context()); err != nil || len(owners) != 0 {
				t.Fatalf("%v %v", owners, err)
			}

			// The daemon was not dead, only slow: its late writes have no effect.
			if err := deadStore.Renew(t.Context()); err != ErrFenced {
				t.Fatalf("renewed: %v", err)
			}
			if _, err := deadStore.Accept(t.Context(), wantRows("a"), 5); err != ErrFenced {
				t.Fatalf("accepted: %v", err)
			}
			if _, err := deadStore.AcceptManual(t.Context(), []int64{6}, func(string) bool { return true }); err != ErrFenced {
				t.Fatalf("accepted by hand: %v", err)
			}
			w := write(t, deadStore, Batch{StartRows: []int64{1}, ReturnRows: []int64{3}, FinishRows: []Result{{ID: 2, OK: true}}})
			checkEqual(t, "lost", len(w.LostRows), 3)
			before := formatStatuses(t, table, 8)
			accept(t, living, 10, "a", "b")
			write(t, deadStore, Batch{StartRows: []int64{1, 3}, RequeueRows: []int64{2}})
			if before == formatStatuses(t, table, 8) || strings.Contains(formatStatuses(t, table, 3), Running) {
				t.Fatalf("%s", formatStatuses(t, table, 8))
			}

			// It may begin a new incarnation.
			register(t, deadStore)
			if err := deadStore.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestOwnClaimsAreSettled: a daemon settles rows of its own, and no others.
func TestOwnClaimsAreSettled(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "a", "a", "b")
		s, other := table.open(t, "d", longLease), table.open(t, "e", longLease)
		accept(t, s, 3, "a")
		accept(t, other, 1, "b")
		write(t, s, Batch{StartRows: []int64{1, 2}, StartedAt: 5})
		claims, err := s.OwnClaims(t.Context())
		slices.Sort(claims)
		checkEqual(t, "own", fmt.Sprintln(claims, err), "[1 2 3] <nil>\n")
		sum, err := s.SettleOwnClaims(t.Context(), []int64{1, 3, 4}, OrphanPolicy{Reason: ForgottenReason("d"), FinishedAt: 77})
		checkEqual(t, "sum", fmt.Sprintln(sum, err), "{1 map[1:a] [a] false} <nil>\n")
		checkEqual(t, "statuses", formatStatuses(t, table, 4), "done running waiting accepted")
		claims, err = s.OwnClaims(t.Context())
		checkEqual(t, "own", fmt.Sprintln(claims, err), "[2] <nil>\n")
	})
}

// awaitExpiry waits until an incarnation's lease has expired, and returns its owner.
func awaitExpiry(t *testing.T, s Store, token int64) Owner {
	t.Helper()
	for deadline := time.Now().Add(45 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		owners, err := s.Owners(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range owners {
			if o.Token == token && o.IsExpired() {
				return o
			}
		}
	}
	t.Fatal("the lease is never over")
	return Owner{}
}

func TestLivingDaemonIsNotSettled(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "a")
		slowDaemon := table.open(t, "slow", time.Millisecond)
		other := table.open(t, "other", longLease)
		accept(t, slowDaemon, 10, "a")
		o := awaitExpiry(t, other, slowDaemon.Token())
		if err := slowDaemon.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		sum, err := other.Settle(t.Context(), o, OrphanPolicy{})
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "sum", sum, SettleResult{})
		checkEqual(t, "statuses", formatStatuses(t, table, 2), "accepted accepted")
		checkEqual(t, "lost", write(t, slowDaemon, Batch{StartRows: []int64{1, 2}}).LostRows, "map[]")
	})
}

func TestLeaveKeepsOwnerWithRows(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a")
		a, b := table.open(t, "a", longLease), table.open(t, "b", longLease)
		accept(t, a, 10, "a")
		if err := a.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		owners, err := b.Owners(t.Context())
		if err != nil || len(owners) != 1 || !owners[0].IsSettling || owners[0].Name != "a" {
			t.Fatalf("with a row left: %+v, %v", owners, err)
		}
		if _, err := b.Settle(t.Context(), owners[0], OrphanPolicy{}); err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "status", formatStatuses(t, table, 1), Waiting)
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if owners, err := a.Owners(t.Context()); err != nil || len(owners) != 0 {
			t.Fatalf("%+v, %v", owners, err)
		}
	})
}

func TestEarlierIncarnationsResultsAreWritten(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "a")
		old, s := table.open(t, "old", longLease), table.open(t, "new", longLease)
		accept(t, old, 1, "a")
		write(t, old, Batch{StartRows: []int64{1}})
		accept(t, s, 1, "a")
		write(t, s, Batch{StartRows: []int64{2}})
		b := Batch{Token: old.Token(), FinishRows: []Result{{ID: 1, OK: true}, {ID: 2, OK: true}}}
		w := write(t, s, b)
		checkEqual(t, "lost", len(w.LostRows), 1)
		checkEqual(t, "statuses", formatStatuses(t, table, 2), "done running")
	})
}

func TestSettleLeavesSpooledResults(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "a")
		deadStore, s := table.open(t, "dead", longLease), table.open(t, "s", longLease)
		accept(t, deadStore, 2, "a")
		write(t, deadStore, Batch{StartRows: []int64{1, 2}})
		settle := func(exceptIDs ...int64) bool {
			t.Helper()
			sum, err := s.Settle(t.Context(), Owner{Token: deadStore.Token(), Heartbeat: 1}, OrphanPolicy{Except: exceptIDs})
			if err != nil {
				t.Fatal(err)
			}
			return sum.Incomplete
		}
		checkEqual(t, "one is left", settle(1), true)
		checkEqual(t, "statuses", formatStatuses(t, table, 2), "running done")
		checkEqual(t, "lost", write(t, s, Batch{Token: deadStore.Token(), FinishRows: []Result{{ID: 1, OK: true}}}).LostRows, "map[]")
		checkEqual(t, "one is left", settle(), false)
		checkEqual(t, "claims", table.claimCount(t), 0)
	})
}

// TestLateResultReplacesReason: a daemon has ended the rows of another daemon that it considered
// dead. When the other daemon then writes its results, the results replace the reason in the rows,
// and change nothing else.
func TestLateResultReplacesReason(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "a", "a", "a")
		deadStore, other := table.open(t, "dead's", longLease), table.open(t, "other", longLease)
		accept(t, deadStore, 4, "a")
		write(t, deadStore, Batch{StartRows: []int64{1, 2, 3}})
		if _, err := other.Settle(t.Context(), Owner{Token: deadStore.Token(), Heartbeat: 1}, OrphanPolicy{Reason: DeathReason("dead's"), FinishedAt: 77}); err != nil {
			t.Fatal(err)
		}
		accept(t, other, 1, "a") // row 4, which Settle has returned
		write(t, other, Batch{StartRows: []int64{4}})
		s := table.open(t, "dead's", longLease)
		if r := table.read(t, 2); r.Stderr == nil || *r.Stderr != DeathReason("dead's") {
			t.Fatalf("%+v", r)
		}
		r := table.read(t, 3)
		r.Status = Waiting // reset by hand
		table.insert(t, r)
		lostRows := write(t, s, Batch{Token: deadStore.Token(), FinishRows: []Result{{ID: 1, OK: true, Stdout: "out", At: 5}, {ID: 2, Code: 3}, {ID: 3, OK: true}, {ID: 4, OK: true}}}).LostRows
		checkEqual(t, "lost", lostRows, "map[3:claim is gone 4:claim is gone]")
		checkEqual(t, "statuses", formatStatuses(t, table, 4), "done done waiting running")
		firstRow, secondRow := table.read(t, 1), table.read(t, 2)
		checkEqual(t, "results", fmt.Sprintf("%s %s %d, %s %d %q", *firstRow.Result, *firstRow.Stdout, firstRow.TimeFinished, *secondRow.Result, *secondRow.Code, *secondRow.Stderr), `ok out 5, fail 3 ""`)
	})
}

// TestClaimsWithoutOwnerAreSettled: claims of an incarnation without a record are settled after the
// time of a lease, in which a living owner would create its record again.
func TestClaimsWithoutOwnerAreSettled(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		insertRows(t, table, Waiting, "a", "a")
		removedStore, s := table.open(t, "gone", longLease), table.open(t, "s", longLease)
		accept(t, removedStore, 2, "a")
		write(t, removedStore, Batch{StartRows: []int64{2}})
		switch table := table.(type) {
		case *sqlTable:
			table.exec(t, "DELETE FROM jobs_claims WHERE id = ?", -removedStore.Token())
		case memoryTable:
			table.Forget(removedStore.Token())
		}
		owners, err := s.Owners(t.Context())
		if err != nil || len(owners) != 1 || owners[0].IsSettling || owners[0].LeaseLeft != longLease {
			t.Fatalf("%+v %v", owners, err)
		}
		if _, err := s.Settle(t.Context(), owners[0], OrphanPolicy{Reason: DeathReason(owners[0].Name)}); err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "statuses", formatStatuses(t, table, 2), "waiting done")
		if _, ok := table.(*sqlTable); ok {
			checkEqual(t, "reason", *table.read(t, 2).Stderr, "jobd 'gone' died while the row was running")
		}
		checkEqual(t, "renewed", removedStore.Renew(t.Context()), ErrFenced)
		checkEqual(t, "claims", table.claimCount(t), 0)
	})
}

func TestSeveralDaemonsShareRows(t *testing.T) {
	onAllTables(t, func(t *testing.T, table testTable) {
		const n, daemons = 300, 3
		for id := int64(1); id <= n; id++ {
			table.insert(t, storetest.Record{Row: Row{ID: id, Target: []string{"a", "b"}[id%2]}, Status: Waiting})
		}
		type result struct {
			rows []Row
			err  error
		}
		results := make(chan result)
		for i := range daemons {
			s := table.open(t, fmt.Sprint("d", i), longLease)
			go func() {
				var r result
				for empty := 0; empty < 3; {
					p, err := s.Accept(context.Background(), wantRows("a", "b"), 7)
					if err != nil {
						r.err = err
						break
					}
					if len(p.Rows) == 0 && len(p.BusyTargets) == 0 {
						empty++
					}
					var start []int64
					var finish []Result
					for _, row := range p.Rows {
						start = append(start, row.ID)
						finish = append(finish, Result{ID: row.ID, OK: true})
					}
					for len(start)+len(finish) > 0 && r.err == nil {
						// A read by another daemon sometimes locks a neighbouring row, too.
						var w WriteResult
						if w, r.err = s.Write(context.Background(), Batch{StartRows: start}); len(w.BusyRows) > 0 {
							start = w.BusyRows
							continue
						}
						start = nil
						w, r.err = s.Write(context.Background(), Batch{FinishRows: finish})
						finish = slices.DeleteFunc(finish, func(f Result) bool { return !slices.Contains(w.BusyRows, f.ID) })
					}
					if r.err != nil {
						break
					}
					r.rows = append(r.rows, p.Rows...)
				}
				results <- r
			}()
		}
		seen := make(map[int64]bool)
		for range daemons {
			r := <-results
			if r.err != nil {
				t.Fatal(r.err)
			}
			for _, row := range r.rows {
				if seen[row.ID] {
					t.Fatalf("row %d was taken twice", row.ID)
				}
				seen[row.ID] = true
			}
		}
		checkEqual(t, "rows taken", len(seen), n)
		for id := int64(1); id <= n; id++ {
			if r := table.read(t, id); r.Status != Done {
				t.Fatalf("row %d is %s", id, r.Status)
			}
		}
		checkEqual(t, "claims", table.claimCount(t), 0)
	})
}
