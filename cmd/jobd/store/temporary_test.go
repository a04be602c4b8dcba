package store_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/internal/mariadb"
	. "gloom/cmd/jobd/store"
)

// TestRowsSurviveTemporaryFaults: a server refuses writes for a while. When it accepts writes again, the rows
// are done, with all of their output.
func TestRowsSurviveTemporaryFaults(t *testing.T) {
	server := mariadbtest.New(t, "--log-bin=log", "--binlog-format=ROW", "--server-id=1")
	output := strings.Repeat("x", 50_000)
	for _, state := range []struct{ name, start, end string }{
		{"a trigger that fails", "CREATE TRIGGER g BEFORE UPDATE ON jobs FOR EACH ROW SIGNAL SQLSTATE '45001' SET MYSQL_ERRNO = 1690, MESSAGE_TEXT = 'no'", "DROP TRIGGER g"},
		{"a column that is missing", "ALTER TABLE jobs CHANGE stdout other mediumtext", "ALTER TABLE jobs CHANGE other stdout mediumtext"},
		{"a new column", "ALTER TABLE jobs ADD owner int NOT NULL", "SELECT 1"},
		{"another index", "ALTER TABLE jobs DROP INDEX status_target_idx, ADD INDEX other (status, target, id)", "SELECT 1"},
		{"another charset", "ALTER TABLE jobs CONVERT TO CHARACTER SET latin1", "SELECT 1"},
		{"a priority that goes", "ALTER TABLE jobs DROP priority", "SELECT 1"},
		{"another table of that name", "RENAME TABLE jobs TO old", "CREATE TABLE jobs CHARSET utf8mb4 AS SELECT * FROM old; ALTER TABLE jobs ADD PRIMARY KEY (id)"},
		{"a new column of the claims", "ALTER TABLE jobs_claims ADD owner2 int NOT NULL", "SELECT 1"},
		{"no table", "RENAME TABLE jobs TO away", "RENAME TABLE away TO jobs"},
		{"no claims", "RENAME TABLE jobs_claims TO away", "RENAME TABLE away TO jobs_claims"},
		{"a statement log", "SET GLOBAL binlog_format = 'STATEMENT'", "SELECT 1"},
		{"its end", "SET GLOBAL binlog_format = 'STATEMENT'", "SET GLOBAL binlog_format = 'ROW'"},
	} {
		t.Run(state.name, func(t *testing.T) {
			t.Cleanup(func() { server.Exec(t, "", "SET GLOBAL binlog_format = 'ROW'") })
			table := newTableOn(t, server)
			table.exec(t, "ALTER TABLE jobs ADD priority int NOT NULL DEFAULT 0")
			insertRows(t, table, Waiting, "a", "a")
			s := table.open(t, "d", longLease).(*SQL)
			accept(t, s, 1, "a")
			write(t, s, Batch{StartRows: []int64{1}})
			table.exec(t, state.start)
			s.DB().SetMaxIdleConns(0) // the server's new settings apply to new connections
			s.DB().SetMaxIdleConns(8)
			b := Batch{FinishRows: []Result{{ID: 1, OK: true, Stdout: output}}}
			w, err := s.Write(t.Context(), b)
			if len(w.LostRows) > 0 {
				t.Fatalf("lost: %v", w.LostRows)
			}
			t.Logf("meanwhile: %v %v", err, w.FailedRows)
			_, acceptErr := s.Accept(t.Context(), wantRows("a"), 1)
			table.exec(t, state.end)
			if err != nil || len(w.FailedRows) > 0 {
				checkEqual(t, "lost", write(t, s, b).LostRows, "map[]")
			}
			if r := table.read(t, 1); r.Status != Done || *r.Stdout != output {
				t.Fatalf("%s, %d bytes", r.Status, len(*r.Stdout))
			}
			if acceptErr != nil {
				accept(t, s, 1, "a")
			}
			checkEqual(t, "row 2", table.read(t, 2).Status, Accepted)
		})
	}
}

// TestRowsSurviveRestoredTable: a table is emptied and filled again while one row runs, another row
// waits for its place, and rows of a dead daemon wait to be settled.
func TestRowsSurviveRestoredTable(t *testing.T) {
	for _, empty := range []string{"DELETE FROM jobs", "TRUNCATE jobs"} {
		table := newSQLTable(t)
		insertRows(t, table, Waiting, "a", "a", "a", "a")
		opt := table.options("d")
		opt.ConfirmAfter = 300 * time.Millisecond
		s := register(t, table.openWith(t, opt))
		accept(t, s, 2, "a")
		write(t, s, Batch{StartRows: []int64{1}})
		deadStore := table.open(t, "dead", longLease)
		accept(t, deadStore, 2, "a")
		write(t, deadStore, Batch{StartRows: []int64{3}})
		deadStore.(*SQL).Close()
		table.exec(t, "CREATE TABLE kept AS SELECT * FROM jobs")
		table.exec(t, empty)
		b := Batch{StartRows: []int64{2}, FinishRows: []Result{{ID: 1, OK: true, Stdout: "out"}}}
		w := write(t, s, b)
		checkEqual(t, "lost, and to be tried again", fmt.Sprint(w.LostRows, w.BusyRows), "map[] [1 2]")
		o := Owner{Token: deadStore.Token(), Heartbeat: 1}
		settle := func() SettleResult {
			t.Helper()
			sum, err := s.Settle(t.Context(), o, OrphanPolicy{Reason: "died"})
			if err != nil {
				t.Fatal(err)
			}
			return sum
		}
		checkEqual(t, "some are left to be settled", settle().Incomplete, true)
		checkEqual(t, "claims", table.claimCount(t), 4)
		table.exec(t, "INSERT INTO jobs SELECT * FROM kept")
		w = write(t, s, b)
		checkEqual(t, "lost, and to be tried again", fmt.Sprint(w.LostRows, w.BusyRows), "map[] []")
		sum := settle()
		checkEqual(t, "returned, failed, left", fmt.Sprint(sum.RequeuedCount, len(sum.FailedRows), sum.Incomplete), "1 1 false")
		checkEqual(t, "statuses", formatStatuses(t, table, 4), "done running done waiting")
		// Rows that are still missing now count as deleted.
		table.exec(t, empty)
		for b = (Batch{FinishRows: []Result{{ID: 2}}}); ; {
			if w = write(t, s, b); len(w.LostRows) > 0 {
				break
			}
		}
		checkEqual(t, "claims", table.claimCount(t), 0)
	}
}

// TestTemporaryRefusalLosesNoOutput: no output is lost if a result is refused for a while: by a
// trigger, or as too long by a proxy or a changed column. If it is refused for good, the row gets
// as much of the output as the server accepts, or else the reason.
func TestTemporaryRefusalLosesNoOutput(t *testing.T) {
	for name, signal := range map[string]string{"trigger": "SIGNAL SQLSTATE '45000' SET", "too long": "SIGNAL SQLSTATE '22001' SET MYSQL_ERRNO = 1406,"} {
		t.Run(name, func(t *testing.T) {
			table := newSQLTable(t)
			insertRows(t, table, Waiting, "a", "a", "a")
			opt := table.options("d")
			opt.ConfirmAfter = 200 * time.Millisecond
			s := register(t, table.openWith(t, opt))
			accept(t, s, 3, "a")
			write(t, s, Batch{StartRows: []int64{1, 2, 3}})
			refuse := func(minLength int) {
				table.exec(t, fmt.Sprintf(`CREATE TRIGGER g BEFORE UPDATE ON jobs FOR EACH ROW
					IF LENGTH(NEW.stdout) > %d THEN %s MESSAGE_TEXT = 'not now'; END IF`, minLength, signal))
			}
			output := strings.Repeat("x", 50_000)
			final := func(id int64) WriteResult {
				w, err := s.Write(t.Context(), Batch{FinishRows: []Result{{ID: id, OK: true, Stdout: output, Stderr: "e"}}})
				if err != nil {
					t.Fatal(err)
				}
				return w
			}
			refuse(5000)
			checkEqual(t, "refused", len(final(1).FailedRows), 1)
			table.exec(t, "DROP TRIGGER g")
			checkEqual(t, "refused", len(final(1).FailedRows), 0)
			checkEqual(t, "bytes of a result that was refused once", len(*table.read(t, 1).Stdout), len(output))
			refuse(5000)
			for len(final(2).FailedRows) > 0 {
			}
			if n := len(*table.read(t, 2).Stdout); n < 1000 || n > 5000 {
				t.Errorf("%d bytes of what is refused for good", n)
			}
			table.exec(t, "DROP TRIGGER g")
			refuse(0)
			for len(final(3).FailedRows) > 0 {
			}
			r := table.read(t, 3)
			if *r.Result != "ok" || *r.Stdout != "" || !strings.HasPrefix(*r.Stderr, "[the database refuses the output: ") || !strings.HasSuffix(*r.Stderr, "not now]\ne") {
				t.Errorf("%q, %q, %q", *r.Result, *r.Stdout, *r.Stderr)
			}
		})
	}
}

// TestDiscardedTablespace takes away the table's file for a while, and then puts it back.
func TestDiscardedTablespace(t *testing.T) {
	server := mariadbtest.New(t)
	table := newTableOn(t, server)
	insertRows(t, table, Waiting, "a")
	s := table.open(t, "d", longLease)
	accept(t, s, 1, "a")
	write(t, s, Batch{StartRows: []int64{1}})
	var dir string
	if err := table.db.QueryRow("SELECT @@datadir").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, table.name)
	withoutFile(t, table.db, dir, func() {
		b := Batch{FinishRows: []Result{{ID: 1, OK: true, Stdout: strings.Repeat("x", 50_000)}}}
		w, err := s.Write(t.Context(), b)
		if err == nil && len(w.FailedRows) != 1 {
			t.Errorf("written without a tablespace: %v", w)
		}
		if strings.Contains(table.log.String(), "less output") {
			t.Errorf("output is cut: %s", table.log)
		}
	})
	checkEqual(t, "lost", write(t, s, Batch{FinishRows: []Result{{ID: 1, OK: true, Stdout: strings.Repeat("x", 50_000)}}}).LostRows, "map[]")
	if r := table.read(t, 1); r.Status != Done || len(*r.Stdout) != 50_000 {
		t.Fatalf("%s", r.Status)
	}
}

// withoutFile takes the table's file away while f runs.
func withoutFile(t *testing.T, db *sql.DB, dir string, f func()) {
	t.Helper()
	do := func(query string) {
		t.Helper()
		if _, err := db.Exec(query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	conn, err := db.Conn(t.Context()) // holds the table's lock
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "FLUSH TABLES jobs FOR EXPORT"); err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".ibd", ".cfg"} {
		copyFile(t, filepath.Join(dir, "jobs"+ext), filepath.Join(dir, "kept"+ext))
	}
	if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	do("ALTER TABLE jobs DISCARD TABLESPACE")
	f()
	for _, ext := range []string{".ibd", ".cfg"} {
		copyFile(t, filepath.Join(dir, "kept"+ext), filepath.Join(dir, "jobs"+ext))
	}
	do("ALTER TABLE jobs IMPORT TABLESPACE")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o666)
	}
	if err == nil {
		err = os.Chmod(to, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDaemonWaitsForWritableServer: a daemon that starts while its server is read-only waits. The
// daemon does not give up the companion table, which it cannot create yet.
func TestDaemonWaitsForWritableServer(t *testing.T) {
	server := mariadbtest.New(t)
	table := newTableOn(t, server)
	server.Exec(t, table.name, "CREATE USER d@localhost; GRANT ALL ON "+table.name+".* TO d@localhost; CREATE USER d@'127.0.0.1'; GRANT ALL ON "+table.name+".* TO d@'127.0.0.1'")
	opt := table.options("d")
	opt.MySQL.User = "d"
	server.Exec(t, "", "SET GLOBAL read_only = 1")
	if s, err := Open(t.Context(), opt); !IsAway(err) {
		t.Fatalf("%v %v", s, err)
	}
	server.Exec(t, "", "SET GLOBAL read_only = 0")
	if !table.openWith(t, opt).HasClaimsTable() {
		t.Fatal("there is no companion table")
	}
}

// TestDaemonWaitsForLockedTable: a daemon that starts while another session has locked its table,
// as for a backup, waits for the table. It also waits if the server ends the wait for the lock
// first.
func TestDaemonWaitsForLockedTable(t *testing.T) {
	server := mariadbtest.New(t)
	table := newTableOn(t, server)
	server.Exec(t, "", "SET GLOBAL lock_wait_timeout = 1")
	db, err := server.Open(table.name)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, lock := range []string{"LOCK TABLES jobs WRITE", "FLUSH TABLES WITH READ LOCK"} {
		if _, err := db.Exec(lock); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(t.Context(), table.options("d")); !IsAway(err) {
			t.Errorf("%s: %v %v", lock, s, err)
		}
		if _, err := db.Exec("UNLOCK TABLES"); err != nil {
			t.Fatal(err)
		}
	}
	table.openWith(t, table.options("d"))
}

// TestChainedCommitHoldsBackNothing: even if a server's COMMIT begins a further transaction by
// default, writes outside of transactions, such as the renewal of a lease, are not held back.
func TestChainedCommitHoldsBackNothing(t *testing.T) {
	server := mariadbtest.New(t)
	table := newTableOn(t, server)
	server.Exec(t, "", "SET GLOBAL completion_type = CHAIN")
	s := table.open(t, "d", longLease) // has committed
	heartbeat := func() int {
		return table.queryCount(t, "SELECT SUM(beat) FROM jobs_claims WHERE id < 0 AND lease IS NOT NULL")
	}
	for range 3 {
		before := heartbeat()
		if err := s.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := heartbeat(); after != before+1 {
			t.Errorf("others see beat %d after a renewal of %d", after, before)
		}
	}
}

// TestServerChoosesCharset: a server that ignores the charset of its clients stores texts as they are.
func TestServerChoosesCharset(t *testing.T) {
	server := mariadbtest.New(t, "--skip-character-set-client-handshake", "--character-set-server=latin1")
	table := newTableOn(t, server)
	table.readsFields = true
	table.exec(t, "SET NAMES utf8mb4; ALTER TABLE jobs CONVERT TO CHARACTER SET utf8mb4, ADD note varchar(10) CHARACTER SET utf8mb4;"+
		"INSERT INTO jobs (target, note) VALUES (_utf8mb4 X'E4BDA0', _utf8mb4 X'F09F9880')")
	s := table.open(t, "d", longLease)
	page := accept(t, s, 1, "你")
	checkEqual(t, "rows", formatIDs(page.Rows), "1你")
	checkEqual(t, "fields", string(page.Rows[0].Fields), `{"id":1,"note":"😀"}`)
	write(t, s, Batch{StartRows: []int64{1}})
	write(t, s, Batch{FinishRows: []Result{{ID: 1, Stdout: "é😀"}}})
	checkEqual(t, "stdout", table.queryCount(t, "SELECT stdout = _utf8mb4 X'C3A9F09F9880' FROM jobs"), 1)
}

// TestServerLimitsSelects: a server that gives other clients only some rows, and refuses their joins,
// gives jobd all rows.
func TestServerLimitsSelects(t *testing.T) {
	server := mariadbtest.New(t)
	table := newTableOn(t, server)
	insertRows(t, table, Waiting, "a", "a", "a", "a", "a")
	server.Exec(t, "", "SET GLOBAL sql_select_limit = 2")
	server.Exec(t, "", "SET GLOBAL max_join_size = 1")
	s := table.open(t, "d", longLease)
	checkEqual(t, "rows", formatIDs(accept(t, s, 5, "a").Rows), "1a 2a 3a 4a 5a")
	write(t, s, Batch{StartRows: []int64{1, 2, 3, 4, 5}})
	write(t, s, Batch{FinishRows: []Result{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}, {ID: 5}}})
	checkEqual(t, "statuses", formatStatuses(t, table, 5), "done done done done done")
}

// TestPassingSettingIsNotKept: a connection that was made while the server allowed no writes keeps
// the setting of that time. The store does not keep the connection.
func TestPassingSettingIsNotKept(t *testing.T) {
	server := mariadbtest.New(t)
	s := newTableOn(t, server).open(t, "d", longLease).(*SQL)
	server.Exec(t, "", "SET GLOBAL tx_read_only = ON")
	s.DB().SetMaxIdleConns(0) // closes all connections
	s.DB().SetMaxIdleConns(1)
	if err := s.Renew(t.Context()); !IsAway(err) {
		t.Fatal(err)
	}
	server.Exec(t, "", "SET GLOBAL tx_read_only = OFF")
	if err := s.Renew(t.Context()); err != nil {
		t.Error(err)
	}

	// This refusal comes after the first rows.
	server.Exec(t, "", "SET GLOBAL max_statement_time = 0.02")
	s.DB().SetMaxIdleConns(0)
	s.DB().SetMaxIdleConns(1)
	read := func() error {
		rows, err := s.DB().QueryContext(t.Context(), "SELECT seq FROM seq_1_to_3000000")
		if err != nil {
			return fmt.Errorf("refused before the first row: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	}
	if err := read(); mariadb.Number(err) != 1969 {
		t.Fatal(err)
	}
	server.Exec(t, "", "SET GLOBAL max_statement_time = 0")
	if err := read(); err != nil {
		t.Error(err)
	}
}

// TestLocksOfSilentClientAreFreed: a daemon's host is lost in a transaction, and no packet tells the
// server. The rows that the transaction has locked are soon free for other daemons.
func TestLocksOfSilentClientAreFreed(t *testing.T) {
	t.Parallel()
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a")
	tx, err := table.open(t, "lost", longLease).(*SQL).DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("UPDATE jobs SET target = 'b' WHERE id = 1"); err != nil { // the last packet of the lost host
		t.Fatal(err)
	}
	table.exec(t, "SET STATEMENT innodb_lock_wait_timeout = 25 FOR UPDATE jobs SET time_started = 1 WHERE id = 1")
	checkEqual(t, "the target", table.read(t, 1).Target, "a")
	if err := tx.Commit(); err == nil {
		t.Error("the lost transaction was committed after its locks were freed")
	}
}
