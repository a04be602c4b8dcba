package store_test

import (
	"strings"
	"testing"
	"time"

	. "gloom/cmd/jobd/store"
)

// TestUnclaimableRowsStayWaiting: rows whose ids would mean a daemon in the companion table, or do not
// fit into an int64, stay waiting and are logged. Row 0 runs like any other.
func TestUnclaimableRowsStayWaiting(t *testing.T) {
	for _, kind := range []struct{ column, id string }{
		{"bigint NOT NULL", "-5"}, {"bigint unsigned NOT NULL", "18446744073709551615"}, {"int NOT NULL", "-1"},
	} {
		t.Run(kind.column, func(t *testing.T) {
			table := newSQLTable(t)
			table.exec(t, "ALTER TABLE jobs MODIFY id "+kind.column)
			table.exec(t, "INSERT INTO jobs (id, target) VALUES ("+kind.id+", 'a'), (0, 'a'), (1, 'a')")
			s, other := table.open(t, "d", time.Millisecond), table.open(t, "other", longLease)
			p := accept(t, s, 0, "a")
			checkEqual(t, "rows", formatIDs(p.Rows), "0a 1a")
			p = accept(t, s, 0, "a")
			checkEqual(t, "nothing is left, or locked", formatIDs(p.Rows)+strings.Join(p.BusyTargets, ""), "")
			write(t, s, Batch{StartRows: []int64{0}, StartedAt: 7})
			if log := table.log.String(); !strings.Contains(log, `"id":"`+kind.id+`"`) || !strings.Contains(log, "never run") {
				t.Errorf("log: %s", log)
			}
			owners, err := other.Owners(t.Context())
			if err != nil || len(owners) != 1 || owners[0].Name != "d" {
				t.Fatalf("%+v %v", owners, err)
			}
			sum, err := other.Settle(t.Context(), owners[0], OrphanPolicy{Reason: "died", FinishedAt: 9})
			if err != nil || sum.RequeuedCount != 1 || len(sum.FailedRows) != 1 {
				t.Errorf("%+v %v", sum, err)
			}
			checkEqual(t, "rows 0 and 1", table.read(t, 0).Status+" "+table.read(t, 1).Status, "done waiting")
			if counts, err := s.(*SQL).Counts(t.Context(), Waiting, []string{"a"}); err != nil || len(counts) != 1 {
				t.Errorf("counts %+v, %v", counts, err)
			}
			checkEqual(t, "the strange one waits", table.queryCount(t, "SELECT COUNT(*) FROM jobs WHERE id = "+kind.id+" AND status = 'waiting'"), 1)
		})
	}
}
