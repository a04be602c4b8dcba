package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/store"
)

// TestLastRunIsKept: after a run without success, all daemons can read the outcome of the job's
// last run, until the job is retried from the beginning or forgotten.
func TestLastRunIsKept(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() Store) {
		s, otherStore := open(), open()
		j, goodEntry := entry("a-x", "1"), entry("a-y", "1")
		ingest(t, s, j, goodEntry)
		fail := func(try int, fate EndAction, code string, l *LastRun) {
			t.Helper()
			got := take(t, s, testSysid, "a-x", 1, testTTL)
			if len(got) != 1 || got[0].Tries != try {
				t.Fatalf("%+v, want try %d", got, try)
			}
			l.At = time.Now().Add(-time.Minute)
			end(t, s, testSysid, RunEnd{Run: got[0].Run, Action: fate, Code: code, Status: 500, Last: l})
		}
		last := func(want string) {
			t.Helper()
			for _, s := range []Store{s, otherStore} {
				got := ""
				if l := get(t, s, j.ID).Last; l != nil {
					got = strings.Join([]string{string(rune('0' + l.Try)), l.Code, l.Took.String(), string(l.Data), string(l.Stderr)}, " ")
					if age := time.Since(l.At); age < 30*time.Second || age > 2*time.Minute {
						t.Errorf("it ended %v ago", age)
					}
				}
				checkEqual(t, "last", got, want)
			}
		}
		last("")
		fail(1, EndRetry, "error", &LastRun{Took: 5 * time.Millisecond, Code: "error", Status: 500, Data: []byte("no"), Stderr: []byte("at line 1")})
		last("1 error 5ms no at line 1")
		long := strings.Repeat("x", 2*MaxLastData)
		fail(2, EndRetry, "timeout", &LastRun{Code: "timeout", Status: 500, Data: []byte("begin" + long), Stderr: []byte(long + "end")})
		last("2 timeout 0s begin" + long[:MaxLastData-5] + " " + long[:MaxLastData-3] + "end")
		fail(3, EndArchive, "abandoned", &LastRun{Code: "error", Status: 500, Data: []byte("\xff\x00"), Stderr: nil})
		last("3 error 0s \xff\x00 ")
		// A job that succeeds in its first run has no LastRun.
		got := take(t, s, testSysid, "a-y", 1, testTTL)
		end(t, s, testSysid, RunEnd{Run: got[0].Run, Code: job.CodeOK, Status: 200})
		checkEqual(t, "last of a job that succeeded", get(t, s, goodEntry.ID).Last == nil, true)
		for _, with := range []bool{false, true} {
			list, _, err := otherStore.Jobs(t.Context(), Query{Client: "a", Limit: 10, WithLastRun: with})
			if err != nil || len(list) != 2 {
				t.Fatal(list, err)
			}
			n := 0
			for _, rec := range list {
				if rec.Last != nil {
					n++
				}
				if first := rec.ID == goodEntry.ID && with; (len(rec.Runs) == 1) != first || first && rec.Runs[0].Started.IsZero() {
					t.Errorf("runs in a list: %+v", rec.Runs)
				}
			}
			checkEqual(t, "last runs of a list", n == 1, with)
		}
		if err := s.Retry(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
		last("")
		fail(1, EndRetry, "error", &LastRun{Code: "error"})
		if err := s.Delete(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRunsAreReadInOrder: all daemons can read the last runs of a job, in order.
func TestRunsAreReadInOrder(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() Store) {
		s, otherStore := open(), open()
		j, goodEntry := entry("a-x", "1"), entry("a-y", "1")
		ingest(t, s, j, goodEntry)
		runTexts := func(id job.ID) (words string) {
			for i, r := range get(t, otherStore, id).Runs {
				words += fmt.Sprintf("%d %s %s %s;", r.N, r.Outcome, r.Sysid, r.Error)
				if r.Started.IsZero() != (i == 1) || r.Took < 0 || len(r.Error) > 1<<10 {
					t.Errorf("%+v", r)
				}
			}
			return words
		}
		checkEqual(t, "runs", runTexts(j.ID), "")
		run := func(fate EndAction, code string, l *LastRun) {
			t.Helper()
			got := take(t, s, testSysid, "a-x", 1, testTTL)
			l.At, l.Code, l.Took = time.Now(), code, time.Second
			end(t, s, testSysid, RunEnd{Run: got[0].Run, Action: fate, Code: code, Last: l})
		}
		run(EndRetry, "error", &LastRun{Data: []byte("no\n")})
		take(t, s, otherSysid, "a-x", 1, expiredTTL)
		checkEqual(t, "freed", sweep(t, s, laxSweep).Freed, 1)
		run(EndRetry, "timeout", &LastRun{Stderr: []byte("at line 1")})
		run(EndArchive, job.CodeOK, &LastRun{})
		checkEqual(t, "runs", runTexts(j.ID), "1 failed "+testSysid+" no;2 lost "+otherSysid+" its daemon was lost;3 timed_out "+testSysid+" at line 1;4 answered "+testSysid+" ;")
		got := take(t, s, testSysid, "a-y", 1, testTTL)
		end(t, s, testSysid, RunEnd{Run: got[0].Run, Code: job.CodeOK, Status: 200})
		checkEqual(t, "what succeeded at once", runTexts(goodEntry.ID), "1 answered  ;")
		if err := s.Retry(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "run again from the beginning", runTexts(j.ID), "")
		for range 20 {
			run(EndRetry, "error", &LastRun{Data: []byte(strings.Repeat("ä", 600) + "\xff")})
		}
		runs := get(t, s, j.ID).Runs
		if len(runs) != 16 || runs[0].N != 5 || !utf8.ValidString(runs[0].Error) || !strings.HasSuffix(runs[0].Error, "ä…") {
			t.Errorf("%d runs from %d on: %q", len(runs), runs[0].N, runs[0].Error)
		}
		if err := s.Delete(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
	})
}
