package config

import (
	"encoding/json"
	"slices"
	"strings"
)

// The original jobd reads ini files in a form that has no published grammar. General ini libraries
// would read existing files differently: they interpolate %(x)s, continue a line after a backslash,
// take ':' as a separator, resolve JSON escapes inside double quotes or allow comments inside keys.
// This package therefore has its own parser.

// entry is one assignment. A key without '=' has the value "true".
type entry struct {
	key, value string
}

// section is a list of entries, in the order in which their keys first occur. A later assignment
// replaces the value and keeps the place.
type section struct {
	name    string
	entries []entry
	lines   map[string]int // line of the last assignment of each key, from 1
}

// document is a parsed file. The unnamed section comes first.
type document struct {
	sections []*section
}

func (s *section) set(key, value string, line int) {
	if s.lines == nil {
		s.lines = make(map[string]int)
	}
	_, again := s.lines[key]
	s.lines[key] = line
	if again {
		i := slices.IndexFunc(s.entries, func(e entry) bool { return e.key == key })
		s.entries[i].value = value
		return
	}
	s.entries = append(s.entries, entry{key, value})
}

// lookup returns the value of key; ok is false if it is absent or null.
func (s *section) lookup(key string) (value string, ok bool) {
	for _, e := range s.entries {
		if e.key == key {
			return e.value, e.value != "null"
		}
	}
	return "", false
}

func (d *document) unnamedSection() *section { return d.sections[0] }

// section returns the section with this name, or nil.
func (d *document) section(name string) *section {
	for _, s := range d.sections[1:] {
		if s.name == name {
			return s
		}
	}
	return nil
}

func parseDocument(text string) *document {
	doc := &document{sections: []*section{{}}}
	current := doc.unnamedSection()
	text = strings.TrimPrefix(text, "\ufeff")
	for i, line := range strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == ';' || line[0] == '#' || line[0] == '=' {
			continue
		}
		if name, ok := parseHeader(line); ok {
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
		current.set(unquote(key), value, i+1)
	}
	return doc
}

// parseHeader recognises "[name]", with or without a comment after it.
func parseHeader(line string) (name string, ok bool) {
	if line[0] != '[' {
		return "", false
	}
	name, rest, closed := strings.Cut(line[1:], "]")
	if !closed || cutComment(rest) != "" {
		return "", false
	}
	return unquote(name), true
}

// unquote returns the value of a key or value as written, without quotes. Quotes count only if they
// enclose all of the text; inside them ';' and '#' are ordinary characters. Double quotes enclose a JSON string,
// single quotes any text. Without quotes, ';' or '#' ends the value unless a backslash precedes
// it. If a comment follows the closing quote, the quotes are part of the value.
func unquote(raw string) string {
	raw = strings.TrimSpace(raw)
	if raw == "" || raw[0] != raw[len(raw)-1] || raw[0] != '"' && raw[0] != '\'' {
		return cutComment(raw)
	}
	if raw[0] == '\'' {
		raw = strings.TrimSuffix(raw[1:], "'")
	}
	var value string
	if json.Unmarshal([]byte(raw), &value) == nil {
		return value
	}
	return raw
}

func cutComment(raw string) string {
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
