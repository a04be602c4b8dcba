package schedule

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// testDoor is a schedule with a store; the test sets its clock.
type testDoor struct {
	t        *testing.T
	schedule *Schedule
	watch    Watch
	room     int
	jobs     []string        // "due>made", in seconds from noon
	isOpen   map[string]bool // all jobs by id: true if the job has not ended
	skipped  map[string]int
}

func newTestDoor(t *testing.T, change func(*Spec)) *testDoor {
	spec := Spec{Cron: "@every 10s", Zone: "UTC", Job: json.RawMessage(`1`), CatchUp: catchUpNone, Overlap: overlapAllow, WindowMS: 3_600_000}
	change(&spec)
	s, err := New(spec, noon)
	if err != nil {
		t.Fatal(err)
	}
	w := &testDoor{t: t, schedule: s, room: 100, isOpen: map[string]bool{}, skipped: map[string]int{}}
	w.watch.Observe(noon)
	return w
}

// settleAt advances the time to this many seconds after noon, and settles the schedule.
func (w *testDoor) settleAt(seconds float64) {
	w.t.Helper()
	now := noon.Add(time.Duration(seconds * float64(time.Second)))
	since, _ := w.watch.Observe(now)
	for more := true; more; {
		s, err := Decode(w.schedule.Encode()) // encoded and decoded, as by a store
		if err != nil {
			w.t.Fatal(err)
		}
		wake := s.WakeTime(now)
		p := s.Settle(Conditions{Now: now, WatchedSince: since, Room: w.room, IsLive: func(id string) bool { return w.isOpen[id] },
			JobID: func(due time.Time) string { return fmt.Sprint(due.Sub(noon).Seconds()) }})
		if len(p.Made) > w.room {
			w.t.Fatalf("%d jobs at once", len(p.Made))
		}
		if p.HasChanged && s.Queued.IsZero() && w.schedule.Queued.IsZero() && slices.Equal(s.Gaps, w.schedule.Gaps) && (wake.IsZero() || wake.After(now)) {
			w.t.Fatalf("at %v it was not to be looked at before %v, and has %+v", now, wake, p)
		}
		for _, r := range p.Made {
			if _, known := w.isOpen[r.JobID]; known {
				w.t.Fatalf("at %v: %s is made twice", now, r.JobID)
			}
			w.isOpen[r.JobID] = true
			w.jobs = append(w.jobs, fmt.Sprintf("%s>%g", r.JobID, now.Sub(noon).Seconds()))
		}
		for reason, n := range p.Skipped {
			w.skipped[reason] += n
		}
		if p.HasChanged {
			w.schedule = s
		}
		more = p.HasMore
	}
}

func (w *testDoor) expect(jobs string, skipped string) {
	w.t.Helper()
	if got := strings.Join(w.jobs, " "); got != jobs {
		w.t.Errorf("made %s, want %s", got, jobs)
	}
	if got := strings.TrimPrefix(fmt.Sprint(w.skipped), "map"); got != skipped {
		w.t.Errorf("skipped %s, want %s", got, skipped)
	}
}

func (w *testDoor) watching(from, to float64) {
	for s := from; s <= to; s += 0.5 {
		w.settleAt(s)
	}
}

func TestMissedTimesAreCaughtUp(t *testing.T) {
	for _, c := range []struct {
		catchUp           string
		window            int64
		jobTimes, skipped string
	}{
		{catchUpNone, 3_600_000, "10>10 50>50.5", "[missed:3]"},
		{catchUpOne, 3_600_000, "10>10 40>50.5 50>50.5", "[missed:2]"},
		{catchUpOne, 5_000, "10>10 50>50.5", "[missed:3]"},
		{catchUpAll, 3_600_000, "10>10 20>50.5 30>50.5 40>50.5 50>50.5", "[]"},
		{catchUpAll, 25_000, "10>10 30>50.5 40>50.5 50>50.5", "[missed:1]"},
	} {
		w := newTestDoor(t, func(s *Spec) { s.CatchUp, s.WindowMS = c.catchUp, c.window })
		w.watching(0.5, 12)
		w.room = 2
		w.settleAt(50.5)
		w.expect(c.jobTimes, c.skipped)
	}
}

// TestLongOutageMakesLastJobs: after a long outage only the last jobs are made, as many as allowed; an
// outage of any length is handled at once.
func TestLongOutageMakesLastJobs(t *testing.T) {
	w := newTestDoor(t, func(s *Spec) { s.Cron, s.CatchUp, s.WindowMS = "@every 1s", catchUpAll, maxWindow.Milliseconds() })
	w.settleAt(5000.5)
	if n := len(w.jobs); n != MaxCatchUp+1 || w.jobs[0] != "4000>5000.5" || w.jobs[n-1] != "5000>5000.5" {
		t.Errorf("%d: %s … %s", n, w.jobs[0], w.jobs[n-1])
	}
	w = newTestDoor(t, func(s *Spec) { s.Cron = "* * * * *" })
	w.settleAt(20 * 365 * 86400)
	if len(w.jobs) != 1 || len(w.schedule.RecentRuns) != maxPast {
		t.Errorf("%v, %+v", w.jobs, w.schedule.RecentRuns)
	}
}

func TestOverlapPoliciesHold(t *testing.T) {
	for overlap, want := range map[string][2]string{
		overlapAllow: {"10>10 20>20 30>30 40>40", "[]"},
		overlapSkip:  {"10>10 40>40", "[running:2]"},
		overlapQueue: {},
	} {
		w := newTestDoor(t, func(s *Spec) { s.Overlap = overlap })
		w.watching(0.5, 32)
		w.isOpen["10"] = false
		if overlap != overlapQueue {
			w.watching(32.5, 41)
			w.expect(want[0], want[1])
			continue
		}
		w.expect("10>10", "[waiting:1]")
		w.watching(32.5, 41)
		w.expect("10>10 20>32.5", "[waiting:1]") // due time 40 waits for the job of 20
		w.isOpen["20"] = false
		w.settleAt(41.5)
		w.expect("10>10 20>32.5 40>41.5", "[waiting:1]")
	}
	// The limit on overlaps applies to jobs that are caught up, too.
	w := newTestDoor(t, func(s *Spec) { s.Overlap, s.CatchUp = overlapSkip, catchUpAll })
	w.settleAt(50)
	w.expect("10>50", "[running:4]")
}

// TestClockSetBackMakesNoJobTwice: when the clock is set back, no job is made twice, and due times that the clock
// had passed already are not lost.
func TestClockSetBackMakesNoJobTwice(t *testing.T) {
	w := newTestDoor(t, func(s *Spec) { s.CatchUp = catchUpOne })
	w.watching(0.5, 21)
	w.watching(100_000, 100_011) // a day ahead
	const made = "10>10 20>20 99990>100000 100000>100000 100010>100010"
	w.expect(made, "[missed:999]")
	w.watching(5, 41) // the clock is right again
	w.expect(made+" 30>30 40>40", "[missed:999]")
	w.watching(99_981, 100_021) // the clock is ahead again; no daemon ran from 50 on
	w.expect(made+" 30>30 40>40 99980>99981 100020>100020", "[missed:1998]")
	w = newTestDoor(t, func(*Spec) {}) // created at noon by a clock that was ahead
	w.watching(-100_000, -99_985)
	w.expect("-99990>-99990", "[]")
}

// TestClockCorrectionsLoseNoDueTime: the clock was ahead several times, by different lengths. After
// each correction no due time is lost and no job is made twice.
func TestClockCorrectionsLoseNoDueTime(t *testing.T) {
	w := newTestDoor(t, func(*Spec) {})
	w.watching(0.5, 11)
	w.watching(1000, 1001) // ahead
	w.watching(11, 21)
	w.watching(500, 501) // ahead by less
	w.watching(21, 31)
	w.watching(100_000, 100_001) // ahead by more
	w.watching(31, 41)
	w.expect("10>10 1000>1000 20>20 500>500 30>30 100000>100000 40>40", "[missed:1145]")
	if next := w.schedule.NextTimes(noon.Add(495 * time.Second)); !next[0].Equal(noon.Add(510 * time.Second)) {
		t.Errorf("500 is done, and the next is %v", next[0])
	}
	w = newTestDoor(t, func(s *Spec) { s.Cron = "@every 1h" })
	w.settleAt(1)
	w.settleAt(4000) // ahead of the hour
	w.settleAt(2)
	w.watching(3595.3, 3602) // the hour comes, between two looks
	w.expect("3600>3600.3", "[missed:1]")
	w = newTestDoor(t, func(*Spec) {})
	w.watching(0.5, 11)
	w.watching(-1000, -989) // before the creation
	w.watching(-100_000, -99_989)
	w.watching(11, 21)
	w.expect("10>10 -990>-990 -99990>-99990 20>20", "[]")
	w = newTestDoor(t, func(*Spec) {})
	for i := range 2 * maxGaps { // the clock goes back and forth
		w.watching(float64(i)*20+0.5, float64(i)*20+20)
		w.watching(100_000+float64(i)*20, 100_001+float64(i)*20)
	}
	if n := len(w.schedule.Gaps); n != maxGaps {
		t.Errorf("there are %d gaps", n)
	}
	for i := range 2 * 2 * maxGaps {
		if due := float64(i+1) * 10; !w.isCovered(due) {
			t.Errorf("%g is not made", due)
		}
	}
}

// TestStoredGapIsKept: a schedule that an earlier version has stored keeps its gap.
func TestStoredGapIsKept(t *testing.T) {
	s := newTestDoor(t, func(*Spec) {}).schedule
	text := strings.Replace(string(s.Encode()), `"gaps":[`, `"gap":`, 1)
	old, err := Decode([]byte(strings.Replace(text, "}]", "}", 1)))
	if err != nil || !slices.Equal(old.Gaps, s.Gaps) || len(old.Gaps) != 1 {
		t.Errorf("it has %v, %v", old, err)
	}
}

// TestClockSetBackAfterMisses: while the clock was far ahead, more due times seemed missed than
// are caught up. When the clock is set back, these due times are not lost.
func TestClockSetBackAfterMisses(t *testing.T) {
	w := newTestDoor(t, func(s *Spec) { s.CatchUp, s.WindowMS = catchUpAll, maxWindow.Milliseconds() })
	w.watching(0.5, 21)
	w.watching(1_000_000, 1_000_001)
	jobCount := len(w.jobs)
	if jobCount != 2+MaxCatchUp+1 { // the last one is due at that time
		t.Fatalf("%d jobs are made", jobCount)
	}
	w.watching(21, 41) // right again
	if got := strings.Join(w.jobs[jobCount:], " "); got != "30>30 40>40" {
		t.Errorf("after the clock was set back, %q are made", got)
	}
}

// TestRandomClocksMakeNoJobTwice: whatever the clock does, no due time makes two jobs. When the clock runs
// evenly again, each due time makes its job.
func TestRandomClocksMakeNoJobTwice(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 15 {
		w := newTestDoor(t, func(s *Spec) { s.CatchUp = []string{catchUpNone, catchUpOne, catchUpAll}[r.IntN(3)] })
		start := []float64{0.5, 0.3}[r.IntN(2)] // the clock is read at due times, or between them
		at := start
		for range 12 {
			from := at
			for range 60 {
				w.settleAt(at)
				at += 0.5
			}
			for due := (math.Floor(from/10) + 1) * 10; due <= at-0.5; due += 10 {
				if due != 0 && !w.isCovered(due) { // the schedule was created at noon, which is 0
					t.Fatalf("%s: %g is not made between %g and %g; %v", w.schedule.CatchUp, due, from, at, w.jobs)
				}
			}
			switch r.IntN(3) {
			case 0:
				at += float64(r.IntN(400))
			case 1:
				at -= float64(r.IntN(400))
			}
			at = max(at, start-1000)
		}
	}
}

func (w *testDoor) isCovered(due float64) bool {
	_, known := w.isOpen[fmt.Sprint(due)]
	return known
}

// TestChangeOfDueTimesCountsAnew: if a change affects the due times, they count from the change;
// otherwise due times that will be caught up are kept.
func TestChangeOfDueTimesCountsAnew(t *testing.T) {
	w := newTestDoor(t, func(s *Spec) { s.CatchUp = catchUpAll })
	change := func(f func(*Spec), now float64) bool {
		spec := w.schedule.Spec
		f(&spec)
		old := w.schedule
		var err error
		if w.schedule, err = Put(old, spec, false, noon.Add(time.Duration(now*float64(time.Second)))); err != nil {
			t.Fatal(err)
		}
		return w.schedule != old
	}
	if change(func(*Spec) {}, 15) {
		t.Error("the same spec is a change")
	}
	change(func(s *Spec) { s.Note = "x" }, 15)
	w.settleAt(20.5)
	w.expect("10>20.5 20>20.5", "[]")
	change(func(s *Spec) { s.Cron = "@every 7s" }, 50) // 49, then 56
	w.settleAt(58)
	change(func(s *Spec) { s.Paused = true }, 58.5)
	w.settleAt(70)
	if len(w.schedule.NextTimes(noon)) != 0 || !w.schedule.WakeTime(noon).IsZero() {
		t.Error("it is paused, and something is due")
	}
	change(func(s *Spec) { s.Paused = false }, 71)
	w.settleAt(78)
	change(func(s *Spec) { s.Until = noon.Add(84 * time.Second) }, 79)
	w.settleAt(100)
	change(func(s *Spec) { s.Until = noon.Add(time.Hour) }, 101)
	w.settleAt(106)
	w.expect("10>20.5 20>20.5 56>58 77>78 84>100 105>106", "[]")
	next := w.schedule.NextTimes(noon.Add(106 * time.Second))
	if len(next) != maxNext || !next[0].Equal(noon.Add(112*time.Second)) {
		t.Errorf("next: %v", next)
	}
}

// TestJSONOfScheduleView: the view of a schedule has exactly the expected JSON.
func TestJSONOfScheduleView(t *testing.T) {
	w := newTestDoor(t, func(s *Spec) { s.Overlap = overlapSkip })
	w.watching(0.5, 21)
	text, err := json.Marshal(w.schedule.View("x", noon.Add(21*time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"x","cron":"@every 10s","zone":"UTC","job":1,"catch_up":"none","window_ms":3600000,"overlap":"skip","paused":false,"note":"","until":null,` +
		`"created_at":"2026-06-01T12:00:00.000Z","from_file":false,"queued_at":null,` +
		`"next":["2026-06-01T12:00:30.000Z","2026-06-01T12:00:40.000Z","2026-06-01T12:00:50.000Z","2026-06-01T12:01:00.000Z","2026-06-01T12:01:10.000Z"],` +
		`"last":[{"due_at":"2026-06-01T12:00:20.000Z","made_at":null,"job_id":null,"skipped":"running","why":"the previous job had not ended, and overlap is skip"},` +
		`{"due_at":"2026-06-01T12:00:10.000Z","made_at":"2026-06-01T12:00:10.000Z","job_id":"10","skipped":null,"why":null}]}`
	if string(text) != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}
