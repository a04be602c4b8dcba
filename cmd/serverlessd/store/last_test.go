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

// TestLast: after a run that did not succeed, all daemons can read how the job's last run ended,
// until the job is retried from the beginning or forgotten.
func TestLast(t *testing.T) {
	places(t, func(t *testing.T, open func() Store) {
		s, beside := open(), open()
		j, well := entry("a-x", "1"), entry("a-y", "1")
		ingest(t, s, j, well)
		fail := func(try int, fate Fate, code string, l *Last) {
			t.Helper()
			got := take(t, s, sysid, "a-x", 1, ttl)
			if len(got) != 1 || got[0].Tries != try {
				t.Fatalf("%+v, want try %d", got, try)
			}
			l.At = time.Now().Add(-time.Minute)
			end(t, s, sysid, Ending{Run: got[0].Run, Fate: fate, Code: code, Status: 500, Last: l})
		}
		last := func(want string) {
			t.Helper()
			for _, s := range []Store{s, beside} {
				got := ""
				if l := get(t, s, j.ID).Last; l != nil {
					got = strings.Join([]string{string(rune('0' + l.Try)), l.Code, l.Took.String(), string(l.Data), string(l.Stderr)}, " ")
					if age := time.Since(l.At); age < 30*time.Second || age > 2*time.Minute {
						t.Errorf("it ended %v ago", age)
					}
				}
				equal(t, "last", got, want)
			}
		}
		last("")
		fail(1, Again, "error", &Last{Took: 5 * time.Millisecond, Code: "error", Status: 500, Data: []byte("no"), Stderr: []byte("at line 1")})
		last("1 error 5ms no at line 1")
		long := strings.Repeat("x", 2*LastKept)
		fail(2, Again, "timeout", &Last{Code: "timeout", Status: 500, Data: []byte("begin" + long), Stderr: []byte(long + "end")})
		last("2 timeout 0s begin" + long[:LastKept-5] + " " + long[:LastKept-3] + "end")
		fail(3, Archive, "abandoned", &Last{Code: "error", Status: 500, Data: []byte("\xff\x00"), Stderr: nil})
		last("3 error 0s \xff\x00 ")
		// A job that succeeds in its first run has no Last.
		got := take(t, s, sysid, "a-y", 1, ttl)
		end(t, s, sysid, Ending{Run: got[0].Run, Code: job.CodeOK, Status: 200})
		equal(t, "last of a job that succeeded", get(t, s, well.ID).Last == nil, true)
		for _, with := range []bool{false, true} {
			list, _, err := beside.Jobs(t.Context(), Query{Client: "a", Limit: 10, Last: with})
			if err != nil || len(list) != 2 {
				t.Fatal(list, err)
			}
			n := 0
			for _, rec := range list {
				if rec.Last != nil {
					n++
				}
			}
			equal(t, "last runs of a list", n == 1, with)
		}
		if err := s.Retry(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
		last("")
		fail(1, Again, "error", &Last{Code: "error"})
		if err := s.Delete(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRuns: all daemons can read the last runs of a job, in order.
func TestRuns(t *testing.T) {
	places(t, func(t *testing.T, open func() Store) {
		s, beside := open(), open()
		j, well := entry("a-x", "1"), entry("a-y", "1")
		ingest(t, s, j, well)
		told := func(id job.ID) (words string) {
			for i, r := range get(t, beside, id).Runs {
				words += fmt.Sprintf("%d %s %s %s;", r.N, r.Outcome, r.Worker, r.Error)
				if r.Started.IsZero() != (i == 1) || r.Took < 0 || len(r.Error) > 1<<10 {
					t.Errorf("%+v", r)
				}
			}
			return words
		}
		equal(t, "runs", told(j.ID), "")
		run := func(fate Fate, code string, l *Last) {
			t.Helper()
			got := take(t, s, sysid, "a-x", 1, ttl)
			l.At, l.Code, l.Took = time.Now(), code, time.Second
			end(t, s, sysid, Ending{Run: got[0].Run, Fate: fate, Code: code, Last: l})
		}
		run(Again, "error", &Last{Data: []byte("no\n")})
		take(t, s, other, "a-x", 1, gone)
		equal(t, "freed", sweep(t, s, lax).Freed, 1)
		run(Again, "timeout", &Last{Stderr: []byte("at line 1")})
		run(Archive, job.CodeOK, &Last{})
		equal(t, "runs", told(j.ID), "1 failed "+sysid+" no;2 lost "+other+" its daemon was lost;3 timed_out "+sysid+" at line 1;4 answered "+sysid+" ;")
		got := take(t, s, sysid, "a-y", 1, ttl)
		end(t, s, sysid, Ending{Run: got[0].Run, Code: job.CodeOK, Status: 200})
		equal(t, "what succeeded at once", told(well.ID), "1 answered  ;")
		if err := s.Retry(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
		equal(t, "run again from the beginning", told(j.ID), "")
		for range 20 {
			run(Again, "error", &Last{Data: []byte(strings.Repeat("ä", 600) + "\xff")})
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
