package store_test

import (
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/store"
)

func TestReservedSysidIsTaken(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ctx := t.Context()
		if err := s.Reserve(ctx, testSysid, testTTL); err != nil {
			t.Fatal(err)
		}
		checkError(t, s.Reserve(ctx, testSysid, testTTL), ErrTaken)
		ingest(t, s, entry("a-x", "1"), entry("a-x", "2"), entry("a-x", "3"), entry("a-x", "4"))
		keptJob, freedJob := take(t, s, testSysid, "a-x", 1, testTTL)[0], take(t, s, testSysid, "a-x", 1, expiredTTL)[0]
		sweep(t, s, laxSweep)
		lostJob := take(t, s, testSysid, "a-x", 2, expiredTTL)[1]
		sweep(t, s, laxSweep)
		checkEqual(t, "others", len(take(t, s, otherSysid, "a-x", 2, testTTL)), 2) // the job that was freed, and another one
		ended := take(t, s, testSysid, "a-x", 1, testTTL)[0]
		end(t, s, testSysid, RunEnd{Run: ended.Run, Action: EndArchive, Code: job.CodeOK, Status: 200})
		runs := []Run{keptJob.Run, freedJob.Run, lostJob.Run, ended.Run}
		got, err := s.Renew(ctx, testSysid, testTTL, runs)
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "lost", len(got), 3)
		for _, r := range got {
			if r == keptJob.Run {
				t.Fatal("lost what is locked")
			}
		}
		checkEqual(t, "the sysid is nobody's job", counts(t, s, "queue.sysid"), Counts{})
		_, err = s.Job(ctx, job.ID(testSysid))
		checkError(t, err, ErrUnknown)
		if err := s.Leave(ctx, testSysid); err != nil {
			t.Fatal(err)
		}
		sweep(t, s, laxSweep)
		r := get(t, s, keptJob.ID)
		checkEqual(t, "given back", []any{r.State, r.Tries, r.Lock, r.Code}, []any{job.Waiting, 1, "", job.CodeLockExpired})
		_, err = s.Renew(ctx, testSysid, testTTL, nil)
		checkError(t, err, ErrUnknown)
		if err := s.Reserve(ctx, testSysid, expiredTTL); err != nil {
			t.Fatal(err)
		}
		sweep(t, s, laxSweep)
		if err := s.Reserve(ctx, testSysid, testTTL); err != nil {
			t.Fatalf("an expired sysid is not forgotten: %v", err)
		}
	})
}

// TestRenewLocksAgain: a run whose lock has expired is locked again if no daemon has taken the job
// since.
func TestRenewLocksAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		if err := s.Reserve(t.Context(), testSysid, testTTL); err != nil {
			t.Fatal(err)
		}
		ingest(t, s, entry("a-x", "1"))
		run := take(t, s, testSysid, "a-x", 1, expiredTTL)[0].Run
		sweep(t, s, laxSweep)
		lostRuns, err := s.Renew(t.Context(), testSysid, testTTL, []Run{run})
		checkEqual(t, "lost", []any{lostRuns, err}, []any{[]Run{}, nil})
		checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: 1, Running: 1})
		checkEqual(t, "nothing to take", len(take(t, s, otherSysid, "a-x", 1, testTTL)), 0)
	})
}

// TestRenewLeavesEndedRuns: a renewal that was in progress when a run ended does not lock the job
// again.
func TestRenewLeavesEndedRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		if err := s.Reserve(t.Context(), testSysid, testTTL); err != nil {
			t.Fatal(err)
		}
		e := entry("a-x", "1")
		ingest(t, s, e)
		run := take(t, s, testSysid, "a-x", 1, testTTL)[0].Run
		end(t, s, testSysid, RunEnd{Run: run, Action: EndRetry, Code: job.CodeRetry, Delay: time.Minute})
		lostRuns, err := s.Renew(t.Context(), testSysid, testTTL, []Run{run})
		checkEqual(t, "lost", []any{lostRuns, err}, []any{[]Run{run}, nil})
		r := get(t, s, e.ID)
		checkEqual(t, "record", []any{r.State, r.Lock, r.Code}, []any{job.Deferred, "", job.CodeRetry})
		checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: 1, Deferred: 1})
	})
}

// TestLeaveAfterKill: after a kill, the locks of the old sysid end at once, and the tries count.
func TestLeaveAfterKill(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		if err := s.Reserve(t.Context(), testSysid, testTTL); err != nil {
			t.Fatal(err)
		}
		ingest(t, s, entry("a-x", "1"))
		take(t, s, testSysid, "a-x", 1, testTTL)
		if err := s.Leave(t.Context(), testSysid); err != nil {
			t.Fatal(err)
		}
		sweep(t, s, laxSweep)
		got := take(t, s, otherSysid, "a-x", 1, testTTL)
		checkEqual(t, "taken", payloads(got), "1")
		checkEqual(t, "try", got[0].Tries, 2)
		if err := s.Reserve(t.Context(), testSysid, testTTL); err != nil {
			t.Fatal(err)
		}
	})
}
