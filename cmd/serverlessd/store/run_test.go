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
		checkEqual(t, "next", next, time.Duration(0))
		var types []string
		for _, d := range due {
			types = append(types, fmt.Sprint(d.Jobtype, d.Count))
		}
		slices.Sort(types)
		checkEqual(t, "types", types, "[a-x3 a-y1 b-x1]")
		got := take(t, s, testSysid, "a-x", 2, testTTL)
		checkEqual(t, "taken", payloads(got), "1 "+long)
		checkEqual(t, "try", got[0].Tries, 1)
		checkEqual(t, "age", got[0].Age, time.Duration(0))
		checkEqual(t, "the rest", payloads(take(t, s, otherSysid, "a-x", 9, testTTL)), "5")
		checkEqual(t, "nothing", len(take(t, s, testSysid, "a-x", 9, testTTL)), 0)
		checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: 3, Running: 3})
		r := get(t, s, got[0].ID)
		checkEqual(t, "record", []any{r.Jobtype, r.State, r.Lock, r.Tries, r.Code, r.Status}, []any{"a-x", job.Running, testSysid, 1, "", 0})
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
			taken, err := s.Take(t.Context(), TakeRequest{Sysid: testSysid, Jobtype: "a-x", N: n, Bytes: limit, TTL: testTTL})
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
			checkEqual(t, "running", counts(t, s, "a-x").Running, len(got))
		}
		if !slices.IsSorted(got) || len(got) != n {
			t.Errorf("taken are %q", got)
		}
	})
}

func TestEndsOfRunsAreStored(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		for i := range 5 {
			ingest(t, s, entry("a-x", fmt.Sprint(i)))
		}
		got := take(t, s, testSysid, "a-x", 5, testTTL)
		next := FollowJob{ID: ids.Next(1), Jobtype: "a-next", Payload: []byte("follows")}
		ends := []RunEnd{
			{Run: got[0].Run, Action: EndArchive, Code: job.CodeOK, Status: 200, Data: []byte("data\x00"), Follow: []FollowJob{next, {ID: ids.Next(1), Jobtype: "a-next"}}},
			{Run: got[1].Run, Action: EndArchive, Code: job.CodeFailed, Status: 404, Truncated: true, BadLines: 3},
			{Run: got[2].Run, Action: EndRetry, Code: job.CodeError, Status: 503, Delay: time.Hour},
			{Run: got[3].Run, Action: EndGiveBack},
			{Run: got[4].Run, Action: EndArchive, Code: job.CodeAbandoned, Status: 500},
		}
		for range 2 { // the second call is a repeat, as if the answer to the first was lost
			checkEqual(t, "counted", end(t, s, testSysid, ends...)[:3], "[true true true]")
			checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: 5, Waiting: 1, Deferred: 1, OK: 1, Failed: 1, Abandoned: 1})
			checkEqual(t, "follow-on jobs", counts(t, s, "a-next"), Counts{Added: 2, Waiting: 2})
		}
		r, data, err := s.Result(t.Context(), got[0].ID, math.MaxInt)
		checkEqual(t, "result", []any{r.State, r.Status, r.Code, string(data), err}, []any{job.Succeeded, 200, "ok", "data\x00", nil})
		if since := time.Since(r.Done); since > 20*time.Minute || since < -20*time.Minute {
			t.Fatalf("done %s", r.Done)
		}
		if r.Due.Year() < 2900 {
			t.Fatalf("archived with dt %s", r.Due)
		}
		r, data, err = s.Result(t.Context(), got[1].ID, math.MaxInt)
		checkEqual(t, "result", []any{r.State, r.Status, r.Truncated, r.BadLines, len(data), err}, []any{job.Failed, 404, true, 3, 0, nil})
		_, _, err = s.Result(t.Context(), got[2].ID, math.MaxInt)
		checkError(t, err, ErrNotDone)
		_, _, err = s.Result(t.Context(), ids.Next(1), math.MaxInt)
		checkError(t, err, ErrUnknown)
		r2 := get(t, s, got[2].ID)
		checkEqual(t, "again", []any{r2.State, r2.Code, r2.Status, r2.Tries, r2.Lock}, []any{job.Deferred, "error", 503, 1, ""})
		retaken := take(t, s, otherSysid, "a-x", 9, testTTL)
		checkEqual(t, "given back", payloads(retaken), "3")
		checkEqual(t, "its try", retaken[0].Tries, 1)
		checkEqual(t, "follow-on payloads", payloads(take(t, s, otherSysid, "a-next", 9, testTTL)), "follows ")
		checkEqual(t, "abandoned", get(t, s, got[4].ID).State, job.Abandoned)
	})
}

// TestOldRuns: the end of an old run never ends a newer run.
func TestOldRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "1"))
		old := take(t, s, testSysid, "a-x", 1, expiredTTL)[0]
		checkEqual(t, "freed", sweep(t, s, laxSweep), SweepResult{Freed: 1})
		r := get(t, s, old.ID)
		checkEqual(t, "freed", []any{r.State, r.Code, r.Tries}, []any{job.Waiting, job.CodeLockExpired, 1})
		secondRun := take(t, s, otherSysid, "a-x", 1, testTTL)[0]
		checkEqual(t, "second try", secondRun.Tries, 2)
		checkEqual(t, "old run", end(t, s, testSysid, RunEnd{Run: old.Run, Action: EndArchive, Code: job.CodeOK, Status: 200}), "[false]")
		checkEqual(t, "old sysid, new try", end(t, s, testSysid, RunEnd{Run: secondRun.Run, Action: EndArchive, Code: job.CodeOK, Status: 200}), "[false]")
		checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: 1, Running: 1})
		checkEqual(t, "new run", end(t, s, otherSysid, RunEnd{Run: secondRun.Run, Action: EndArchive, Code: job.CodeOK, Status: 200}), "[true]")
	})
}

// TestFreedRunsCount: the end of a run that has lost its lock counts if no daemon has taken the job
// since.
func TestFreedRunsCount(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "1"))
		run := take(t, s, testSysid, "a-x", 1, expiredTTL)[0]
		sweep(t, s, laxSweep)
		checkEqual(t, "counted", end(t, s, testSysid, RunEnd{Run: run.Run, Action: EndArchive, Code: job.CodeOK, Status: 200}), "[true]")
		checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: 1, OK: 1})
	})
}
