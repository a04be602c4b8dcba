package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"gloom/broker"
	"gloom/broker/settings"
	"gloom/broker/wording"
	"gloom/cmd/internal/cli"
	"gloom/wire"
)

// readLimits reads a file of limits, which has a section types, keyed by name, and a section groups, keyed
// by pattern. The error names the line of the mistake.
func readLimits(path string) (settings.FileLimits, error) {
	limits := settings.FileLimits{Types: map[string]settings.TypeSettings{}, Groups: map[string]broker.Rule{}}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // opening a pipe would block
		return limits, &cli.FileError{Path: path, Reason: "is not a regular file"}
	}
	f, err := cli.ReadFile(path)
	if err != nil {
		return limits, err
	}
	for _, k := range f.Keys() {
		if k != "types" && k != "groups" {
			return limits, f.Errorf(k, "unknown section %q; the sections are types and groups", k)
		}
		table, ok := f.Table(k)
		if !ok {
			return limits, f.Errorf(k, "%s must be a section", k)
		}
		for _, name := range table.Keys() {
			if len(name) == 0 || len(name) > wire.MaxNameBytes {
				return limits, table.Errorf(name, "a name in %s has %d bytes; it must have from 1 to %d", k, len(name), wire.MaxNameBytes)
			}
			t, ok := table.Table(name)
			if !ok {
				return limits, table.Errorf(name, "%s.%s must be a section", k, name)
			}
			canonical := string(wire.Canonical(nil, name))
			var e error
			if k == "types" {
				limits.Types[canonical], e = readTypeSettings(t)
			} else {
				limits.Groups[canonical], e = readRule(t, table, name)
			}
			if e != nil {
				return limits, e
			}
		}
	}
	return limits, nil
}

// addLineOfFile adds the line in the file of limits to an error about a type or a rule.
func addLineOfFile(path string, err error) error {
	var s *wording.SettingError
	if !errors.As(err, &s) {
		return err
	}
	table, name := "groups", s.Pattern
	if s.Type != nil {
		table, name = "types", s.Type
	}
	f, e := cli.ReadFile(path)
	if e != nil {
		return err
	}
	section, _ := f.Table(table)
	for _, k := range section.Keys() {
		if bytes.Equal(wire.Canonical(nil, k), name) {
			return section.Errorf(k, "%v", s)
		}
	}
	return err
}

func readTypeSettings(t *cli.File) (s settings.TypeSettings, err error) {
	if err := checkKeys(t, "concurrency", "rate", "burst", "fair"); err != nil {
		return s, err
	}
	concurrency, err := readInteger(t, "concurrency", 0, broker.MaxConcurrency, 0)
	if err != nil {
		return s, err
	}
	rate, burst, err := readRate(t)
	if err != nil {
		return s, err
	}
	s.Limits = broker.TypeLimits{Concurrency: int(concurrency), Rate: rate, Burst: int(burst)}
	if v := t.Value("fair"); v != nil {
		fair, ok := v.(bool)
		if !ok {
			return s, t.Errorf("fair", "fair must be true or false, got %s", formatValue(v))
		}
		s.Fair = fair
	}
	return s, nil
}

func readRule(t, file *cli.File, pattern string) (r broker.Rule, err error) {
	if err := checkKeys(t, "concurrency", "rate", "burst"); err != nil {
		return r, err
	}
	if len(t.Keys()) == 0 {
		return r, file.Errorf(pattern, "the rule for %q needs concurrency or rate", pattern)
	}
	if r.Concurrency, err = readInteger(t, "concurrency", 0, broker.MaxConcurrency, -1); err != nil {
		return r, err
	}
	r.Rate, r.Burst, err = readRate(t)
	return r, err
}

// checkKeys refuses unknown keys.
func checkKeys(t *cli.File, known ...string) error {
	for _, k := range t.Keys() {
		if !slices.Contains(known, k) {
			hint := "the keys are " + strings.Join(known, ", ")
			if suggestions := cli.Suggest(k, known); suggestions != "" {
				hint = "did you mean " + suggestions + "?"
			}
			return t.Errorf(k, "unknown key %q; %s", k, hint)
		}
	}
	return nil
}

func readInteger(t *cli.File, key string, low, high, def int64) (int64, error) {
	v := t.Value(key)
	if v == nil {
		return def, nil
	}
	if n, ok := v.(int64); ok && n >= low && n <= high {
		return n, nil
	}
	return 0, t.Errorf(key, "%s must be an integer from %d to %d, got %s", key, low, high, formatValue(v))
}

// formatValue formats a value of the file for a message: strings in quotes.
func formatValue(v any) string {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%.64q", s)
	}
	return fmt.Sprint(v)
}

// readRate reads rate and burst.
func readRate(t *cli.File) (rate float64, burst int64, err error) {
	if v := t.Value("rate"); v != nil {
		n, ok := v.(int64)
		if rate = float64(n); !ok {
			rate, ok = v.(float64)
		}
		if !ok || !(rate > 0 && rate <= broker.MaxRate) {
			return 0, 0, t.Errorf("rate", "rate must be a number above 0, at most %g, got %s", float64(broker.MaxRate), formatValue(v))
		}
	}
	burst, err = readInteger(t, "burst", 1, broker.MaxBurst, 0)
	if err == nil && burst > 0 && rate == 0 {
		err = t.Errorf("burst", "burst needs a rate")
	}
	return rate, burst, err
}
