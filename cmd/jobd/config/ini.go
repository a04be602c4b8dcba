package config

import (
	"encoding/json"
	"strings"
)

// The dialect has no published grammar; general ini libraries differ from it
// in ways that change the meaning of files in use (interpolation of %(x)s, a
// backslash that continues a line, ':' as a separator, JSON escapes inside
// double quotes, comments inside keys), hence these lines.

// entry is one assignment. A key without '=' has the value "true".
type entry struct {
	key, value string
}

// section is a list of entries in the order in which their keys first came;
// a later assignment replaces the value and keeps the place.
type section struct {
	name    string
	entries []entry
}

// document is a parsed file. The unnamed section comes first.
type document struct {
	sections []*section
}

func (s *section) set(key, value string) {
	for i := range s.entries {
		if s.entries[i].key == key {
			s.entries[i].value = value
			return
		}
	}
	s.entries = append(s.entries, entry{key, value})
}

// get returns the value of key; ok is false when it is absent or null.
func (s *section) get(key string) (value string, ok bool) {
	for _, e := range s.entries {
		if e.key == key {
			return e.value, e.value != "null"
		}
	}
	return "", false
}

func (d *document) top() *section { return d.sections[0] }

// section returns the section with this name, or nil.
func (d *document) section(name string) *section {
	for _, s := range d.sections[1:] {
		if s.name == name {
			return s
		}
	}
	return nil
}

func parse(text string) *document {
	doc := &document{sections: []*section{{}}}
	current := doc.top()
	text = strings.TrimPrefix(text, "\ufeff")
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == ';' || line[0] == '#' || line[0] == '=' {
			continue
		}
		if name, ok := header(line); ok {
			if current = doc.section(name); current == nil {
				current = &section{name: name}
				doc.sections = append(doc.sections, current)
			}
			continue
		}
		key, value, assigned := strings.Cut(line, "=")
		if assigned {
			value = unquote(value)
		} else {
			value = "true"
		}
		current.set(unquote(key), value)
	}
	return doc
}

// header recognises "[name]", with a comment after it or not.
func header(line string) (name string, ok bool) {
	if line[0] != '[' {
		return "", false
	}
	name, rest, closed := strings.Cut(line[1:], "]")
	if !closed || !blank(rest) {
		return "", false
	}
	return unquote(name), true
}

// blank tells whether nothing but a comment is left.
func blank(rest string) bool {
	rest = strings.TrimSpace(rest)
	return rest == "" || rest[0] == ';' || rest[0] == '#'
}

// unquote turns a key or value as written into what it means. In quotes, ';'
// and '#' are characters like any other, and double quotes hold a JSON string;
// what is not one stays as it is, quotes and all. Without quotes a comment
// ends the value, unless its sign is escaped by a backslash.
func unquote(raw string) string {
	raw = strings.TrimSpace(raw)
	if raw == "" {
		return ""
	}
	quote := raw[0]
	if quote == '"' || quote == '\'' {
		if len(raw) > 1 && raw[len(raw)-1] == quote {
			if value, ok := inQuotes(raw); ok {
				return value
			}
			// Not one string: perhaps one with a comment that ends in a quote.
		}
		if end := closing(raw); end > 0 && blank(raw[end+1:]) {
			if value, ok := inQuotes(raw[:end+1]); ok {
				return value
			}
		}
		if len(raw) > 1 && raw[len(raw)-1] == quote {
			return raw
		}
	}
	return uncomment(raw)
}

// inQuotes opens a string that is in quotes as a whole.
func inQuotes(raw string) (value string, ok bool) {
	if raw[0] == '\'' {
		raw = raw[1 : len(raw)-1]
		if json.Unmarshal([]byte(raw), &value) == nil {
			return value, true
		}
		return raw, true
	}
	if json.Unmarshal([]byte(raw), &value) != nil {
		return "", false
	}
	return value, true
}

// closing returns the place of the quote that ends the one at 0, or -1.
func closing(raw string) int {
	for i := 1; i < len(raw); i++ {
		switch {
		case raw[i] == raw[0]:
			return i
		case raw[i] == '\\' && raw[0] == '"':
			i++
		}
	}
	return -1
}

func uncomment(raw string) string {
	var out strings.Builder
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == ';' || c == '#' {
			break
		}
		if c == '\\' && i+1 < len(raw) && strings.IndexByte(`\;#`, raw[i+1]) >= 0 {
			i++
			c = raw[i]
		}
		out.WriteByte(c)
	}
	return strings.TrimSpace(out.String())
}
