package store_test

import (
	"fmt"
	"strings"
	"testing"

	"gloom/cmd/jobd/overview"
	. "gloom/cmd/jobd/store"
)

// readCount returns how many index entries and rows the server has read so far.
func (s *sqlTable) readCount(t *testing.T) (n int64) {
	t.Helper()
	if err := s.db.QueryRow(`SELECT SUM(CAST(VARIABLE_VALUE AS UNSIGNED)) FROM information_schema.GLOBAL_STATUS
		WHERE VARIABLE_NAME IN ('HANDLER_READ_FIRST', 'HANDLER_READ_KEY', 'HANDLER_READ_LAST', 'HANDLER_READ_NEXT', 'HANDLER_READ_PREV', 'HANDLER_READ_RND', 'HANDLER_READ_RND_NEXT')`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func newReader(t *testing.T, table *sqlTable) Reader {
	t.Helper()
	s := table.openWith(t, table.options("d"))
	return s
}

func formatCounts(list []overview.Count) string {
	var words []string
	for _, c := range list {
		suffix := ""
		if c.More {
			suffix = "+"
		}
		words = append(words, fmt.Sprintf("%s %d%s", c.Target, c.Rows, suffix))
	}
	return strings.Join(words, ", ")
}

// TestCostOfReadsIsBounded: the figures that are read for operators are correct, and reading them
// has a bounded cost, however many rows there are.
func TestCostOfReadsIsBounded(t *testing.T) {
	table := newSQLTable(t)
	table.exec(t, `INSERT INTO jobs (id, target, status, time_created) SELECT seq, ELT(1 + seq % 3, 'mail', 'Mail', 'pdf'), 'waiting', 1700000000 + seq FROM seq_1_to_60000`)
	table.exec(t, `INSERT INTO jobs (id, target, status, result, time_created, time_started, time_finished, stdout)
		SELECT seq, 'mail', 'done', IF(seq % 5000 = 0, 'fail', 'ok'), 1700000000, 1700000001, 1700000003, 'out' FROM seq_100001_to_140000`)
	table.exec(t, `INSERT INTO jobs (id, target, status, time_created, stdout, stderr) VALUES (200001, 'lonely', 'manual', 1700000000, NULL, 'e'), (200002, 'x', 'waiting', 1700000000, REPEAT('é', 100000), NULL)`)
	table.exec(t, "ANALYZE TABLE jobs")
	s := newReader(t, table)
	checkCost := func(name string, limit int64, do func()) {
		t.Helper()
		before := table.readCount(t)
		table.readCount(t) // counts as reads itself: the cost of this query is subtracted below
		ownReads := table.readCount(t)
		base := (ownReads - before) / 2
		do()
		if n := table.readCount(t) - ownReads - base; n > limit {
			t.Errorf("%s reads %d entries, more than %d", name, n, limit)
		} else {
			t.Logf("%s reads %d entries", name, n)
		}
	}
	checkCost("counting", 3*31_000, func() { // each entry once, and twice in temporary tables
		got, err := s.Counts(t.Context(), Waiting, []string{"pdf", "mail", "none"})
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "waiting", formatCounts(got), "pdf 10000+, mail 5000+, Mail 5000+, x 1")
		checkEqual(t, "oldest", got[0].Oldest.Unix(), 1700000002)
	})
	checkCost("counting by hand", 500, func() {
		got, err := s.Counts(t.Context(), Manual, nil)
		checkEqual(t, "by hand", formatCounts(got), "lonely 1")
		checkEqual(t, "error", err, nil)
	})
	list := func(q overview.Query) (ids []int64, next int64) {
		t.Helper()
		q.Limit = 3
		got, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got.Items {
			ids = append(ids, r.ID)
		}
		if got.Next != nil {
			next = *got.Next
		}
		return ids, next
	}
	checkCost("listing", 500, func() {
		ids, next := list(overview.Query{Target: "pdf", Status: Waiting})
		checkEqual(t, "first", fmt.Sprint(ids, next), "[2 5 8] 8")
		ids, next = list(overview.Query{Target: "pdf", Status: Waiting, From: 59990})
		checkEqual(t, "last", fmt.Sprint(ids, next), "[59993 59996 59999] 59999")
		ids, next = list(overview.Query{Target: "pdf", Status: Waiting, From: next})
		checkEqual(t, "end", fmt.Sprint(ids, next), "[] 0")
		ids, next = list(overview.Query{Target: "mail", Status: Done})
		checkEqual(t, "done", fmt.Sprint(ids, next), "[140000 139999 139998] 139998")
		ids, next = list(overview.Query{Target: "mail", Status: Waiting}) // the other rows are of the target Mail
		checkEqual(t, "mail", fmt.Sprint(ids, next), "[3] 4")
	})
	checkCost("looking for failures", 2*2100, func() {
		ids, next := list(overview.Query{Target: "mail", Status: Done, Result: "fail"})
		checkEqual(t, "failed", fmt.Sprint(ids, next), "[140000] 138001")
	})
	checkCost("a row", 500, func() {
		d, err := s.Detail(t.Context(), 200002)
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "stdout", fmt.Sprint(len([]rune(d.Stdout)), d.StdoutBytes, d.Stderr == ""), "65536 200000 true")
		d, err = s.Detail(t.Context(), 1<<31)
		checkEqual(t, "none", fmt.Sprint(d == nil, err), "true <nil>")
	})
}

// TestReadsOfOtherTables reads tables that differ from the usual one: the index has its columns in
// another order, or is missing; there is no time of creation; there are a priority and the user's
// columns.
func TestReadsOfOtherTables(t *testing.T) {
	table := newSQLTable(t)
	table.exec(t, `INSERT INTO jobs (id, target, status, time_created) VALUES (1, 'a', 'waiting', 5), (2, 'b', 'waiting', 5)`)
	table.exec(t, "ALTER TABLE jobs DROP KEY status_target_idx, ADD KEY other (target, status), DROP COLUMN time_created, ADD COLUMN priority INT NOT NULL DEFAULT 7, ADD COLUMN `user's` TEXT DEFAULT 'ann'")
	s := newReader(t, table)
	got, err := s.Counts(t.Context(), Waiting, []string{"a"})
	checkEqual(t, "counts", formatCounts(got), "a 1") // the target b is not served, so it is not found
	checkEqual(t, "error", err, nil)
	l, err := s.List(t.Context(), overview.Query{Target: "b", Status: Waiting, Limit: 5})
	if err != nil || len(l.Items) != 1 || *l.Items[0].Priority != 7 || l.Items[0].Created != nil || l.Next != nil {
		t.Errorf("%+v, %v", l, err)
	}
	d, err := s.Detail(t.Context(), 2)
	if err != nil || string(d.Fields) != `{"id":2,"priority":7,"user's":"ann"}` {
		t.Errorf("%s, %v", d.Fields, err)
	}
	table.exec(t, "ALTER TABLE jobs DROP KEY other")
	if _, err := newReader(t, table).Counts(t.Context(), Waiting, []string{"a"}); err == nil || !strings.Contains(err.Error(), "no index on (status, target, id)") {
		t.Errorf("without an index: %v", err)
	}
}
