package store_test

import (
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/store"
)

func TestSysid(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
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
		equal(t, "others", len(take(t, s, other, "a-x", 2, ttl)), 2) // the job that was freed, and another one
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

// TestRenewLocksAgain: a run whose lock has expired is locked again if no daemon has taken the job
// since.
func TestRenewLocksAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
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

// TestRenewLeavesEndedRuns: a renewal that was in progress when a run ended does not lock the job
// again.
func TestRenewLeavesEndedRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
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

// TestLeaveAfterKill: after a kill, the locks of the old sysid end at once, and the tries count.
func TestLeaveAfterKill(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
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
