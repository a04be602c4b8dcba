package matcher

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
)

// Pointer is a JSON Pointer into a job's attributes: /name, /priority,
// /argument/user/0/id.
type Pointer struct {
	attribute string
	path      []token // into the argument
}

// attributes holds the names with which a pointer may begin.
var attributes = []string{"name", "argument", "priority", "max_retry", "keep_result", "timeout"}

// token is one step of a pointer: a key of a map, or an index in an array.
type token struct {
	key   string
	index int // -1 if it is not an index
}

// ParsePointer parses a pointer.
func ParsePointer(text string) (Pointer, *job.Fault) {
	if !strings.HasPrefix(text, "/") {
		return Pointer{}, job.Refuse(job.InvalidValue, "", "must be a JSON Pointer such as /name or /argument/user/0/id, not %.80q", text)
	}
	var p Pointer
	for i, part := range strings.Split(text[1:], "/") {
		key, ok := unescape(part)
		if !ok {
			return Pointer{}, job.Refuse(job.InvalidValue, "", "must be a JSON Pointer, in which ~ is written as ~0, not %.80q", text)
		}
		if i == 0 {
			p.attribute = key
			if !slices.Contains(attributes, key) {
				return Pointer{}, job.Refuse(job.InvalidValue, "", "must begin with an attribute, one of /%s, not %.80q", strings.Join(attributes, ", /"), text)
			}
			continue
		}
		if p.attribute != "argument" {
			return Pointer{}, job.Refuse(job.InvalidValue, "", "continues after /%s, which has no parts: %.80q", p.attribute, text)
		}
		index := -1
		if n, err := strconv.Atoi(key); err == nil && n >= 0 && strconv.Itoa(n) == key {
			index = n
		}
		p.path = append(p.path, token{key, index})
	}
	return p, nil
}

func unescape(s string) (string, bool) {
	for i := range len(s) {
		if s[i] == '~' && (i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1') {
			return "", false
		}
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(s), true
}

// find returns the value that p points to in a job, nil if there is none. It may put the value into
// buf.
func (p *Pointer) find(a *job.Attributes, buf []byte) pack.Value {
	switch p.attribute {
	case "name":
		return msgp.AppendString(buf, a.Name)
	case "priority":
		return msgp.AppendInt64(buf, int64(a.Priority))
	case "max_retry":
		return msgp.AppendInt64(buf, int64(a.MaxRetry))
	case "timeout":
		return msgp.AppendFloat64(buf, a.Timeout.Seconds())
	case "keep_result":
		return msgp.AppendBool(buf, a.KeepResult)
	}
	v := pack.Value(a.Argument)
	for _, t := range p.path {
		if t.index >= 0 && v.Kind() == pack.Array {
			v = v.Item(t.index)
		} else {
			v = v.Field(t.key)
		}
	}
	return v
}

// Value returns the canonical form of the value that p points to in a job; found is false if there
// is none.
func (p *Pointer) Value(a *job.Attributes) (value []byte, found bool) {
	v := p.find(a, nil)
	return appendCanonical(nil, v), v != nil
}
