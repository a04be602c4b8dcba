package store_test

import (
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	. "gloom/cmd/jobd/store"
)

func TestOutputsFitColumns(t *testing.T) {
	for _, c := range []struct {
		name, alter string
		out         string
		check       func(string) bool
	}{
		{"utf8", "", "a😀b\x80", func(s string) bool { return s == "a\uFFFDb\uFFFD" }},
		{"utf8mb4", "MODIFY stdout mediumtext CHARACTER SET utf8mb4", "a😀b", func(s string) bool { return s == "a😀b" }},
		{"latin1", "MODIFY stdout mediumtext CHARACTER SET latin1", "aé€Жb", func(s string) bool { return s == "aé€?b" }},
		{"cp1251", "MODIFY stdout mediumtext CHARACTER SET cp1251", "aЖ😀b", func(s string) bool { return s == "aЖ?b" }},
		{"utf16", "MODIFY stdout varchar(20) CHARACTER SET utf16", "aЖ😀" + strings.Repeat("x", 50), func(s string) bool { return strings.HasPrefix(s, "aЖ😀xx") }},
		{"bytes", "MODIFY stdout mediumblob", "a😀b", func(s string) bool { return s == "a😀b" }},
		{"text", "MODIFY stdout text", strings.Repeat("€", 40_000), func(s string) bool {
			return len(s) <= 65535 && len(s) > 65400 && strings.HasSuffix(s, CutMark)
		}},
		{"varchar", "MODIFY stdout varchar(10)", strings.Repeat("€", 40), func(s string) bool { return strings.HasPrefix(s, "€€€") }},
		{"mediumtext", "", strings.Repeat("x", 17<<20), func(s string) bool { return len(s) > 1<<20 && strings.HasSuffix(s, CutMark) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := newSQLTable(t)
			if c.alter != "" {
				table.exec(t, "ALTER TABLE jobs "+c.alter)
			}
			insertRows(t, table, Waiting, "a", "a")
			s := table.open(t, "d", longLease)
			accept(t, s, 5, "a")
			write(t, s, Batch{StartRows: []int64{1, 2}})
			w := write(t, s, Batch{FinishRows: []Result{{ID: 1, OK: true, Stdout: c.out, Stderr: c.out}, {ID: 2, Stdout: "other"}}})
			checkEqual(t, "lost", w.LostRows, "map[]")
			checkEqual(t, "statuses", formatStatuses(t, table, 2), "done done")
			if got := *table.read(t, 1).Stdout; !c.check(got) {
				t.Fatalf("%d bytes: %.60q", len(got), got)
			}
			checkEqual(t, "the other row", *table.read(t, 2).Stdout, "other")
		})
	}
}

func TestOutputIsCutToPacket(t *testing.T) {
	table := newTableOn(t, mariadbtest.New(t, "--max-allowed-packet=1M"))
	insertRows(t, table, Waiting, "a", "a", "a", "a")
	s := table.open(t, "d", longLease)
	accept(t, s, 5, "a")
	write(t, s, Batch{StartRows: []int64{1, 2, 3, 4}})
	quotes := strings.Repeat("'\\", 600_000)
	w := write(t, s, Batch{FinishRows: []Result{
		{ID: 1, Stdout: strings.Repeat("x", 3<<20), Stderr: "why"},
		{ID: 2, Stdout: quotes, Stderr: quotes},
		{ID: 3, Stdout: strings.Repeat("x", 900_000), Stderr: ""},
		{ID: 4, Stdout: "", Stderr: strings.Repeat("😀\n", 300_000)},
	}})
	checkEqual(t, "lost", w.LostRows, "map[]")
	checkEqual(t, "statuses", formatStatuses(t, table, 4), "done done done done")
	if r := table.read(t, 1); len(*r.Stdout) < 900_000 || *r.Stderr != StdoutCut+"why" {
		t.Errorf("row 1: %d bytes, %q", len(*r.Stdout), *r.Stderr)
	}
	if r := table.read(t, 2); len(*r.Stdout) < 100_000 || len(*r.Stderr) < 100_000 {
		t.Errorf("row 2: %d and %d bytes", len(*r.Stdout), len(*r.Stderr))
	}
	if r := table.read(t, 3); len(*r.Stdout) != 900_000 {
		t.Errorf("row 3: %d bytes", len(*r.Stdout))
	}
}

// TestOutputIsCutToAlteredColumn: an output is cut with a mark, or its characters replaced, also right after
// the columns were altered. The user's trigger runs once for each row.
func TestOutputIsCutToAlteredColumn(t *testing.T) {
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a", "a", "a")
	s := table.open(t, "d", longLease)
	table.exec(t, "CREATE TABLE ends (id INT)")
	table.exec(t, "CREATE TRIGGER note_end AFTER UPDATE ON jobs FOR EACH ROW INSERT INTO ends SELECT NEW.id FROM DUAL WHERE NEW.status = 'done'")
	accept(t, s, 5, "a")
	write(t, s, Batch{StartRows: []int64{1, 2, 3}})
	long := strings.Repeat("x", 100_000)
	finish := func(id int64, stdout string) {
		t.Helper()
		if w := write(t, s, Batch{FinishRows: []Result{{ID: id, OK: true, Stdout: stdout, Stderr: "why"}}}); len(w.FailedRows)+len(w.LostRows) > 0 {
			t.Fatal(w)
		}
	}
	finish(1, "short")
	table.exec(t, "ALTER TABLE jobs MODIFY stdout text")
	finish(2, long)
	if r := table.read(t, 2); len(*r.Stdout) > 65535 || !strings.HasSuffix(*r.Stdout, CutMark) || *r.Stderr != StdoutCut+"why" {
		t.Errorf("%d bytes that end with %q, and stderr %q", len(*r.Stdout), (*r.Stdout)[len(*r.Stdout)-30:], *r.Stderr)
	}
	table.exec(t, "ALTER TABLE jobs MODIFY stdout mediumtext CHARACTER SET latin1")
	finish(3, "aé€Жb")
	checkEqual(t, "in latin1", *table.read(t, 3).Stdout, "aé€?b")
	checkEqual(t, "ends that a trigger has noted", table.queryCount(t, "SELECT COUNT(*) FROM ends"), 3)
}

func TestRefusedOutputIsShortened(t *testing.T) {
	table := newSQLTable(t)
	table.exec(t, `CREATE TRIGGER guard BEFORE UPDATE ON jobs FOR EACH ROW
		IF LENGTH(NEW.stdout) > 5000 OR NEW.stderr = 'never' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'too much'; END IF`)
	insertRows(t, table, Waiting, "a", "a", "a")
	s := table.open(t, "d", longLease)
	accept(t, s, 5, "a")
	write(t, s, Batch{StartRows: []int64{1, 2, 3}})
	w, err := s.Write(t.Context(), Batch{FinishRows: []Result{
		{ID: 1, OK: true, Stdout: "fine"},
		{ID: 2, OK: true, Stdout: strings.Repeat("x", 50_000)},
		{ID: 3, OK: true, Stderr: "never"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "statuses", formatStatuses(t, table, 3), "done done done")
	checkEqual(t, "failed", len(w.FailedRows), 0)
	if n := len(*table.read(t, 2).Stdout); n == 0 || n > 5000 {
		t.Errorf("%d bytes", n)
	}
	table.exec(t, "DROP TRIGGER guard")
	table.exec(t, `CREATE TRIGGER guard BEFORE UPDATE ON jobs FOR EACH ROW
		IF NEW.status = 'done' AND NEW.id = 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END IF`)
	table.exec(t, "UPDATE jobs SET status = 'waiting' WHERE id <> 3")
	accept(t, s, 5, "a")
	write(t, s, Batch{StartRows: []int64{1, 2}})
	w, err = s.Write(t.Context(), Batch{FinishRows: []Result{{ID: 1, Stdout: "x"}, {ID: 2}}})
	if err != nil || w.FailedRows[1] == nil || len(w.FailedRows) != 1 {
		t.Fatalf("%v %v", w, err)
	}
	checkEqual(t, "statuses", formatStatuses(t, table, 2), "running done")
}

// TestNoOutputInColumnOfJSON: a row without output ends at once.
func TestNoOutputInColumnOfJSON(t *testing.T) {
	table := newSQLTable(t)
	table.exec(t, "ALTER TABLE jobs MODIFY stdout JSON")
	insertRows(t, table, Waiting, "a")
	opt := table.options("d")
	opt.ConfirmAfter, opt.Lease = time.Hour, longLease
	s := register(t, table.openWith(t, opt))
	accept(t, s, 5, "a")
	write(t, s, Batch{StartRows: []int64{1}})
	w, err := s.Write(t.Context(), Batch{FinishRows: []Result{{ID: 1, Stderr: "why"}}})
	if err != nil || len(w.FailedRows) > 0 {
		t.Fatalf("%v %v", w.FailedRows, err)
	}
	firstRow := table.read(t, 1)
	checkEqual(t, "stdout", firstRow.Stdout, (*string)(nil))
	checkEqual(t, "stderr", *firstRow.Stderr, "why")
}

// TestColumnOfJSON: a column of JSON refuses an empty text, too.
func TestColumnOfJSON(t *testing.T) {
	table := newSQLTable(t)
	table.exec(t, "ALTER TABLE jobs MODIFY stdout JSON")
	insertRows(t, table, Waiting, "a", "a", "a")
	s := table.open(t, "d", longLease)
	accept(t, s, 5, "a")
	write(t, s, Batch{StartRows: []int64{1, 2, 3}})
	w, err := s.Write(t.Context(), Batch{FinishRows: []Result{{ID: 1, OK: true, Stdout: "[1]"}, {ID: 2, Stderr: "why"}, {ID: 3, OK: true}}})
	if err != nil || len(w.FailedRows) > 0 {
		t.Fatalf("%v %v", w.FailedRows, err)
	}
	checkEqual(t, "statuses", formatStatuses(t, table, 3), "done done done")
	firstRow, secondRow := table.read(t, 1), table.read(t, 2)
	checkEqual(t, "stdout", *firstRow.Stdout, "[1]")
	checkEqual(t, "stdout that was refused", secondRow.Stdout, (*string)(nil))
	checkEqual(t, "stderr", *secondRow.Stderr, "why")
}

func TestFieldsOfRowsAreRead(t *testing.T) {
	table := newSQLTable(t)
	table.readsFields = true
	table.exec(t, `ALTER TABLE jobs ADD name varchar(50) CHARACTER SET utf8mb4, ADD price decimal(10,2), ADD big bigint unsigned,
		ADD f double, ADD raw varbinary(10), ADD at datetime, ADD priority int, ADD `+"`or``der`"+` int`)
	table.exec(t, `INSERT INTO jobs (id, target, status, name, price, big, f, raw, at, priority, `+"`or``der`"+`)
		VALUES (7, 'a', 'waiting', 'q"😀<', 12.50, 18446744073709551615, 1.5, x'ff00', '2020-01-02 03:04:05', -3, 9)`)
	table.exec(t, `INSERT INTO jobs (id, target, status, priority) VALUES (8, 'a', 'manual', 4)`)
	s := table.open(t, "d", longLease)
	p := accept(t, s, 5, "a")
	checkEqual(t, "priority", p.Rows[0].Priority, -3)
	checkEqual(t, "fields", string(p.Rows[0].Fields), `{"id":7,"name":"q\"😀<","price":12.50,"big":18446744073709551615,"f":1.5,"raw":"/wA=","at":"2020-01-02 03:04:05","priority":-3,"or`+"`"+`der":9}`)
	answers, err := s.AcceptManual(t.Context(), []int64{8}, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "fields", string(answers[0].Row.Fields), `{"id":8,"name":null,"price":null,"big":null,"f":null,"raw":null,"at":null,"priority":4,"or`+"`"+`der":null}`)
	checkEqual(t, "priority", answers[0].Row.Priority, 4)
}
