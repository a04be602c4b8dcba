package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"gloom/cmd/internal/cli"
	"gloom/wire"
)

// textFlag is a flag whose value is parsed by parse; typ is its type in help.
type textFlag struct {
	typ, text string
	parse     func(v string) error
}

func (f *textFlag) String() string { return f.text }
func (f *textFlag) Type() string   { return f.typ }

func (f *textFlag) Set(v string) error {
	f.text = v
	return f.parse(v)
}

// limit is a limit that a flag may set: a number, a rate, or none.
type limit struct {
	isSet bool
	value *float64 // nil for none
}

func (l *limit) parseNumber(v string) error {
	if l.isSet, l.value = true, nil; v == "none" {
		return nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > 1e9 {
		return errors.New("must be none or a number from 0 to 1000000000")
	}
	l.value = new(float64(n))
	return nil
}

// parseRate reads a rate: 100/s, 30/m, 5/h, 0.5 (a second), none.
func (l *limit) parseRate(v string) error {
	if l.isSet, l.value = true, nil; v == "none" {
		return nil
	}
	number, unit, _ := strings.Cut(v, "/")
	unitSeconds, known := map[string]float64{"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !known || !(n >= 0 && n <= 1e9) {
		return errors.New("must be a rate such as 100/s, 30/m, 5/h or none, at most 1e9/s")
	}
	l.value = new(n / unitSeconds)
	return nil
}

// isZero reports whether it is 0, and not none.
func (l *limit) isZero() bool { return l.value != nil && *l.value == 0 }

// toInt returns the limit as a whole number, nil for none.
func (l *limit) toInt() *int64 {
	if l.value == nil {
		return nil
	}
	return new(int64(*l.value))
}

// statuses is a set of exit statuses: all, or those in a list such as 2,64.
type statuses struct {
	all  bool
	list []int
}

func (s *statuses) parse(v string) error {
	if v == "all" {
		s.all = true
		return nil
	}
	for _, f := range strings.Split(v, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(f))
		if err != nil || n < 1 || n > 255 {
			return errors.New("must be all or a list of exit statuses from 1 to 255, such as 2,64")
		}
		s.list = append(s.list, n)
	}
	return nil
}

func (s *statuses) contains(n int) bool { return s.all || slices.Contains(s.list, n) }

// ageFlag returns a filter flag for the minimum age.
func ageFlag(to *time.Duration) pflag.Value {
	return &textFlag{typ: "age", parse: func(v string) (err error) {
		*to, err = time.ParseDuration(v)
		if limit := wire.MaxDurationMS * time.Millisecond; err != nil || *to < time.Millisecond || *to > limit {
			return fmt.Errorf("must be a duration from 1ms to %v, such as 90s or 2h", limit)
		}
		return nil
	}}
}

// ageText returns the text for an age, "" if it is not set.
func ageText(age time.Duration) string {
	if age == 0 {
		return ""
	}
	return age.String()
}

// nonEmptyFlag returns a filter flag. An empty value may come from a shell variable that is not set. It
// is refused, because it must not select everything.
func nonEmptyFlag(to *string) pflag.Value {
	return &textFlag{typ: "string", parse: func(v string) error {
		if *to = v; v == "" {
			return errors.New("is empty; leave it out to mean all")
		}
		return nil
	}}
}

// checkDurations refuses values of these flags that the broker would misread: it counts in
// milliseconds, and 0 means none.
func checkDurations(f *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if d, _ := f.GetDuration(name); f.Changed(name) && (d < 0 || d > 0 && d < time.Millisecond) {
			return cli.Usagef("--%s %v: must be 0, or 1ms and more", name, d)
		}
	}
	return nil
}
