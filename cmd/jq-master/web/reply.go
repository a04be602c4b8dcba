package web

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
)

// replyBuilder is the MessagePack of a reply, to which its methods append.
type replyBuilder struct{ buf []byte }

func (a *replyBuilder) object(n int)  { a.buf = msgp.AppendMapHeader(a.buf, uint32(n)) }
func (a *replyBuilder) array(n int)   { a.buf = msgp.AppendArrayHeader(a.buf, uint32(n)) }
func (a *replyBuilder) item(s string) { a.buf = msgp.AppendString(a.buf, s) }
func (a *replyBuilder) key(k string)  { a.item(k) }

func (a *replyBuilder) text(k, v string) {
	a.key(k)
	a.item(v)
}

// textOrNull writes a string, or null for "".
func (a *replyBuilder) textOrNull(k, v string) {
	if v == "" {
		a.null(k)
		return
	}
	a.text(k, v)
}

func (a *replyBuilder) null(k string) {
	a.key(k)
	a.buf = msgp.AppendNil(a.buf)
}

func (a *replyBuilder) integer(k string, n int64) {
	a.key(k)
	a.number(n)
}

func (a *replyBuilder) number(n int64) {
	if n < 0 {
		a.buf = msgp.AppendInt64(a.buf, n)
	} else {
		a.buf = msgp.AppendUint64(a.buf, uint64(n))
	}
}

func (a *replyBuilder) float(k string, f float64) {
	a.key(k)
	a.buf = msgp.AppendFloat64(a.buf, f)
}

func (a *replyBuilder) floatOrNull(k string, f *float64) {
	if f == nil {
		a.null(k)
		return
	}
	a.float(k, *f)
}

func (a *replyBuilder) seconds(k string, s job.Span) {
	a.key(k)
	a.buf = pack.AppendSeconds(a.buf, s)
}

func (a *replyBuilder) boolean(k string, v bool) {
	a.key(k)
	a.buf = msgp.AppendBool(a.buf, v)
}

// raw writes a value as it was sent, or null for nil.
func (a *replyBuilder) raw(k string, v []byte) {
	if v == nil {
		a.null(k)
		return
	}
	a.key(k)
	a.buf = append(a.buf, v...)
}

// idOrNull writes an id, or null for the zero id.
func (a *replyBuilder) idOrNull(k string, id job.ID) {
	if id.IsZero() {
		a.null(k)
		return
	}
	a.key(k)
	a.id(id)
}

func (a *replyBuilder) id(id job.ID) {
	a.buf = pack.AppendID(a.buf, id)
}

func (a *replyBuilder) texts(k string, texts []string) {
	a.key(k)
	a.array(len(texts))
	for _, s := range texts {
		a.item(s)
	}
}

func (a *replyBuilder) ids(k string, ids []job.ID) {
	a.key(k)
	a.array(len(ids))
	for _, id := range ids {
		a.id(id)
	}
}

// moment writes a time, or null for 0.
func (a *replyBuilder) moment(k string, milliseconds int64) {
	if milliseconds == 0 {
		a.null(k)
		return
	}
	a.key(k)
	a.buf = pack.AppendTime(a.buf, milliseconds)
}

func (a *replyBuilder) error(f *job.Fault) {
	a.text("error", string(f.Code))
	a.text("reason", f.Reason)
	if f.Field != "" {
		a.text("field", f.Field)
	}
}

// The media types. mediaType also accepts two other names for MessagePack.
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

// replyType returns the media type of a reply: the one that the Accept header prefers, otherwise
// that of the request. It returns "" if neither MessagePack nor JSON is acceptable.
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
	wishes := [2]encodingPreference{{name: request}, {name: jsonType}}
	if request == jsonType {
		wishes[1].name = msgpackType
	}
	for place, part := range strings.Split(strings.Join(header, ","), ",") {
		q := quality(part)
		name, _, _ := strings.Cut(part, ";")
		for i := range wishes {
			wishes[i].apply(strings.ToLower(strings.TrimSpace(name)), q, place+1)
		}
	}
	a, b := &wishes[0], &wishes[1]
	if cmp.Or(cmp.Compare(b.q, a.q), cmp.Compare(b.specificity, a.specificity), cmp.Compare(a.position, b.position)) > 0 {
		a = b
	}
	if a.q <= 0 {
		return ""
	}
	return a.name
}

// quality returns the quality value (q) of one part of an Accept header.
func quality(part string) float64 {
	for i, p := range strings.Split(part, ";") {
		if v, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(p)), "q="); ok && i > 0 {
			q, _ := strconv.ParseFloat(v, 64)
			return q
		}
	}
	return 1
}

// encodingPreference says how much a client prefers an encoding.
type encodingPreference struct {
	name        string
	specificity int // how closely the range that set q matched the encoding
	q           float64
	position    int // position of that range in the header, 0 if it names no encoding; of equal wishes the first is chosen
}

// apply takes a range of the header into account. The quality of an encoding is that of the most
// specific range that matches it.
func (p *encodingPreference) apply(name string, q float64, place int) {
	close, json := 0, p.name == jsonType
	switch {
	case name == "*/*":
		close, place = 1, 0
	case name == "application/*":
		close, place = 2, 0
	case json && name == "text/html": // the client is a browser, which can show JSON
		close = 3
	case mediaType(name) != "" && json == (name == jsonType):
		close = 4
	}
	if close == 0 || close < p.specificity || close == p.specificity && q <= p.q {
		return
	}
	p.specificity, p.q = close, q
	if place > 0 {
		p.position = place
	}
	if close == 4 {
		p.name = name
	}
}

// appendJSONLine appends an answer as JSON, with a newline for people.
func appendJSONLine(dst, packed []byte) []byte { return append(pack.AppendJSON(dst, packed), '\n') }
