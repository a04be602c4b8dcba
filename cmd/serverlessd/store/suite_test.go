package store_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/cmd/jobd/mariadbtest"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

func TestMain(m *testing.M) { os.Exit(mariadbtest.Main(m)) }

// places are where a test's stores are: each call of the function opens the same
// one again, as another daemon would.
func places(t *testing.T, f func(t *testing.T, open func() Store)) {
	opener := func(t *testing.T, address string) func() Store {
		return func() Store {
			s, err := Open(address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
	}
	t.Run("memory", func(t *testing.T) {
		var s Store
		f(t, func() Store {
			if s == nil {
				s = opener(t, "memory:")()
			}
			return s
		})
	})
	t.Run("sqlite", func(t *testing.T) { f(t, opener(t, "sqlite:"+filepath.Join(t.TempDir(), "a store?.db"))) })
	t.Run("mariadb", func(t *testing.T) { f(t, opener(t, address(t, mariadbtest.Shared(t)))) })
}

func address(t testing.TB, server *mariadbtest.Server) string {
	return fmt.Sprintf("mysql://root@/%s?socket=%s", server.Database(t), url.QueryEscape(server.Socket()))
}

// each runs a test on one of each.
func each(t *testing.T, f func(t *testing.T, s Store)) {
	places(t, func(t *testing.T, open func() Store) { f(t, open()) })
}

const (
	sysid = "0aaaaa"
	other = "zbbbbb"
	ttl   = time.Hour
	gone  = -time.Second // a ttl of locks that are expired at once
)

var ids = job.NewIDs("0seven", time.Now)

func entry(jobtype, payload string) journal.Entry {
	return journal.Entry{ID: ids.Next(1), Jobtype: jobtype, Payload: []byte(payload), Accepted: time.Now(), End: 1}
}

var segments int

// ingest adds jobs as of a segment of their own.
func ingest(t *testing.T, s Store, jobs ...journal.Entry) {
	t.Helper()
	segments++
	if _, err := s.Ingest(t.Context(), journal.Range{Segment: fmt.Sprint("s", segments), To: 1}, jobs, time.Now); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, s Store, owner, jobtype string, n int, ttl time.Duration) []Taken {
	t.Helper()
	taken, err := s.Take(t.Context(), Taking{Sysid: owner, Jobtype: jobtype, N: n, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

func payloads(taken []Taken) string {
	var list []string
	for _, j := range taken {
		list = append(list, string(j.Payload))
	}
	return strings.Join(list, " ")
}

func end(t *testing.T, s Store, owner string, ends ...Ending) []bool {
	t.Helper()
	counted, err := s.End(t.Context(), owner, ends)
	if err != nil {
		t.Fatal(err)
	}
	return counted
}

func counts(t *testing.T, s Store, jobtype string) Counts {
	t.Helper()
	all, err := s.Counts(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	c := all[jobtype]
	c.Oldest = 0
	return c
}

func get(t *testing.T, s Store, id job.ID) Record {
	t.Helper()
	r, err := s.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return *r
}

func sweep(t *testing.T, s Store, w Sweeping) Swept {
	t.Helper()
	if w.Limit == 0 {
		w.Limit = 1000
	}
	did, err := s.Sweep(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return did
}

// lax keeps everything.
var lax = Sweeping{RetryFor: ttl, KeepDone: ttl, KeepUnrun: ttl}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if got, want := fmt.Sprint(got), fmt.Sprint(want); got != want {
		t.Fatalf("%s: %.500s, want %.500s", what, got, want)
	}
}

func fails(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

func TestJobsAreTakenInOrder(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		long := strings.Repeat("long\x00\xff|", 1000)
		ingest(t, s, entry("a-x", "1"), entry("a-y", "2"), entry("a-x", long), entry("b-x", "4"), entry("a-x", "5"))
		due, next, err := s.Waiting(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "next", next, time.Duration(0))
		var types []string
		for _, d := range due {
			types = append(types, fmt.Sprint(d.Jobtype, d.Count))
		}
		slices.Sort(types)
		equal(t, "types", types, "[a-x3 a-y1 b-x1]")
		got := take(t, s, sysid, "a-x", 2, ttl)
		equal(t, "taken", payloads(got), "1 "+long)
		equal(t, "try", got[0].Tries, 1)
		equal(t, "age", got[0].Age, time.Duration(0))
		equal(t, "the rest", payloads(take(t, s, other, "a-x", 9, ttl)), "5")
		equal(t, "nothing", len(take(t, s, sysid, "a-x", 9, ttl)), 0)
		equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 3, Running: 3})
		r := get(t, s, got[0].ID)
		equal(t, "record", []any{r.Jobtype, r.State, r.Lock, r.Tries, r.Code, r.Status}, []any{"a-x", job.Running, sysid, 1, "", 0})
	})
}

func TestIngestionIsExactlyOnce(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		var jobs []journal.Entry
		for i := range 10 {
			e := entry("a-x", fmt.Sprint(i))
			e.End = int64(10 * (i + 1))
			jobs = append(jobs, e)
		}
		put := func(from, to int) {
			t.Helper()
			piece := journal.Range{Segment: "seg", From: int64(10 * from), To: int64(10 * to)}
			if _, err := s.Ingest(t.Context(), piece, jobs[from:to], time.Now); err != nil {
				t.Fatal(err)
			}
		}
		put(0, 3)
		put(0, 3)
		put(0, 5)
		put(2, 4)
		put(4, 10)
		equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 10, Waiting: 10})
		equal(t, "payloads", payloads(take(t, s, sysid, "a-x", 100, ttl)), "0 1 2 3 4 5 6 7 8 9")
		point, err := s.Ingest(t.Context(), journal.Range{Segment: "seg", From: 90, To: 100}, jobs[9:], time.Now)
		equal(t, "point", []any{point, err}, []any{100, nil})
		// A copy of the journal, under another name: what is there is not added.
		if _, err := s.Ingest(t.Context(), journal.Range{Segment: "copy", To: 100}, append(jobs, entry("a-x", "new")), time.Now); err != nil {
			t.Fatal(err)
		}
		equal(t, "counts", counts(t, s, "a-x").Added, 10+1)
	})
}

func TestDelay(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		soon, later, past, old := entry("a-x", "soon"), entry("a-x", "later"), entry("a-x", "past"), entry("a-x", "old")
		soon.Due, later.Due = time.Now().Add(30*time.Minute), time.Now().Add(20*time.Hour)
		past.Due, past.Accepted = time.Now().Add(-time.Hour), time.Now().Add(-2*time.Hour)
		old.Accepted = time.Now().AddDate(-2, 0, 0)
		ingest(t, s, soon, later, past, old)
		due, next, err := s.Waiting(t.Context())
		if err != nil || len(due) != 1 || due[0].Age < 23*time.Hour || due[0].Age > 25*time.Hour {
			t.Fatalf("%v, %v", due, err)
		}
		if next < 20*time.Minute || next > 40*time.Minute {
			t.Fatalf("next in %s", next)
		}
		equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 4, Waiting: 2, Deferred: 2})
		equal(t, "due", payloads(take(t, s, sysid, "a-x", 9, ttl)), "old past")
		equal(t, "state", get(t, s, soon.ID).State, job.Deferred)
		if due, _, err := s.Waiting(t.Context()); err != nil || len(due) != 0 {
			t.Fatalf("%v, %v", due, err)
		}
	})
}

// A host's clock says nothing about when a job is due, only its distance to the
// store's.
func TestHostClocks(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		for _, off := range []time.Duration{-240 * time.Hour, 240 * time.Hour} {
			host := time.Now().Add(off)
			e := entry("a-x", "1")
			e.Accepted, e.Due = host, host.Add(time.Hour)
			segments++
			if _, err := s.Ingest(t.Context(), journal.Range{Segment: fmt.Sprint("s", segments), To: 1}, []journal.Entry{e}, func() time.Time { return host }); err != nil {
				t.Fatal(err)
			}
			if wait := time.Until(get(t, s, e.ID).Due); wait < 50*time.Minute || wait > 70*time.Minute {
				t.Errorf("a host %s off: due in %s", off, wait)
			}
		}
	})
}

func TestEnds(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		for i := range 5 {
			ingest(t, s, entry("a-x", fmt.Sprint(i)))
		}
		got := take(t, s, sysid, "a-x", 5, ttl)
		next := Follow{ID: ids.Next(1), Jobtype: "a-next", Payload: []byte("follows")}
		ends := []Ending{
			{Run: got[0].Run, Fate: Archive, Code: job.CodeOK, Status: 200, Data: []byte("data\x00"), Follow: []Follow{next, {ID: ids.Next(1), Jobtype: "a-next"}}},
			{Run: got[1].Run, Fate: Archive, Code: job.CodeFailed, Status: 404, Truncated: true, BadLines: 3},
			{Run: got[2].Run, Fate: Again, Code: job.CodeError, Status: 503, Delay: time.Hour},
			{Run: got[3].Run, Fate: GiveBack},
			{Run: got[4].Run, Fate: Archive, Code: job.CodeAbandoned, Status: 500},
		}
		for range 2 { // as when the answer to the first was lost
			equal(t, "counted", end(t, s, sysid, ends...)[:3], "[true true true]")
			equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 5, Waiting: 1, Deferred: 1, OK: 1, Failed: 1, Abandoned: 1})
			equal(t, "follow-on jobs", counts(t, s, "a-next"), Counts{Added: 2, Waiting: 2})
		}
		r, data, err := s.Result(t.Context(), got[0].ID)
		equal(t, "result", []any{r.State, r.Status, r.Code, string(data), err}, []any{job.Succeeded, 200, "ok", "data\x00", nil})
		if since := time.Since(r.Done); since > 20*time.Minute || since < -20*time.Minute {
			t.Fatalf("done %s", r.Done)
		}
		if r.Due.Year() < 2900 {
			t.Fatalf("archived with dt %s", r.Due)
		}
		r, data, err = s.Result(t.Context(), got[1].ID)
		equal(t, "result", []any{r.State, r.Status, r.Truncated, r.BadLines, len(data), err}, []any{job.Fault, 404, true, 3, 0, nil})
		_, _, err = s.Result(t.Context(), got[2].ID)
		fails(t, err, ErrNotDone)
		_, _, err = s.Result(t.Context(), ids.Next(1))
		fails(t, err, ErrUnknown)
		r2 := get(t, s, got[2].ID)
		equal(t, "again", []any{r2.State, r2.Code, r2.Status, r2.Tries, r2.Lock}, []any{job.Deferred, "error", 503, 1, ""})
		again := take(t, s, other, "a-x", 9, ttl)
		equal(t, "given back", payloads(again), "3")
		equal(t, "its try", again[0].Tries, 1)
		equal(t, "follow-on payloads", payloads(take(t, s, other, "a-next", 9, ttl)), "follows ")
		equal(t, "abandoned", get(t, s, got[4].ID).State, job.Abandoned)
	})
}

// An old run never releases a newer one.
func TestOldRuns(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "1"))
		old := take(t, s, sysid, "a-x", 1, gone)[0]
		equal(t, "freed", sweep(t, s, lax), Swept{Freed: 1})
		r := get(t, s, old.ID)
		equal(t, "freed", []any{r.State, r.Code, r.Tries}, []any{job.Waiting, job.CodeLockExpired, 1})
		again := take(t, s, other, "a-x", 1, ttl)[0]
		equal(t, "second try", again.Tries, 2)
		equal(t, "old run", end(t, s, sysid, Ending{Run: old.Run, Fate: Archive, Code: job.CodeOK, Status: 200}), "[false]")
		equal(t, "old sysid, new try", end(t, s, sysid, Ending{Run: again.Run, Fate: Archive, Code: job.CodeOK, Status: 200}), "[false]")
		equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 1, Running: 1})
		equal(t, "new run", end(t, s, other, Ending{Run: again.Run, Fate: Archive, Code: job.CodeOK, Status: 200}), "[true]")
	})
}

// A run that lost its lock counts if nobody has taken the job since.
func TestFreedRunsCount(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "1"))
		run := take(t, s, sysid, "a-x", 1, gone)[0]
		sweep(t, s, lax)
		equal(t, "counted", end(t, s, sysid, Ending{Run: run.Run, Fate: Archive, Code: job.CodeOK, Status: 200}), "[true]")
		equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 1, OK: 1})
	})
}

func TestSysid(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		ctx := t.Context()
		if err := s.Reserve(ctx, sysid, ttl); err != nil {
			t.Fatal(err)
		}
		fails(t, s.Reserve(ctx, sysid, ttl), ErrTaken)
		ingest(t, s, entry("a-x", "1"), entry("a-x", "2"), entry("a-x", "3"), entry("a-x", "4"))
		mine, freed := take(t, s, sysid, "a-x", 1, ttl)[0], take(t, s, sysid, "a-x", 1, gone)[0]
		sweep(t, s, lax)
		lost := take(t, s, sysid, "a-x", 2, gone)[1]
		sweep(t, s, lax)
		equal(t, "others", len(take(t, s, other, "a-x", 2, ttl)), 2) // freed once more and another
		ended := take(t, s, sysid, "a-x", 1, ttl)[0]
		end(t, s, sysid, Ending{Run: ended.Run, Fate: Archive, Code: job.CodeOK, Status: 200})
		runs := []Run{mine.Run, freed.Run, lost.Run, ended.Run}
		got, err := s.Renew(ctx, sysid, ttl, runs)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "lost", len(got), 3)
		for _, r := range got {
			if r == mine.Run {
				t.Fatal("lost what is locked")
			}
		}
		equal(t, "the sysid is nobody's job", counts(t, s, "queue.sysid"), Counts{})
		_, err = s.Job(ctx, job.ID(sysid))
		fails(t, err, ErrUnknown)
		if err := s.Leave(ctx, sysid); err != nil {
			t.Fatal(err)
		}
		sweep(t, s, lax)
		r := get(t, s, mine.ID)
		equal(t, "given back", []any{r.State, r.Tries, r.Lock, r.Code}, []any{job.Waiting, 1, "", job.CodeLockExpired})
		_, err = s.Renew(ctx, sysid, ttl, nil)
		fails(t, err, ErrUnknown)
		if err := s.Reserve(ctx, sysid, gone); err != nil {
			t.Fatal(err)
		}
		sweep(t, s, lax)
		if err := s.Reserve(ctx, sysid, ttl); err != nil {
			t.Fatalf("an expired sysid is not forgotten: %v", err)
		}
	})
}

// A run whose lock expired, but which nobody has taken since, is locked again.
func TestRenewLocksAgain(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		if err := s.Reserve(t.Context(), sysid, ttl); err != nil {
			t.Fatal(err)
		}
		ingest(t, s, entry("a-x", "1"))
		run := take(t, s, sysid, "a-x", 1, gone)[0].Run
		sweep(t, s, lax)
		lost, err := s.Renew(t.Context(), sysid, ttl, []Run{run})
		equal(t, "lost", []any{lost, err}, []any{[]Run{}, nil})
		equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 1, Running: 1})
		equal(t, "nothing to take", len(take(t, s, other, "a-x", 1, ttl)), 0)
	})
}

// A renewal may have been under way while a run ended.
func TestRenewLeavesEndedRuns(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		if err := s.Reserve(t.Context(), sysid, ttl); err != nil {
			t.Fatal(err)
		}
		e := entry("a-x", "1")
		ingest(t, s, e)
		run := take(t, s, sysid, "a-x", 1, ttl)[0].Run
		end(t, s, sysid, Ending{Run: run, Fate: Again, Code: job.CodeRetry, Delay: time.Minute})
		lost, err := s.Renew(t.Context(), sysid, ttl, []Run{run})
		equal(t, "lost", []any{lost, err}, []any{[]Run{run}, nil})
		r := get(t, s, e.ID)
		equal(t, "record", []any{r.State, r.Lock, r.Code}, []any{job.Deferred, "", job.CodeRetry})
		equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 1, Deferred: 1})
	})
}

// After a kill the locks of the old sysid are over at once, and tries count.
func TestLeaveAfterKill(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		if err := s.Reserve(t.Context(), sysid, ttl); err != nil {
			t.Fatal(err)
		}
		ingest(t, s, entry("a-x", "1"))
		take(t, s, sysid, "a-x", 1, ttl)
		if err := s.Leave(t.Context(), sysid); err != nil {
			t.Fatal(err)
		}
		sweep(t, s, lax)
		got := take(t, s, other, "a-x", 1, ttl)
		equal(t, "taken", payloads(got), "1")
		equal(t, "try", got[0].Tries, 2)
		if err := s.Reserve(t.Context(), sysid, ttl); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "kills its daemon"), entry("a-y", "has no handler"), entry("a-z", "has one"))
		take(t, s, sysid, "a-x", 1, gone)
		w := lax
		w.RetryFor = gone
		w.Handled = func(jobtype string) bool { return jobtype != "a-y" }
		w.Next = func(jobtype string) string {
			return map[string]string{"a-x": "a-failed"}[jobtype]
		}
		w.NextID = func() job.ID { return ids.Next(1) }
		equal(t, "abandoned", sweep(t, s, w), Swept{Abandoned: 2})
		equal(t, "a-x", counts(t, s, "a-x"), Counts{Added: 1, Abandoned: 1})
		equal(t, "a-y", counts(t, s, "a-y"), Counts{Added: 1, Abandoned: 1})
		equal(t, "a-failed", counts(t, s, "a-failed"), Counts{Added: 1, Waiting: 1})
		list, err := s.Jobs(t.Context(), Query{Client: "a", State: job.Abandoned, Limit: 9})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "codes", list[1].Code+" "+list[0].Code, "lock_expired no_handler")

		w = lax
		w.KeepUnrun = gone
		equal(t, "expired", sweep(t, s, w), Swept{Expired: 2})
		equal(t, "a-z", counts(t, s, "a-z"), Counts{Added: 1, Expired: 1})
		equal(t, "nothing to do", sweep(t, s, lax), Swept{})
		h := &job.Handler{ID: string(ids.Next(1)), Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}}
		if err := s.PutHandler(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		w = lax
		w.KeepDone, w.Limit = 0, 3
		equal(t, "purged", sweep(t, s, w), Swept{Purged: 3, More: true})
		equal(t, "purged", sweep(t, s, w), Swept{Purged: 1})
		all, err := s.Counts(t.Context(), "a")
		equal(t, "still counted", []any{all, err}, []any{map[string]Counts{
			"a-x": {Added: 1, Abandoned: 1}, "a-*": {Added: 3, Abandoned: 1, Expired: 2},
		}, nil})
		if _, err := s.DeleteHandler(t.Context(), "a-x"); err != nil {
			t.Fatal(err)
		}
		all, err = s.Counts(t.Context(), "a")
		equal(t, "still counted", []any{all, err}, []any{map[string]Counts{"a-*": {Added: 4, Abandoned: 2, Expired: 2}}, nil})
	})
}

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

func TestHandlers(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		ctx := t.Context()
		_, err := s.Handler(ctx, "a-x")
		fails(t, err, ErrUnknown)
		var last *job.Handler
		for i := range 12 {
			h := &job.Handler{ID: string(ids.Next(1)), Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: fmt.Sprint("echo ", i)}}
			if err := s.PutHandler(ctx, h); err != nil {
				t.Fatal(err)
			}
			if last != nil && !h.Time.After(last.Time) {
				t.Fatalf("%s does not follow %s", h.Time, last.Time)
			}
			last = h
		}
		got, err := s.Handler(ctx, "a-x")
		equal(t, "newest", []any{got.Body, got.ID, got.Time, err}, []any{"echo 11", last.ID, last.Time, nil})
		all, version, err := s.Handlers(ctx, -1)
		equal(t, "all", []any{all, err}, []any{map[string]string{"a-x": last.ID}, nil})
		all, same, err := s.Handlers(ctx, version)
		equal(t, "unchanged", []any{all == nil, same, err}, []any{true, version, nil})
		n, err := s.DeleteHandler(ctx, "a-x")
		equal(t, "deleted", []any{n, err}, []any{10, nil})
		all, changed, err := s.Handlers(ctx, version)
		equal(t, "after", []any{all != nil, len(all), changed != version, err}, []any{true, 0, true, nil})
		n, err = s.DeleteHandler(ctx, "a-x")
		equal(t, "nothing left", []any{n, err}, []any{0, nil})
	})
}

func TestManyTypes(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		var jobs []journal.Entry
		for i := range 1234 {
			jobs = append(jobs, entry(fmt.Sprintf("a-%04d", i), "1"))
		}
		ingest(t, s, jobs...)
		due, _, err := s.Waiting(t.Context())
		equal(t, "types", []any{len(due), err}, []any{1234, nil})
		equal(t, "taken", len(take(t, s, sysid, "a-0777", 9, ttl)), 1)
		due, _, err = s.Waiting(t.Context())
		equal(t, "types", []any{len(due), err}, []any{1233, nil})
	})
}

func TestAddresses(t *testing.T) {
	for _, address := range []string{"", "x", "sqlite:", "mysql://", "mysql://h", "mysql://h/d?x=1", "mysql://u:secret@[/d", "postgres://h/d"} {
		s, err := Open(address)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
		if s != nil {
			t.Errorf("%q: a store beside an error", address)
		}
	}
	s, err := Open("mysql://user:secret@127.0.0.1:1/d")
	if err != nil || strings.Contains(s.Name(), "secret") {
		t.Fatalf("%v %v", s, err)
	}
	_, err = s.Counts(t.Context(), "")
	fails(t, err, ErrAway)
}

// What jobs hold is nobody else's on the host.
func TestFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open("sqlite:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ingest(t, s, entry("a-x", "secret"))
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, info.Mode(), err)
		}
	}
	absent, err := Open("sqlite:" + filepath.Join(path, "no", "directory"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = absent.Counts(t.Context(), "")
	fails(t, err, ErrAway)
}

// TestForgottenSegments: their read points go, those of others stay.
func TestForgottenSegments(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		piece := []journal.Entry{entry("a-x", "1")}
		for _, segment := range []string{"gone", "there"} {
			if _, err := s.Ingest(t.Context(), journal.Range{Segment: segment, To: 1}, piece, time.Now); err != nil {
				t.Fatal(err)
			}
		}
		w := lax
		w.Segments = []string{"gone", "unknown"}
		sweep(t, s, w)
		for segment, want := range map[string]int64{"gone": 0, "there": 1} {
			point, err := s.Ingest(t.Context(), journal.Range{Segment: segment, To: 1}, nil, time.Now)
			equal(t, segment, []any{point, err}, []any{want, nil})
		}
	})
}

// TestIngestRefused: of a piece with jobs that a database cannot take these are
// named, and nothing is written; without them the rest is.
func TestIngestRefused(t *testing.T) {
	server := mariadbtest.New(t, "--max-allowed-packet=1M")
	s, err := Open(address(t, server))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	large := strings.Repeat("'", 3<<20)
	piece := []journal.Entry{entry("a-x", "1"), entry("a-x", large), entry("a-x", strings.Repeat("x", 5000)), entry("b-x", "3"), entry("a-x", large)}
	for i := range piece {
		piece[i].End = int64(i) + 1
	}
	all := journal.Range{Segment: "s", To: 5}
	_, err = s.Ingest(t.Context(), all, piece, time.Now)
	var refused *RefusedError
	if !errors.As(err, &refused) || !slices.Equal(refused.IDs, []job.ID{piece[1].ID, piece[4].ID}) {
		t.Fatalf("%v: %+v", err, refused)
	}
	equal(t, "written", counts(t, s, "a-x"), Counts{})
	if before, err := s.Ingest(t.Context(), all, []journal.Entry{piece[0], piece[2], piece[3]}, time.Now); err != nil || before != 0 {
		t.Fatal(before, err)
	}
	equal(t, "written", counts(t, s, "a-x"), Counts{Added: 2, Waiting: 2})
	equal(t, "payloads", payloads(take(t, s, sysid, "a-x", 5, ttl)), "1 "+strings.Repeat("x", 5000))
}
