package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/internal/failpoint"
	"gloom/cmd/internal/mariadb"
	"gloom/cmd/internal/testing/storetest"
	"gloom/cmd/jobd/config"
	. "gloom/cmd/jobd/store"

	"github.com/go-sql-driver/mysql"
	"github.com/rs/zerolog"
)

const ownersTable = `CREATE TABLE jobs (
  id int(10) unsigned NOT NULL AUTO_INCREMENT,
  target char(16) NOT NULL,
  time_created int(10) unsigned NOT NULL DEFAULT 0,
  time_started int(10) unsigned NOT NULL DEFAULT 0,
  time_finished int(10) unsigned NOT NULL DEFAULT 0,
  status enum('waiting','manual','accepted','running','done','ignored') NOT NULL DEFAULT 'waiting',
  result enum('ok','fail') DEFAULT NULL,
  return_code tinyint(3) unsigned DEFAULT NULL,
  sig char(10) DEFAULT NULL,
  stdout mediumtext DEFAULT NULL,
  stderr mediumtext DEFAULT NULL,
  PRIMARY KEY (id),
  KEY status_target_idx (status, target, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8`

// sqlTable is a table of jobs on a real server.
type sqlTable struct {
	server            *mariadbtest.Server
	name              string
	db                *sql.DB
	readsFields       bool // as Options.ReadFields
	withoutSkipLocked bool // treat the server as one that cannot skip locked rows
	log               *bytes.Buffer
}

func newSQLTable(t *testing.T) *sqlTable { return newTableOn(t, mariadbtest.Shared(t)) }

func newTableOn(t *testing.T, server *mariadbtest.Server) *sqlTable {
	t.Helper()
	s := &sqlTable{server: server, name: server.Database(t), log: new(bytes.Buffer)}
	db, err := server.Open(s.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s.db = db
	s.exec(t, ownersTable)
	return s
}

func (s *sqlTable) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := s.db.Exec(query, args...); err != nil {
		t.Fatalf("%.100s: %v", query, err)
	}
}

func (s *sqlTable) options(name string) Options {
	return Options{
		MySQL: config.MySQL{Host: "127.0.0.1", Port: s.server.Port(), User: "root", Database: s.name, Table: "jobs"},
		Name:  name, Lease: longLease, ReadFields: s.readsFields, Log: zerolog.New(s.log),
	}
}

func (s *sqlTable) open(t *testing.T, name string, lease time.Duration) Store {
	t.Helper()
	opt := s.options(name)
	opt.Lease = lease
	return register(t, s.openWith(t, opt))
}

func (s *sqlTable) openWith(t *testing.T, opt Options) *SQL {
	t.Helper()
	store, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if s.withoutSkipLocked {
		store.DisableSkipLocked()
	} else if !store.PassesOver() {
		t.Fatal("the server can pass over locked rows, and is not asked to")
	}
	return store
}

func (s *sqlTable) insert(t *testing.T, r storetest.Record) {
	t.Helper()
	s.exec(t, `INSERT INTO jobs (id, target, status, time_started) VALUES (?, ?, ?, ?)
		ON DUPLICATE KEY UPDATE target = VALUES(target), status = VALUES(status)`, r.ID, r.Target, r.Status, r.TimeStarted)
}

func (s *sqlTable) read(t *testing.T, id int64) storetest.Record {
	t.Helper()
	var r storetest.Record
	err := s.db.QueryRow("SELECT id, target, status, time_started, time_finished, result, return_code, sig, stdout, stderr FROM jobs WHERE id = ?", id).
		Scan(&r.ID, &r.Target, &r.Status, &r.TimeStarted, &r.TimeFinished, &r.Result, &r.Code, &r.Signal, &r.Stdout, &r.Stderr)
	if err != nil && err != sql.ErrNoRows {
		t.Fatal(err)
	}
	return r
}

func (s *sqlTable) remove(t *testing.T, id int64) {
	t.Helper()
	s.exec(t, "DELETE FROM jobs WHERE id = ?", id)
}

func (s *sqlTable) claimCount(t *testing.T) int {
	t.Helper()
	return s.queryCount(t, "SELECT COUNT(*) FROM jobs_claims WHERE id >= 0")
}

func (s *sqlTable) queryCount(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := s.db.QueryRow(query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func TestOpenErrorsAreNamed(t *testing.T) {
	table := newSQLTable(t)
	table.exec(t, "CREATE TABLE half (id INT PRIMARY KEY, target CHAR(16))")
	table.exec(t, "CREATE VIEW seen AS SELECT * FROM jobs")
	for name, want := range map[string]string{"nope": "does not exist", "half": "no column 'status'", "seen": "no primary key"} {
		opt := table.options("d")
		opt.MySQL.Table = name
		if _, err := Open(t.Context(), opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	opt := table.options("d")
	opt.MySQL.Port = 1
	if _, err := Open(t.Context(), opt); err == nil {
		t.Error("a server that is not there was opened")
	}
}

func TestOtherTableNamesWork(t *testing.T) {
	table := newSQLTable(t)
	table.exec(t, "RENAME TABLE jobs TO `order`")
	opt := table.options("d")
	for _, name := range []string{"order", "`order`", table.name + ".order", "`" + table.name + "`.`order`"} {
		opt.MySQL.Table = name
		s := register(t, table.openWith(t, opt))
		table.exec(t, "INSERT INTO `order` (target) VALUES ('a')")
		if p := accept(t, s, 5, "a"); len(p.Rows) != 1 {
			t.Fatalf("%s: %v", name, p)
		}
	}
	if n := table.queryCount(t, "SELECT COUNT(*) FROM order_claims WHERE id >= 0"); n != 4 {
		t.Fatalf("%d claims", n)
	}
}

// TestCollations: rows are found whatever the collation of the table. A result replaces another
// daemon's reason, even if the charset lacks characters of that daemon's name.
func TestCollations(t *testing.T) {
	for _, collation := range []string{"utf8mb4 COLLATE utf8mb4_unicode_ci", "utf8mb3 COLLATE utf8mb3_turkish_ci", "latin1 COLLATE latin1_german2_ci"} {
		t.Run(collation, func(t *testing.T) {
			table := newSQLTable(t)
			table.exec(t, "ALTER TABLE jobs CONVERT TO CHARACTER SET "+collation)
			insertRows(t, table, Waiting, "low", "LOW", "Löw", "lów")
			deadStore, other := table.open(t, "ж", longLease), table.open(t, "other", longLease)
			if list, err := newReader(t, table).Counts(t.Context(), Waiting, []string{"LOW"}); err != nil || !strings.Contains(formatCounts(list), "LOW 1") {
				t.Errorf("counts: %s %v", formatCounts(list), err)
			}
			checkEqual(t, "rows", formatIDs(accept(t, deadStore, 10, "LOW", "Löw").Rows), "2LOW 3Löw")
			write(t, deadStore, Batch{StartRows: []int64{2, 3}})
			if _, err := other.Settle(t.Context(), Owner{Token: deadStore.Token(), Heartbeat: 1}, OrphanPolicy{Reason: DeathReason("ж")}); err != nil {
				t.Fatal(err)
			}
			w := write(t, deadStore, Batch{FinishRows: []Result{{ID: 2, OK: true}, {ID: 3, OK: true}}})
			checkEqual(t, "writes", fmt.Sprint(w.LostRows, w.FailedRows), "map[] map[]")
			checkEqual(t, "results", *table.read(t, 2).Result+" "+*table.read(t, 3).Result, "ok ok")
		})
	}
}

// TestAcceptReadsFewRows checks the server's own count of the rows that
// it read.
func TestAcceptReadsFewRows(t *testing.T) {
	table := newSQLTable(t)
	table.exec(t, "INSERT INTO jobs (target, status) SELECT CONCAT('t', seq % 4), 'waiting' FROM seq_1_to_1000000")
	s := table.open(t, "d", longLease).(*SQL)
	s.DB().SetMaxOpenConns(1)
	reads := func() (n int) {
		t.Helper()
		rows, err := s.DB().Query("SHOW SESSION STATUS LIKE 'Handler_read%'")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var value int
			if err := rows.Scan(&name, &value); err != nil {
				t.Fatal(err)
			}
			n += value
		}
		return n
	}
	before := reads()
	p := accept(t, s, 100, "t0", "t1", "t2", "t3")
	if len(p.Rows) != 100 || p.Rows[99].ID != 100 {
		t.Fatalf("%d rows", len(p.Rows))
	}
	if n := reads() - before; n > 2000 {
		t.Errorf("a poll for 100 rows of 4 targets read %d", n)
	}
	before = reads()
	var start []int64
	var finish []Result
	for _, r := range p.Rows {
		start = append(start, r.ID)
		finish = append(finish, Result{ID: r.ID})
	}
	write(t, s, Batch{StartRows: start})
	write(t, s, Batch{FinishRows: finish})
	if n := reads() - before; n > 2000 {
		t.Errorf("writing 100 rows read %d", n)
	}
	before = reads()
	if _, err := s.AcceptManual(t.Context(), []int64{500_000, 900_000}, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if n := reads() - before; n > 100 {
		t.Errorf("taking 2 rows by hand read %d", n)
	}
	for _, query := range []string{
		s.WaitingQuery(100),
	} {
		var id, kind, name, kinds, possible, key, keyLen, ref, rows, extra sql.NullString
		if err := table.db.QueryRow("EXPLAIN "+query, "t1", "t1").Scan(&id, &kind, &name, &kinds, &possible, &key, &keyLen, &ref, &rows, &extra); err != nil {
			t.Fatal(err)
		}
		if key.String != "status_target_idx" || !strings.Contains("ref range", kinds.String) || strings.Contains(extra.String, "filesort") {
			t.Errorf("key %s, type %s, %s", key.String, kinds.String, extra.String)
		}
	}
}

// TestLargestPrioritiesAreTakenFirst: if a few rows are wanted, the rows with the largest priority
// among the first limit rows are taken; locked rows are skipped.
func TestLargestPrioritiesAreTakenFirst(t *testing.T) {
	table := newSQLTable(t)
	table.exec(t, "ALTER TABLE jobs ADD priority int")
	table.exec(t, "INSERT INTO jobs (id, target, priority) VALUES (1, 'a', 1), (2, 'a', 5), (3, 'a', 5), (4, 'a', 9), (5, 'a', 0), (6, 'a', 99)")
	s := table.open(t, "d", longLease)
	tx, err := table.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("SELECT id FROM jobs FORCE INDEX (PRIMARY) WHERE id = 4 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	p, err := s.Accept(t.Context(), []AcceptRequest{{"a", 2, 0}}, 5)
	checkEqual(t, "rows", fmt.Sprint(formatIDs(p.Rows), p.MoreTargets, err), "2a 3a[a] <nil>")
	tx.Rollback()
	p, err = s.Accept(t.Context(), []AcceptRequest{{"a", 1, 0}}, 5)
	checkEqual(t, "rows", fmt.Sprint(formatIDs(p.Rows), p.MoreTargets, err), "6a[a] <nil>")
	p, err = s.Accept(t.Context(), []AcceptRequest{{"a", 4, 0}}, 5)
	checkEqual(t, "rows", fmt.Sprint(formatIDs(p.Rows), p.MoreTargets, err), "1a 4a 5a[] <nil>")
}

// TestPrioritiesOfUnevenTargets: a target with few rows leaves its share of a page to another
// target. The best of the first rows of that other target are taken, each row once.
func TestPrioritiesOfUnevenTargets(t *testing.T) {
	table := newSQLTable(t)
	table.exec(t, "ALTER TABLE jobs ADD priority bigint unsigned DEFAULT 0")
	table.exec(t, "INSERT INTO jobs (target, priority) VALUES ('a', 1), ('a', 2), ('b', 0), ('a', 3), ('a', ~0), ('a', 4)")
	s := table.open(t, "d", longLease)
	requests := []AcceptRequest{{Target: "a", Rows: 9}, {Target: "b", Rows: 9}}
	p, err := s.Accept(t.Context(), requests, 4)
	checkEqual(t, "rows", fmt.Sprint(formatIDs(p.Rows), p.MoreTargets, err), "2a 3b 4a 5a[a] <nil>")
	p, err = s.Accept(t.Context(), requests[:1], 4)
	checkEqual(t, "rows", fmt.Sprint(formatIDs(p.Rows), p.MoreTargets, err), "1a 6a[] <nil>")
}

// TestOtherTargetsDoNotHoldUpRows: rows whose target equals a served target only by the collation
// are not fetched, do not stand in the way of later rows, and are not a reason to fetch again.
func TestOtherTargetsDoNotHoldUpRows(t *testing.T) {
	for _, column := range []string{"", ", ADD priority int"} {
		table := newSQLTable(t)
		table.exec(t, "ALTER TABLE jobs MODIFY target varchar(50) NOT NULL"+column)
		insertRows(t, table, Waiting, "a ", "A", "a ", "a")
		s := table.open(t, "d", longLease)
		p := accept(t, s, 2, "a")
		checkEqual(t, "rows", fmt.Sprint(formatIDs(p.Rows), p.MoreTargets), "4a[]")
	}
}

func TestTableWithoutIndexWorks(t *testing.T) {
	for _, change := range []string{"DROP KEY status_target_idx", "ALTER KEY status_target_idx IGNORED"} {
		t.Run(change, func(t *testing.T) {
			table := newSQLTable(t)
			table.exec(t, "ALTER TABLE jobs "+change)
			insertRows(t, table, Waiting, "b", "a", "a")
			s := table.open(t, "d", longLease)
			checkEqual(t, "rows", formatIDs(accept(t, s, 1, "a").Rows), "2a")
			if !strings.Contains(table.log.String(), "no index") {
				t.Errorf("no warning: %s", table.log)
			}
		})
	}
}

// TestTableWithoutTransactionsIsReported: a daemon says that a table has no transactions.
func TestTableWithoutTransactionsIsReported(t *testing.T) {
	table := newSQLTable(t)
	for engine, want := range map[string]bool{"MyISAM": true, "Aria": true, "InnoDB": false} {
		table.exec(t, "ALTER TABLE jobs ENGINE="+engine)
		table.log.Reset()
		table.open(t, "d", longLease)
		if strings.Contains(table.log.String(), `"engine":"`+engine+`"`) != want {
			t.Errorf("%s: the log says: %s", engine, table.log)
		}
	}
}

// TestLockedRowsDelayNoOther: while another client keeps some rows locked, other rows are not
// delayed.
func TestLockedRowsDelayNoOther(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a", "a", "b")
	s := table.open(t, "d", longLease)
	lock := func(id int64) *sql.Tx {
		t.Helper()
		tx, err := table.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("SELECT id FROM jobs WHERE id = ? FOR UPDATE", id); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	tx := lock(2)
	start := time.Now()
	p := accept(t, s, 5, "a", "b")
	checkEqual(t, "rows", formatIDs(p.Rows), "1a 3a 4b")
	checkEqual(t, "busy", p.BusyTargets, "[a]")
	tx.Rollback()
	tx = lock(3)
	w := write(t, s, Batch{StartRows: []int64{1, 3, 4}})
	checkEqual(t, "busy", w.BusyRows, "[3]")
	checkEqual(t, "lost", w.LostRows, "map[]")
	if elapsed := time.Since(start); elapsed >= 5*time.Second { // a wait for a lock would take lockTimeout
		t.Errorf("took %s", elapsed)
	}
	tx.Rollback()
	checkEqual(t, "busy", write(t, s, Batch{StartRows: []int64{3}}).BusyRows, "[]")
	checkEqual(t, "statuses", formatStatuses(t, table, 4), "running waiting running running")
	checkEqual(t, "rows", formatIDs(accept(t, s, 5, "a").Rows), "2a")
}

// TestLockedClaimDelaysNoOther: the end of many rows does not wait for a locked claim on another
// row: the server finds the claims by id, and does not walk the table.
func TestLockedClaimDelaysNoOther(t *testing.T) {
	table := newSQLTable(t)
	const rows = 200
	insertRows(t, table, Waiting, slices.Repeat([]string{"a"}, rows)...)
	s := table.open(t, "d", longLease)
	accept(t, s, rows, "a")
	var b Batch
	for id := int64(1); id <= rows; id += 2 {
		b.StartRows = append(b.StartRows, id)
		b.FinishRows = append(b.FinishRows, Result{ID: id, OK: true})
	}
	write(t, s, Batch{StartRows: b.StartRows})
	tx, err := table.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("SELECT id FROM jobs_claims WHERE id = 100 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // less than a wait for a lock
	defer cancel()
	w, err := s.Write(ctx, Batch{FinishRows: b.FinishRows})
	checkEqual(t, "written", fmt.Sprint(w.LostRows, w.BusyRows, w.FailedRows, err), "map[] [] map[] <nil>")
	checkEqual(t, "claims", table.claimCount(t), rows/2)
}

// TestDeadlocksWithOtherClients: other clients and daemons lock the same rows in opposite
// orders.
func TestDeadlocksWithOtherClients(t *testing.T) {
	table := newSQLTable(t)
	const n = 40
	for id := int64(1); id <= n; id++ {
		table.insert(t, storetest.Record{Row: Row{ID: id, Target: "a"}, Status: Manual})
	}
	s := table.open(t, "d", longLease)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		deadlocks := 0
		for ctx.Err() == nil {
			tx, err := table.db.Begin()
			if err != nil {
				break
			}
			for id := int64(n) - rand.Int64N(n/2); id > 0 && err == nil; id -= 1 + rand.Int64N(n) {
				_, err = tx.Exec("UPDATE jobs SET time_created = time_created + 1 WHERE id = ?", id)
			}
			if IsNumber(err, 1213) {
				deadlocks++
			}
			tx.Rollback()
		}
		done <- deadlocks
	}()
	for range 50 {
		var ids []int64
		for id := int64(1); id <= n; id++ {
			ids = append(ids, id)
		}
		answers, err := s.AcceptManual(t.Context(), ids, func(string) bool { return true })
		for err != nil && IsNumber(err, 1213) { // ten deadlocks one after the other
			answers, err = s.AcceptManual(t.Context(), ids, func(string) bool { return true })
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if !a.WasAccepted {
				t.Fatalf("%+v", a)
			}
		}
		for len(ids) > 0 {
			ids = write(t, s, Batch{ReturnRows: ids}).BusyRows
		}
	}
	stop()
	t.Logf("%d deadlocks", <-done)
}

func TestStoreSurvivesServerRestarts(t *testing.T) {
	server := mariadbtest.New(t, "--innodb-flush-log-at-trx-commit=1")
	table := newTableOn(t, server)
	insertRows(t, table, Waiting, "a", "a", "a", "a", "a")
	s := table.open(t, "d", longLease)
	kill := func() {
		t.Helper()
		rows, err := table.db.Query("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> 'Daemon'")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id int64
			rows.Scan(&id)
			table.db.Exec(fmt.Sprint("KILL ", id))
		}
	}
	retry := func(name string, f func() error) {
		t.Helper()
		for deadline := time.Now().Add(45 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			err := f()
			if err == nil {
				return
			}
			if !IsAway(err) {
				t.Fatalf("%s: %v", name, err)
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: still %v", name, err)
			}
		}
	}
	kill()
	var p Page
	retry("accept", func() (err error) { p, err = s.Accept(t.Context(), wantRows("a"), 3); return err })
	checkEqual(t, "rows", formatIDs(p.Rows), "1a 2a 3a")
	server.Stop()
	if _, err := s.Write(t.Context(), Batch{StartRows: []int64{1}}); !IsAway(err) {
		t.Fatalf("with the server down: %v", err)
	}
	if err := s.Renew(t.Context()); !IsAway(err) {
		t.Fatalf("with the server down: %v", err)
	}
	if err := server.Launch(); err != nil {
		t.Fatal(err)
	}
	retry("write", func() error { _, err := s.Write(t.Context(), Batch{StartRows: []int64{1, 2, 3}}); return err })
	retry("renew", func() error { return s.Renew(t.Context()) })
	server.Kill()
	if err := server.Launch(); err != nil {
		t.Fatal(err)
	}
	retry("write", func() error { _, err := s.Write(t.Context(), Batch{FinishRows: []Result{{ID: 1}}}); return err })
	checkEqual(t, "statuses", formatStatuses(t, table, 5), "done running running waiting waiting")
}

func TestReadOnlyServerIsAway(t *testing.T) {
	server := mariadbtest.New(t)
	table := newTableOn(t, server)
	insertRows(t, table, Waiting, "a")
	server.Exec(t, table.name, "CREATE USER d@localhost; GRANT ALL ON "+table.name+".* TO d@localhost; CREATE USER d@'127.0.0.1'; GRANT ALL ON "+table.name+".* TO d@'127.0.0.1'")
	opt := table.options("d")
	opt.MySQL.User = "d"
	s := register(t, table.openWith(t, opt))
	server.Exec(t, "", "SET GLOBAL read_only = 1")
	if _, err := s.Accept(t.Context(), wantRows("a"), 3); !IsAway(err) {
		t.Fatalf("%v", err)
	}
	server.Exec(t, "", "SET GLOBAL read_only = 0")
	checkEqual(t, "rows", formatIDs(accept(t, s, 3, "a").Rows), "1a")
}

// TestLockedAccountIsAway: an administrator locks the daemon's account for a while. This is not the fault of
// the rows that cannot be written meanwhile. At the start it is a mistake in the configuration.
func TestLockedAccountIsAway(t *testing.T) {
	server := mariadbtest.New(t)
	table := newTableOn(t, server)
	insertRows(t, table, Waiting, "a")
	forBoth := func(format string) {
		for _, host := range []string{"localhost", "127.0.0.1"} {
			server.Exec(t, table.name, fmt.Sprintf(format, "d@'"+host+"'"))
		}
	}
	forBoth("CREATE USER %[1]s; GRANT ALL ON " + table.name + ".* TO %[1]s")
	opt := table.options("d")
	opt.MySQL.User = "d"
	s := register(t, table.openWith(t, opt))
	for lock, unlock := range map[string]string{
		"ALTER USER %s ACCOUNT LOCK":    "ALTER USER %s ACCOUNT UNLOCK",
		"ALTER USER %s PASSWORD EXPIRE": "ALTER USER %s PASSWORD EXPIRE NEVER; SET PASSWORD FOR %[1]s = ''",
	} {
		forBoth(lock)
		s.(*SQL).DB().SetMaxIdleConns(0) // a connection that is open stays allowed
		if _, err := s.Accept(t.Context(), wantRows("a"), 3); !IsAway(err) {
			t.Errorf("%s: %v", lock, err)
		}
		if again, err := Open(t.Context(), opt); err == nil {
			again.Close()
			t.Errorf("%s: a daemon has started", lock)
		} else if IsAway(err) {
			t.Errorf("%s: a daemon waits at its start: %v", lock, err)
		}
		forBoth(unlock)
	}
	checkEqual(t, "rows", formatIDs(accept(t, s, 3, "a").Rows), "1a")
}

func TestStoreWorksWithoutCompanionTable(t *testing.T) {
	table := newSQLTable(t)
	user := "u" + table.name
	for _, host := range []string{"localhost", "127.0.0.1"} {
		table.exec(t, fmt.Sprintf("CREATE USER %s@'%s'; GRANT SELECT, UPDATE ON %s.jobs TO %[1]s@'%[2]s'", user, host, table.name))
		t.Cleanup(func() { table.db.Exec(fmt.Sprintf("DROP USER %s@'%s'", user, host)) })
	}
	opt := table.options("d")
	opt.MySQL.User = user
	s := register(t, table.openWith(t, opt))
	if s.HasClaimsTable() || strings.Count(table.log.String(), "companion") != 1 {
		t.Fatalf("%s", table.log)
	}
	insertRows(t, table, Waiting, "a", "a", "a")
	table.insert(t, storetest.Record{Row: Row{ID: 4, Target: "a"}, Status: Manual})
	accept(t, s, 5, "a")
	if a, err := s.AcceptManual(t.Context(), []int64{4}, func(string) bool { return true }); err != nil || !a[0].WasAccepted {
		t.Fatalf("%v %v", a, err)
	}
	write(t, s, Batch{StartRows: []int64{1, 4}, ReturnRows: []int64{2}})
	write(t, s, Batch{FinishRows: []Result{{ID: 1, OK: true}, {ID: 4, OK: true}}})
	checkEqual(t, "statuses", formatStatuses(t, table, 4), "done waiting accepted done")
	for _, err := range []error{s.Renew(t.Context()), s.Leave(t.Context())} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if owners, err := s.Owners(t.Context()); err != nil || owners != nil {
		t.Fatalf("%v %v", owners, err)
	}
}

// TestUnansweredCommits puts rows into the states that a commit whose answer is lost
// may leave behind.
func TestUnansweredCommits(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a", "a", "a")
	table.insert(t, storetest.Record{Row: Row{ID: 5, Target: "a"}, Status: Manual})
	s := table.open(t, "d", longLease).(*SQL)
	// Rows 1 and 2 were accepted, row 3 was not: none of the three stays in doubt.
	accept(t, s, 2, "a")
	if _, err := s.AcceptManual(t.Context(), []int64{5}, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	s.MarkDoubtful([]Row{{ID: 1}, {ID: 2}, {ID: 3}}, false)
	s.MarkDoubtful([]Row{{ID: 5}}, true)
	p := accept(t, s, 1, "a")
	checkEqual(t, "rows", formatIDs(p.Rows), "1a 2a 3a")
	checkEqual(t, "the manual row is for the client to ask for again", table.read(t, 5).Status, Manual)
	checkEqual(t, "claims", table.claimCount(t), 3)
	write(t, s, Batch{StartRows: []int64{1, 2, 3}})
	b := Batch{FinishRows: []Result{{ID: 1}, {ID: 2}}}
	write(t, s, b)
	s.RememberWritten(b)
	checkEqual(t, "lost when written again", write(t, s, Batch{StartRows: []int64{3}, FinishRows: append(b.FinishRows, Result{ID: 3})}).LostRows, "map[]")
	checkEqual(t, "lost without doubt", len(write(t, s, b).LostRows), 2)
}

// TestUnansweredCommitOfBegunRows: a row began in a commit whose answer was lost. The row is then
// accepted, and does not run. A row that began in another commit is left alone.
func TestUnansweredCommitOfBegunRows(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a", "a")
	s := table.open(t, "d", longLease).(*SQL)
	p, err := s.Accept(t.Context(), []AcceptRequest{{"a", 3, 2}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, Batch{StartRows: []int64{3}, StartedAt: p.Rows[0].StartedAt + 1})
	s.MarkDoubtful([]Row{p.Rows[0], {ID: 3, StartedAt: p.Rows[0].StartedAt}}, false)
	rows, err := s.Resolve(t.Context())
	checkEqual(t, "rows", fmt.Sprintln(formatIDs(rows), rows[0].StartedAt, err), "1a 0 <nil>\n")
	checkEqual(t, "statuses", formatStatuses(t, table, 3), "accepted running running")
	checkEqual(t, "time_started", table.read(t, 1).TimeStarted, 0)
	checkEqual(t, "lost", write(t, s, Batch{StartRows: []int64{1}, StartedAt: 5, FinishRows: []Result{{ID: 2}, {ID: 3}}}).LostRows, "map[]")
}

// TestConcurrentResolvesReturnRowsOnce: otherwise the daemon would take the row's end for its loss.
func TestConcurrentResolvesReturnRowsOnce(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a")
	s := table.open(t, "d", longLease).(*SQL)
	s.MarkDoubtful(accept(t, s, 1, "a").Rows, false)
	defer func() { failpoint.Hook = nil }()
	failpoint.Hook = func(point string) {
		if point == "resolve: after commit" {
			failpoint.Hook = nil
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if rows, err := s.Resolve(ctx); !IsAway(err) {
				t.Errorf("%s %v", formatIDs(rows), err)
			}
		}
	}
	rows, err := s.Resolve(t.Context())
	checkEqual(t, "rows", fmt.Sprintln(formatIDs(rows), err), "1a <nil>\n")
}

// TestFailedAcceptKeepsClaim: a row runs here, and is set back to waiting by hand. A failed accept of
// the row does not forget its claim, so the next accept does not begin the row. Otherwise the end of
// its first run would count as the end of the second.
func TestFailedAcceptKeepsClaim(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a")
	s := table.open(t, "d", longLease)
	accept(t, s, 1, "a")
	write(t, s, Batch{StartRows: []int64{1}, StartedAt: 5})
	table.exec(t, "UPDATE jobs SET status = 'waiting'")
	table.exec(t, "RENAME TABLE jobs_claims TO elsewhere")
	if p, err := s.Accept(t.Context(), []AcceptRequest{{"a", 1, 1}}, 1); err == nil {
		t.Fatalf("accepted without claims: %v", p)
	}
	table.exec(t, "RENAME TABLE elsewhere TO jobs_claims")
	p, err := s.Accept(t.Context(), []AcceptRequest{{"a", 1, 1}}, 1)
	checkEqual(t, "rows", fmt.Sprint(formatIDs(p.Rows), err), "1a<nil>")
	checkEqual(t, "statuses", formatStatuses(t, table, 1), "accepted")
	checkEqual(t, "lost", write(t, s, Batch{FinishRows: []Result{{ID: 1, OK: true, Started: 5}}}).LostRows, "map[1:row was made waiting again, or replaced, and this daemon has accepted it anew]")
	write(t, s, Batch{StartRows: []int64{1}, StartedAt: 7})
	checkEqual(t, "lost", write(t, s, Batch{FinishRows: []Result{{ID: 1, OK: true, Started: 7}}}).LostRows, "map[]")
}

// TestUncertainAcceptDoubtsOnlyItself: it is unknown whether an accept of a row was committed. A
// later accept of the row is not in doubt. If both accepts are in doubt, resolving the earlier
// accept leaves the later accept in doubt.
func TestUncertainAcceptDoubtsOnlyItself(t *testing.T) {
	table := newSQLTable(t)
	table.insert(t, storetest.Record{Row: Row{ID: 1, Target: "a"}, Status: Manual})
	table.insert(t, storetest.Record{Row: Row{ID: 2, Target: "a"}, Status: Waiting})
	s := register(t, table.open(t, "d", longLease)).(*SQL)
	s.MarkDoubtful([]Row{{ID: 1}}, true) // the commit did not take effect, and the client repeats its request
	if _, err := s.AcceptManual(t.Context(), []int64{1}, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	rows, err := s.Resolve(t.Context())
	checkEqual(t, "rows", fmt.Sprintln(formatIDs(rows), err), " <nil>\n")
	checkEqual(t, "lost", write(t, s, Batch{StartRows: []int64{1}}).LostRows, "map[]")

	s.MarkDoubtful([]Row{{ID: 2}}, false)
	end := s.BlockResolve(2)
	checkEqual(t, "rows", formatIDs(accept(t, s, 1, "a").Rows), "2a")
	s.MarkDoubtful([]Row{{ID: 2}}, false)
	end()
	rows, err = s.Resolve(t.Context())
	checkEqual(t, "rows", fmt.Sprintln(formatIDs(rows), err), "2a <nil>\n")
}

// TestUncertainAcceptIsNoOwnClaim: while the outcome of an accept is unknown, its rows are not among the
// daemon's claims. Otherwise they would be settled as rows that it does not know, if a lock on the table
// keeps Resolve from finding out for long.
func TestUncertainAcceptIsNoOwnClaim(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a")
	s := register(t, table.open(t, "d", longLease)).(*SQL)
	rows := accept(t, s, 2, "a").Rows
	s.MarkDoubtful(rows[:1], false)
	claims, err := s.OwnClaims(t.Context())
	checkEqual(t, "own", fmt.Sprintln(claims, err), "[2] <nil>\n")
	rows, err = s.Resolve(t.Context())
	checkEqual(t, "rows", fmt.Sprintln(formatIDs(rows), err), "1a <nil>\n")
	claims, err = s.OwnClaims(t.Context())
	slices.Sort(claims)
	checkEqual(t, "own", fmt.Sprintln(claims, err), "[1 2] <nil>\n")
}

// TestFailedCommitMayHaveTakenEffect: whatever error a server, or a proxy in front of it, returns for
// a commit, the commit may have taken effect, unless the error is a deadlock.
func TestFailedCommitMayHaveTakenEffect(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a")
	table.insert(t, storetest.Record{Row: Row{ID: 3, Target: "a"}, Status: Manual})
	s := register(t, table.open(t, "d", longLease)).(*SQL)
	var answer atomic.Pointer[error]
	s.AnswerCommits(&answer)
	for _, number := range []uint16{1105, 1026, 1062, 1180, 1205, 3100, 65000} {
		var err error = &mysql.MySQLError{Number: number, Message: "unknown error"}
		answer.Store(&err)
		_, acceptErr := s.Accept(t.Context(), wantRows("a"), 1)
		_, manualErr := s.AcceptManual(t.Context(), []int64{3}, func(string) bool { return true })
		b := Batch{ReturnRows: []int64{1, 2}}
		if !IsAway(acceptErr) || !IsAway(manualErr) {
			t.Errorf("%d: %v, %v", number, acceptErr, manualErr)
		}
		answer.Store(nil)
		checkEqual(t, "rows", formatIDs(accept(t, s, 2, "a").Rows), "1a 2a")
		checkEqual(t, "the manual row", table.read(t, 3).Status, Manual)
		answer.Store(&err)
		if _, err := s.Write(t.Context(), b); !IsAway(err) {
			t.Errorf("%d: %v", number, err)
		}
		answer.Store(nil)
		checkEqual(t, "lost", write(t, s, b).LostRows, "map[]")
		checkEqual(t, "claims", table.claimCount(t), 0)
	}
}

// TestRoundTrips: neither further targets nor the claims cost a round trip of their own.
func TestRoundTrips(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "b", "c", "a", "b", "c")
	s := register(t, table.open(t, "d", longLease)).(*SQL)
	var count atomic.Int64
	s.CountStatements(&count)
	if _, err := s.Accept(t.Context(), []AcceptRequest{{Target: "a", Rows: 1}, {Target: "b", Rows: 1}, {Target: "c", Rows: 1}}, 10); err != nil {
		t.Fatal(err)
	}
	// The rows, our lease, changes and claims.
	checkEqual(t, "round trips to accept", count.Swap(0), int64(3))
	write(t, s, Batch{StartRows: []int64{1, 2, 3}, StartedAt: 5})
	count.Store(0)
	write(t, s, Batch{FinishRows: []Result{{ID: 1, OK: true, Stdout: "x", Started: 5}, {ID: 2, OK: true, Stdout: "x", Started: 5}, {ID: 3, Started: 5}}})
	checkEqual(t, "round trips to write", count.Load(), int64(3)) // the locks, changes and claims, the written texts
	checkEqual(t, "statuses", formatStatuses(t, table, 6), "done done done waiting waiting waiting")
}

// TestRowChangesOnlyWithClaim: a row changes only together with its claim. If the server interrupts the
// deletion of the claim, the row stays as it was.
func TestRowChangesOnlyWithClaim(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a")
	s := register(t, table.open(t, "d", longLease)).(*SQL)
	var skip atomic.Bool
	s.SkipDeletes(&skip)
	accept(t, s, 2, "a")
	write(t, s, Batch{StartRows: []int64{1}, StartedAt: 5})
	b := Batch{FinishRows: []Result{{ID: 1, OK: true, Started: 5}}, ReturnRows: []int64{2}}
	skip.Store(true)
	if _, err := s.Write(t.Context(), b); !IsAway(err) {
		t.Errorf("got %v", err)
	}
	checkEqual(t, "claims", table.claimCount(t), 2)
	checkEqual(t, "statuses", formatStatuses(t, table, 2), "running accepted")
	skip.Store(false)
	checkEqual(t, "lost", write(t, s, b).LostRows, "map[]")
	checkEqual(t, "claims", table.claimCount(t), 0)
	checkEqual(t, "statuses", formatStatuses(t, table, 2), "done waiting")
}

// TestRefusedRowsDelayNoOther: a trigger that refuses some rows does not keep other rows from being
// accepted.
func TestRefusedRowsDelayNoOther(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a", "b", "a")
	table.exec(t, `CREATE TRIGGER picky BEFORE UPDATE ON jobs FOR EACH ROW
		IF NEW.id = 2 AND NEW.status = 'accepted' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF`)
	s := table.open(t, "d", longLease)
	p := accept(t, s, 10, "a", "b")
	checkEqual(t, "rows", formatIDs(p.Rows), "1a 3b 4a")
	checkEqual(t, "statuses", formatStatuses(t, table, 4), "accepted waiting accepted accepted")
	table.insert(t, storetest.Record{Row: Row{ID: 5, Target: "a"}, Status: Waiting})
	checkEqual(t, "rows that come", formatIDs(accept(t, s, 10, "a").Rows), "5a")
	checkEqual(t, "claims", table.claimCount(t), 4)
}

// TestRefusedStartsArePassedOver: a row whose start was refused is not accepted again at once.
func TestRefusedStartsArePassedOver(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a")
	s := table.open(t, "d", longLease)
	accept(t, s, 2, "a")
	table.exec(t, `CREATE TRIGGER picky BEFORE UPDATE ON jobs FOR EACH ROW
		IF NEW.id = 2 AND NEW.status = 'running' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF`)
	w, err := s.Write(t.Context(), Batch{StartRows: []int64{1, 2}})
	checkEqual(t, "refused", fmt.Sprint(w.FailedRows, err), "map[2:Error 1644 (45000): not this one] <nil>")
	checkEqual(t, "lost", write(t, s, Batch{RequeueRows: []int64{2}}).LostRows, "map[]")
	checkEqual(t, "statuses", formatStatuses(t, table, 2), "running waiting")
	checkEqual(t, "rows", formatIDs(accept(t, s, 2, "a").Rows), "")
}

// TestRefusedRowsSettleNoOtherLate: a trigger that refuses the end of some rows does not keep the other rows
// of a dead incarnation from being settled. The refused rows are settled once the trigger is gone.
func TestRefusedRowsSettleNoOtherLate(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a", "a", "a")
	s, other := table.open(t, "d", longLease), table.open(t, "other", longLease)
	accept(t, s, 10, "a")
	write(t, s, Batch{StartRows: []int64{1, 2, 3}})
	table.exec(t, `CREATE TRIGGER picky BEFORE UPDATE ON jobs FOR EACH ROW
		IF NEW.id = 2 AND NEW.status = 'done' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF`)
	settle := func() string {
		sum, err := other.Settle(t.Context(), Owner{Token: s.Token(), Name: "d", Heartbeat: 1}, OrphanPolicy{Reason: "died"})
		return fmt.Sprintln(sum.RequeuedCount, sum.FailedRows, sum.Targets, sum.Incomplete, err)
	}
	checkEqual(t, "settled", settle(), "1 map[1:a 3:a] [a] true Error 1644 (45000): not this one\n")
	checkEqual(t, "statuses", formatStatuses(t, table, 4), "done running done waiting")
	checkEqual(t, "claims", table.claimCount(t), 1)
	table.exec(t, "DROP TRIGGER picky")
	checkEqual(t, "settled then", settle(), "0 map[2:a] [] false <nil>\n")
	checkEqual(t, "statuses then", formatStatuses(t, table, 4), "done done done waiting")
	checkEqual(t, "claims then", table.claimCount(t), 0)
}

// TestUnsettledRowsKeepResults: a row that could not be settled when its daemon lost its lease still ends with
// its result.
func TestUnsettledRowsKeepResults(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a")
	s, other := table.open(t, "d", longLease), table.open(t, "other", longLease)
	accept(t, s, 10, "a")
	write(t, s, Batch{StartRows: []int64{1, 2}, StartedAt: 5})
	table.exec(t, `CREATE TRIGGER picky BEFORE UPDATE ON jobs FOR EACH ROW
		IF NEW.id = 2 AND NEW.status = 'done' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF`)
	owner := Owner{Token: s.Token(), Name: "d", Heartbeat: 1}
	if _, err := other.Settle(t.Context(), owner, OrphanPolicy{Reason: DeathReason("d")}); err == nil {
		t.Error("all rows are settled")
	}
	register(t, s)
	finish := Batch{FinishRows: []Result{{ID: 1, OK: true, Started: 5}, {ID: 2, OK: true, Started: 5}}}
	w, err := s.Write(t.Context(), finish)
	checkEqual(t, "lost and refused", fmt.Sprint(w.LostRows, len(w.FailedRows), err), "map[] 1 <nil>")
	table.exec(t, "DROP TRIGGER picky")
	checkEqual(t, "lost then", write(t, s, finish).LostRows, "map[1:claim is gone]")
	checkEqual(t, "statuses", formatStatuses(t, table, 2), "done done")
	checkEqual(t, "result", *table.read(t, 2).Result, "ok")
	checkEqual(t, "claims", table.claimCount(t), 0)
}

// TestRestoredRowsKeepResults: a running row that is only accepted in a restored table still ends with its
// result. A row whose status was reset, and that was accepted again, runs again.
func TestRestoredRowsKeepResults(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a", "a")
	s := table.open(t, "d", longLease)
	accept(t, s, 3, "a")
	write(t, s, Batch{StartRows: []int64{1, 2, 3}})
	table.exec(t, "UPDATE jobs SET status = 'accepted', time_started = 0 WHERE id IN (1, 2)")
	table.exec(t, "UPDATE jobs SET status = 'waiting', time_started = 0 WHERE id = 3")
	accept(t, s, 1, "a")
	lostRows := write(t, s, Batch{FinishRows: []Result{{ID: 1, OK: true}, {ID: 3, OK: true}}, RequeueRows: []int64{2}}).LostRows
	checkEqual(t, "lost", lostRows, "map[3:row was made waiting again, or replaced, and this daemon has accepted it anew]")
	checkEqual(t, "statuses", formatStatuses(t, table, 3), "done waiting accepted")
	write(t, s, Batch{StartRows: []int64{3}})
	checkEqual(t, "lost then", write(t, s, Batch{FinishRows: []Result{{ID: 3, OK: true}}}).LostRows, "map[]")
	checkEqual(t, "statuses then", formatStatuses(t, table, 3), "done waiting done")
	checkEqual(t, "claims", table.claimCount(t), 0)
}

// TestStatementReplication uses a server that refuses READ COMMITTED.
func TestStatementReplication(t *testing.T) {
	table := newTableOn(t, mariadbtest.New(t, "--log-bin=log", "--binlog-format=STATEMENT", "--server-id=1"))
	insertRows(t, table, Waiting, "a", "a")
	table.insert(t, storetest.Record{Row: Row{ID: 3, Target: "a"}, Status: Manual})
	s := table.open(t, "d", longLease)
	accept(t, s, 5, "a")
	if a, err := s.AcceptManual(t.Context(), []int64{3}, func(string) bool { return true }); err != nil || !a[0].WasAccepted {
		t.Fatal(a, err)
	}
	write(t, s, Batch{StartRows: []int64{1, 3}, ReturnRows: []int64{2}})
	write(t, s, Batch{FinishRows: []Result{{ID: 1, OK: true, Stdout: "x"}, {ID: 3}}})
	checkEqual(t, "statuses", formatStatuses(t, table, 3), "done waiting done")
}

func TestFailedBatchIsWrittenRowByRow(t *testing.T) {
	table := newSQLTable(t)
	_, err := table.db.Exec("UPDATE jobs SET status = 'done' WHERE id = 1; UPDATE nowhere SET x = 1; UPDATE jobs SET id = 2 WHERE id = 1")
	if !IsNumber(err, 1146) {
		t.Fatalf("the driver hides the error of a later statement: %v", err)
	}
}

func TestErrorsAreClassified(t *testing.T) {
	for number, want := range map[uint16]mariadb.Kind{1213: mariadb.Conflict, 1205: mariadb.Conflict, 1290: mariadb.Away, 1114: mariadb.Away, 1927: mariadb.Away,
		2013: mariadb.Away, 9001: mariadb.Away, 3032: mariadb.Away, 1064: mariadb.Refused, 1366: mariadb.Refused} {
		if got := KindOf(fmt.Errorf("x: %w", &mysql.MySQLError{Number: number})); got != want {
			t.Errorf("%d: %d", number, got)
		}
	}
	if KindOf(mysql.ErrInvalidConn) != mariadb.Away || KindOf(context.DeadlineExceeded) != mariadb.Away {
		t.Error("a lost connection is not the statement's fault")
	}
}
