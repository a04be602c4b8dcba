package store_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gloom/cmd/jobd/mariadbtest"
	. "gloom/cmd/jobd/store"
)

// TestPassingStates has a server refuse for a while what it takes again later. What
// had not been written is then, with all of its output.
func TestPassingStates(t *testing.T) {
	server := mariadbtest.New(t, "--log-bin=log", "--binlog-format=ROW", "--server-id=1")
	output := strings.Repeat("x", 50_000)
	for _, state := range []struct{ name, begin, end string }{
		{"a trigger that fails", "CREATE TRIGGER g BEFORE UPDATE ON jobs FOR EACH ROW SIGNAL SQLSTATE '45001' SET MYSQL_ERRNO = 1690, MESSAGE_TEXT = 'no'", "DROP TRIGGER g"},
		{"a column that is missing", "ALTER TABLE jobs CHANGE stdout other mediumtext", "ALTER TABLE jobs CHANGE other stdout mediumtext"},
		{"a new column", "ALTER TABLE jobs ADD owner int NOT NULL", "SELECT 1"},
		{"a new column of the claims", "ALTER TABLE jobs_claims ADD owner2 int NOT NULL", "SELECT 1"},
		{"no table", "RENAME TABLE jobs TO away", "RENAME TABLE away TO jobs"},
		{"no claims", "RENAME TABLE jobs_claims TO away", "RENAME TABLE away TO jobs_claims"},
		{"a statement log", "SET GLOBAL binlog_format = 'STATEMENT'", "SELECT 1"},
		{"its end", "SET GLOBAL binlog_format = 'STATEMENT'", "SET GLOBAL binlog_format = 'ROW'"},
	} {
		t.Run(state.name, func(t *testing.T) {
			t.Cleanup(func() { server.Exec(t, "", "SET GLOBAL binlog_format = 'ROW'") })
			table := newTableOn(t, server)
			fill(t, table, Waiting, "a", "a")
			s := table.open(t, "d", long).(*SQL)
			accept(t, s, 1, "a")
			write(t, s, Batch{Start: []int64{1}})
			table.exec(t, state.begin)
			s.DB().SetMaxIdleConns(0) // the settings of the server hold for new connections
			s.DB().SetMaxIdleConns(8)
			b := Batch{Finish: []Final{{ID: 1, OK: true, Stdout: output}}}
			w, err := s.Write(t.Context(), b)
			if len(w.Lost) > 0 {
				t.Fatalf("lost: %v", w.Lost)
			}
			t.Logf("meanwhile: %v %v", err, w.Failed)
			_, acceptErr := s.Accept(t.Context(), wants("a"), 1)
			table.exec(t, state.end)
			if err != nil || len(w.Failed) > 0 {
				equal(t, "lost", write(t, s, b).Lost, "map[]")
			}
			if r := table.get(t, 1); r.Status != Done || *r.Stdout != output {
				t.Fatalf("%s, %d bytes", r.Status, len(*r.Stdout))
			}
			if acceptErr != nil {
				accept(t, s, 1, "a")
			}
			equal(t, "row 2", table.get(t, 2).Status, Accepted)
		})
	}
}

// TestDiscardedTablespace has the file of the table be exchanged.
func TestDiscardedTablespace(t *testing.T) {
	server := mariadbtest.New(t)
	table := newTableOn(t, server)
	fill(t, table, Waiting, "a")
	s := table.open(t, "d", long)
	accept(t, s, 1, "a")
	write(t, s, Batch{Start: []int64{1}})
	var dir string
	if err := table.db.QueryRow("SELECT @@datadir").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, table.name)
	discarded(t, table.db, dir, func() {
		b := Batch{Finish: []Final{{ID: 1, OK: true, Stdout: strings.Repeat("x", 50_000)}}}
		w, err := s.Write(t.Context(), b)
		if err == nil && len(w.Failed) != 1 {
			t.Errorf("written without a tablespace: %v", w)
		}
		if strings.Contains(table.log.String(), "less output") {
			t.Errorf("output is cut: %s", table.log)
		}
	})
	equal(t, "lost", write(t, s, Batch{Finish: []Final{{ID: 1, OK: true, Stdout: strings.Repeat("x", 50_000)}}}).Lost, "map[]")
	if r := table.get(t, 1); r.Status != Done || len(*r.Stdout) != 50_000 {
		t.Fatalf("%s", r.Status)
	}
}

// discarded takes the file of the table away while f runs.
func discarded(t *testing.T, db *sql.DB, dir string, f func()) {
	t.Helper()
	do := func(query string) {
		t.Helper()
		if _, err := db.Exec(query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	conn, err := db.Conn(t.Context()) // which has the lock
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

// TestReadOnlyAtTheStart: a daemon waits for a server that is read-only, and does
// not go without recovery for the rest of its life.
func TestReadOnlyAtTheStart(t *testing.T) {
	server := mariadbtest.New(t)
	table := newTableOn(t, server)
	server.Exec(t, table.name, "CREATE USER d@localhost; GRANT ALL ON "+table.name+".* TO d@localhost; CREATE USER d@'127.0.0.1'; GRANT ALL ON "+table.name+".* TO d@'127.0.0.1'")
	opt := table.options("d")
	opt.MySQL.User = "d"
	server.Exec(t, "", "SET GLOBAL read_only = 1")
	if s, err := Open(t.Context(), opt); !Away(err) {
		t.Fatalf("%v %v", s, err)
	}
	server.Exec(t, "", "SET GLOBAL read_only = 0")
	if !table.openWith(t, opt).Claims() {
		t.Fatal("there is no companion table")
	}
}
