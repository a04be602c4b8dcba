package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

// testFailure tests a temporary failure of a store: no job is set aside during the failure, and all
// jobs are accepted after it.
func testFailure(t *testing.T, address string, begin, end func()) {
	t.Helper()
	piece := []journal.Entry{entry("a-x", "short"), entry("a-x", strings.Repeat("long", 1000)), entry("a-y", strings.Repeat("middle", 20))}
	put := func() error {
		s, err := Open(address)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, err = s.Ingest(t.Context(), journal.Range{Segment: "passing", To: 1}, piece, time.Now)
		return err
	}
	s := openStore(t, address)
	ingest(t, s, entry("a-x", "before"))
	s.Close()
	begin()
	for range 2 {
		err := put()
		var refused *RefusedError
		if errors.As(err, &refused) || !errors.Is(err, ErrAway) {
			t.Errorf("while it lasts: %T %v", err, err)
		}
		t.Log(err)
	}
	end()
	if err := put(); err != nil {
		t.Errorf("when it is over: %v", err)
	}
	checkEqual(t, "a-x", counts(t, openStore(t, address), "a-x"), Counts{Added: 3, Waiting: 3})
}

func TestTemporaryFaults(t *testing.T) {
	for _, c := range []struct{ name, begin, end string }{
		{"a new column", "ALTER TABLE sq_jobs ADD COLUMN extra INT NOT NULL", "ALTER TABLE sq_jobs DROP COLUMN extra"},
		{"a column that is gone", "ALTER TABLE sq_jobs RENAME COLUMN create_dt TO made", "ALTER TABLE sq_jobs RENAME COLUMN made TO create_dt"},
		{"shorter payloads", "ALTER TABLE sq_jobs MODIFY data VARBINARY(10)", "ALTER TABLE sq_jobs MODIFY data VARBINARY(1024)"},
		{"no long payloads", "ALTER TABLE sq_data MODIFY data TINYBLOB NOT NULL", "ALTER TABLE sq_data MODIFY data LONGBLOB NOT NULL"},
		{"a check", "ALTER TABLE sq_jobs ADD CONSTRAINT short CHECK (LENGTH(data) < 10)", "ALTER TABLE sq_jobs DROP CONSTRAINT short"},
		{"a trigger", "CREATE TRIGGER no BEFORE INSERT ON sq_jobs FOR EACH ROW SIGNAL SQLSTATE '45000'", "DROP TRIGGER no"},
		{"a discarded tablespace", "RENAME TABLE sq_data TO old_data; CREATE TABLE sq_data LIKE old_data; ALTER TABLE sq_data DISCARD TABLESPACE",
			"DROP TABLE sq_data; RENAME TABLE old_data TO sq_data"},
		{"a view", "RENAME TABLE sq_jobs TO away; CREATE VIEW sq_jobs AS SELECT * FROM away WHERE data IS NULL WITH CHECK OPTION", "DROP VIEW sq_jobs; RENAME TABLE away TO sq_jobs"},
	} {
		t.Run("mariadb "+c.name, func(t *testing.T) {
			server := mariadbtest.Shared(t)
			name := server.Database(t)
			do := func(list string) func() {
				return func() {
					for text := range strings.SplitSeq(list, "; ") {
						server.Exec(t, name, text)
					}
				}
			}
			testFailure(t, fmt.Sprintf("mysql://root@127.0.0.1:%d/%s", server.Port(), name), do(c.begin), do(c.end))
		})
	}
	t.Run("mariadb binlog", func(t *testing.T) {
		args := func(format string) []string {
			return []string{"--log-bin", "--binlog-format=" + format, "--server-id=1"}
		}
		server := mariadbtest.New(t, args("MIXED")...)
		restart := func(format string) func() {
			return func() {
				server.Stop()
				server.SetArgs(args(format)...)
				launch(t, server)
			}
		}
		testFailure(t, address(t, server), restart("STATEMENT"), restart("MIXED"))
	})
	for _, c := range []struct{ name, begin, end string }{
		{"a column that is gone", "ALTER TABLE sq_jobs RENAME COLUMN create_dt TO made", "ALTER TABLE sq_jobs RENAME COLUMN made TO create_dt"},
		{"a trigger", "CREATE TRIGGER no BEFORE INSERT ON sq_jobs BEGIN SELECT RAISE(ABORT, 'no'); END", "DROP TRIGGER no"},
		{"a trigger on long payloads", "CREATE TRIGGER no BEFORE INSERT ON sq_data BEGIN SELECT RAISE(FAIL, 'no'); END", "DROP TRIGGER no"},
		{"another unique key", "CREATE UNIQUE INDEX one ON sq_jobs (tries)", "DROP INDEX one"},
		{"a view", "ALTER TABLE sq_data RENAME TO away; CREATE VIEW sq_data AS SELECT * FROM away", "DROP VIEW sq_data; ALTER TABLE away RENAME TO sq_data"},
	} {
		t.Run("sqlite "+c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			do := func(list string) func() {
				return func() {
					db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
					if err == nil {
						_, err = db.Exec(list)
						db.Close()
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			testFailure(t, "sqlite:"+path, do(c.begin), do(c.end))
		})
	}
	t.Run("sqlite damage", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "store.db")
		var content []byte
		write := func(b []byte) {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		testFailure(t, "sqlite:"+path, func() {
			content, _ = os.ReadFile(path)
			spoilt := slices.Clone(content)
			for at := 4096; at < len(spoilt); at += 4096 {
				copy(spoilt[at:], strings.Repeat("\xee", 64))
			}
			write(spoilt)
		}, func() { write(content) })
	})
}

// TestTooLargeDuringFault: a job that is too large is not set aside while the store also
// refuses other jobs.
func TestTooLargeDuringFault(t *testing.T) {
	server := mariadbtest.New(t, "--max-allowed-packet=1M")
	name := server.Database(t)
	s := openStore(t, fmt.Sprintf("mysql://root@127.0.0.1:%d/%s", server.Port(), name))
	ingest(t, s, entry("a-x", "before"))
	largeEntry := entry("a-x", strings.Repeat("x", 3<<20))
	ingestLarge := func() error {
		_, err := s.Ingest(t.Context(), journal.Range{Segment: "s", To: 1}, []journal.Entry{largeEntry}, time.Now)
		return err
	}
	server.Exec(t, name, "CREATE TRIGGER no BEFORE INSERT ON sq_data FOR EACH ROW SIGNAL SQLSTATE '45000'")
	var refused *RefusedError
	if err := ingestLarge(); errors.As(err, &refused) || !errors.Is(err, ErrAway) {
		t.Errorf("%T %v", err, err)
	}
	server.Exec(t, name, "DROP TRIGGER no")
	if err := ingestLarge(); !errors.As(err, &refused) || !slices.Equal(refused.IDs, []job.ID{largeEntry.ID}) {
		t.Errorf("%T %v", err, err)
	}
}
