package pack

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/job"
	"gloom/wire"
)

// FromJSON converts a JSON text to MessagePack. It also reads the forms in which AppendJSON writes
// values that JSON lacks. The fault is invalid_value for an integer beyond 64 bits, a number beyond
// a float64, or a malformed form of this kind; it is invalid_body for everything else.
func FromJSON(text []byte) ([]byte, *job.Fault) {
	if !utf8.Valid(text) {
		return nil, job.Refuse(job.InvalidBody, "", "the body is not UTF-8")
	}
	if !json.Valid(text) {
		return nil, syntaxFault(text)
	}
	r := reader{in: text}
	if fault := r.count(); fault != nil {
		return nil, fault
	}
	r.out = make([]byte, 0, len(text))
	if fault := r.value(0); fault != nil {
		return nil, fault
	}
	return r.out, nil
}

func syntaxFault(text []byte) *job.Fault {
	var any json.RawMessage
	err := json.Unmarshal(text, &any)
	var at *json.SyntaxError
	if errors.As(err, &at) {
		return job.Refuse(job.InvalidBody, "", "the body is not valid JSON: %v at byte %d", err, at.Offset)
	}
	return job.Refuse(job.InvalidBody, "", "the body is not valid JSON: %v", err)
}

// reader converts a text that is known to be valid JSON into MessagePack.
type reader struct {
	in  []byte
	at  int
	out []byte
	// counts has the number of items of each array and object, in the order of their opening
	// brackets.
	counts []uint32
	next   int
}

// maxText is how deeply the brackets of a text may be nested: a $map, which is one level of
// MessagePack, has three levels of brackets.
const maxText = 3*MaxDepth + 3

// count counts the items of all arrays and objects in one pass over the text.
func (r *reader) count() *job.Fault {
	var open [maxText]uint32 // indexes in counts
	depth := 0
	for i := 0; i < len(r.in); i++ {
		switch r.in[i] {
		case '"':
			for i++; r.in[i] != '"'; i++ {
				if r.in[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			if depth == maxText {
				return tooDeep(i)
			}
			open[depth] = uint32(len(r.counts))
			depth++
			n := uint32(1)
			if rest := bytes.TrimLeft(r.in[i+1:], " \t\r\n"); rest[0] == ']' || rest[0] == '}' {
				n = 0
			}
			r.counts = append(r.counts, n)
		case ',':
			r.counts[open[depth-1]]++
		case ']', '}':
			depth--
		}
	}
	return nil
}

func tooDeep(at int) *job.Fault {
	return job.Refuse(job.InvalidBody, "", "the body is nested deeper than %d at byte %d", MaxDepth, at)
}

// peek returns the next byte that is not a space.
func (r *reader) peek() byte {
	for r.at < len(r.in) && (r.in[r.at] == ' ' || r.in[r.at] == '\t' || r.in[r.at] == '\n' || r.in[r.at] == '\r') {
		r.at++
	}
	if r.at == len(r.in) {
		return 0
	}
	return r.in[r.at]
}

// pass skips spaces and one more byte.
func (r *reader) pass() {
	r.peek()
	r.at++
}

// value appends the value that begins at r.at.
func (r *reader) value(depth int) *job.Fault {
	switch c := r.peek(); c {
	case '{', '[':
		if depth == MaxDepth {
			return tooDeep(r.at)
		}
		n := r.counts[r.next]
		r.next++
		r.at++
		if c == '{' {
			return r.object(n, depth+1)
		}
		r.out = msgp.AppendArrayHeader(r.out, n)
		for range n {
			if fault := r.value(depth + 1); fault != nil {
				return fault
			}
			r.pass()
		}
		if n == 0 {
			r.pass()
		}
		return nil
	case '"':
		r.out = msgp.AppendStringFromBytes(r.out, r.text())
	case 't':
		r.at, r.out = r.at+4, append(r.out, 0xc3)
	case 'f':
		r.at, r.out = r.at+5, append(r.out, 0xc2)
	case 'n':
		r.at, r.out = r.at+4, append(r.out, 0xc0)
	default:
		return r.number()
	}
	return nil
}

// text returns the string whose opening quote is at r.at.
func (r *reader) text() []byte {
	start, escaped := r.at+1, false
	for r.at++; r.in[r.at] != '"'; r.at++ {
		if r.in[r.at] == '\\' {
			escaped = true
			r.at++
		}
	}
	r.at++
	if content := r.in[start : r.at-1]; escaped {
		return []byte(wire.Value(content))
	} else {
		return content
	}
}

func (r *reader) number() *job.Fault {
	start, whole := r.at, true
	for ; r.at < len(r.in); r.at++ {
		c := r.in[r.at]
		if c == '.' || c|0x20 == 'e' {
			whole = false
		} else if c != '-' && c != '+' && (c < '0' || c > '9') {
			break
		}
	}
	text := string(r.in[start:r.at])
	if !whole {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return job.Refuse(job.InvalidValue, "", "the number %.40s at byte %d is beyond a float of 64 bits", text, start)
		}
		r.out = msgp.AppendFloat64(r.out, f)
		return nil
	}
	if n, err := strconv.ParseUint(strings.TrimPrefix(text, "-"), 10, 64); err == nil && (text[0] != '-' || n == 0) {
		r.out = msgp.AppendUint64(r.out, n)
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return job.Refuse(job.InvalidValue, "", "the integer %.40s at byte %d is beyond 64 bits", text, start)
	}
	r.out = msgp.AppendInt64(r.out, n)
	return nil
}

// object appends an object of n pairs. Its opening brace has been read.
func (r *reader) object(n uint32, depth int) *job.Fault {
	if n == 1 && r.peek() == '"' {
		start := r.at
		if key := r.text(); special(key) {
			r.pass() // the colon
			fault := r.special(string(key), depth)
			r.pass()
			return fault
		}
		r.at = start
	}
	r.out = msgp.AppendMapHeader(r.out, n)
	for range n {
		r.peek()
		r.out = msgp.AppendStringFromBytes(r.out, r.text())
		r.pass()
		if fault := r.value(depth); fault != nil {
			return fault
		}
		r.pass()
	}
	if n == 0 {
		r.pass()
	}
	return nil
}

// special appends the value that an object with one special key stands for.
func (r *reader) special(key string, depth int) *job.Fault {
	at := r.at
	wrong := func(want string) *job.Fault {
		return job.Refuse(job.InvalidValue, "", "the value of %s at byte %d must be %s", key, at, want)
	}
	switch key {
	case mapKey:
		const want = "an array of arrays of two values"
		n, ok := r.bracket()
		if !ok {
			return wrong(want)
		}
		r.out = msgp.AppendMapHeader(r.out, n)
		for range n {
			if two, ok := r.bracket(); !ok || two != 2 {
				return wrong(want)
			}
			for range 2 {
				if fault := r.value(depth); fault != nil {
					return fault
				}
				r.pass()
			}
			r.pass()
		}
		if n == 0 {
			r.pass()
		}
	case extKey:
		const want = "an array of an integer from -128 to 127 and base64"
		if two, ok := r.bracket(); !ok || two != 2 {
			return wrong(want)
		}
		c := r.peek()
		start := r.at
		for r.at < len(r.in) && r.in[r.at] != ',' && c != '"' && c != '[' && c != '{' {
			r.at++
		}
		typ, err := strconv.ParseInt(string(bytes.TrimSpace(r.in[start:r.at])), 10, 8)
		if err != nil {
			return wrong(want)
		}
		r.pass()
		data, ok := r.base64()
		if !ok {
			return wrong(want)
		}
		r.out, _ = msgp.AppendExtension(r.out, &msgp.RawExtension{Data: data, Type: int8(typ)})
		r.pass()
	case binKey:
		data, ok := r.base64()
		if !ok {
			return wrong("base64")
		}
		r.out = msgp.AppendBytes(r.out, data)
	case strKey:
		data, ok := r.base64()
		if !ok {
			return wrong("base64")
		}
		r.out = msgp.AppendStringFromBytes(r.out, data)
	case floatKey:
		var name string
		if r.peek() == '"' {
			name = string(r.text())
		}
		f, ok := notFinite[name]
		if !ok {
			return wrong(`"NaN", "Inf" or "-Inf"`)
		}
		r.out = msgp.AppendFloat64(r.out, f)
	}
	return nil
}

// notFinite has the floats that are not finite, by the name that stands for them in JSON.
var notFinite = map[string]float64{
	"NaN": math.Float64frombits(0x7ff8 << 48), "Inf": math.Inf(1), "+Inf": math.Inf(1), "-Inf": math.Inf(-1),
}

// bracket reads the opening bracket of the array at r.at and returns the number of its items.
func (r *reader) bracket() (n uint32, ok bool) {
	if r.peek() != '[' {
		return 0, false
	}
	n = r.counts[r.next]
	r.next++
	r.at++
	return n, true
}

func (r *reader) base64() ([]byte, bool) {
	if r.peek() != '"' {
		return nil, false
	}
	data, err := base64.StdEncoding.Strict().AppendDecode(nil, r.text())
	return data, err == nil
}
