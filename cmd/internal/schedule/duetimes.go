package schedule

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // for hosts without time zone data

	"github.com/netresearch/go-cron"
)

// dueTimes computes the due times of a schedule.
type dueTimes interface {
	// next returns the first due time after a moment, zero if there is none.
	next(after time.Time) time.Time
}

const (
	everyPrefix        = "@every "
	minEvery, maxEvery = time.Second, 365 * 24 * time.Hour
	// searchYears bounds the time until the next due time: up to eight years lie between two
	// February 29ths.
	searchYears = 12
)

// cronParser accepts five fields, as crontab does. A job that names days of the month and of the
// week is due on both.
var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).
	WithMaxSearchYears(searchYears)

// parseCron parses the times of a schedule. Those of "@every" are counted from created.
func parseCron(text string, zone *time.Location, created time.Time) (dueTimes, error) {
	if rest, ok := strings.CutPrefix(text, everyPrefix); ok {
		d, err := time.ParseDuration(strings.TrimSpace(rest))
		if err != nil || d < minEvery || d > maxEvery || d%time.Millisecond != 0 {
			return nil, fmt.Errorf("%.40q must be a duration from 1s to 8760h, such as 90s", rest)
		}
		return interval{created, d}, nil
	}
	if strings.Contains(text, "=") { // the parser would read a zone from it
		return nil, errors.New("must be five fields, @hourly, @daily, @weekly, @monthly, @yearly or @every 90s; the zone has its own field")
	}
	s, err := cronParser.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("must be five fields (minute, hour, day, month, weekday), @hourly or the like, or @every 90s: %w", err)
	}
	t := zonedSchedule{s, zone}
	if t.next(created).IsZero() {
		return nil, fmt.Errorf("no date matches within %d years", searchYears)
	}
	return t, nil
}

// interval has due times at equal intervals, counted from the creation.
type interval struct {
	start  time.Time
	length time.Duration
}

func (i interval) next(after time.Time) time.Time {
	n := after.Sub(i.start) / i.length
	t := i.start.Add(n * i.length)
	if !t.After(after) {
		t = t.Add(i.length)
	}
	return t
}

// zonedSchedule is a schedule in the local (wall-clock) time of a zone. The
// parser's own handling of zones is not used: it works in UTC, where no time is skipped or
// repeated.
type zonedSchedule struct {
	cron.Schedule
	zone *time.Location
}

func (s zonedSchedule) next(after time.Time) time.Time {
	after = after.Truncate(time.Second)
	_, offset := after.In(s.zone).Zone()
	clock := after.UTC().Add(time.Duration(offset) * time.Second)
	for {
		if clock = s.Next(clock); clock.IsZero() {
			return clock
		}
		// A time that the clocks show twice is due the first time.
		if t := s.firstShown(clock); t.After(after) {
			return t
		}
	}
}

// maxZoneOffset bounds the offset of a zone from UTC.
const maxZoneOffset = 26 * time.Hour

// firstShown returns the first moment at which the zone's clocks show this time or a later one: a time
// that the clocks skip is due when they jump.
func (s zonedSchedule) firstShown(clock time.Time) time.Time {
	t := clock.Add(-maxZoneOffset).In(s.zone)
	for {
		_, offset := t.Zone()
		start, end := t.ZoneBounds()
		clockTime := clock.Add(-time.Duration(offset) * time.Second)
		if !start.IsZero() && clockTime.Before(start) {
			clockTime = start
		}
		if end.IsZero() || clockTime.Before(end) {
			return clockTime.UTC()
		}
		t = end
	}
}

var zoneCache sync.Map // zones by name; loading a zone is the slowest part of a calculation

// loadZone finds an IANA time zone.
func loadZone(name string) (*time.Location, error) {
	if z, ok := zoneCache.Load(name); ok {
		return z.(*time.Location), nil
	}
	z, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, errors.New("must be an IANA time zone, such as Europe/Berlin")
	}
	zoneCache.Store(name, z)
	return z, nil
}
