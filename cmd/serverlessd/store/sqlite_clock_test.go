package store_test

import (
	"path/filepath"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

// TestHostIsSet: when the clock of a host with a SQLite store is set, delays, locks and the time
// for which jobs are kept are not affected, at any daemon with the file. Schedules follow the
// host's clock. The store's clock is set to it only after all daemons have ended, or when the host
// was rebooted.
func TestHostIsSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var set, uptime, booted time.Duration
	start, bootID := time.Now(), "one"
	host := func() time.Time { return start.Add(uptime + set) }
	open := func() Store {
		s := OpenOn(path, bootID+" time", host, func() time.Duration { return uptime - booted })
		t.Cleanup(func() { s.Close() })
		return s
	}
	reserve := func(s Store, sysid string) {
		t.Helper()
		if err := s.Reserve(t.Context(), sysid, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	renew := func(s Store, sysid string) {
		t.Helper()
		if _, err := s.Renew(t.Context(), sysid, time.Hour, nil); err != nil {
			t.Fatal(err)
		}
	}
	add := func(s Store, delay time.Duration) job.ID {
		t.Helper()
		e := journal.Entry{ID: ids.Next(1), Jobtype: "a-x", Payload: []byte("1"), Accepted: host(), Delay: delay, Due: host().Add(delay), End: 1}
		segments++
		if _, err := s.Ingest(t.Context(), journal.Range{Segment: e.ID.String(), To: 1}, []journal.Entry{e}, host); err != nil {
			t.Fatal(err)
		}
		return e.ID
	}
	created := func(s Store, id job.ID) time.Time {
		t.Helper()
		r, err := s.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return r.Created
	}
	deviation := func(s Store) time.Duration { return created(s, add(s, 0)).Sub(start.Add(uptime)).Round(time.Second) }

	a := open()
	reserve(a, testSysid)
	checkEqual(t, "at first", deviation(a), time.Duration(0))
	take(t, a, testSysid, "a-x", 9, 9*time.Hour)
	add(a, time.Hour)
	for _, jump := range []time.Duration{100 * 24 * time.Hour, -200 * 24 * time.Hour, 100*24*time.Hour - time.Minute} {
		set += jump
		b := open() // a daemon that starts after the change
		reserve(b, otherSysid)
		for _, s := range []Store{a, b} {
			renew(s, testSysid)
			uptime += 8 * time.Minute
			checkEqual(t, "taken too early", len(take(t, s, otherSysid, "a-x", 9, time.Hour)), 0)
			checkEqual(t, "ahead", sweep(t, s, laxSweep), SweepResult{Ahead: set})
			checkEqual(t, "off", deviation(s), time.Duration(0))
			checkEqual(t, "at once", len(take(t, s, testSysid, "a-x", 9, 9*time.Hour)), 1)
		}
		checkEqual(t, "lent", len(take(t, b, otherSysid, "a-x", 1, time.Hour)), 0)
		if err := b.Leave(t.Context(), otherSysid); err != nil {
			t.Fatal(err)
		}
		b.Close()
	}
	renew(a, testSysid)
	uptime += 12*time.Minute + time.Second
	checkEqual(t, "after an hour", len(take(t, a, testSysid, "a-x", 9, time.Hour)), 1)

	putSchedule(t, a, "x", `{"cron":"@every 1h","job":{"type":"y"}}`)
	set += time.Hour + time.Second
	checkEqual(t, "by schedule", len(settleDue(t, a)), 1)
	checkEqual(t, "the job of a schedule", len(take(t, a, testSysid, "a-y", 9, time.Hour)), 1)

	if err := a.Leave(t.Context(), testSysid); err != nil {
		t.Fatal(err)
	}
	a.Close()
	a = open()
	checkEqual(t, "after all have gone", deviation(a), set)
	reserve(a, testSysid)
	set = 0
	checkEqual(t, "before the boot", deviation(a), time.Hour-59*time.Second)
	a.Close()
	bootID, booted = "two", uptime
	a = open()
	checkEqual(t, "after the boot", deviation(a), time.Duration(0))
	set = time.Hour
	checkEqual(t, "set after the boot", deviation(a), time.Duration(0))
}
