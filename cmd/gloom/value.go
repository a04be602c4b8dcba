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

// limitFlag is a flag for a limit: a number, a rate (100/s, 30/m, 5/h, 0.5 a second), or none.
type limitFlag struct {
	isRate bool
	set    bool
	n      *float64 // nil for none
}

func (l *limitFlag) String() string {
	if l.n == nil {
		return ""
	}
	return strconv.FormatFloat(*l.n, 'g', -1, 64)
}

func (l *limitFlag) Set(v string) error {
	l.set, l.n = true, nil
	if v == "none" {
		return nil
	}
	if !l.isRate {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 || n > 1e9 {
			return errors.New("must be none or a number from 0 to 1000000000")
		}
		l.n = new(float64(n))
		return nil
	}
	number, unit, _ := strings.Cut(v, "/")
	per, known := map[string]float64{"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !known || !(n >= 0 && n <= 1e9) {
		return errors.New("must be a rate such as 100/s, 30/m, 5/h or none, at most 1e9/s")
	}
	l.n = new(n / per)
	return nil
}

func (l *limitFlag) Type() string {
	if l.isRate {
		return "rate"
	}
	return "number"
}

// isZero reports whether it is 0, and not none.
func (l *limitFlag) isZero() bool { return l.n != nil && *l.n == 0 }

// whole returns the limit as a whole number, nil for none.
func (l *limitFlag) whole() *int64 {
	if l.n == nil {
		return nil
	}
	return new(int64(*l.n))
}

// statuses is a flag for exit statuses: all, or a list such as 2,64.
type statuses struct {
	all  bool
	list []int
}

func (s *statuses) String() string {
	if s.all {
		return "all"
	}
	var b []string
	for _, n := range s.list {
		b = append(b, strconv.Itoa(n))
	}
	return strings.Join(b, ",")
}

func (s *statuses) Set(v string) error {
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

func (*statuses) Type() string { return "list" }

func (s *statuses) contains(n int) bool { return s.all || slices.Contains(s.list, n) }

// ageFlag is a filter flag for the minimum age.
type ageFlag time.Duration

func (a *ageFlag) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

func (a *ageFlag) Set(v string) error {
	d, err := time.ParseDuration(v)
	if limit := wire.MaxDurationMS * time.Millisecond; err != nil || d < time.Millisecond || d > limit {
		return fmt.Errorf("must be a duration from 1ms to %v, such as 90s or 2h", limit)
	}
	*a = ageFlag(d)
	return nil
}

func (*ageFlag) Type() string { return "age" }

// ms returns the age in milliseconds; 0: not set.
func (a ageFlag) ms() int64 { return time.Duration(a).Milliseconds() }

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

// nonEmptyFlag is a filter flag. An empty value may come from a shell variable that is not set. It is
// refused, because it must not select everything.
type nonEmptyFlag string

func (f *nonEmptyFlag) String() string { return string(*f) }

func (f *nonEmptyFlag) Set(v string) error {
	if v == "" {
		return errors.New("is empty; leave it out to mean all")
	}
	*f = nonEmptyFlag(v)
	return nil
}

func (*nonEmptyFlag) Type() string { return "string" }
