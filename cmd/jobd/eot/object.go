package eot

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Object holds the members of a JSON object.
type Object []Member

// Field is a member that a message must or may have. Types has a letter for each allowed type: i
// integer, s string, n number, o object (also arrays and null), a array.
type Field struct {
	Name     string
	Types    string
	Required bool
}

var typeNames = map[byte]string{'i': "integer", 'n': "number", 's': "string", 'o': "object", 'a': "array"}

var errNotObject = errors.New("data is not an object")

// ParseObject returns the members of an object after it has checked the fields, in order;
// other members are allowed. An array is an object without members.
func ParseObject(raw json.RawMessage, fields ...Field) (Object, error) {
	if c := firstByte(raw); c != '{' && c != '[' {
		return nil, errNotObject
	}
	o := Object(Members(raw))
	for _, f := range fields {
		value := o.Get(f.Name)
		if value == nil {
			if f.Required {
				return nil, fmt.Errorf("missing required field %s", f.Name)
			}
			continue
		}
		if !f.accepts(value) {
			return nil, fmt.Errorf("'%s' must be %s", f.Name, f.typeName())
		}
	}
	return o, nil
}

// Get returns the value of a member as written, nil if there is none.
func (o Object) Get(name string) json.RawMessage {
	for _, m := range o {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

func (f Field) accepts(value json.RawMessage) bool {
	for _, t := range []byte(f.Types) {
		switch t {
		case 'i':
			if _, ok := Integer(value); ok {
				return true
			}
		case 'a':
			if IsArray(value) {
				return true
			}
		default:
			if TypeOf(value) == typeNames[t] {
				return true
			}
		}
	}
	return false
}

func (f Field) typeName() string {
	var names []string
	for _, t := range []byte(f.Types) {
		names = append(names, typeNames[t])
	}
	if len(names) == 1 {
		return names[0]
	}
	return "any of: " + strings.Join(names, ", ")
}
