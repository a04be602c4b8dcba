package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// parseField parses a field of a cron text into its values.
func parseField(field string, low, high int) map[int]bool {
	set := make(map[int]bool)
	for part := range strings.SplitSeq(field, ",") {
		part, text, _ := strings.Cut(part, "/")
		step, _ := strconv.Atoi(text)
		from, to := low, high
		if part != "*" {
			first, last, ranged := strings.Cut(part, "-")
			from, _ = strconv.Atoi(first)
			if to = from; ranged {
				to, _ = strconv.Atoi(last)
			}
		}
		for v := from; v <= to; v += max(step, 1) {
			set[v] = true
		}
	}
	return set
}

// cronMatcher reports whether a clock time matches a cron text.
func cronMatcher(text string) func(clock time.Time) bool {
	fields := strings.Fields(text)
	minute, hour, month := parseField(fields[0], 0, 59), parseField(fields[1], 0, 23), parseField(fields[3], 1, 12)
	daysOfMonth, daysOfWeek := parseField(fields[2], 1, 31), parseField(fields[4], 0, 7)
	daysOfWeek[0] = daysOfWeek[0] || daysOfWeek[7]
	return func(clock time.Time) bool {
		day := daysOfMonth[clock.Day()] && daysOfWeek[int(clock.Weekday())]
		if fields[2] != "*" && fields[4] != "*" {
			day = daysOfMonth[clock.Day()] || daysOfWeek[int(clock.Weekday())]
		}
		return minute[clock.Minute()] && hour[clock.Hour()] && month[int(clock.Month())] && day
	}
}

// clockTimes returns the clock times of a zone, for each minute from one time to another.
func clockTimes(zone *time.Location, from, to time.Time) (clocks []time.Time) {
	for t := from; !t.After(to); t = t.Add(time.Minute) {
		_, offset := t.In(zone).Zone()
		clocks = append(clocks, t.Add(time.Duration(offset)*time.Second))
	}
	return clocks
}

// A walk begins walkLead before the first due time, so that it notices clock times that are
// repetitions.
const walkLead = 26 * time.Hour

// walkClocks finds the due times by reading the clocks each minute: a time is due when they
// show it for the first time, or have skipped it.
func walkClocks(text string, from time.Time, clocks []time.Time) (due []time.Time) {
	matches := cronMatcher(text)
	last := clocks[0]
	for i, clock := range clocks {
		isDue := false
		for ; last.Before(clock); last = last.Add(time.Minute) {
			isDue = isDue || matches(last.Add(time.Minute))
		}
		if t := from.Add(time.Duration(i)*time.Minute - walkLead); isDue && t.After(from) {
			due = append(due, t)
		}
	}
	return due
}

// clockShifts holds zones, and days on which their clocks jump.
var clockShifts = []struct{ zone, day string }{
	{"Europe/Berlin", "2026-03-29"}, {"Europe/Berlin", "2026-10-25"},
	{"America/New_York", "2026-03-08"}, {"America/New_York", "2026-11-01"},
	{"America/Sao_Paulo", "2018-11-04"}, {"America/Sao_Paulo", "2018-02-18"}, // midnight is skipped, or occurs twice
	{"Australia/Lord_Howe", "2026-10-04"}, {"Australia/Lord_Howe", "2026-04-05"}, // the clocks jump by half an hour
	{"Pacific/Apia", "2011-12-30"}, {"Pacific/Kwajalein", "1993-08-21"}, // a day is skipped
	{"Africa/Casablanca", "2026-02-15"}, {"Africa/Casablanca", "2026-03-22"},
	{"Asia/Kathmandu", "1986-01-01"}, {"UTC", "2026-06-30"},
}

// TestDueTimesMatchWalk: whatever the clocks of a zone do, and whenever the search begins, the due
// times are the times that walkClocks finds.
func TestDueTimesMatchWalk(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	texts := []string{"* * * * *", "*/10 * * * *", "30 2 * * *", "0 0 * * *", "15 1,2,3 * * *", "59 23 30 12 *", "45 1 * * 0", "0 0 29,30,31 * 6", "*/7 0-4 * * *"}
	for range 8 {
		texts = append(texts, fmt.Sprintf("%d-59/%d %d-23/%d %s * %s", r.IntN(30), 1+r.IntN(29), r.IntN(16), 1+r.IntN(7),
			[]string{"*", strconv.Itoa(1 + r.IntN(28))}[r.IntN(2)], []string{"*", strconv.Itoa(r.IntN(8))}[r.IntN(2)]))
	}
	for _, shift := range clockShifts {
		zone, err := loadZone(shift.zone)
		if err != nil {
			t.Fatal(err)
		}
		day, _ := time.Parse("2006-01-02", shift.day)
		from, to := day.Add(-24*time.Hour), day.Add(36*time.Hour)
		clocks := clockTimes(zone, from.Add(-walkLead), to)
		for _, text := range texts {
			times, err := parseCron(text, zone, from)
			if err != nil {
				t.Fatal(err)
			}
			want := walkClocks(text, from, clocks)
			var got []time.Time
			for at := times.next(from); !at.IsZero() && !at.After(to); at = times.next(at) {
				got = append(got, at)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%q in %s from %v:\n%v\nwant\n%v", text, shift.zone, from, got, want)
			}
			for range 5 { // from any time, even in an hour that the clocks repeat
				at := from.Add(time.Duration(r.Int64N(int64(to.Sub(from)))))
				i := slices.IndexFunc(want, func(d time.Time) bool { return d.After(at) })
				if got := times.next(at); i >= 0 && !got.Equal(want[i]) {
					t.Fatalf("%q in %s after %v: %v, want %v", text, shift.zone, at, got, want[i])
				}
			}
		}
	}
}

// TestIntervalsCountFromCreation: due times at equal intervals are counted from the creation, even
// due times before the creation.
func TestIntervalsCountFromCreation(t *testing.T) {
	from := time.Date(2026, 1, 1, 12, 0, 0, 5e6, time.UTC)
	times, err := parseCron("@every 90s", time.UTC, from)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]time.Duration{
		0: 90 * time.Second, 89 * time.Second: 90 * time.Second, 90 * time.Second: 180 * time.Second, 24 * time.Hour: 24*time.Hour + 90*time.Second,
		-time.Second: 0, -90 * time.Second: 0, -91 * time.Second: -90 * time.Second, -180 * time.Second: -90 * time.Second,
	} {
		if got := times.next(from.Add(after)); !got.Equal(from.Add(want)) {
			t.Errorf("after %v: %v, want %v", after, got.Sub(from), want)
		}
	}
}

// TestZonesAreEmbedded: the program knows all zones even on a host without time zone data.
func TestZonesAreEmbedded(t *testing.T) {
	t.Setenv("ZONEINFO", t.TempDir())
	if _, err := loadZone("Antarctica/Troll"); err != nil {
		t.Fatal(err)
	}
}
