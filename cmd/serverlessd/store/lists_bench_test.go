package store_test

import (
	"fmt"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/store"
)

// makeRows makes jobs with one statement, because a million statements would take minutes. lock, dt
// and code are SQL expressions, in which i counts the jobs from 0.
func makeRows(b *testing.B, s Store, n, types int, lock, dt, code string) {
	b.Helper()
	if _, err := s.Counts(b.Context(), ""); err != nil { // makes the tables
		b.Fatal(err)
	}
	const now, limit = "'2026-01-01 00:00:00.000'", 100_000 // in a statement
	for low := 0; low < n; low += limit {
		high := min(n, low+limit) - 1
		id, from := "CONCAT('1m8', LPAD(i, 6, '0'), '-aaaaaa-00000')", fmt.Sprintf("(SELECT seq AS i FROM seq_%d_to_%d) n", low, high)
		typ := fmt.Sprintf("CONCAT('client-', LPAD(i %% %d, 4, '0'))", types)
		if IsSQLite(s) {
			id, typ = "printf('1m8%06d-aaaaaa-00000', i)", fmt.Sprintf("printf('client-%%04d', i %% %d)", types)
			from = fmt.Sprintf("(WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n)", low, high)
		}
		if err := Exec(b.Context(), s, "INSERT INTO sq_jobs (id, type, dt, `lock`, tries, create_dt, first_dt, done_dt, code, exitcode, data) SELECT "+id+", "+typ+", "+dt+", "+lock+
			", 1, "+now+", "+now+", NULL, "+code+", 200, 'a payload of the usual kind, about a hundred bytes long, and so on and on until it is as long as that' FROM "+from); err != nil {
			b.Fatal(err)
		}
	}
	if err := Exec(b.Context(), s, "INSERT INTO sq_counts (type, slot, open, running, ok, failed, abandoned, expired, deleted)"+
		" SELECT type, 0, SUM(`lock` = ''), 0, SUM(`lock` <> ''), 0, 0, 0, 0 FROM sq_jobs WHERE type <> 'queue.sysid' GROUP BY type"); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLists measures the page's queries on a store with a million jobs: lists by state, in
// which only the oldest job has the state, and a count of all jobs.
func BenchmarkLists(b *testing.B) {
	for _, kind := range []struct {
		name, lock, dt, code string
		types                int
		lists                []Query
	}{
		{"ended", "'__done'", "'3026-01-01 00:00:00.000'", "CASE WHEN i = 0 THEN 'failed' ELSE 'ok' END", 10, []Query{
			{}, {State: job.Failed}, {Client: "client", State: job.Failed}, {Client: "client", Type: "0000", State: job.Failed}, {State: job.Running}, {State: job.Waiting}, {Client: "client", Type: "0003"},
		}},
		{"deferred", "''", "'2099-01-01 00:00:00.000'", "NULL", 1, []Query{{State: job.Deferred}, {State: job.Waiting}}},
		{"waiting", "''", "'2026-01-01 00:00:00.000'", "NULL", 1000, []Query{{State: job.Waiting}}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			benchEachStore(b, func(b *testing.B, s Store) {
				makeRows(b, s, *rows, kind.types, kind.lock, kind.dt, kind.code)
				b.ResetTimer()
				for range b.N {
					for _, q := range kind.lists {
						q.Limit = 50
						q.WithLastRun = true
						start, longest, queryCount, rowCount := time.Now(), time.Duration(0), 0, 0
						for first := true; first || q.After != "" && rowCount == 0; first = false {
							at := time.Now()
							list, next, err := s.Jobs(b.Context(), q)
							if err != nil {
								b.Fatal(err)
							}
							longest, q.After = max(longest, time.Since(at)), next
							queryCount++
							rowCount += len(list)
						}
						q.After = ""
						b.Logf("%+v: %d found, %d requests, the longest took %s, all %s", q, rowCount, queryCount, longest.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
					}
					at := time.Now()
					counts, err := s.Counts(b.Context(), "")
					counted := time.Since(at)
					if err == nil {
						err = s.Divide(b.Context(), counts)
					}
					if err != nil {
						b.Fatal(err)
					}
					b.Logf("counts took %s, with those deferred %s", counted.Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
				}
			})
		})
	}
}
