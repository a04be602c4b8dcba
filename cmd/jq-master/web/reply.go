package web

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
)

// answer is the MessagePack of a reply, to which its methods append.
type answer struct{ b []byte }

func (a *answer) object(n int)  { a.b = msgp.AppendMapHeader(a.b, uint32(n)) }
func (a *answer) array(n int)   { a.b = msgp.AppendArrayHeader(a.b, uint32(n)) }
func (a *answer) item(s string) { a.b = msgp.AppendString(a.b, s) }
func (a *answer) key(k string)  { a.item(k) }

func (a *answer) text(k, v string) {
	a.key(k)
	a.item(v)
}

// textOrNull writes a string, or null for "".
func (a *answer) textOrNull(k, v string) {
	if v == "" {
		a.null(k)
		return
	}
	a.text(k, v)
}

func (a *answer) null(k string) {
	a.key(k)
	a.b = msgp.AppendNil(a.b)
}

func (a *answer) integer(k string, n int64) {
	a.key(k)
	a.number(n)
}

func (a *answer) number(n int64) {
	if n < 0 {
		a.b = msgp.AppendInt64(a.b, n)
	} else {
		a.b = msgp.AppendUint64(a.b, uint64(n))
	}
}

func (a *answer) float(k string, f float64) {
	a.key(k)
	a.b = msgp.AppendFloat64(a.b, f)
}

func (a *answer) floatOrNull(k string, f *float64) {
	if f == nil {
		a.null(k)
		return
	}
	a.float(k, *f)
}

func (a *answer) seconds(k string, s job.Span) {
	a.key(k)
	a.b = pack.AppendSeconds(a.b, s)
}

func (a *answer) boolean(k string, v bool) {
	a.key(k)
	a.b = msgp.AppendBool(a.b, v)
}

// raw writes a value as it was sent, or null for nil.
func (a *answer) raw(k string, v []byte) {
	if v == nil {
		a.null(k)
		return
	}
	a.key(k)
	a.b = append(a.b, v...)
}

// idOrNull writes an id, or null for the zero id.
func (a *answer) idOrNull(k string, id job.ID) {
	if id.None() {
		a.null(k)
		return
	}
	a.key(k)
	a.id(id)
}

func (a *answer) id(id job.ID) {
	a.b = pack.AppendID(a.b, id)
}

func (a *answer) ids(k string, all []job.ID) {
	a.key(k)
	a.array(len(all))
	for _, id := range all {
		a.id(id)
	}
}

// moment writes a time, or null for 0.
func (a *answer) moment(k string, milliseconds int64) {
	if milliseconds == 0 {
		a.null(k)
		return
	}
	a.key(k)
	a.b = pack.AppendTime(a.b, milliseconds)
}

func (a *answer) error(f *job.Fault) {
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

// accepted returns the media type of a reply: the one that the Accept header prefers, otherwise
// that of the request. It returns "" if neither MessagePack nor JSON is acceptable.
func accepted(header []string, request string) string {
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
	// The quality of each type is that of the most specific range that matches it.
	packed, text := wish{name: msgpackType}, wish{name: jsonType}
	if request == jsonType {
		text.place = -1
	} else {
		packed.name, packed.place = request, -1
	}
	place := 0
	for part := range strings.SplitSeq(strings.Join(header, ","), ",") {
		place++
		q := quality(part)
		name, _, _ := strings.Cut(part, ";")
		switch name = strings.ToLower(strings.TrimSpace(name)); name {
		case "*/*":
			packed.hear(1, q, 0, "")
			text.hear(1, q, 0, "")
		case "application/*":
			packed.hear(2, q, 0, "")
			text.hear(2, q, 0, "")
		case jsonType:
			text.hear(4, q, place, "")
		case "text/html":
			text.hear(3, q, place, "") // the client is a browser, which can show JSON
		default:
			if mediaType(name) != "" {
				packed.hear(4, q, place, name)
			}
		}
	}
	best := packed
	if order := cmp.Or(cmp.Compare(text.q, packed.q), cmp.Compare(text.close, packed.close), cmp.Compare(packed.place, text.place)); order > 0 {
		best = text
	}
	if best.q <= 0 {
		return ""
	}
	return best.name
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

// wish says how much a client prefers an encoding.
type wish struct {
	name  string
	close int
	q     float64
	place int // position in the header; of equal wishes the first is chosen
}

func (w *wish) hear(close int, q float64, place int, name string) {
	if close < w.close || close == w.close && q <= w.q {
		return
	}
	w.close, w.q = close, q
	if place > 0 {
		w.place = place
	}
	if name != "" {
		w.name = name
	}
}

// inJSON appends an answer as JSON, with a newline for people.
func inJSON(dst, packed []byte) []byte { return append(pack.AppendJSON(dst, packed), '\n') }
