package store_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

func TestJobsAreTakenInOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
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

// TestBytesAreBounded: a Take ends with the payload that reaches its limit of bytes.
func TestBytesAreBounded(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		const n, long = 50, 10_000 // the first payload of five is short, the others are long
		var entries []journal.Entry
		for i := range n {
			payload := fmt.Sprintf("%04d", i)
			if i%5 > 0 {
				payload = strings.Repeat(payload, long/4)
			}
			entries = append(entries, entry("a-x", payload))
		}
		ingest(t, s, entries...)
		var got []string
		for _, limit := range []int{1, 5, 4 * long, 4*long + 1, 30 * long, 0} {
			taken, err := s.Take(t.Context(), Taking{Sysid: sysid, Jobtype: "a-x", N: n, Bytes: limit, TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for i, j := range taken {
				if size >= limit && limit > 0 {
					t.Errorf("of %d bytes, %d jobs of %d are beyond", limit, len(taken)-i, len(taken))
					break
				}
				size += len(j.Payload)
				got = append(got, string(j.Payload[:4]))
			}
			if size < limit && len(got) < n {
				t.Errorf("of %d bytes %d were taken, and there are more", limit, size)
			}
			equal(t, "running", counts(t, s, "a-x").Running, len(got))
		}
		if !slices.IsSorted(got) || len(got) != n {
			t.Errorf("taken are %q", got)
		}
	})
}

func TestEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
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
		for range 2 { // the second call is a repeat, as if the answer to the first was lost
			equal(t, "counted", end(t, s, sysid, ends...)[:3], "[true true true]")
			equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 5, Waiting: 1, Deferred: 1, OK: 1, Failed: 1, Abandoned: 1})
			equal(t, "follow-on jobs", counts(t, s, "a-next"), Counts{Added: 2, Waiting: 2})
		}
		r, data, err := s.Result(t.Context(), got[0].ID, math.MaxInt)
		equal(t, "result", []any{r.State, r.Status, r.Code, string(data), err}, []any{job.Succeeded, 200, "ok", "data\x00", nil})
		if since := time.Since(r.Done); since > 20*time.Minute || since < -20*time.Minute {
			t.Fatalf("done %s", r.Done)
		}
		if r.Due.Year() < 2900 {
			t.Fatalf("archived with dt %s", r.Due)
		}
		r, data, err = s.Result(t.Context(), got[1].ID, math.MaxInt)
		equal(t, "result", []any{r.State, r.Status, r.Truncated, r.BadLines, len(data), err}, []any{job.Fault, 404, true, 3, 0, nil})
		_, _, err = s.Result(t.Context(), got[2].ID, math.MaxInt)
		fails(t, err, ErrNotDone)
		_, _, err = s.Result(t.Context(), ids.Next(1), math.MaxInt)
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

// TestOldRuns: the end of an old run never ends a newer run.
func TestOldRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
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

// TestFreedRunsCount: the end of a run that has lost its lock counts if no daemon has taken the job
// since.
func TestFreedRunsCount(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "1"))
		run := take(t, s, sysid, "a-x", 1, gone)[0]
		sweep(t, s, lax)
		equal(t, "counted", end(t, s, sysid, Ending{Run: run.Run, Fate: Archive, Code: job.CodeOK, Status: 200}), "[true]")
		equal(t, "counts", counts(t, s, "a-x"), Counts{Added: 1, OK: 1})
	})
}
