package schedule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// These limits apply to every schedule.
const (
	MaxNameBytes = 128 // bytes of a name
	// MaxSchedules limits the schedules of a namespace or a client.
	MaxSchedules = 10_000
	// MaxCatchUp bounds the jobs of a schedule that are made after an outage.
	MaxCatchUp = 1000

	maxCron       = 256 // bytes
	maxNote       = 1 << 10
	defaultWindow = time.Hour
	maxWindow     = 366 * 24 * time.Hour
)

// Spec is a schedule as a client defines it.
type Spec struct {
	// Cron is five fields, @hourly and the like, or @every DURATION.
	Cron string `json:"cron"`
	// Zone is the IANA name of the time zone of the five fields.
	Zone string `json:"zone"`
	// Job is defined by the door.
	Job json.RawMessage `json:"job"`
	// CatchUp says for which of the due times that were missed while no daemon ran a job is
	// made: none, one (the last of them) or all.
	CatchUp string `json:"catch_up"`
	// Due times that were missed in the last WindowMS milliseconds are caught up.
	WindowMS int64 `json:"window_ms"`
	// Overlap says what happens at a due time if the previous job has not ended: allow makes the job,
	// skip makes no job, queue makes the job when the previous job has ended.
	Overlap string `json:"overlap"`
	Paused  bool   `json:"paused"`
	// Until is the last moment at which a job may be due; zero if there is none.
	Until time.Time `json:"until,omitzero"`
	Note  string    `json:"note"`
}

// These are the values of CatchUp and Overlap.
const (
	catchUpNone, catchUpOne, catchUpAll     = "none", "one", "all"
	overlapAllow, overlapSkip, overlapQueue = "allow", "skip", "queue"
)

// FieldError is an error in a schedule.
type FieldError struct {
	IsMissing bool   // the field is missing
	Field     string // "" for the whole schedule
	Reason    string // for people; names the field, its value and the allowed values
}

func (e *FieldError) Error() string { return e.Reason }

func invalidField(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Reason: strings.TrimSpace(field + " " + fmt.Sprintf(format, args...))}
}

// CheckName returns an error if name cannot be the name of a schedule.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > MaxNameBytes:
		return invalidField("name", "must have 1 to %d bytes, but has %d: %.40q", MaxNameBytes, len(name), name)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return invalidField("name", "must be UTF-8 without control characters, not %.40q", name)
	}
	return nil
}

// decodeTargets returns the keys of a schedule, and where their values are stored.
func (s *Spec) decodeTargets() map[string]any {
	return map[string]any{
		"cron": &s.Cron, "zone": &s.Zone, "job": &s.Job, "catch_up": &s.CatchUp, "window_ms": &s.WindowMS,
		"overlap": &s.Overlap, "paused": &s.Paused, "until": &s.Until, "note": &s.Note,
	}
}

// Parse parses a schedule in JSON. Keys that are missing or null get defaults; checkJob validates
// its job. The error is a *FieldError, or an error of checkJob.
func Parse(text []byte, checkJob func(json.RawMessage) error) (s Spec, err error) {
	if !utf8.Valid(text) {
		return s, invalidField("", "the schedule is not UTF-8")
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil || values == nil {
		return s, invalidField("", "the schedule must be a JSON object: %.60q", bytes.TrimSpace(text))
	}
	s = Spec{Zone: "UTC", CatchUp: catchUpNone, Overlap: overlapAllow, WindowMS: defaultWindow.Milliseconds()}
	fields := s.decodeTargets()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		to := fields[name]
		switch {
		case to == nil:
			return s, &FieldError{Field: fmt.Sprintf("%.40s", name), Reason: fmt.Sprintf("a schedule has no key %.40q; its keys are %s", name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))}
		case string(value) == "null", parseWholeNumber(value, to):
		case json.Unmarshal(value, to) != nil:
			return s, invalidField(name, "must be %s, not %.60s", typeNames[fmt.Sprintf("%T", to)], value)
		}
	}
	if err := s.check(); err != nil {
		return s, err
	}
	return s, checkJob(s.Job)
}

// parseWholeNumber parses a whole number that is written with a fraction or exponent, such as 5.0.
func parseWholeNumber(value json.RawMessage, to any) bool {
	n, ok := to.(*int64)
	var f float64
	if !ok || json.Unmarshal(value, &f) != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return false
	}
	*n = int64(f)
	return true
}

// typeNames says what a value must be, by its type.
var typeNames = map[string]string{
	"*string": "a string", "*int64": "a whole number", "*bool": "true or false", "*time.Time": "a time with its zone, such as 2027-01-31T12:00:00Z",
}

func (s *Spec) check() error {
	for _, f := range []struct{ name, text string }{{"cron", s.Cron}, {"job", string(s.Job)}} {
		if f.text == "" {
			return &FieldError{IsMissing: true, Field: f.name, Reason: f.name + " is missing"}
		}
	}
	if len(s.Cron) > maxCron {
		return invalidField("cron", "must have at most %d bytes, but has %d", maxCron, len(s.Cron))
	}
	zone, err := loadZone(s.Zone)
	if err != nil {
		return invalidField("zone", "%.60q: %v", s.Zone, err)
	}
	if _, err := parseCron(s.Cron, zone, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		return invalidField("cron", "%.80q: %v", s.Cron, err)
	}
	for _, c := range []struct{ name, value, a, b, c string }{
		{"catch_up", s.CatchUp, catchUpNone, catchUpOne, catchUpAll}, {"overlap", s.Overlap, overlapAllow, overlapSkip, overlapQueue},
	} {
		if c.value != c.a && c.value != c.b && c.value != c.c {
			return invalidField(c.name, "must be %s, %s or %s, not %.40q", c.a, c.b, c.c, c.value)
		}
	}
	if s.WindowMS < 1 || s.WindowMS > maxWindow.Milliseconds() {
		return invalidField("window_ms", "must be from 1 to %d (366 days), not %d", maxWindow.Milliseconds(), s.WindowMS)
	}
	if len(s.Note) > maxNote {
		return invalidField("note", "must have at most %d bytes, but has %d", maxNote, len(s.Note))
	}
	// JSON has no other years.
	if s.Until = s.Until.UTC().Truncate(time.Millisecond); s.Until.Year() < 1 || s.Until.Year() > 9999 {
		return invalidField("until", "must be from the year 1 to the year 9999 in UTC, not in the year %d", s.Until.Year())
	}
	return nil
}

// Equal reports whether two specs are equal.
func (s *Spec) Equal(other *Spec) bool { return bytes.Equal(mustEncode(s), mustEncode(other)) }

// mustEncode returns the JSON of a value that can always be encoded.
func mustEncode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
