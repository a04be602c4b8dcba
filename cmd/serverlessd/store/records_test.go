package store_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/cmd/internal/failpoint"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

func TestDeleteAndRetry(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ctx := t.Context()
		a, b := entry("a-x", "1"), entry("a-x", strings.Repeat("2", 5000))
		ingest(t, s, a, b)
		checkError(t, s.Retry(ctx, a.ID), ErrNotDone)
		if err := s.Delete(ctx, a.ID); err != nil {
			t.Fatal(err)
		}
		checkError(t, s.Delete(ctx, a.ID), ErrUnknown)
		run := take(t, s, testSysid, "a-x", 1, testTTL)[0]
		checkError(t, s.Delete(ctx, b.ID), ErrRunning)
		checkError(t, s.Retry(ctx, b.ID), ErrRunning)
		end(t, s, testSysid, RunEnd{Run: run.Run, Action: EndArchive, Code: job.CodeFailed, Status: 400, Data: []byte("no")})
		checkError(t, s.Delete(ctx, b.ID), ErrDone)
		if err := s.Retry(ctx, b.ID); err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: 2, Waiting: 1, Deleted: 1})
		r := get(t, s, b.ID)
		checkEqual(t, "as new", []any{r.State, r.Tries, r.Code, r.Status, r.Done.IsZero()}, []any{job.Waiting, 0, "", 0, true})
		got := take(t, s, testSysid, "a-x", 1, testTTL)[0]
		checkEqual(t, "run again", []any{len(got.Payload), got.Tries, got.Age}, []any{5000, 1, time.Duration(0)})
	})
}

// TestDeletedTypes: no count is kept of a type whose last job was deleted, so that clients cannot
// fill the store with the counts of types.
func TestDeletedTypes(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		a, b := entry("a-x", "1"), entry("a-x", "2")
		ingest(t, s, a, b)
		for _, id := range []job.ID{a.ID, b.ID} {
			if err := s.Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		counted, err := s.Counts(t.Context(), "")
		checkEqual(t, "counts", []any{counted, err}, []any{map[string]Counts{"a-*": {Added: 2, Deleted: 2}}, nil})
	})
}

// TestAgeOfNoJob: jobs that were taken since they were counted do not look old.
func TestAgeOfNoJob(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "1"))
		counted, err := s.Counts(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		take(t, s, testSysid, "a-x", 1, testTTL)
		if err := s.Divide(t.Context(), counted); err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "counts", counted["a-x"], Counts{Added: 1, Waiting: 1})
	})
}

// TestHastenMakesJobDueNow: Hasten makes a delayed job, or a job that waits for its next try, due
// now, and keeps its number of tries. Other jobs are not changed.
func TestHastenMakesJobDueNow(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ctx := t.Context()
		lateEntry, retriedEntry := entry("a-x", "late"), entry("a-x", "again")
		lateEntry.Due = time.Now().Add(testTTL)
		ingest(t, s, lateEntry, retriedEntry)
		run := take(t, s, testSysid, "a-x", 2, testTTL)
		checkEqual(t, "due", payloads(run), "again")
		checkError(t, s.Hasten(ctx, retriedEntry.ID), ErrRunning)
		end(t, s, testSysid, RunEnd{Run: run[0].Run, Action: EndRetry, Code: job.CodeRetry, Status: 100, Delay: testTTL})
		checkEqual(t, "before", counts(t, s, "a-x"), Counts{Added: 2, Deferred: 2})
		for _, id := range []job.ID{lateEntry.ID, retriedEntry.ID, retriedEntry.ID} {
			if err := s.Hasten(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		checkEqual(t, "after", counts(t, s, "a-x"), Counts{Added: 2, Waiting: 2})
		r := get(t, s, retriedEntry.ID)
		checkEqual(t, "as it was, but for its time", []any{r.State, r.Tries, r.Code}, []any{job.Waiting, 1, job.CodeRetry})
		run = take(t, s, testSysid, "a-x", 2, testTTL)
		checkEqual(t, "taken", len(run), 2)
		end(t, s, testSysid, RunEnd{Run: run[0].Run, Action: EndArchive, Code: job.CodeOK, Status: 200})
		checkError(t, s.Hasten(ctx, run[0].ID), ErrDone)
		checkError(t, s.Hasten(ctx, ids.Next(1)), ErrUnknown)
	})
}

func TestJobsOfAClient(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		var entries []journal.Entry
		for i := range 6 {
			entries = append(entries, entry([]string{"a-x", "a-y", "a.b-x"}[i%3], fmt.Sprint(i)))
		}
		ingest(t, s, entries...)
		list := func(q Query) string {
			t.Helper()
			q.Client = "a"
			if q.Limit == 0 {
				q.Limit = 9
			}
			records, _, err := s.Jobs(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, r := range records {
				for i, e := range entries {
					if e.ID == r.ID {
						fmt.Fprint(&b, i)
					}
				}
			}
			return b.String()
		}
		checkEqual(t, "all", list(Query{}), "4310")
		checkEqual(t, "of a type", list(Query{Type: "x"}), "30")
		checkEqual(t, "first", list(Query{Limit: 2}), "43")
		checkEqual(t, "after", list(Query{After: entries[3].ID}), "10")
		for _, j := range take(t, s, testSysid, "a-x", 9, testTTL) {
			end(t, s, testSysid, RunEnd{Run: j.Run, Action: EndArchive, Code: job.CodeFailed, Status: 400})
		}
		checkEqual(t, "waiting", list(Query{State: job.Waiting}), "41")
		checkEqual(t, "failed", list(Query{State: job.Failed}), "30")
		checkEqual(t, "running", list(Query{State: job.Running}), "")
		n, more, err := s.RetryAll(t.Context(), Query{Client: "a", State: job.Failed, Limit: 1})
		checkEqual(t, "retried", []any{n, more, err}, []any{1, true, nil})
		n, more, err = s.RetryAll(t.Context(), Query{Client: "a", State: job.Failed, Limit: 9})
		checkEqual(t, "retried", []any{n, more, err}, []any{1, false, nil})
		checkEqual(t, "waiting", list(Query{State: job.Waiting}), "4310")
		countsOfA, err := s.Counts(t.Context(), "a")
		checkEqual(t, "counts of a client", []any{len(countsOfA), err}, []any{2, nil})
	})
}

// TestUncommittedRetryAll: a bulk retry that fails before its commit has retried no job, and says so.
func TestUncommittedRetryAll(t *testing.T) {
	defer func() { failpoint.Hook = nil }()
	eachStore(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "1"))
		for _, j := range take(t, s, testSysid, "a-x", 9, testTTL) {
			end(t, s, testSysid, RunEnd{Run: j.Run, Action: EndArchive, Code: job.CodeFailed, Status: 400})
		}
		ctx, cancel := context.WithCancel(t.Context())
		failpoint.Hook = func(point string) {
			if point == "retry all: before commit" {
				cancel()
			}
		}
		n, _, err := s.RetryAll(ctx, Query{Client: "a", State: job.Failed, Limit: 9})
		failpoint.Hook = nil
		checkEqual(t, "retried, and whether it failed", []any{n, err != nil}, []any{0, true})
		checkEqual(t, "failed jobs", counts(t, s, "a-x").Failed, int64(1))
	})
}

// TestBoundedLists: a list in which few jobs match reads a limited number of rows, and the next
// request continues from there until all rows have been read. Running jobs are found at once.
func TestBoundedLists(t *testing.T) {
	PartRows(t, 4) // a list examines 20 rows
	eachStore(t, func(t *testing.T, s Store) {
		if err := s.Reserve(t.Context(), testSysid, testTTL); err != nil { // the row of the sysid, which is not a job
			t.Fatal(err)
		}
		var entries []journal.Entry
		for i := range 45 {
			entries = append(entries, entry([]string{"a-x", "b-x"}[i%2], fmt.Sprint(i)))
		}
		ingest(t, s, entries[0], entries[1])
		for _, j := range take(t, s, testSysid, "a-x", 1, testTTL) {
			end(t, s, testSysid, RunEnd{Run: j.Run, Action: EndArchive, Code: job.CodeFailed, Status: 400})
		}
		checkEqual(t, "taken", len(take(t, s, testSysid, "b-x", 1, testTTL)), 1)
		ingest(t, s, entries[2:]...)
		list := func(q Query) (foundIDs string, queryCount int) {
			t.Helper()
			for q.Limit = 30; ; queryCount++ {
				records, next, err := s.Jobs(t.Context(), q)
				if err != nil || queryCount > 50 {
					t.Fatal(queryCount, err)
				}
				for _, r := range records {
					foundIDs += fmt.Sprint(slices.IndexFunc(entries, func(e journal.Entry) bool { return e.ID == r.ID })) + " "
				}
				if q.After = next; next == "" {
					return foundIDs, queryCount + 1
				}
			}
		}
		for _, q := range []Query{{State: job.Failed}, {Client: "a", State: job.Failed}, {Client: "a", Type: "x", State: job.Failed}} {
			foundIDs, queryCount := list(q)
			checkEqual(t, "failed", []any{foundIDs, queryCount}, []any{"0 ", 3})
		}
		for _, q := range []Query{{State: job.Running}, {Client: "b", State: job.Running}} {
			foundIDs, queryCount := list(q)
			checkEqual(t, "running", []any{foundIDs, queryCount}, []any{"1 ", 1})
		}
		foundIDs, queryCount := list(Query{})
		checkEqual(t, "all", []any{len(strings.Fields(foundIDs)), strings.HasPrefix(foundIDs, "44 43 "), strings.HasSuffix(foundIDs, " 1 0 "), queryCount}, []any{45, true, true, 3})
		foundIDs, _ = list(Query{Client: "b"})
		checkEqual(t, "of a client", []any{len(strings.Fields(foundIDs)), strings.HasPrefix(foundIDs, "43 41 ")}, []any{22, true})
		n, more, err := s.RetryAll(t.Context(), Query{Client: "a", State: job.Failed, Limit: 9})
		checkEqual(t, "retried, wherever it is", []any{n, more, err}, []any{1, false, nil})
		n, more, err = s.RetryAll(t.Context(), Query{Client: "a", State: job.Failed, Limit: 9})
		checkEqual(t, "retried", []any{n, more, err}, []any{0, false, nil})
	})
}

// TestPayloadIsKeptUnchanged: a job's payload is kept unchanged, whatever its size.
func TestPayloadIsKeptUnchanged(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		long := strings.Repeat("2\x00", 3000)
		a, b, emptyEntry := entry("a-x", "1\xff"), entry("a-x", long), entry("a-x", "")
		ingest(t, s, a, b, emptyEntry)
		for _, j := range take(t, s, testSysid, "a-x", 3, testTTL) {
			if j.NoPayload || j.Payload == nil {
				t.Errorf("the payload of %s is lost", j.ID)
			}
			end(t, s, testSysid, RunEnd{Run: j.Run, Action: EndArchive, Code: job.CodeOK, Status: 200, Data: []byte("done")})
		}
		for _, c := range []struct {
			id   job.ID
			want string
		}{{a.ID, "1\xff"}, {b.ID, long}, {emptyEntry.ID, ""}} {
			rec, got, err := s.Payload(t.Context(), c.id, math.MaxInt)
			if err != nil || got == nil || string(got) != c.want || rec.Jobtype != "a-x" {
				t.Errorf("%.20q, %v, %v", got, rec, err)
			}
			rec, got, err = s.Payload(t.Context(), c.id, 1000)
			checkEqual(t, "a long one is not read", []any{rec.Bytes, got == nil, err}, []any{len(c.want), len(c.want) > 1000, nil})
			rec, got, err = s.Result(t.Context(), c.id, 3)
			checkEqual(t, "its result", []any{rec.DataBytes, got == nil, err}, []any{4, true, nil})
			r := get(t, s, c.id)
			checkEqual(t, "bytes", []any{r.Bytes, r.DataBytes}, []any{len(c.want), 4})
		}
		_, _, err := s.Payload(t.Context(), ids.Next(1), math.MaxInt)
		checkError(t, err, ErrUnknown)
	})
}
