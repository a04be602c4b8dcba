package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"gloom/cmd/internal/schedule"
	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/store"
)

func spec(t *testing.T, text string) schedule.Spec {
	t.Helper()
	s, err := schedule.Parse([]byte(text), func(json.RawMessage) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func putSchedule(t *testing.T, s Store, name, text string) {
	t.Helper()
	if err := s.PutSchedule(t.Context(), schedule.Key{Client: "a", Name: name}, spec(t, text), false); err != nil {
		t.Fatal(err)
	}
}

func getSchedule(t *testing.T, s Store, name string) NamedSchedule {
	t.Helper()
	n, _, err := s.Schedule(t.Context(), schedule.Key{Client: "a", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// settleDue settles schedules like a daemon that has run for a long time. It tries again if the
// store is slow, because a slow store counts as away.
func settleDue(t *testing.T, s Store) (followJobs []FollowJob) {
	t.Helper()
	for {
		due, _, _, err := s.DueSchedules(t.Context())
		var settled SettleResult
		if err == nil {
			settled, err = s.SettleSchedules(t.Context(), due, time.Time{})
		}
		if err == nil {
			followJobs = append(followJobs, settled.Made...)
		}
		switch {
		case errors.Is(err, ErrAway) && t.Context().Err() == nil:
		case err != nil:
			t.Error(err)
			return followJobs
		case settled.Schedules == 0:
			return followJobs
		}
	}
}

// TestScheduledOnce: when many daemons settle the same schedules, one of them makes the job of a
// due time, in the transaction that records it.
func TestScheduledOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() Store) {
		t.Parallel()
		const daemons, schedules = 4, 150
		s := open()
		long := fmt.Sprintf("%02000d", 7)
		var until time.Time
		for i := range schedules {
			until = time.Now().Add(1900 * time.Millisecond) // at most one due time has come
			putSchedule(t, s, fmt.Sprintf("ä %d", i), `{"cron":"@every 1s","until":"`+until.Format(time.RFC3339Nano)+`","job":{"type":"x","payload":"`+long+`"}}`)
		}
		for {
			due, now, next, err := s.DueSchedules(t.Context())
			if err != nil || len(due) == 0 && next.IsZero() {
				t.Fatal("nothing is due", err)
			}
			if now.After(until) {
				break
			}
			time.Sleep(min(until.Sub(now)+time.Millisecond, 50*time.Millisecond))
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		madeCounts := make(map[job.ID]int)
		for range daemons {
			s := open()
			wg.Go(func() {
				for _, f := range settleDue(t, s) {
					mu.Lock()
					madeCounts[f.ID]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		n := 0
		list, now, err := s.Schedules(t.Context(), "a", schedule.Key{}, 1000)
		if err != nil || len(list) != schedules {
			t.Fatal(len(list), err)
		}
		for _, sch := range list {
			var want []schedule.Run
			if due := sch.Created.Add(time.Second); !due.After(sch.Until) {
				n++
				want = append(want, schedule.Run{DueAt: due, JobID: string(job.ScheduledID(sch.Key, due))})
			}
			for i := range sch.RecentRuns {
				sch.RecentRuns[i].MadeAt = time.Time{}
			}
			checkEqual(t, sch.Name, sch.RecentRuns, want)
			if wake := sch.WakeTime(now); !wake.IsZero() || n > 0 && len(want) > 0 && madeCounts[job.ID(want[0].JobID)] != 1 {
				t.Fatalf("%s: %v, made %d times, due at %v", sch.Name, want, madeCounts[job.ID(want[0].JobID)], wake)
			}
		}
		if n == 0 || n != len(madeCounts) {
			t.Fatalf("%d due times, %d jobs", n, len(madeCounts))
		}
		checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: int64(n), Waiting: int64(n)})
		taken := take(t, s, testSysid, "a-x", 1, testTTL)
		checkEqual(t, "payload", payloads(taken), long)
	})
}

// TestScheduledOverlap: with overlap queue, a job is made when the job before has ended.
func TestScheduledOverlap(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	s := OpenAt(filepath.Join(t.TempDir(), "store.db"), func() time.Time { return now }, nil)
	defer s.Close()
	putSchedule(t, s, "q", `{"cron":"@every 10s","overlap":"queue","job":{"type":"x"}}`)
	at := func(seconds int, want int) {
		t.Helper()
		now = time.Date(2026, 6, 1, 12, 0, seconds, 0, time.UTC)
		checkEqual(t, fmt.Sprint("made at ", seconds), len(settleDue(t, s)), want)
	}
	at(10, 1)
	run := take(t, s, testSysid, "a-x", 1, testTTL)[0].Run
	at(20, 0)
	at(25, 0)
	at(30, 0)
	end(t, s, testSysid, RunEnd{Run: run, Code: "ok", Status: 200})
	at(31, 1)
	at(32, 0)
	n := getSchedule(t, s, "q")
	var last []string
	for _, r := range n.RecentRuns {
		last = append(last, r.DueAt.Format("05")+r.MadeAt.Format(">05")+r.Skipped)
	}
	checkEqual(t, "last", last, "[20>31 30>00waiting 10>10]")
	s.Delete(t.Context(), job.ID(n.LastJobID)) // the job has not ended, but no longer exists
	at(40, 1)
}

// TestSchedulesWhenClockIsSetBack: when a store's clock is set back, no job is made twice. Due
// times that were missed because the clock was ahead come again, and their jobs are made then.
func TestSchedulesWhenClockIsSetBack(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	s := OpenAt(filepath.Join(t.TempDir(), "store.db"), func() time.Time { return now }, nil)
	defer s.Close()
	putSchedule(t, s, "x", `{"cron":"*/5 * * * *","job":{"type":"x"}}`)
	var watch schedule.Watch
	var madeTimes []string
	look := func(at string) {
		t.Helper()
		wantTime, err := time.Parse(time.DateTime, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, now = range []time.Time{wantTime.Add(-time.Second), wantTime} {
			due, at, _, err := s.DueSchedules(t.Context())
			since, _ := watch.Observe(at)
			settled, err2 := s.SettleSchedules(t.Context(), due, since)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			for range settled.Made {
				madeTimes = append(madeTimes, now.Format("15:04"))
			}
		}
	}
	for _, at := range []string{
		"2026-06-01 12:05:00", "2026-06-01 12:10:00", "2026-06-02 09:00:00", "2026-06-02 09:05:00",
		"2026-06-01 12:09:00", "2026-06-01 12:10:00", "2026-06-01 12:15:00", "2026-06-02 09:00:00", "2026-06-02 09:05:00", "2026-06-02 09:10:00",
	} {
		look(at)
	}
	slices.Sort(madeTimes)
	checkEqual(t, "made", madeTimes, "[09:00 09:05 09:10 12:05 12:10 12:15]")
}

// TestScheduleKept: only the source of a schedule, HTTP or the file, can change it, and a changed
// schedule continues where it was.
func TestScheduleKept(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		const text = `{"cron":"@daily","job":{"type":"x"}}`
		file := schedule.Key{Client: "b", Name: "x"}
		for range 2 {
			if err := s.PutSchedule(t.Context(), file, spec(t, text), true); err != nil {
				t.Fatal(err)
			}
		}
		checkError(t, s.PutSchedule(t.Context(), file, spec(t, text), false), ErrFromFile)
		checkError(t, s.DropSchedule(t.Context(), file, false), ErrFromFile)
		for i := range 5 {
			putSchedule(t, s, fmt.Sprint("s", i), text)
		}
		created := getSchedule(t, s, "s3").Created
		putSchedule(t, s, "s3", `{"cron":"@daily","job":{"type":"x"},"note":"changed"}`)
		if n := getSchedule(t, s, "s3"); n.Note != "changed" || !n.Created.Equal(created) {
			t.Errorf("%+v", n.Schedule)
		}
		list, _, err := s.Schedules(t.Context(), "a", schedule.Key{Name: "s1"}, 2)
		if err != nil || len(list) != 2 || list[0].Name != "s2" || list[1].Name != "s3" {
			t.Errorf("%v, %v", list, err)
		}
		list, _, err = s.Schedules(t.Context(), "", schedule.Key{Client: "a", Name: "s3"}, 9)
		if err != nil || len(list) != 2 || list[0].Name != "s4" || list[1].Key != file {
			t.Errorf("of all clients: %v, %v", list, err)
		}
		if list, err := s.FileSchedules(t.Context()); err != nil || len(list) != 1 || list[0].Key != file {
			t.Errorf("%v, %v", list, err)
		}
		checkError(t, s.DropSchedule(t.Context(), schedule.Key{Client: "a", Name: "x"}, false), ErrUnknown)
		if err := s.DropSchedule(t.Context(), file, true); err != nil {
			t.Fatal(err)
		}
		_, _, err = s.Schedule(t.Context(), file)
		checkError(t, err, ErrUnknown)
	})
}
