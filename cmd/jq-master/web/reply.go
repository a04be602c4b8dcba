package web

import (
	"cmp"
	"fmt"
	"mime"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
	"gloom/cmd/jq-master/push"
)

// replyBuilder builds a reply: its methods append MessagePack.
type replyBuilder struct{ buf []byte }

// object is a map in a reply: its keys, each followed by its value.
type object []any

// moment is a time in milliseconds since 1970; 0 is written as null.
type moment int64

// object appends a map: its keys, each followed by its value.
func (a *replyBuilder) object(pairs ...any) {
	a.buf = msgp.AppendMapHeader(a.buf, uint32(len(pairs)/2))
	for _, v := range pairs {
		a.value(v)
	}
}

// value appends a key or a value. Bytes are a value in MessagePack. A zero value
// that means "none" (of an id, a time, a reason or bytes) becomes null.
func (a *replyBuilder) value(v any) {
	switch v := v.(type) {
	case string:
		a.buf = msgp.AppendString(a.buf, v)
	case int:
		a.integer(int64(v))
	case int32:
		a.integer(int64(v))
	case int64:
		a.integer(v)
	case uint64:
		a.buf = msgp.AppendUint64(a.buf, v)
	case float64:
		a.buf = msgp.AppendFloat64(a.buf, v)
	case *float64:
		if v == nil {
			a.value(nil)
		} else {
			a.value(*v)
		}
	case bool:
		a.buf = msgp.AppendBool(a.buf, v)
	case job.Span:
		a.buf = pack.AppendSeconds(a.buf, v)
	case job.State:
		a.value(v.String())
	case job.Reason:
		a.value(orNull(v.String()))
	case object:
		a.object(v...)
	case []object:
		appendList(a, v)
	case []string:
		appendList(a, v)
	case []uint64:
		appendList(a, v)
	case []float64:
		appendList(a, v)
	case []job.ID:
		appendList(a, v)
	case []job.Handout:
		a.buf = msgp.AppendArrayHeader(a.buf, uint32(len(v)))
		for i := range v {
			a.buf = push.AppendHandout(a.buf, &v[i])
		}
	case job.ID:
		if v.IsZero() {
			a.value(nil)
		} else {
			a.buf = pack.AppendID(a.buf, v)
		}
	case moment:
		if v == 0 {
			a.value(nil)
		} else {
			a.buf = pack.AppendTime(a.buf, int64(v))
		}
	case []byte:
		if v == nil {
			a.value(nil)
		} else {
			a.buf = append(a.buf, v...)
		}
	case nil:
		a.buf = msgp.AppendNil(a.buf)
	default:
		panic(fmt.Sprintf("a reply cannot have a %T", v))
	}
}

func (a *replyBuilder) integer(n int64) {
	if n < 0 {
		a.buf = msgp.AppendInt64(a.buf, n)
	} else {
		a.buf = msgp.AppendUint64(a.buf, uint64(n))
	}
}

func appendList[T any](a *replyBuilder, list []T) {
	a.buf = msgp.AppendArrayHeader(a.buf, uint32(len(list)))
	for _, v := range list {
		a.value(v)
	}
}

// orNull returns a value, or nil if it is the zero value.
func orNull[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

// objectsOf returns the maps that stand for the items of a list.
func objectsOf[T any](list []T, show func(T) object) []object {
	out := make([]object, 0, len(list))
	for _, v := range list {
		out = append(out, show(v))
	}
	return out
}

// These are the media types of replies. mediaType also accepts two other names for MessagePack.
const (
	msgpackType = "application/msgpack"
	jsonType    = "application/json"
)

// mediaType returns a media type without its parameters, or "" if it is neither MessagePack nor
// JSON. It returns the name as it was sent, so that a reply can use the same name.
func mediaType(s string) string {
	s, _, _ = strings.Cut(s, ";")
	s = strings.ToLower(strings.TrimSpace(s))
	switch s {
	case msgpackType, "application/x-msgpack", "application/vnd.msgpack", jsonType:
		return s
	}
	return ""
}

// replyType returns the media type of a reply: the type that the Accept header prefers, otherwise
// the type of the request. It returns "" if neither MessagePack nor JSON is acceptable.
func replyType(header []string, request string) string {
	if len(header) == 0 {
		return request
	}
	if len(header) == 1 {
		switch header[0] {
		case "", "*/*":
			return request
		case msgpackType, jsonType:
			return header[0]
		}
	}
	// The encoding of the request comes first: it is preferred if the client accepts both alike.
	preferences := [2]encodingPreference{{name: request}, {name: jsonType}}
	if request == jsonType {
		preferences[1].name = msgpackType
	}
	for position, part := range strings.Split(strings.Join(header, ","), ",") {
		name, params, _ := mime.ParseMediaType(part)
		q := 1.0
		if text, ok := params["q"]; ok {
			q, _ = strconv.ParseFloat(text, 64)
		}
		for i := range preferences {
			preferences[i].apply(name, q, position+1)
		}
	}
	a, b := &preferences[0], &preferences[1]
	if cmp.Or(cmp.Compare(b.q, a.q), cmp.Compare(b.specificity, a.specificity), cmp.Compare(a.position, b.position)) > 0 {
		a = b
	}
	if a.q <= 0 {
		return ""
	}
	return a.name
}

// encodingPreference says how much a client prefers an encoding.
type encodingPreference struct {
	name        string
	specificity int // how specific the range was that q comes from, 1 to 4; 0: none matched
	q           float64
	position    int // position of that range in the header, 0 if it names no encoding; of two equal ranges the first wins
}

// apply takes a range of the header into account. The quality of an encoding is that of the most
// specific range that matches it.
func (p *encodingPreference) apply(name string, q float64, position int) {
	specificity, isJSON := 0, p.name == jsonType
	switch {
	case name == "*/*":
		specificity, position = 1, 0
	case name == "application/*":
		specificity, position = 2, 0
	case isJSON && name == "text/html": // the client is a browser, which can show JSON
		specificity = 3
	case mediaType(name) != "" && isJSON == (name == jsonType):
		specificity = 4
	}
	if specificity == 0 || specificity < p.specificity || specificity == p.specificity && q <= p.q {
		return
	}
	p.specificity, p.q = specificity, q
	if position > 0 {
		p.position = position
	}
	if specificity == 4 {
		p.name = name
	}
}

// appendJSONLine appends an answer as JSON, with a newline for people.
func appendJSONLine(dst, packed []byte) []byte { return append(pack.AppendJSON(dst, packed), '\n') }
