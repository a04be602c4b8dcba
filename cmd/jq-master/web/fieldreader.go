package web

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
)

// maxFields is the maximum number of fields that a form may have.
const maxFields = 14

// fieldReader holds the fields of a map. A null field counts as absent; if a name occurs several
// times, its last field counts. fault is the first fault; after it, all methods return zero values.
type fieldReader struct {
	prefix string // put before the names of fields in faults
	names  []string
	values [maxFields]pack.Value
	fault  *job.Fault
}

// readStrict reads the named fields of a value. The value must be a map without other fields.
// readStrict is for requests that people write: without it they would not notice a misspelt field.
func readStrict(v pack.Value, prefix string, names ...string) fieldReader {
	f := readKnown(v, prefix, names...)
	if f.fault != nil {
		return f
	}
	for k := range v.Pairs() {
		if k.Kind() != pack.String || !slices.Contains(names, string(k.Bytes())) {
			f.fault = unknownField("key", prefix, k, names)
			return f
		}
	}
	return f
}

// unknownField returns the fault for an unknown field. The fault names the known fields.
func unknownField(label, prefix string, k pack.Value, names []string) *job.Fault {
	field := ""
	if k.Kind() == pack.String && utf8.Valid(k.Bytes()) {
		field = prefix + fmt.Sprintf("%.80s", k.Bytes())
	}
	known := "none is allowed"
	if len(names) > 0 {
		known = "use one of " + strings.Join(names, ", ")
	}
	return job.Refuse(job.InvalidValue, field, "there is no %s %s here; %s", label, showValue(k), known)
}

// readKnown reads the named fields of a value, which must be a map, and ignores all others. It is for
// workers, which may be written for another version.
func readKnown(v pack.Value, prefix string, names ...string) fieldReader {
	f := fieldReader{prefix: prefix, names: names}
	if v.Kind() != pack.Map {
		place := "the body"
		if prefix != "" {
			place = strings.TrimSuffix(prefix, ".")
		}
		f.fault = job.Refuse(job.InvalidType, strings.TrimSuffix(prefix, "."), "%s must be a map, not %s", place, showValue(v))
		return f
	}
	for k, value := range v.Pairs() {
		if k.Kind() != pack.String {
			continue
		}
		for i, name := range names {
			if string(k.Bytes()) == name {
				f.values[i] = value
				break
			}
		}
	}
	return f
}

// showValue returns a value as faults show it: as JSON, or only its type and length if it is long.
func showValue(v pack.Value) string {
	const long = 64
	if len(v) > long {
		return fmt.Sprintf("a value of the type %s with %d bytes", v.Kind(), len(v))
	}
	return string(pack.AppendJSON(nil, v))
}

func (f *fieldReader) refuse(code job.Code, name, format string, args ...any) {
	if f.fault == nil {
		f.fault = job.Refuse(code, f.prefix+name, name+" "+format, args...)
	}
}

// value returns a field as it was sent, nil if it is absent.
func (f *fieldReader) value(name string) pack.Value {
	if f.fault != nil {
		return nil
	}
	for i, n := range f.names {
		if n == name {
			if v := f.values[i]; v.Kind() != pack.Nil {
				return v
			}
			return nil
		}
	}
	return nil
}

// required returns a required field, which must be of this kind.
func (f *fieldReader) required(name string, kind pack.Kind) pack.Value {
	v := f.value(name)
	if v == nil {
		f.refuse(job.MissingField, name, "is missing")
	}
	return f.checkKind(name, v, kind)
}

// checkKind returns v if it is nil or of this kind; otherwise it refuses v.
func (f *fieldReader) checkKind(name string, v pack.Value, kind pack.Kind) pack.Value {
	if v == nil || v.Kind() == kind {
		return v
	}
	f.refuse(job.InvalidType, name, "must be a %s, not %s", kind, showValue(v))
	return nil
}

// integer returns an integer field from low to high, or fallback if the field is absent.
func (f *fieldReader) integer(name string, low, high, fallback int64) int64 {
	v := f.value(name)
	switch {
	case v == nil:
		return fallback
	case !v.IsNumber():
		f.refuse(job.InvalidType, name, "must be an integer from %d to %d, not %s", low, high, showValue(v))
		return fallback
	}
	n, ok := v.Number().Integer()
	if !ok || n < low || n > high {
		f.refuse(job.InvalidValue, name, "must be an integer from %d to %d, not %s", low, high, showValue(v))
		return fallback
	}
	return n
}

// numberAbove returns a number field above 0 and at most high, or fallback if it is absent.
func (f *fieldReader) numberAbove(name string, high, fallback float64) float64 {
	return f.numberWithin(name, func(n float64) bool { return n > 0 && n <= high }, func() string { return fmt.Sprintf("above 0 and up to %.12g", high) }, fallback)
}

// numberWithin returns a number field that is valid, or fallback if the field is absent. limits says
// which numbers are valid.
func (f *fieldReader) numberWithin(name string, valid func(float64) bool, limits func() string, fallback float64) float64 {
	v := f.value(name)
	switch {
	case v == nil:
		return fallback
	case !v.IsNumber():
		f.refuse(job.InvalidType, name, "must be a number %s, not %s", limits(), showValue(v))
		return fallback
	}
	n := v.Number().Float()
	if !valid(n) {
		f.refuse(job.InvalidValue, name, "must be a number %s, not %s", limits(), showValue(v))
		return fallback
	}
	return n
}

// boolean returns a boolean field, or fallback if it is absent.
func (f *fieldReader) boolean(name string, fallback bool) bool {
	v := f.checkKind(name, f.value(name), pack.Bool)
	if v == nil {
		return fallback
	}
	return v.Bool()
}

// text returns a string field, or "" if it is absent. Bytes that are not UTF-8 are replaced.
func (f *fieldReader) text(name string) string {
	v := f.checkKind(name, f.value(name), pack.String)
	if v == nil {
		return ""
	}
	return strings.ToValidUTF8(string(v.Bytes()), string(utf8.RuneError))
}

// name returns a string field of 1 to limit bytes without control characters, or "" if it is
// absent.
func (f *fieldReader) name(name string, limit int) string {
	v := f.checkKind(name, f.value(name), pack.String)
	if v == nil {
		return ""
	}
	s := string(v.Bytes())
	if reason := nameError(s, limit); reason != "" {
		f.refuse(job.InvalidValue, name, "%s", reason)
		return ""
	}
	return s
}

// nameError returns the fault of a name, or "" if the name is valid. limit is the length of the
// longest valid name, in bytes.
func nameError(s string, limit int) string {
	switch {
	case s == "":
		return "must not be empty"
	case len(s) > limit:
		return fmt.Sprintf("must have at most %d bytes, but has %d", limit, len(s))
	case !utf8.ValidString(s):
		return "must be UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "must not have control characters"
	}
	return ""
}

// id returns a field with the id of a job or a worker. It refuses an invalid id with the code
// unknown.
func (f *fieldReader) id(name string, unknown job.Code) job.ID {
	v := f.checkKind(name, f.value(name), pack.String)
	if v == nil {
		return job.ID{}
	}
	id, ok := job.ParseID(string(v.Bytes()))
	if !ok && f.fault == nil {
		f.fault = job.Refuse(unknown, f.prefix+name, "there is nothing with the id %.80s", showValue(v))
	}
	return id
}

// seconds returns a field with a number of seconds up to high, or 0 if it is absent.
func (f *fieldReader) seconds(name string, high int64) time.Duration {
	n := f.numberWithin(name, func(n float64) bool { return n >= 0 && n <= float64(high) }, func() string { return fmt.Sprintf("from 0 to %d", high) }, 0)
	return time.Duration(n * float64(time.Second))
}

// moment returns a field with a time in ISO 8601 as milliseconds since 1970, or 0 if it is absent.
func (f *fieldReader) moment(name string) int64 {
	v := f.checkKind(name, f.value(name), pack.String)
	if v == nil {
		return 0
	}
	t, ok := parseTime(string(v.Bytes()))
	if !ok {
		f.refuse(job.InvalidValue, name, "%s, not %s", timeHelp, showValue(v))
	}
	return t
}

const timeHelp = "must be a time such as 2026-01-31T12:00:00.5Z"

// parseTime reads a time in ISO 8601. Without a zone it is UTC.
func parseTime(s string) (milliseconds int64, ok bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UnixMilli(), true
		}
	}
	return 0, false
}
