package pack

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/job"
	"gloom/wire"
)

// FromJSON converts a JSON text to MessagePack. It also reads AppendJSON's forms of values that
// JSON lacks. The fault is invalid_value for an integer beyond 64 bits, a number beyond a float64,
// or a malformed form of this kind; it is invalid_body for everything else.
func FromJSON(text []byte) ([]byte, *job.Fault) {
	r, fault := readJSON(text)
	if fault == nil && r.tooDeepAt > 0 && Check(r.out) != nil {
		fault = tooDeep(r.tooDeepAt)
	}
	if fault != nil {
		return nil, fault
	}
	return r.out, nil
}

// ReplyFromJSON converts a reply, which may be nested deeper than MaxDepth, as replyDepth says.
func ReplyFromJSON(text []byte) ([]byte, *job.Fault) {
	r, fault := readJSON(text)
	return r.out, fault
}

func readJSON(text []byte) (r reader, fault *job.Fault) {
	if !utf8.Valid(text) {
		return r, job.Refuse(job.InvalidBody, "", "the body is not UTF-8")
	}
	if !json.Valid(text) {
		return r, syntaxFault(text)
	}
	r = reader{input: text, out: make([]byte, 0, len(text))}
	return r, r.appendValue(0)
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
	input []byte
	pos   int
	out   []byte
	// tooDeepAt is the index of the first bracket that is nested deeper than MaxDepth; 0 if there
	// is none. The value may still be within the limit, because a $map has three levels of brackets
	// for one level of the value.
	tooDeepAt int
}

// maxTextDepth limits the nesting of the brackets of a text.
const maxTextDepth = 3*MaxDepth + replyDepth

func tooDeep(at int) *job.Fault {
	return job.Refuse(job.InvalidBody, "", "the body is nested deeper than %d at byte %d", MaxDepth, at)
}

// peek returns the next byte that is not a space.
func (r *reader) peek() byte {
	for r.pos < len(r.input) && (r.input[r.pos] == ' ' || r.input[r.pos] == '\t' || r.input[r.pos] == '\n' || r.input[r.pos] == '\r') {
		r.pos++
	}
	if r.pos == len(r.input) {
		return 0
	}
	return r.input[r.pos]
}

// skip skips spaces and one more byte.
func (r *reader) skip() {
	r.peek()
	r.pos++
}

// appendValue appends the value that begins at r.pos.
func (r *reader) appendValue(depth int) *job.Fault {
	switch c := r.peek(); c {
	case '{', '[':
		return r.appendList(c, depth, nil)
	case '"':
		r.out = msgp.AppendStringFromBytes(r.out, r.text())
	case 't':
		r.pos, r.out = r.pos+4, append(r.out, 0xc3)
	case 'f':
		r.pos, r.out = r.pos+5, append(r.out, 0xc2)
	case 'n':
		r.pos, r.out = r.pos+4, append(r.out, 0xc0)
	default:
		return r.number()
	}
	return nil
}

// text returns the string whose opening quote is at r.pos.
func (r *reader) text() []byte {
	start, escaped := r.pos+1, false
	for r.pos++; r.input[r.pos] != '"'; r.pos++ {
		if r.input[r.pos] == '\\' {
			escaped = true
			r.pos++
		}
	}
	r.pos++
	if content := r.input[start : r.pos-1]; escaped {
		return []byte(wire.Value(content))
	} else {
		return content
	}
}

func (r *reader) number() *job.Fault {
	start, whole := r.pos, true
	for ; r.pos < len(r.input); r.pos++ {
		c := r.input[r.pos]
		if c == '.' || c|0x20 == 'e' {
			whole = false
		} else if c != '-' && c != '+' && (c < '0' || c > '9') {
			break
		}
	}
	text := string(r.input[start:r.pos])
	if !whole {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return job.Refuse(job.InvalidValue, "", "the number %.40s at byte %d does not fit into a 64-bit float", text, start)
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

// appendList appends the array or object whose opening bracket is at r.pos. If items is not nil,
// appendList appends to it where the items of an array begin in r.out.
func (r *reader) appendList(open byte, depth int, items *[]int) *job.Fault {
	switch {
	case depth == maxTextDepth:
		return tooDeep(r.pos)
	case depth == MaxDepth && r.tooDeepAt == 0:
		r.tooDeepAt = r.pos
	}
	start, n, at := len(r.out), uint32(0), 0
	var value int            // where the last value begins in r.out
	var pairs []int          // where its items begin, if it is the array of a $map
	r.out = append(r.out, 0) // room for the head, which needs n
	for r.pos++; ; n++ {
		if r.peek() == ',' {
			r.skip()
		}
		if c := r.peek(); c == ']' || c == '}' {
			break
		}
		value = len(r.out)
		if open == '{' {
			r.out = msgp.AppendStringFromBytes(r.out, r.text())
			r.skip() // the colon
			key := Value(r.out[value:])
			at, value = r.pos, len(r.out)
			if key.Is(mapKey) && r.peek() == '[' {
				if fault := r.appendList('[', depth+1, &pairs); fault != nil {
					return fault
				}
				continue
			}
		} else if items != nil {
			*items = append(*items, value)
		}
		if fault := r.appendValue(depth + 1); fault != nil {
			return fault
		}
	}
	r.pos++
	var buf [5]byte
	head := msgp.AppendArrayHeader(buf[:0], n)
	if open == '{' {
		head = msgp.AppendMapHeader(buf[:0], n)
	}
	r.out = slices.Replace(r.out, start, start+1, head...)
	for i := 0; items != nil && i < len(*items); i++ {
		(*items)[i] += len(head) - 1
	}
	if open == '{' && n == 1 {
		return r.specialValue(start, value, at, pairs)
	}
	return nil
}

// specialValue looks at the map of one pair that begins at start in r.out. If the map stands for
// another value, specialValue replaces it by that value. The value of the pair begins at index
// valueStart in r.out, and at index textStart in the text. If the value is the array of a $map,
// pairs holds the positions at which its items begin: a search for the items would take long, and
// would be repeated for each map around that map.
func (r *reader) specialValue(start, valueStart, textStart int, pairs []int) *job.Fault {
	k, v := Value(r.out[start+1:valueStart]), Value(r.out[valueStart:])
	key, out := string(k.Bytes()), r.out[:start]
	newFault := func(want string) *job.Fault {
		return job.Refuse(job.InvalidValue, "", "the value of %s at byte %d must be %s", key, textStart, want)
	}
	switch key {
	case mapKey:
		const want = "an array of arrays of two values"
		if v.Kind() != Array {
			return newFault(want)
		}
		out = msgp.AppendMapHeader(out, uint32(v.Len())) // the header ends before v begins in r.out
		for i, offset := range pairs {
			if r.out[offset] != twoElementArray {
				return newFault(want)
			}
			end := len(r.out)
			if i+1 < len(pairs) {
				end = pairs[i+1]
			}
			out = append(out, r.out[offset+1:end]...)
		}
	case extKey:
		typ := v.Item(0)
		data, ok := fromBase64(v.Item(1))
		n, fits := typ.Number().Integer()
		if !ok || v.Len() != 2 || typ.Kind() != Int && typ.Kind() != Uint || !fits || n < math.MinInt8 || n > math.MaxInt8 {
			return newFault("an array of an integer from -128 to 127 and base64")
		}
		out, _ = msgp.AppendExtension(out, &msgp.RawExtension{Data: data, Type: int8(n)})
	case binKey, strKey:
		data, ok := fromBase64(v)
		if !ok {
			return newFault("base64")
		}
		if key == binKey {
			out = msgp.AppendBytes(out, data)
		} else {
			out = msgp.AppendStringFromBytes(out, data)
		}
	case floatKey:
		f, ok := nonFinite[string(v.Bytes())]
		if !ok || v.Kind() != String {
			return newFault(`"NaN", "Inf" or "-Inf"`)
		}
		out = msgp.AppendFloat64(out, f)
	default:
		return nil
	}
	r.out = out
	return nil
}

func fromBase64(v Value) (data []byte, ok bool) {
	if v.Kind() != String {
		return nil, false
	}
	data, err := base64.StdEncoding.Strict().AppendDecode(nil, v.Bytes())
	return data, err == nil
}

// twoElementArray begins an array of two items.
const twoElementArray = 0x92

// nonFinite holds the floats that are not finite, by the name that stands for them in JSON.
var nonFinite = map[string]float64{
	"NaN": math.Float64frombits(0x7ff8 << 48), "Inf": math.Inf(1), "+Inf": math.Inf(1), "-Inf": math.Inf(-1),
}
