// Package matcher selects jobs by conditions on their attributes. A matcher reads only the fields
// that its condition names. It reads them from the argument's bytes, without decoding the rest.
package matcher

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
	"gloom/wire"
)

// These are the limits of a matcher.
const (
	MaxNodes = 64
	MaxDepth = 8
	MaxBytes = 64 << 10
	// MaxRegexText is the length, in bytes, of the longest string that is matched with a regular
	// expression; a longer one does not match. MaxRegex is the maximum number of instructions that
	// an expression may compile to.
	MaxRegexText = 64 << 10
	MaxRegex     = 1000
)

// Matcher is a parsed condition. It never changes.
type Matcher struct {
	kind     string // all, any, not, field; "" is every job
	parts    []*Matcher
	field    Pointer
	op       string
	value    operand   // the value of eq, ne, lt, le, gt and ge
	values   []operand // for in
	glob     wire.Pattern
	regex    *regexp.Regexp
	typeName string // the operand of type
	exists   bool   // the operand of exists
}

// Parse parses a matcher from a value that pack.Check has accepted. The Field of a fault is the
// place in the matcher, and begins with "match".
func Parse(v pack.Value) (*Matcher, *job.Fault) {
	if len(v) > MaxBytes {
		return nil, job.Refuse(job.InvalidValue, "match", "a matcher may have at most %d bytes, this one has %d", MaxBytes, len(v))
	}
	p := parser{}
	m := p.parse(v, "match", 1)
	if p.fault != nil {
		return nil, p.fault
	}
	return m, nil
}

type parser struct {
	nodes int
	fault *job.Fault // the first one
}

func (p *parser) refuse(code job.Code, at, format string, args ...any) {
	if p.fault == nil {
		p.fault = job.Refuse(code, at, "%s %s", at, fmt.Sprintf(format, args...))
	}
}

const conditionForms = "one of all, any, not, or field with op and value"

func (p *parser) parse(v pack.Value, at string, depth int) *Matcher {
	m := &Matcher{}
	if v.Kind() != pack.Map {
		p.refuse(job.InvalidType, at, "must be a map, not %s", v.Kind())
		return m
	}
	if p.nodes++; p.nodes > MaxNodes {
		p.refuse(job.InvalidValue, "match", "has more than %d conditions", MaxNodes)
	}
	if depth > MaxDepth {
		p.refuse(job.InvalidValue, at, "is nested deeper than %d", MaxDepth)
	}
	var formValue, op, value pack.Value
	for k, part := range v.Pairs() {
		switch {
		case p.fault != nil:
			return m
		case k.Is("op"):
			op = part
		case k.Is("value"):
			value = part
		case k.Is("all"), k.Is("any"), k.Is("not"), k.Is("field"):
			form := string(k.Bytes())
			if m.kind != "" && m.kind != form {
				p.refuse(job.InvalidValue, at, "has %s and %s, it must have %s", m.kind, form, conditionForms)
			}
			m.kind, formValue = form, part
		default:
			p.refuse(job.InvalidValue, at, "has a key %.80s, it must have %s", pack.AppendJSON(nil, k), conditionForms)
		}
	}
	at += "."
	switch m.kind {
	case "all", "any":
		p.parts(m, formValue, at+m.kind, depth)
	case "not":
		m.parts = []*Matcher{p.parse(formValue, at+m.kind, depth+1)}
	case "field":
		p.condition(m, formValue, op, value, at)
		return m
	}
	if op != nil || value != nil {
		p.refuse(job.InvalidValue, at+"op", "is allowed only with field")
	}
	return m
}

func (p *parser) parts(m *Matcher, list pack.Value, at string, depth int) {
	if list.Kind() != pack.Array {
		p.refuse(job.InvalidType, at, "must be an array, not %s", list.Kind())
		return
	}
	for item := range list.Items() {
		if p.fault != nil {
			return
		}
		m.parts = append(m.parts, p.parse(item, fmt.Sprintf("%s[%d]", at, len(m.parts)), depth+1))
	}
}

// condition parses a condition on one field.
func (p *parser) condition(m *Matcher, field, op, value pack.Value, at string) {
	pointer := p.text(field, at+"field")
	m.op = p.text(op, at+"op")
	if value == nil {
		p.refuse(job.MissingField, at+"value", "is missing")
	}
	if p.fault != nil {
		return
	}
	var fault *job.Fault
	if m.field, fault = ParsePointer(pointer); fault != nil {
		p.refuse(job.InvalidValue, at+"field", "%s", fault.Reason)
	}
	at += "value"
	switch m.op {
	case "eq", "ne":
		m.value = operandOf(value)
	case "lt", "le", "gt", "ge":
		m.value = operandOf(value)
		if !value.IsNumber() && value.Kind() != pack.String {
			p.refuse(job.InvalidType, at, "of %s must be a number or a string, not %s", m.op, value.Kind())
		}
	case "in":
		if value.Kind() != pack.Array {
			p.refuse(job.InvalidType, at, "of in must be an array, not %s", value.Kind())
			return
		}
		for item := range value.Items() {
			m.values = append(m.values, operandOf(item))
		}
	case "glob":
		m.glob = wire.NewPattern(wire.Canonical(nil, p.text(value, at)))
	case "regex":
		m.regex = p.regex(p.text(value, at), at)
	case "exists":
		if value.Kind() != pack.Bool {
			p.refuse(job.InvalidType, at, "of exists must be a boolean, not %s", value.Kind())
			return
		}
		m.exists = value.Bool()
	case "type":
		switch m.typeName = p.text(value, at); m.typeName {
		case "null", "boolean", "number", "string", "bin", "ext", "array", "map":
		default:
			p.refuse(job.InvalidValue, at, "of type must be null, boolean, number, string, bin, ext, array or map, not %.80q", m.typeName)
		}
	default:
		p.refuse(job.InvalidValue, at[:len(at)-len("value")]+"op", "must be eq, ne, lt, le, gt, ge, in, glob, regex, exists or type, not %.80q", m.op)
	}
}

// text returns a required string.
func (p *parser) text(v pack.Value, at string) string {
	switch {
	case v == nil:
		p.refuse(job.MissingField, at, "is missing")
	case v.Kind() != pack.String:
		p.refuse(job.InvalidType, at, "must be a string, not %s", v.Kind())
	default:
		return string(v.Bytes())
	}
	return ""
}

func (p *parser) regex(text, at string) *regexp.Regexp {
	if p.fault != nil {
		return nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err == nil {
		var prog *syntax.Prog
		if prog, err = syntax.Compile(parsed.Simplify()); err == nil && len(prog.Inst) > MaxRegex {
			err = fmt.Errorf("it has %d steps; at most %d are allowed", len(prog.Inst), MaxRegex)
		}
	}
	var re *regexp.Regexp
	if err == nil {
		re, err = regexp.Compile(text)
	}
	if err != nil {
		p.refuse(job.InvalidValue, at, "is not a regular expression: %v", err)
	}
	return re
}

// MatchesAll reports whether the matcher selects every job because it names no field, as {} and
// combinations of {} do.
func (m *Matcher) MatchesAll() bool { return m.isAlways(true) }

// isAlways reports whether Match returns result for every job, whatever its fields are.
func (m *Matcher) isAlways(result bool) bool {
	isPartAlways := func(part *Matcher) bool { return part.isAlways(result) }
	other := func(part *Matcher) bool { return !isPartAlways(part) }
	switch m.kind {
	case "field":
		return false
	case "not":
		return m.parts[0].isAlways(!result)
	case "": // true
		return result
	}
	if result == (m.kind == "all") { // all parts must agree
		return !slices.ContainsFunc(m.parts, other)
	}
	return slices.ContainsFunc(m.parts, isPartAlways)
}

// Match reports whether the matcher selects a job.
func (m *Matcher) Match(a *job.Attributes) bool {
	switch m.kind {
	case "all":
		for _, part := range m.parts {
			if !part.Match(a) {
				return false
			}
		}
		return true
	case "any":
		for _, part := range m.parts {
			if part.Match(a) {
				return true
			}
		}
		return false
	case "not":
		return !m.parts[0].Match(a)
	case "field":
		return m.test(a)
	}
	return true
}

// test is Match for a condition on one field. If the job lacks the field, only the operator exists
// with the value false matches.
func (m *Matcher) test(a *job.Attributes) bool {
	var buf [job.MaxNameBytes + 5]byte // buf has room for any attribute
	got := m.field.find(a, buf[:0])
	if got == nil {
		return m.op == "exists" && !m.exists
	}
	switch m.op {
	case "eq":
		return m.value.equals(got)
	case "ne":
		return !m.value.equals(got)
	case "in":
		for i := range m.values {
			if m.values[i].equals(got) {
				return true
			}
		}
		return false
	case "glob":
		return got.Kind() == pack.String && m.glob.Matches(string(got.Bytes()))
	case "regex":
		return got.Kind() == pack.String && got.Len() <= MaxRegexText && m.regex.MatchString(string(got.Bytes()))
	case "exists":
		return m.exists
	case "type":
		return typeOf(got) == m.typeName
	}
	order, ok := m.value.compare(got)
	switch {
	case !ok:
		return false
	case m.op == "lt":
		return order < 0
	case m.op == "le":
		return order <= 0
	case m.op == "gt":
		return order > 0
	}
	return order >= 0
}

func typeOf(v pack.Value) string {
	if v.IsNumber() {
		return "number"
	}
	return v.Kind().String()
}
