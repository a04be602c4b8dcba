package store_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"gloom/cmd/internal/testing/storetest"
	. "gloom/cmd/jobd/store"

	"github.com/go-sql-driver/mysql"
	"github.com/rs/zerolog"
)

// TestEmptiedClaimsAreRestored: the companion table loses records while some rows run and other
// rows are queued. One queued row waits to be run by hand. The rows stay with the daemon: other
// daemons see the rows as this daemon's, and each row is written as if nothing had happened.
func TestEmptiedClaimsAreRestored(t *testing.T) {
	for _, loss := range []string{
		"TRUNCATE jobs_claims",
		"DELETE FROM jobs_claims",
		"DROP TABLE jobs_claims",
		"DELETE FROM jobs_claims WHERE id >= 0",
		"DELETE FROM jobs_claims WHERE id = 1",
		"DELETE FROM jobs_claims WHERE id < 0",
		"DELETE FROM jobs_claims WHERE id < 0 AND id > -9223372036854775808",
	} {
		for _, renewed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, renewed %v", loss, renewed), func(t *testing.T) {
				table := newSQLTable(t)
				insertRows(t, table, Waiting, "a", "a")
				table.exec(t, "INSERT INTO jobs (target, status) VALUES ('a', 'manual')")
				s := table.open(t, "d", longLease)
				other := table.open(t, "other", longLease)
				accept(t, s, 2, "a")
				if _, err := s.AcceptManual(t.Context(), []int64{3}, func(string) bool { return true }); err != nil {
					t.Fatal(err)
				}
				write(t, s, Batch{StartRows: []int64{1}, StartedAt: 7})
				token := s.Token()
				table.exec(t, loss)
				if renewed || loss[:4] == "DROP" {
					if err := s.Renew(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				w := write(t, s, Batch{ReturnRows: []int64{3}, FinishRows: []Result{{ID: 1, OK: true, Stdout: "out"}}})
				checkEqual(t, "lost, and to be tried again", fmt.Sprint(w.LostRows, w.BusyRows), "map[] []")
				checkEqual(t, "claims", table.claimCount(t), 1) // only the claim on row 2 is left
				checkEqual(t, "lost", fmt.Sprint(write(t, s, Batch{StartRows: []int64{2}}).LostRows), "map[]")
				checkEqual(t, "statuses", formatStatuses(t, table, 3), "done running manual")
				checkEqual(t, "the token is another", s.Token() != token, false)
				if err := other.Renew(t.Context()); err == ErrFenced && loss == "DELETE FROM jobs_claims WHERE id < 0 AND id > -9223372036854775808" {
					register(t, other) // without claims, it could not know that it was not settled
				} else if err != nil {
					t.Fatal(err)
				}
				owners, err := other.Owners(t.Context())
				if err != nil || len(owners) != 1 || owners[0].Name != "d" || owners[0].Token != token || owners[0].IsSettling {
					t.Fatalf("%+v %v", owners, err)
				}
			})
		}
	}
}

// TestRefusedWritesAreDoneLater: writes that were refused while there was no companion table are
// done when the table is back.
func TestRefusedWritesAreDoneLater(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a", "a")
	s := table.open(t, "d", longLease)
	accept(t, s, 3, "a")
	write(t, s, Batch{StartRows: []int64{1, 2}, StartedAt: 7})
	table.exec(t, "DROP TABLE jobs_claims")
	b := Batch{FinishRows: []Result{{ID: 1, OK: true}}, RequeueRows: []int64{2}, ReturnRows: []int64{3}}
	if _, err := s.Write(t.Context(), b); !IsAway(err) {
		t.Fatal(err)
	}
	checkEqual(t, "renewed", s.Renew(t.Context()), nil)
	table.exec(t, "TRUNCATE jobs_claims")
	checkEqual(t, "lost", fmt.Sprint(write(t, s, b).LostRows), "map[]")
	checkEqual(t, "statuses", formatStatuses(t, table, 3), "done waiting waiting")
}

// TestFailedReclaimIsRepeated: claims that a failed transaction has reclaimed are reclaimed
// again.
func TestFailedReclaimIsRepeated(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a")
	s, other := table.open(t, "d", longLease), table.open(t, "other", longLease)
	accept(t, s, 1, "a")
	table.exec(t, "TRUNCATE jobs_claims")
	checkEqual(t, "renewed", other.Renew(t.Context()), nil)
	table.exec(t, "CREATE TRIGGER g BEFORE UPDATE ON jobs FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'")
	w, err := s.Write(t.Context(), Batch{StartRows: []int64{1}})
	checkEqual(t, "refused", fmt.Sprintln(len(w.FailedRows), err), "1 <nil>\n")
	table.exec(t, "DROP TRIGGER g")
	checkEqual(t, "renewed", s.Renew(t.Context()), nil)
	checkEqual(t, "claims", table.claimCount(t), 1)
}

// TestLeaveWithoutRegisterKeepsNumber: a Leave without a Register leaves the record of the table's number
// alone.
func TestLeaveWithoutRegisterKeepsNumber(t *testing.T) {
	table := newSQLTable(t)
	table.open(t, "d", longLease)
	checkEqual(t, "left", table.openWith(t, table.options("never registered")).Leave(t.Context()), nil)
	checkEqual(t, "numbers", table.queryCount(t, "SELECT COUNT(*) FROM jobs_claims WHERE id = -9223372036854775808"), 1)
}

// TestSecondClaimIsRemembered: the end of its first run does not make the daemon forget its second
// claim.
func TestSecondClaimIsRemembered(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a")
	s := table.open(t, "d", longLease)
	accept(t, s, 1, "a")
	write(t, s, Batch{StartRows: []int64{1}, StartedAt: 7})
	table.exec(t, "UPDATE jobs SET status = 'waiting'")
	accept(t, s, 1, "a")
	checkEqual(t, "lost", write(t, s, Batch{FinishRows: []Result{{ID: 1}}}).LostRows, "map[1:row was made waiting again, or replaced, and this daemon has accepted it anew]")
	table.exec(t, "TRUNCATE jobs_claims")
	checkEqual(t, "renewed", s.Renew(t.Context()), nil)
	checkEqual(t, "claims", table.claimCount(t), 1)
}

// TestDoubtfulRowsAreFoundWithoutClaims: rows whose acceptance was in doubt when the companion table was
// emptied are still found.
func TestDoubtfulRowsAreFoundWithoutClaims(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a")
	table.insert(t, storetest.Record{Row: Row{ID: 2, Target: "a"}, Status: Manual})
	s := register(t, table.open(t, "d", longLease)).(*SQL)
	var answer atomic.Pointer[error]
	s.AnswerCommits(&answer)
	var err error = &mysql.MySQLError{Number: 1105, Message: "unknown error"}
	answer.Store(&err)
	_, acceptErr := s.Accept(t.Context(), wantRows("a"), 1)
	_, manualErr := s.AcceptManual(t.Context(), []int64{2}, func(string) bool { return true })
	answer.Store(nil)
	checkEqual(t, "in doubt, statuses", fmt.Sprintln(IsAway(acceptErr), IsAway(manualErr), formatStatuses(t, table, 2)), "true true accepted accepted\n")
	table.exec(t, "TRUNCATE jobs_claims")
	checkEqual(t, "renewed", s.Renew(t.Context()), nil)
	rows, err := s.Resolve(t.Context())
	checkEqual(t, "rows", fmt.Sprintln(formatIDs(rows), err), "1a <nil>\n")
	checkEqual(t, "statuses", formatStatuses(t, table, 2), "accepted manual")
}

// TestSpooledResultsOfEmptiedClaims: a daemon died before it could claim its rows again. The
// spooled results belong to rows that have been running since this daemon started them.
func TestSpooledResultsOfEmptiedClaims(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a", "a")
	s, deadStore := table.open(t, "d", longLease), table.open(t, "d", longLease)
	accept(t, deadStore, 3, "a")
	write(t, deadStore, Batch{StartRows: []int64{1, 2, 3}, StartedAt: 7})
	table.exec(t, "TRUNCATE jobs_claims")
	checkEqual(t, "renewed", s.Renew(t.Context()), nil)
	table.exec(t, "UPDATE jobs SET status = 'waiting' WHERE id = 2")
	accept(t, s, 1, "a")
	write(t, s, Batch{StartRows: []int64{2}, StartedAt: 7})
	table.exec(t, "UPDATE jobs SET time_started = 8 WHERE id = 3")
	w := write(t, s, Batch{Token: deadStore.Token(), FinishRows: []Result{
		{ID: 1, Started: 7, OK: true, Stdout: "out"}, {ID: 2, Started: 7}, {ID: 3, Started: 7}}})
	checkEqual(t, "lost", fmt.Sprint(w.LostRows), "map[2:claim is gone 3:claim is gone]")
	checkEqual(t, "statuses", formatStatuses(t, table, 3), "done running running")
	checkEqual(t, "output", *table.read(t, 1).Stdout, "out")
}

// TestRemovedClaimIsNotLost: a claim that another daemon has removed does not
// count as lost, even if a daemon without claims accepts or runs the row again.
func TestRemovedClaimIsNotLost(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a", "a")
	s, other := table.open(t, "d", longLease), table.open(t, "other", longLease)
	accept(t, s, 3, "a")
	write(t, s, Batch{StartRows: []int64{1}, StartedAt: 7})
	if _, err := other.Settle(t.Context(), Owner{Token: s.Token(), Name: "d", Heartbeat: 1}, OrphanPolicy{Requeue: true}); err != nil {
		t.Fatal(err)
	}
	table.exec(t, "UPDATE jobs SET status = IF(id = 2, 'accepted', 'running'), time_started = 8")
	removeClaim := func() {
		t.Helper()
		w := write(t, s, Batch{StartRows: []int64{2}, ReturnRows: []int64{3}, FinishRows: []Result{{ID: 1, OK: true}}})
		checkEqual(t, "lost", len(w.LostRows), 3)
	}
	removeClaim()
	checkEqual(t, "renewed", s.Renew(t.Context()), ErrFenced)
	table.exec(t, "TRUNCATE jobs_claims")
	checkEqual(t, "renewed", s.Renew(t.Context()), nil)
	removeClaim()
	checkEqual(t, "claims", table.claimCount(t), 0)
}

// TestRowZeroIsOrdinary: a row may have the id 0. Row 0 is claimed, found and settled like any
// other row, and a daemon whose records are lost still notices the loss.
func TestRowZeroIsOrdinary(t *testing.T) {
	onAllTables(t, func(t *testing.T, jobs testTable) {
		table, real := jobs.(*sqlTable)
		if real {
			table.exec(t, "ALTER TABLE jobs MODIFY id INT(10) UNSIGNED NOT NULL") // in an AUTO_INCREMENT column, 0 would mean the next number
		}
		put := func(status string) {
			jobs.insert(t, storetest.Record{Row: Row{ID: 0, Target: "a"}, Status: status})
		}
		put(Waiting)
		deadStore, s := jobs.open(t, "dead", time.Millisecond), jobs.open(t, "s", longLease)
		checkEqual(t, "rows", formatIDs(accept(t, deadStore, 10, "a").Rows), "0a")
		checkEqual(t, "lost", write(t, deadStore, Batch{StartRows: []int64{0}, StartedAt: 7}).LostRows, "map[]")
		claims, err := deadStore.OwnClaims(t.Context())
		checkEqual(t, "own", fmt.Sprintln(claims, err), "[0] <nil>\n")
		owners, err := s.Owners(t.Context())
		if err != nil || len(owners) != 1 || owners[0].Name != "dead" {
			t.Fatalf("%+v %v", owners, err)
		}
		sum, err := s.Settle(t.Context(), awaitExpiry(t, s, deadStore.Token()), OrphanPolicy{Requeue: true})
		checkEqual(t, "settled", fmt.Sprintln(sum, err), "{1 map[] [a] false} <nil>\n")
		checkEqual(t, "claims", jobs.claimCount(t), 0)
		checkEqual(t, "status", jobs.read(t, 0).Status, Waiting)

		accept(t, s, 10, "a")
		register(t, deadStore)
		if real {
			table.exec(t, "TRUNCATE jobs_claims")
			checkEqual(t, "renewed", deadStore.Renew(t.Context()), nil)
			checkEqual(t, "renewed", s.Renew(t.Context()), nil)
			checkEqual(t, "claims", table.claimCount(t), 1)
		}
		checkEqual(t, "lost", write(t, s, Batch{StartRows: []int64{0}}).LostRows, "map[]")
		if err := s.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		owners, err = deadStore.Owners(t.Context())
		if err != nil || len(owners) != 1 || !owners[0].IsSettling {
			t.Fatalf("with a row left: %+v %v", owners, err)
		}
	})
}

// TestSettlementIsNotCalledALoss: while another daemon settles this daemon, whose record is still
// there without a lease, the log does not say that records were lost.
func TestSettlementIsNotCalledALoss(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a")
	var log bytes.Buffer
	opt := table.options("d")
	opt.Log = zerolog.New(&log)
	s := register(t, table.openWith(t, opt))
	accept(t, s, 1, "a")
	table.exec(t, "UPDATE jobs_claims SET lease = NULL WHERE id < 0")
	checkEqual(t, "renewal", s.Renew(t.Context()), ErrFenced)
	checkEqual(t, "log", log.String(), "")
}
