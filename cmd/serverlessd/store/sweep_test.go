package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/internal/unique"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

// TestSweepInPart: a Sweep that fails after its first transaction returns the result of that
// transaction, without the changes that were rolled back.
func TestSweepInPart(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "first"), entry("a-y", "second"))
		ctx, cancel := context.WithCancel(t.Context())
		w := laxSweep
		w.RetryFor, w.Limit = expiredTTL, 1000
		w.Handled = func(string) bool { return false }
		w.Next = func(jobtype string) string {
			if jobtype == "a-y" {
				cancel()
			}
			return ""
		}
		swept, err := s.Sweep(ctx, w)
		checkError(t, err, context.Canceled)
		checkEqual(t, "ended", []int{len(swept.Ended), swept.Abandoned}, []int{1, 1})
		checkEqual(t, "type", swept.Ended[0].Jobtype, "a-x")
		checkEqual(t, "a-x", counts(t, s, "a-x"), Counts{Added: 1, Abandoned: 1})
		checkEqual(t, "a-y", counts(t, s, "a-y"), Counts{Added: 1, Waiting: 1})
	})
}

func TestSweepEndsExpiredRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "kills its daemon"), entry("a-y", "has no handler"), entry("a-z", "has one"))
		take(t, s, testSysid, "a-x", 1, expiredTTL)
		w := laxSweep
		w.RetryFor = expiredTTL
		w.Handled = func(jobtype string) bool { return jobtype != "a-y" }
		w.Next = func(jobtype string) string {
			return map[string]string{"a-x": "a-failed"}[jobtype]
		}
		w.NextID = func() job.ID { return ids.Next(1) }
		checkEqual(t, "abandoned", sweep(t, s, w), SweepResult{Abandoned: 2})
		checkEqual(t, "a-x", counts(t, s, "a-x"), Counts{Added: 1, Abandoned: 1})
		checkEqual(t, "a-y", counts(t, s, "a-y"), Counts{Added: 1, Abandoned: 1})
		checkEqual(t, "a-failed", counts(t, s, "a-failed"), Counts{Added: 1, Waiting: 1})
		list, _, err := s.Jobs(t.Context(), Query{Client: "a", State: job.Abandoned, Limit: 9})
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "codes", list[1].Code+" "+list[0].Code, "lock_expired no_handler")

		w = laxSweep
		w.KeepUnrun = expiredTTL
		checkEqual(t, "expired", sweep(t, s, w), SweepResult{Expired: 2})
		checkEqual(t, "a-z", counts(t, s, "a-z"), Counts{Added: 1, Expired: 1})
		checkEqual(t, "nothing to do", sweep(t, s, laxSweep), SweepResult{})
		h := &job.Handler{ID: string(ids.Next(1)), Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}}
		if err := s.PutHandler(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		w = laxSweep
		w.KeepDone, w.Limit = 0, 3
		checkEqual(t, "purged", sweep(t, s, w), SweepResult{Purged: 3, More: true})
		checkEqual(t, "purged", sweep(t, s, w), SweepResult{Purged: 1})
		counted, err := s.Counts(t.Context(), "a")
		checkEqual(t, "still counted", []any{counted, err}, []any{map[string]Counts{
			"a-x": {Added: 1, Abandoned: 1}, "a-*": {Added: 3, Abandoned: 1, Expired: 2},
		}, nil})
		if _, err := s.DeleteHandler(t.Context(), "a-x"); err != nil {
			t.Fatal(err)
		}
		counted, err = s.Counts(t.Context(), "a")
		checkEqual(t, "still counted", []any{counted, err}, []any{map[string]Counts{"a-*": {Added: 4, Abandoned: 2, Expired: 2}}, nil})
	})
}

// TestClockIsSet: when the store's clock is set forward by more than the ttl of locks, living
// daemons keep their locks, and dead daemons lose theirs a ttl later.
func TestClockIsSet(t *testing.T) {
	var clockShift atomic.Int64
	s := OpenAt(filepath.Join(t.TempDir(), "store.db"), func() time.Time { return time.Now().Add(time.Duration(clockShift.Load())) }, nil)
	defer s.Close()
	if err := s.Reserve(t.Context(), testSysid, testTTL); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, entry("a-x", "1"))
	run := take(t, s, testSysid, "a-x", 1, testTTL)[0].Run
	w := laxSweep
	w.RetryFor, w.TTL = 10*testTTL, testTTL
	sweep(t, s, w)
	for range 2 {
		clockShift.Add(int64(2 * testTTL))
		for range 2 {
			checkEqual(t, "swept", sweep(t, s, w), SweepResult{})
		}
		lostRuns, err := s.Renew(t.Context(), testSysid, testTTL, []Run{run})
		checkEqual(t, "renewed", []any{len(lostRuns), err}, []any{0, nil})
	}
	clockShift.Add(int64(2 * testTTL))
	w.TTL = 10 * time.Millisecond
	for end := time.Now().Add(testTimeout); sweep(t, s, w).Freed == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a lock that nobody renews does not expire")
		}
	}
}

// TestClockIsSetBeforeTheStart: a daemon that starts soon after the store's clock was set frees no
// jobs of living daemons, whether or not the store has a note about its clock. It frees the jobs
// once these daemons are gone.
func TestClockIsSetBeforeTheStart(t *testing.T) {
	for _, age := range []time.Duration{0, 2 * time.Hour} {
		path := filepath.Join(t.TempDir(), "store.db")
		var clockShift, uptime time.Duration
		start := time.Now()
		open := func() Store {
			s := OpenAt(path, func() time.Time { return start.Add(uptime + clockShift) }, func() time.Duration { return uptime })
			t.Cleanup(func() { s.Close() })
			return s
		}
		s := open()
		w := laxSweep
		w.RetryFor, w.TTL = 6*time.Hour, time.Minute
		for ; uptime < age; uptime += time.Minute {
			sweep(t, s, w)
		}
		ingest(t, s, entry("a-x", "1"))
		uptime += time.Second
		run := take(t, s, testSysid, "a-x", 1, time.Minute)[0].Run
		if err := s.Reserve(t.Context(), testSysid, time.Minute); err != nil {
			t.Fatal(err)
		}
		clockShift = 30 * time.Minute
		secondStore := open()
		for range 9 {
			checkEqual(t, "swept by a daemon that starts later", sweep(t, secondStore, w).Freed, 0)
			uptime += 10 * time.Second
			if lostRuns, err := s.Renew(t.Context(), testSysid, time.Minute, []Run{run}); err != nil || len(lostRuns) > 0 {
				t.Fatal(lostRuns, err)
			}
		}
		uptime += time.Minute
		checkEqual(t, "once nobody renews", sweep(t, secondStore, w).Freed, 1)
	}
}

// TestClockJumps: after the clock was set, no job expires, is purged or is abandoned, whatever the
// clock shows. This holds for a daemon that has seen the jump and for a daemon that starts later.
// Jobs that are old by a clock that has run evenly do expire, or are purged or abandoned.
func TestClockJumps(t *testing.T) {
	const day = 24 * time.Hour
	path := filepath.Join(t.TempDir(), "store.db")
	var clockShift, uptime time.Duration
	start := time.Now()
	open := func() Store {
		s := OpenAt(path, func() time.Time { return start.Add(uptime + clockShift) }, func() time.Duration { return uptime })
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open()
	w := SweepOptions{RetryFor: 6 * time.Hour, KeepDone: 2 * day, KeepUnrun: 5 * day, TTL: time.Minute, Limit: 1000,
		Handled: func(jobtype string) bool { return jobtype != "a-none" }}
	pass := func(s Store, d time.Duration) (swept SweepResult) {
		for end := uptime + d; ; uptime += min(30*time.Minute, end-uptime) {
			result := sweep(t, s, w)
			swept.Freed, swept.Abandoned, swept.Expired, swept.Purged = swept.Freed+result.Freed, swept.Abandoned+result.Abandoned, swept.Expired+result.Expired, swept.Purged+result.Purged
			if uptime == end {
				return swept
			}
		}
	}
	noChanges := fmt.Sprint(SweepResult{})
	for _, jobtype := range []string{"a-done", "a-run", "a-unrun", "a-none", "a-again", "a-again", "a-again", "a-again", "a-again", "a-again"} {
		e := entry(jobtype, "1")
		e.Accepted = time.Time{}
		ingest(t, s, e)
	}
	checkEqual(t, "ended", end(t, s, testSysid, RunEnd{Run: take(t, s, testSysid, "a-done", 1, testTTL)[0].Run, Action: EndArchive, Code: job.CodeOK, Status: 200}), "[true]")
	for _, j := range take(t, s, testSysid, "a-again", 9, testTTL) {
		end(t, s, testSysid, RunEnd{Run: j.Run, Action: EndRetry, Code: job.CodeError, Status: 500})
	}
	pass(s, 70*time.Minute) // the store reads the clock
	run := take(t, s, testSysid, "a-run", 1, time.Minute)[0].Run
	if err := s.Reserve(t.Context(), testSysid, time.Minute); err != nil {
		t.Fatal(err)
	}
	// aged takes a job that has already run, and returns the age that the store reports.
	takenAge := func(s Store) time.Duration {
		taken, err := s.Take(t.Context(), TakeRequest{Sysid: otherSysid, Jobtype: "a-again", N: 1, TTL: time.Minute, RetryFor: w.RetryFor})
		if err != nil || len(taken) != 1 {
			t.Fatal(taken, err)
		}
		return taken[0].Age
	}
	for _, jump := range []time.Duration{46 * day, -46 * day, 400 * day, -400 * day} {
		clockShift += jump
		checkEqual(t, "by a daemon that sees the jump", sweep(t, s, w), noChanges)
		checkEqual(t, "by a daemon that starts after the jump", sweep(t, open(), w), noChanges)
		if jump > 0 {
			checkEqual(t, "age", []time.Duration{takenAge(s), takenAge(open())}, []time.Duration{0, 0})
		}
		if _, err := s.Renew(t.Context(), testSysid, time.Minute, []Run{run}); err != nil {
			t.Fatal(err)
		}
		uptime += 30 * time.Second
		checkEqual(t, "soon after", sweep(t, s, w), noChanges)
	}
	checkEqual(t, "expired locks of a daemon that no longer renews them, and four locks from a clock that was ahead", pass(s, 10*time.Minute).Freed, 5)
	// The clock runs evenly; daemons start again within an hour, and the time passes in steps.
	pass(s, 7*time.Hour)
	checkEqual(t, "a-none", counts(t, s, "a-none"), Counts{Added: 1, Abandoned: 1})
	checkEqual(t, "age", takenAge(s) > 6*time.Hour, true)
	uptime += 40 * time.Minute
	s = open()
	checkEqual(t, "age after a start", takenAge(s) > 6*time.Hour, true)
	checkEqual(t, "after 3 days", pass(s, 3*day).Purged >= 1, true)
	checkEqual(t, "after 6 days", pass(s, 3*day).Expired >= 1, true)
	// A daemon that starts after a long downtime does not trust the clock in its first hour.
	e := entry("a-unrun", "1")
	e.Accepted = time.Time{}
	ingest(t, s, e)
	uptime += 50 * day
	s = open()
	checkEqual(t, "at first", pass(s, 50*time.Minute).Expired, 0)
	checkEqual(t, "then", pass(s, 20*time.Minute).Expired, 1)
}

// TestClockJumpsBelowLongTTL: a jump of the clock that endangers no lock, because locks last long,
// is still a jump: no job looks older than it is, and jobs that were written while the clock was
// ahead are found. The lock of a lost daemon expires as if the clock had not been set.
func TestClockJumpsBelowLongTTL(t *testing.T) {
	const jump = 5 * time.Hour
	path := filepath.Join(t.TempDir(), "store.db")
	var clockShift, uptime time.Duration
	start := time.Now()
	s := OpenAt(path, func() time.Time { return start.Add(uptime + clockShift) }, func() time.Duration { return uptime })
	defer s.Close()
	w := SweepOptions{RetryFor: time.Hour, KeepDone: time.Hour, KeepUnrun: time.Hour, TTL: MaxTTL, Limit: 1000,
		Handled: func(jobtype string) bool { return jobtype != "a-none" }}
	add := func(jobtype string) journal.Entry {
		e := entry(jobtype, "1")
		e.Accepted = time.Time{}
		ingest(t, s, e)
		return e
	}
	sweep(t, s, w)
	add("a-lost")
	if err := s.Reserve(t.Context(), otherSysid, MaxTTL); err != nil {
		t.Fatal(err)
	}
	take(t, s, otherSysid, "a-lost", 1, MaxTTL)
	for uptime = 0; uptime < 2*time.Hour; uptime += time.Minute {
		sweep(t, s, w)
	}
	for _, jobtype := range []string{"a-unrun", "a-none", "a-done"} {
		add(jobtype)
	}
	end(t, s, testSysid, RunEnd{Run: take(t, s, testSysid, "a-done", 1, MaxTTL)[0].Run, Action: EndArchive, Code: job.CodeOK, Status: 200})
	clockShift = jump
	for range 2 {
		swept := sweep(t, s, w)
		swept.Ahead = 0
		checkEqual(t, "swept after the jump", swept, SweepResult{})
	}
	ahead := add("a-ahead")
	clockShift = 0
	sweep(t, s, w)
	checkEqual(t, "the job that was written ahead waits", get(t, s, ahead.ID).Due.After(start.Add(uptime)), false)
	lost := func() string { c := counts(t, s, "a-lost"); return fmt.Sprint(c.Running, c.Abandoned) }
	for ; uptime < MaxTTL-time.Hour; uptime += time.Minute {
		sweep(t, s, w)
		if uptime == MaxTTL/2 {
			clockShift = time.Minute
		}
	}
	checkEqual(t, "a lost run before its lock expires", lost(), "1 0")
	uptime = MaxTTL + time.Minute
	sweep(t, s, w)
	checkEqual(t, "a lost run after its lock has expired", lost(), "0 1")
}

// TestClockAhead: jobs are written while the store's clock is ahead. Once the clock is corrected,
// they wait no longer than requested, whether a daemon sees the correction or starts later. The
// lock of a lost daemon expires within a day.
func TestClockAhead(t *testing.T) {
	const day = 24 * time.Hour
	for _, seen := range []bool{true, false} {
		t.Run(fmt.Sprint("seen=", seen), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			var clockShift, uptime time.Duration
			start := time.Now()
			open := func() Store {
				s := OpenAt(path, func() time.Time { return start.Add(uptime + clockShift) }, func() time.Duration { return uptime })
				t.Cleanup(func() { s.Close() })
				return s
			}
			s := open()
			w := SweepOptions{RetryFor: 6 * time.Hour, KeepDone: 14 * day, KeepUnrun: 30 * day, TTL: time.Minute, Limit: 2,
				Handled: func(string) bool { return true }}
			add := func(jobtype string, delay time.Duration) {
				host := start.Add(uptime + clockShift)
				e := journal.Entry{ID: ids.Next(1), Jobtype: jobtype, Payload: []byte("1"), Accepted: host, End: 1}
				if delay > 0 {
					e.Due = host.Add(delay)
				}
				segments++
				if _, err := s.Ingest(t.Context(), journal.Range{Segment: fmt.Sprint("s", segments), To: 1}, []journal.Entry{e}, func() time.Time { return host }); err != nil {
					t.Fatal(err)
				}
			}
			checkFate := func(jobtype string, fate EndAction) {
				end(t, s, testSysid, RunEnd{Run: take(t, s, testSysid, jobtype, 1, time.Minute)[0].Run, Action: fate, Code: job.CodeError, Status: 500, Delay: time.Minute,
					Last: &LastRun{At: time.Now(), Code: job.CodeError, Status: 500}})
			}
			add("a-tried", 0)
			checkFate("a-tried", EndRetry)
			add("a-undone", 0)
			for range 25 {
				add("a-asked", 2*day)
			}
			uptime += 2 * time.Minute
			sweep(t, s, w)
			clockShift = 3 * day
			add("a-fresh", 0)
			add("a-later", time.Hour)
			add("a-lost", 0)
			add("a-failed", 0)
			checkFate("a-tried", EndRetry)
			checkFate("a-failed", EndRetry)
			checkFate("a-undone", EndGiveBack)
			take(t, s, otherSysid, "a-lost", 1, time.Minute)
			if err := s.Reserve(t.Context(), otherSysid, time.Minute); err != nil {
				t.Fatal(err)
			}
			if seen {
				sweep(t, s, w)
			}
			if clockShift = 0; !seen {
				s = open()
			}
			pass := func(d time.Duration) {
				for end := uptime + d; uptime < end; uptime += min(5*time.Minute, end-uptime) {
					for swept := sweep(t, s, w); swept.More; swept = sweep(t, s, w) {
					}
				}
			}
			pass(2 * time.Minute)
			waiting := func(jobtype string) string {
				c := counts(t, s, jobtype)
				return fmt.Sprint(jobtype, " ", c.Waiting, c.Deferred, c.Running)
			}
			checkEqual(t, "asked for", []string{waiting("a-asked"), waiting("a-later")}, []string{"a-asked 0 25 0", "a-later 0 1 0"})
			pass(15 * time.Minute)
			for _, jobtype := range []string{"a-fresh", "a-tried", "a-undone", "a-failed"} {
				checkEqual(t, "due", waiting(jobtype), jobtype+" 1 0 0")
			}
			pass(time.Hour)
			checkEqual(t, "in an hour", waiting("a-later"), "a-later 1 0 0")
			checkEqual(t, "locked", waiting("a-lost"), "a-lost 1 0 0")
			if err := s.Reserve(t.Context(), otherSysid, time.Minute); err != nil {
				t.Fatal(err)
			}
			checkEqual(t, "asked for", waiting("a-asked"), "a-asked 0 25 0")
			pass(2 * day)
			checkEqual(t, "in two days", waiting("a-asked"), "a-asked 25 0 0")
		})
	}
}

// TestRetryWrittenAhead: a job is added before the store's clock is ahead, and retried while it is
// ahead. Once the clock is corrected, the job waits for its delay and no longer. A delay that a
// handler has asked for is not cut.
func TestRetryWrittenAhead(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() Store) {
		s := open()
		ahead, asked := entry("a-ahead", "1"), entry("a-asked", "1")
		ingest(t, s, ahead, asked)
		retry := func(jobtype string, delay time.Duration) {
			run := take(t, s, testSysid, jobtype, 1, testTTL)[0].Run
			end(t, s, testSysid, RunEnd{Run: run, Action: EndRetry, Code: job.CodeError, Status: 500, Delay: delay,
				Last: &LastRun{At: time.Now(), Code: job.CodeError, Status: 500}})
		}
		retry("a-ahead", time.Hour)
		retry("a-asked", 4*time.Hour)
		const by = 3 * time.Hour
		shift := func(table string, then time.Time) {
			text := fmt.Sprintf("UPDATE %s SET dt = '%s' WHERE id = '%s'", table, then.Add(by).UTC().Format("2006-01-02 15:04:05.000"), ahead.ID)
			if err := Exec(t.Context(), s, text); err != nil {
				t.Fatal(err)
			}
		}
		was := get(t, s, ahead.ID)
		shift("sq_jobs", was.Due)
		shift("sq_last", was.Last.At)
		w := laxSweep
		w.RetryFor = 6 * time.Hour
		for range 2 { // the second daemon finds the times correct
			s = open()
			sweep(t, s, w)
			got := get(t, s, ahead.ID)
			checkEqual(t, "waits too long", got.Due.Sub(was.Due).Abs() > time.Minute, false)
			checkEqual(t, "ended later", got.Last.At.Sub(was.Last.At).Abs() > time.Minute, false)
			checkEqual(t, "asked for", get(t, s, asked.ID).Due.Sub(was.Due).Abs().Round(time.Minute), 3*time.Hour)
		}
	})
}

// TestFreedAhead: a job that has run before becomes due while the store's clock is ahead, because
// its run is given back or lost, or because somebody hastens or extends the job. Once the clock is
// corrected, the job does not wait for the clock to show that time again.
func TestFreedAhead(t *testing.T) {
	const day = 24 * time.Hour
	var s Store
	e := entry("a-x", "1")
	share := func(t *testing.T, mode unique.Mode, due time.Time) {
		e.Due = due
		if _, err := s.AddUnique(t.Context(), []KeyedEntry{{Key: "k", Entry: e}}, unique.Request{Mode: mode}, func() time.Time { return e.Accepted }); err != nil {
			t.Fatal(err)
		}
	}
	takeOne := func(t *testing.T) Run { return take(t, s, testSysid, "a-x", 1, time.Minute)[0].Run }
	w := laxSweep
	w.RetryFor, w.TTL = 6*time.Hour, time.Minute
	for _, c := range []struct {
		name string
		free func(t *testing.T)
		wait time.Duration // when the job is due after the clock is corrected
		next int           // the number of its next run
	}{
		{"given back", func(t *testing.T) { end(t, s, testSysid, RunEnd{Run: takeOne(t), Action: EndGiveBack}) }, 0, 2},
		{"lost", func(t *testing.T) {
			takeOne(t)
			if err := s.Leave(t.Context(), testSysid); err != nil {
				t.Fatal(err)
			}
			checkEqual(t, "freed", sweep(t, s, w).Freed, 1)
		}, 0, 3},
		{"hastened", func(t *testing.T) {
			share(t, unique.ModeExtend, e.Accepted.Add(day))
			if err := s.Hasten(t.Context(), e.ID); err != nil {
				t.Fatal(err)
			}
		}, 0, 2},
		{"extended", func(t *testing.T) { share(t, unique.ModeExtend, e.Accepted.Add(time.Hour)) }, time.Hour, 2},
	} {
		for _, lead := range []time.Duration{3 * time.Hour, 3 * day} { // one is shorter than --retry-for
			t.Run(fmt.Sprint(c.name, " ", lead), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "store.db")
				var clockShift, uptime time.Duration
				start := time.Now()
				open := func() {
					s = OpenAt(path, func() time.Time { return start.Add(uptime + clockShift) }, func() time.Duration { return uptime })
					t.Cleanup(func() { s.Close() })
				}
				open()
				e = entry("a-x", "1")
				e.Accepted = start
				share(t, 0, time.Time{})
				end(t, s, testSysid, RunEnd{Run: takeOne(t), Action: EndRetry, Code: job.CodeError, Status: 500,
					Last: &LastRun{At: time.Now(), Code: job.CodeError, Status: 500}})
				clockShift, e.Accepted = lead, start.Add(lead)
				c.free(t)
				clockShift = 0
				open()
				sweep(t, s, w)
				checkEqual(t, "due", get(t, s, e.ID).Due.Sub(start).Round(time.Minute), c.wait)
				for range 2 { // the time was corrected once and for all
					open()
					checkEqual(t, "corrected times", sweep(t, s, w).CorrectedTimes, 0)
				}
				uptime = c.wait + time.Second
				checkEqual(t, "the next run", takeOne(t).Tries, c.next)
				rec := get(t, s, e.ID)
				checkEqual(t, "past runs", len(rec.Runs) > 0 && rec.Runs[0].Outcome == "failed" && rec.Runs[len(rec.Runs)-1].Outcome != "", true)
			})
		}
	}
}

// TestGivenBackLater: the store's clock is set forward after a job was taken for its first run, and
// the run is given back. Once the clock is corrected, the job does not wait.
func TestGivenBackLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var clockShift, uptime time.Duration
	start := time.Now()
	var s Store
	open := func() {
		s = OpenAt(path, func() time.Time { return start.Add(uptime + clockShift) }, func() time.Duration { return uptime })
		t.Cleanup(func() { s.Close() })
	}
	open()
	e := entry("a-x", "1")
	e.Accepted = start
	ingest(t, s, e)
	run := take(t, s, testSysid, "a-x", 1, time.Minute)[0].Run
	clockShift = 3 * time.Hour
	end(t, s, testSysid, RunEnd{Run: run, Action: EndGiveBack})
	clockShift = 0
	open()
	sweep(t, s, laxSweep)
	checkEqual(t, "due", get(t, s, e.ID).Due.Sub(start).Round(time.Minute), time.Duration(0))
	checkEqual(t, "the next run", take(t, s, testSysid, "a-x", 1, time.Minute)[0].Run.Tries, 1)
}

// TestExtendedRetry: a job waits for its next try, after a failure or because its run was given
// back or lost, and is then extended by more than the time for which jobs are retried. It waits as
// long as the client has requested, also after a restart.
func TestExtendedRetry(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() Store) {
		s := open()
		e := entry("a-x", "1")
		share := func(req unique.Request, due time.Time) {
			e.Due = due
			if _, err := s.AddUnique(t.Context(), []KeyedEntry{{Key: "k", Entry: e}}, req, time.Now); err != nil {
				t.Fatal(err)
			}
		}
		w := laxSweep
		w.RetryFor = 6 * time.Hour
		for _, how := range []string{"failed", "given back", "lost"} {
			e = entry("a-"+how[:1], "1")
			share(unique.Request{}, time.Time{})
			runEnd := RunEnd{Action: EndRetry, Code: job.CodeError, Status: 500, Last: &LastRun{At: time.Now(), Code: job.CodeError, Status: 500}}
			runEnd.Run = take(t, s, testSysid, e.Jobtype, 1, testTTL)[0].Run
			end(t, s, testSysid, runEnd)
			switch how {
			case "given back":
				run := take(t, s, testSysid, e.Jobtype, 1, testTTL)[0].Run
				end(t, s, testSysid, RunEnd{Run: run, Action: EndGiveBack})
			case "lost":
				take(t, s, testSysid, e.Jobtype, 1, testTTL)
				if err := s.Leave(t.Context(), testSysid); err != nil {
					t.Fatal(err)
				}
				checkEqual(t, "freed", sweep(t, s, w).Freed, 1)
			}
			share(unique.Request{Mode: unique.ModeExtend}, time.Now().Add(24*time.Hour))
			was := get(t, s, e.ID).Due
			s = open()
			sweep(t, s, w)
			checkEqual(t, how+": due after a restart", get(t, s, e.ID).Due, was)
		}
	})
}

// TestClockBehind: jobs are written or corrected while the store's clock is behind. Once the clock
// is corrected, no job expires, is purged or is abandoned before its time, neither by a daemon that
// sees the correction nor by a daemon that starts later.
func TestClockBehind(t *testing.T) {
	const day = 24 * time.Hour
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("started again=", again), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			var clockShift, uptime time.Duration
			start := time.Now()
			open := func() Store {
				s := OpenAt(path, func() time.Time { return start.Add(uptime + clockShift) }, func() time.Duration { return uptime })
				t.Cleanup(func() { s.Close() })
				return s
			}
			s := open()
			w := SweepOptions{RetryFor: 6 * time.Hour, KeepDone: 2 * day, KeepUnrun: 5 * day, TTL: time.Minute, Limit: 1000,
				Handled: func(jobtype string) bool { return jobtype != "a-none" }}
			add := func(jobtype string) {
				e := entry(jobtype, "1")
				e.Accepted = time.Time{}
				ingest(t, s, e)
			}
			var swept SweepResult
			pass := func(d time.Duration) {
				for end := uptime + d; ; uptime += min(30*time.Minute, end-uptime) {
					result := sweep(t, s, w)
					swept.Abandoned, swept.Expired, swept.Purged = swept.Abandoned+result.Abandoned, swept.Expired+result.Expired, swept.Purged+result.Purged
					if uptime == end {
						return
					}
				}
			}
			add("a-unrun")
			pass(2 * time.Hour)
			clockShift = -400 * day
			pass(2 * time.Minute)
			for _, jobtype := range []string{"a-unrun", "a-none", "a-done", "a-again"} {
				add(jobtype)
			}
			end(t, s, testSysid, RunEnd{Run: take(t, s, testSysid, "a-done", 1, testTTL)[0].Run, Action: EndArchive, Code: job.CodeOK, Status: 200})
			end(t, s, testSysid, RunEnd{Run: take(t, s, testSysid, "a-again", 1, testTTL)[0].Run, Action: EndRetry, Code: job.CodeError, Status: 500})
			clockShift = 0
			pass(2 * time.Minute)
			if again {
				s = open()
			}
			pass(5 * time.Hour)
			takenJobs, err := s.Take(t.Context(), TakeRequest{Sysid: otherSysid, Jobtype: "a-again", N: 1, TTL: time.Minute, RetryFor: w.RetryFor})
			if err != nil || len(takenJobs) != 1 || takenJobs[0].Age > w.RetryFor {
				t.Error("age:", takenJobs, err)
			}
			checkEqual(t, "in five hours", swept, SweepResult{})
			pass(4 * time.Hour)
			checkEqual(t, "in nine hours", swept, SweepResult{Abandoned: 1})
			pass(36 * time.Hour)
			checkEqual(t, "in 45 hours", swept, SweepResult{Abandoned: 1})
			pass(14 * time.Hour)
			checkEqual(t, "in 59 hours", swept, SweepResult{Abandoned: 1, Purged: 2}) // a-done, and a-none, which was abandoned on the first day
			pass(56 * time.Hour)
			checkEqual(t, "in 115 hours", swept.Expired, 0)
			pass(12 * time.Hour)
			checkEqual(t, "in 127 hours", swept.Expired, 2)
		})
	}
}

// TestClockBehindAtEachStart: a host whose clock begins at 1970, and is corrected only when the daemon has
// started, can be started any number of times. No job that was added before the correction expires early.
func TestClockBehindAtEachStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var clockShift, uptime time.Duration
	start := time.Now()
	w := SweepOptions{RetryFor: 6 * time.Hour, KeepDone: 14 * 24 * time.Hour, KeepUnrun: 30 * 24 * time.Hour, TTL: time.Minute, Limit: 1000}
	for n := range 8 {
		s := OpenAt(path, func() time.Time { return start.Add(uptime + clockShift) }, func() time.Duration { return uptime })
		pass := func(d time.Duration) {
			for end := uptime + d; uptime < end; uptime += min(10*time.Minute, end-uptime) {
				checkEqual(t, fmt.Sprintf("expired jobs, start %d", n), sweep(t, s, w).Expired, 0)
			}
		}
		clockShift = time.Unix(0, 0).Sub(start) - uptime
		pass(2 * time.Minute)
		e := entry("a-unrun", "1")
		e.Accepted = time.Time{}
		ingest(t, s, e)
		clockShift = 0
		pass(5 * time.Hour)
		s.Close()
	}
}

// TestMiscountedJobsRun: jobs are found even if their count is wrongly 0, as after a backup that
// was restored while daemons wrote.
func TestMiscountedJobsRun(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "1"), entry("a-y", "1"))
		for _, change := range []string{"UPDATE sq_counts SET open = open - 3 WHERE type = 'a-x'", "UPDATE sq_counts SET open = open + 3 WHERE type = 'a-x'", "DELETE FROM sq_counts"} {
			if err := Exec(t.Context(), s, change); err != nil {
				t.Fatal(err)
			}
			sweep(t, s, laxSweep)
			due, _, err := s.Waiting(t.Context())
			var types []string
			for _, d := range due {
				types = append(types, d.Jobtype)
			}
			slices.Sort(types)
			checkEqual(t, "due types after "+change, []any{types, err}, []any{[]string{"a-x", "a-y"}, nil})
		}
	})
}

// TestWrongCountsAreReported: counts that do not match the jobs are reported, whatever the cause,
// until they match again.
func TestWrongCountsAreReported(t *testing.T) {
	checkReport := func(t *testing.T, s Store, db *sql.DB) {
		defer db.Close()
		change := func(text string) {
			t.Helper()
			if _, err := db.Exec(text); err != nil {
				t.Fatal(err)
			}
		}
		// round runs sweeps until all types have been audited.
		round := func() (imbalance int64, types []string) {
			for range 4 {
				swept := sweep(t, s, laxSweep)
				imbalance, types = swept.Imbalance, append(types, swept.Miscounted...)
			}
			slices.Sort(types)
			return imbalance, slices.Compact(types)
		}
		var jobs []journal.Entry
		for i := range 60 {
			jobs = append(jobs, entry(fmt.Sprintf("a-%02d", i%20), "1"))
		}
		ingest(t, s, jobs...)
		run := take(t, s, testSysid, "a-07", 1, testTTL)[0]
		for _, c := range []struct {
			name, change, repair string
			imbalance            int64
			types                string
		}{
			{"nothing", "SELECT 1", "SELECT 1", 0, "[]"},
			{"a lost job", "UPDATE sq_jobs SET type = 'b-y' WHERE id = '" + string(jobs[19].ID) + "'",
				"UPDATE sq_jobs SET type = 'a-19' WHERE id = '" + string(jobs[19].ID) + "'", 2, "[a-19 b-y]"},
			{"a lost run", "UPDATE sq_jobs SET `lock` = '' WHERE id = '" + string(run.ID) + "'",
				"UPDATE sq_jobs SET `lock` = '" + testSysid + "' WHERE id = '" + string(run.ID) + "'", 2, "[a-07]"},
			{"a wrong count", "UPDATE sq_counts SET open = open + 5 WHERE type = 'a-03'", "UPDATE sq_counts SET open = open - 5 WHERE type = 'a-03'", 5, "[a-03]"},
			{"two that look like none", "UPDATE sq_counts SET open = open + CASE type WHEN 'a-03' THEN 1 ELSE -1 END WHERE type IN ('a-03', 'a-18')",
				"UPDATE sq_counts SET open = open - CASE type WHEN 'a-03' THEN 1 ELSE -1 END WHERE type IN ('a-03', 'a-18')", 2, "[a-03 a-18]"},
		} {
			change(c.change)
			imbalance, types := round()
			checkEqual(t, c.name, []any{imbalance, types}, []any{c.imbalance, c.types})
			change(c.repair)
			round()
			imbalance, types = round()
			checkEqual(t, c.name+", and back", []any{imbalance, types}, []any{0, "[]"})
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "store.db")
		db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		checkReport(t, openStore(t, "sqlite:"+path), db)
	})
	t.Run("mariadb", func(t *testing.T) {
		server := mariadbtest.Shared(t)
		name := server.Database(t)
		db, err := server.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		checkReport(t, openStore(t, fmt.Sprintf("mysql://root@/%s?socket=%s", name, url.QueryEscape(server.Socket()))), db)
	})
}

// TestClockCorrectedByRestart: a host's clock is behind when a daemon opens the file, which starts the
// store's clock, and is corrected. When the daemon starts again, as its log asks for, the store's
// clock jumps, and no job is older than it is.
func TestClockCorrectedByRestart(t *testing.T) {
	const day = 24 * time.Hour
	path := filepath.Join(t.TempDir(), "store.db")
	uptime, clockShift, start := time.Minute, -400*day, time.Now()
	open := func() Store {
		s := OpenOn(path, "boot", func() time.Time { return start.Add(uptime + clockShift) }, func() time.Duration { return uptime })
		t.Cleanup(func() { s.Close() })
		return s
	}
	w := SweepOptions{RetryFor: 6 * time.Hour, KeepDone: 2 * day, KeepUnrun: 5 * day, TTL: time.Minute, Limit: 1000,
		Handled: func(jobtype string) bool { return jobtype != "a-none" }}
	s := open()
	for _, jobtype := range []string{"a-unrun", "a-none", "a-done"} {
		e := entry(jobtype, "1")
		e.Accepted = time.Time{}
		ingest(t, s, e)
	}
	end(t, s, testSysid, RunEnd{Run: take(t, s, testSysid, "a-done", 1, testTTL)[0].Run, Action: EndArchive, Code: job.CodeOK, Status: 200})
	clockShift = 0
	var swept SweepResult
	pass := func(d time.Duration) {
		for end := uptime + d; uptime < end; uptime += 30 * time.Minute {
			result := sweep(t, s, w)
			swept.Abandoned, swept.Expired, swept.Purged = swept.Abandoned+result.Abandoned, swept.Expired+result.Expired, swept.Purged+result.Purged
		}
	}
	pass(2 * time.Hour)
	for range 2 { // the second start finds the clock as it is
		s.Close()
		s = open()
		pass(90 * time.Minute)
		checkEqual(t, "after the start", swept, SweepResult{})
	}
	pass(2 * time.Hour)
	checkEqual(t, "in seven hours", swept, SweepResult{Abandoned: 1})
	pass(36 * time.Hour)
	checkEqual(t, "in 43 hours", swept, SweepResult{Abandoned: 1})
	pass(14 * time.Hour)
	checkEqual(t, "in 57 hours", swept, SweepResult{Abandoned: 1, Purged: 2})
	pass(56 * time.Hour)
	checkEqual(t, "in 113 hours", swept.Expired, 0)
	pass(14 * time.Hour)
	checkEqual(t, "in 127 hours", swept, SweepResult{Abandoned: 1, Purged: 2, Expired: 1})
}

// TestClockCorrectedWhileNobodyLooks: the clock was behind for some minutes, and is corrected while no
// daemon runs. A note from before does not say that it has run evenly.
func TestClockCorrectedWhileNobodyLooks(t *testing.T) {
	const day = 24 * time.Hour
	path := filepath.Join(t.TempDir(), "store.db")
	var clockShift, uptime time.Duration
	start := time.Now()
	open := func() Store {
		s := OpenAt(path, func() time.Time { return start.Add(uptime + clockShift) }, func() time.Duration { return uptime })
		t.Cleanup(func() { s.Close() })
		return s
	}
	w := SweepOptions{RetryFor: 6 * time.Hour, KeepDone: 14 * day, KeepUnrun: 30 * day, TTL: time.Minute, Limit: 1000, Handled: func(string) bool { return true }}
	s := open()
	for range 13 {
		sweep(t, s, w)
		uptime += 10 * time.Minute
	}
	sweep(t, s, w)
	clockShift = -400 * day
	sweep(t, s, w)
	e := entry("a-unrun", "1")
	e.Accepted = time.Time{}
	ingest(t, s, e)
	uptime += 5 * time.Minute
	s.Close()
	clockShift = 0
	s = open()
	checkEqual(t, "at the start", sweep(t, s, w).Expired, 0)
	uptime += 55 * time.Minute
	checkEqual(t, "in an hour", sweep(t, s, w).Expired, 0)
}
