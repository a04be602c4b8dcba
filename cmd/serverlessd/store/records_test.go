package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

func TestDeleteAndRetry(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		ctx := t.Context()
		a, b := entry("a-x", "1"), entry("a-x", strings.Repeat("2", 5000))
		ingest(t, s, a, b)
		fails(t, s.Retry(ctx, a.ID), ErrNotDone)
		if err := s.Delete(ctx, a.ID); err != nil {
			t.Fatal(err)
		}
		fails(t, s.Delete(ctx, a.ID), ErrUnknown)
		run := take(t, s, sysid, "a-x", 1, ttl)[0]
		fails(t, s.Delete(ctx, b.ID), ErrRunning)
		fails(t, s.Retry(ctx, b.ID), ErrRunning)
		end(t, s, sysid, Ending{Run: run.Run, Fate: Archive, Code: job.CodeFailed, Status: 400, Data: []byte("no")})
		fails(t, s.Delete(ctx, b.ID), ErrDone)
		if err := s.Retry(ctx, b.ID); err != nil {
			t.Fatal(err)
		}
		equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 2, Waiting: 1, Deleted: 1})
		r := get(t, s, b.ID)
		equal(t, "as new", []any{r.State, r.Tries, r.Code, r.Status, r.Done.IsZero()}, []any{job.Waiting, 0, "", 0, true})
		got := take(t, s, sysid, "a-x", 1, ttl)[0]
		equal(t, "run again", []any{len(got.Payload), got.Tries, got.Age}, []any{5000, 1, time.Duration(0)})
	})
}

func TestJobsOfAClient(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		var all []journal.Entry
		for i := range 6 {
			all = append(all, entry([]string{"a-x", "a-y", "a.b-x"}[i%3], fmt.Sprint(i)))
		}
		ingest(t, s, all...)
		list := func(q Query) string {
			t.Helper()
			q.Client = "a"
			if q.Limit == 0 {
				q.Limit = 9
			}
			found, err := s.Jobs(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, r := range found {
				for i, e := range all {
					if e.ID == r.ID {
						fmt.Fprint(&b, i)
					}
				}
			}
			return b.String()
		}
		equal(t, "all", list(Query{}), "4310")
		equal(t, "of a type", list(Query{Type: "x"}), "30")
		equal(t, "first", list(Query{Limit: 2}), "43")
		equal(t, "after", list(Query{After: all[3].ID}), "10")
		for _, j := range take(t, s, sysid, "a-x", 9, ttl) {
			end(t, s, sysid, Ending{Run: j.Run, Fate: Archive, Code: job.CodeFailed, Status: 400})
		}
		equal(t, "waiting", list(Query{State: job.Waiting}), "41")
		equal(t, "failed", list(Query{State: job.Fault}), "30")
		equal(t, "running", list(Query{State: job.Running}), "")
		n, more, err := s.RetryAll(t.Context(), Query{Client: "a", State: job.Fault, Limit: 1})
		equal(t, "retried", []any{n, more, err}, []any{1, true, nil})
		n, more, err = s.RetryAll(t.Context(), Query{Client: "a", State: job.Fault, Limit: 9})
		equal(t, "retried", []any{n, more, err}, []any{1, false, nil})
		equal(t, "waiting", list(Query{State: job.Waiting}), "4310")
		some, err := s.Counts(t.Context(), "a")
		equal(t, "counts of a client", []any{len(some), err}, []any{2, nil})
	})
}
