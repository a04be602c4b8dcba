package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"gloom/broker/guard"
)

// FileError is an error in a file of options, with its place.
type FileError struct {
	Path   string
	Line   int // counted from 1; 0 means the whole file
	Reason string
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.Path + ": " + e.Reason
	}
	return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Reason)
}

// File holds options from a TOML file: the keys outside of all sections, or those of one section.
type File struct {
	path   string
	prefix string // prefix of the keys in lines: "contexts.home."
	values map[string]any
	lines  map[string]int // by dotted key
}

// ReadFile reads a file. Its error is a usage Fault that wraps a *FileError.
func ReadFile(path string) (*File, error) {
	data, err := guard.ReadFile(path)
	if err != nil {
		var at *os.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, Usagef("%w", &FileError{path, 0, err.Error()})
	}
	f := &File{path: path, lines: map[string]int{}}
	if err := toml.Unmarshal(data, &f.values); err != nil {
		e := &FileError{path, 0, strings.TrimPrefix(err.Error(), "toml: ")}
		var at *toml.DecodeError
		if errors.As(err, &at) {
			e.Line, _ = at.Position()
		}
		return nil, Usagef("%w", e)
	}
	f.findLines(data)
	return f, nil
}

// findLines records the lines of the keys.
func (f *File) findLines(data []byte) {
	var p unstable.Parser
	var table []string
	p.Reset(data)
	line, at := 1, 0 // p.Shape would count from the beginning of the file for each key
	for p.NextExpression() {
		e := p.Expression()
		var key []string
		for part := e.Key(); part.Next(); {
			n := part.Node()
			key = append(key, string(n.Data))
			line += bytes.Count(data[at:n.Raw.Offset], []byte("\n"))
			at = int(n.Raw.Offset)
		}
		if e.Kind == unstable.Table || e.Kind == unstable.ArrayTable {
			table = key
		} else {
			key = slices.Concat(table, key)
		}
		for i := range key { // a section has the line of its first key
			name := strings.Join(key[:i+1], ".")
			if _, ok := f.lines[name]; !ok || i == len(key)-1 {
				f.lines[name] = line
			}
		}
	}
}

// Table returns the section with that name, and whether the file has one.
func (f *File) Table(name string) (*File, bool) {
	values, ok := f.values[name].(map[string]any)
	return &File{f.path, f.prefix + name + ".", values, f.lines}, ok
}

// Keys returns the keys of the file or section, sorted by line.
func (f *File) Keys() []string {
	var keys []string
	for k := range f.values {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return f.lines[f.prefix+a] - f.lines[f.prefix+b] })
	return keys
}

// Value returns the value of a key in the file, or in the section; nil if there is none.
func (f *File) Value(key string) any { return f.values[key] }

// Errorf returns an error about a key of the file.
func (f *File) Errorf(key, format string, args ...any) *FileError {
	e := &FileError{f.path, 0, fmt.Sprintf(format, args...)}
	// The keys of an inline table have the line of that table.
	for name := f.prefix + key; name != "" && e.Line == 0; name = name[:max(0, strings.LastIndexByte(name, '.'))] {
		e.Line = f.lines[name]
	}
	return e
}

// check returns an error for the first unknown key.
func (f *File) check(options []string) error {
	if f == nil {
		return nil
	}
	for _, k := range f.Keys() {
		if !slices.Contains(options, k) {
			if suggestions := Suggest(k, options); suggestions != "" {
				return f.Errorf(k, "unknown option %q; did you mean %s?", k, suggestions)
			}
			return f.Errorf(k, "unknown option %q", k)
		}
		if _, ok := flagText(f.values[k]); !ok {
			return f.Errorf(k, "option %q must be a string, a number, true or false, or a list of strings", k)
		}
	}
	return nil
}

// lookup returns a value in the form that a flag reads, and its place in the file.
func (f *File) lookup(key string) (value, from string, ok bool) {
	if f == nil {
		return "", "", false
	}
	value, ok = flagText(f.values[key])
	return value, fmt.Sprintf("%s:%d", f.path, f.lines[f.prefix+key]), ok
}

// flagText formats a value of TOML as a flag reads it: lists with commas.
func flagText(v any) (string, bool) {
	switch v := v.(type) {
	case string, bool, int64, float64:
		return fmt.Sprint(v), true
	case []any:
		var parts []string
		for _, x := range v {
			s, ok := x.(string)
			if !ok {
				return "", false
			}
			parts = append(parts, s)
		}
		return strings.Join(parts, ","), true
	}
	return "", false
}
