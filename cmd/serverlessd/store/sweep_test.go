package store_test

import (
	"sync/atomic"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/store"
)

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

// TestClockIsSet: when the store's clock is set forward, by more than all locks
// have, those who live keep theirs, and those who do not lose them a ttl later.
func TestClockIsSet(t *testing.T) {
	var ahead atomic.Int64
	s := NewMemory(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	defer s.Close()
	if err := s.Reserve(t.Context(), sysid, ttl); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, entry("a-x", "1"))
	run := take(t, s, sysid, "a-x", 1, ttl)[0].Run
	w := lax
	w.RetryFor, w.TTL = 10*ttl, ttl
	sweep(t, s, w)
	for range 2 {
		ahead.Add(int64(2 * ttl))
		for range 2 {
			equal(t, "swept", sweep(t, s, w), Swept{})
		}
		lost, err := s.Renew(t.Context(), sysid, ttl, []Run{run})
		equal(t, "renewed", []any{len(lost), err}, []any{0, nil})
	}
	ahead.Add(int64(2 * ttl))
	w.TTL = 10 * time.Millisecond
	for end := time.Now().Add(patience); sweep(t, s, w).Freed == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a lock that nobody renews does not expire")
		}
	}
}
