package store_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/internal/schedule"
	"gloom/cmd/internal/unique"
	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/store"
)

// TestInterruptedDeletes: whichever DELETE of a transaction was interrupted without an error,
// nothing is left, and nothing is counted twice.
func TestInterruptedDeletes(t *testing.T) {
	s, err := Open(address(t, mariadbtest.Shared(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	if err := s.Reserve(ctx, testSysid, testTTL); err != nil {
		t.Fatal(err)
	}
	var count atomic.Int64
	SkipDelete(s, &count)
	// interrupted calls f, skips its nth DELETE, and reports whether f got that far.
	interrupted := func(n int64, f func() error) bool {
		count.Store(n)
		if err := f(); err != nil {
			t.Errorf("DELETE %d: %v", n, err)
		}
		return count.Swap(0) <= 0
	}
	long := strings.Repeat("x", 2000)
	ends := func(jobtype string, endings ...RunEnd) job.ID {
		e := entry(jobtype, long)
		ingest(t, s, e)
		for _, ending := range endings {
			ending.Run = take(t, s, testSysid, jobtype, 1, testTTL)[0].Run
			checkEqual(t, "ended", end(t, s, testSysid, ending), "[true]")
		}
		return e.ID
	}
	fault := &LastRun{At: time.Now(), Code: job.CodeError}

	t.Run("job", func(t *testing.T) {
		for n := int64(1); ; n++ {
			before := counts(t, s, "a-*")
			id := addUnique(t, s, unique.Request{Period: unique.PeriodWindow, Window: time.Hour}, keyedLine("a-deleted", "key"))[0].ID
			more := interrupted(n, func() error { return s.Delete(ctx, id) })
			_, err := s.Job(ctx, id)
			checkError(t, err, ErrUnknown)
			before.Added++
			before.Deleted++
			checkEqual(t, "counts", counts(t, s, "a-*"), before)
			if !more {
				break
			}
		}
	})
	t.Run("result", func(t *testing.T) {
		for n := int64(1); ; n++ {
			id := ends("a-retried", RunEnd{Action: EndRetry, Code: job.CodeError, Last: fault}, RunEnd{Action: EndArchive, Code: job.CodeOK, Status: 200, Data: []byte("old")})
			more := interrupted(n, func() error { return s.Retry(ctx, id) })
			run := take(t, s, testSysid, "a-retried", 1, testTTL)[0].Run
			end(t, s, testSysid, RunEnd{Run: run, Action: EndArchive, Code: job.CodeOK, Status: 200})
			_, data, err := s.Result(ctx, id, 100)
			if r := get(t, s, id); err != nil || len(data) > 0 || r.Last != nil || len(r.Runs) != 1 {
				t.Errorf("DELETE %d: %v, result %q, last %v, runs %v", n, err, data, r.Last, r.Runs)
			}
			if !more {
				break
			}
		}
	})
	t.Run("purged", func(t *testing.T) {
		for n := int64(1); ; n++ {
			before := counts(t, s, "b-*")
			ends("b-purged", RunEnd{Action: EndArchive, Code: job.CodeOK, Status: 200})
			more := interrupted(n, func() error {
				_, err := s.Sweep(ctx, SweepOptions{RetryFor: testTTL, KeepDone: -time.Minute, KeepUnrun: testTTL, TTL: testTTL, Limit: 10})
				return err
			})
			before.Added++
			before.OK++
			checkEqual(t, "counts of the rest", counts(t, s, "b-*"), before)
			checkEqual(t, "counts of the type", counts(t, s, "b-purged"), Counts{})
			if !more {
				break
			}
		}
	})
	t.Run("handler", func(t *testing.T) {
		if err := s.PutHandler(ctx, &job.Handler{ID: string(ids.Next(1)), Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "true"}}); err != nil {
			t.Fatal(err)
		}
		interrupted(1, func() error {
			n, err := s.DeleteHandler(ctx, "a-x")
			if n != 1 {
				err = errors.Join(err, ErrUnknown)
			}
			return err
		})
	})
	t.Run("schedule", func(t *testing.T) {
		key := schedule.Key{Client: "a", Name: "n"}
		if err := s.PutSchedule(ctx, key, spec(t, `{"cron":"0 0 1 1 *","job":{"type":"x"}}`), false); err != nil {
			t.Fatal(err)
		}
		interrupted(1, func() error { return s.DropSchedule(ctx, key, false) })
		_, _, err := s.Schedule(ctx, key)
		checkError(t, err, ErrUnknown)
	})
}
