package config

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gloom/broker/guard"
	"gloom/cmd/internal/cli"
)

// reader reads typed values from the unnamed section. It collects errors in the order in which the
// keys are read.
type reader struct {
	path           string
	unnamedSection *section
	faults         Faults
	known          []string
}

// Faults holds all errors of a file, each with the file and, if known, its line. As an error,
// Faults has the text of its first error, which is worded as in the original programs.
type Faults struct {
	List     []string
	warnings []string // about ignored keys
	firstErr error
}

func (f *Faults) Error() string { return f.firstErr.Error() }
func (f *Faults) Unwrap() error { return f.firstErr }

// All returns all faults and warnings, for the person who corrects the file.
func (f *Faults) All() []string { return append(slices.Clone(f.List), f.warnings...) }

// load reads a file; an error of its content is a *Faults.
func load[T any](path string, read func(*document, *reader) *T) (*T, error) {
	text, err := guard.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("file %s not found", path)
	}
	if err != nil {
		return nil, err
	}
	doc := parseDocument(string(text))
	r := &reader{path: path, unnamedSection: doc.unnamedSection()}
	if out := read(doc, r); r.faults.firstErr == nil {
		return out, nil
	}
	return nil, &r.faults
}

// fail records an error for a key of the unnamed section.
func (r *reader) fail(key, format string, args ...any) {
	r.failAt(r.unnamedSection.lines[key], format, args...)
}

// failAt records an error in a line. The line is 0 if it is not known.
func (r *reader) failAt(line int, format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if r.faults.firstErr == nil {
		r.faults.firstErr = err
	}
	at := r.path
	if line > 0 {
		at = fmt.Sprintf("%s:%d", r.path, line)
	}
	r.faults.List = append(r.faults.List, fmt.Sprintf("%s: %v", at, err))
}

func (r *reader) lookup(key string) (value string, ok bool) {
	r.known = append(r.known, key)
	return r.unnamedSection.lookup(key)
}

// require records an error if a key is absent or empty.
func (r *reader) require(key string) {
	if value, ok := r.lookup(key); !ok || value == "" || value == "false" {
		r.fail(key, "'%s' is not defined", key)
	}
}

// readText reads a string; "false" means none, as in the original programs.
func (r *reader) readText(key, byDefault string) string {
	value, ok := r.lookup(key)
	switch {
	case !ok:
		return byDefault
	case value == "false":
		return ""
	}
	return value
}

func (r *reader) readBoolean(key string) bool {
	value, _ := r.lookup(key)
	return value == "true" || value == "1"
}

var (
	numericPattern = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)
	integerPattern = regexp.MustCompile(`^[+-]?\d+`)
)

// readInteger reads the integral part of a number between min and max.
func (r *reader) readInteger(key string, byDefault, min, max int) int {
	value, ok := r.lookup(key)
	if !ok {
		return byDefault
	}
	n, numeric := leadingInt(value)
	if !numeric {
		r.fail(key, "'%s' must be an integer", key)
		return byDefault
	}
	if n < min || n > max {
		r.fail(key, "'%s' must be between %d and %d, got %s", key, min, max, value)
	}
	return n
}

// leadingInt returns the integral part of a number.
func leadingInt(value string) (n int, ok bool) {
	if !numericPattern.MatchString(value) {
		return 0, false
	}
	n, err := strconv.Atoi(integerPattern.FindString(value))
	if errors.Is(err, strconv.ErrRange) {
		return n, true // the nearest int, which is outside every range
	}
	return n, true
}

// readSeconds reads a number of seconds, with or without a fraction, that is at least min. kind names
// the kind of number in the error.
func (r *reader) readSeconds(key, kind string, byDefault, min time.Duration) time.Duration {
	value, ok := r.lookup(key)
	if !ok {
		return byDefault
	}
	n, err := strconv.ParseFloat(value, 64)
	if !numericPattern.MatchString(value) || err != nil {
		r.fail(key, "'%s' must be %s", key, kind)
		return byDefault
	}
	const maxSeconds = 1e9 // a Duration can hold about nine times that
	if n < min.Seconds() || n > maxSeconds {
		r.fail(key, "'%s' must be between %v and %v seconds, got %s", key, min.Seconds(), maxSeconds, value)
		return byDefault
	}
	return time.Duration(n * float64(time.Second))
}

// readChoice reads one of a few words.
func (r *reader) readChoice(key string, values ...string) string {
	value := r.readText(key, values[0])
	if !slices.Contains(values, value) {
		r.fail(key, "'%s' must be one of: %s, got '%s'", key, strings.Join(values, ", "), value)
	}
	return value
}

// warnUnknownKeys returns warnings about keys of the section that were not read. Unknown keys are
// not errors, because the original programs accept them and existing files may have some.
func (r *reader) warnUnknownKeys(prefixes ...string) (warnings []string) {
	for _, e := range r.unnamedSection.entries {
		known := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(e.key, p) })
		if known || slices.Contains(r.known, e.key) {
			continue
		}
		text := fmt.Sprintf("%s:%d: unknown key '%s' is ignored", r.path, r.unnamedSection.lines[e.key], e.key)
		if suggestions := cli.Suggest(e.key, r.known); suggestions != "" {
			text += fmt.Sprintf("; did you mean '%s'?", suggestions)
		}
		warnings = append(warnings, text)
	}
	r.faults.warnings = append(r.faults.warnings, warnings...)
	return warnings
}
