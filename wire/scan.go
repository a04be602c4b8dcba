package wire

import (
	"strconv"
	"unicode/utf8"
)

// Envelope holds the positions of the top-level keys of one message in its payload. It can be
// reused for other messages. It has only positions, so that it keeps no payload alive and costs
// the collector nothing.
type Envelope struct {
	presentKeys uint64                // a bit per Key: the key is present
	escapedKeys uint64                // a bit per Key: the value is a string with escapes
	spans       [numKeys]span         // valid for keys that are present
	stack       [MaxDepth / 64]uint64 // scratch: a bit per level, set for an object
	tooDeep     bool                  // scratch: the last skip failed because of its depth
}

// span is a part of a payload.
type span struct{ start, end uint32 }

// Scan checks a whole payload and records where the known keys are. It accepts exactly
// what json.Valid and utf8.Valid both accept, nested at most MaxDepth deep; everything
// else is InvalidJSON. A payload that is valid but not an object is InvalidType. Keys
// are compared by value and case-sensitively; if a key occurs twice, the last one
// counts.
func (e *Envelope) Scan(payload []byte) *Error {
	at, object := e.scanMessage(payload)
	if at < 0 {
		return e.syntaxError(payload, ^at)
	}
	if !object {
		return &Error{Code: InvalidType, Reason: "a message must be an object, not " + quoteShort(trimSpace(payload))}
	}
	return nil
}

// CheckBody returns why the broker would refuse text as a message's body, or nil. A body must be
// one JSON value, in UTF-8, and not nested too deep. The error names key.
func CheckBody(key string, text []byte) *Error {
	var e Envelope
	at, flags := e.skipValue(text, skipSpace(text, 0), 1)
	if at >= 0 {
		switch at = skipSpace(text, at); {
		case at < len(text):
			at = ^at
		case flags&sawNonASCII == 0 || utf8.Valid(text):
			return nil
		default:
			at = ^firstInvalidUTF8(text)
		}
	}
	err := e.syntaxError(text, ^at)
	err.Reason = key + ": not one JSON value: " + err.Reason
	return err
}

// Raw returns the verbatim JSON value of a key in the payload last scanned, nil if the
// key is absent. It aliases payload, which must be the one given to Scan.
func (e *Envelope) Raw(payload []byte, key Key) []byte {
	if key >= numKeys || e.presentKeys>>key&1 == 0 {
		return nil
	}
	s := e.spans[key]
	return payload[s.start:s.end:s.end]
}

func (e *Envelope) scanMessage(p []byte) (at int, object bool) {
	e.presentKeys, e.escapedKeys, e.tooDeep = 0, 0, false
	i := skipSpace(p, 0)
	if i == len(p) {
		return ^i, false
	}
	var flags uint64
	if object = p[i] == '{'; object {
		i, flags = e.scanObject(p, i+1)
	} else {
		i, flags = e.skipValue(p, i, 0)
	}
	if i < 0 {
		return i, object
	}
	if i = skipSpace(p, i); i != len(p) {
		return ^i, object
	}
	if flags&sawNonASCII != 0 && !utf8.Valid(p) {
		return ^firstInvalidUTF8(p), object
	}
	return i, object
}

// scanObject reads the message from index i, which is after the opening brace.
func (e *Envelope) scanObject(p []byte, i int) (end int, flags uint64) {
	i = skipSpace(p, i)
	if i < len(p) && p[i] == '}' {
		return i + 1, 0
	}
	for {
		if i >= len(p) || p[i] != '"' {
			return ^i, 0
		}
		end, s := skipString(p, i+1)
		if end < 0 {
			return end, 0
		}
		flags |= s
		var key Key
		if s&sawEscape == 0 {
			key = lookupKey(p[i+1 : end])
		} else {
			key = lookupEscapedKey(p[i+1 : end])
		}
		i = skipSpace(p, end+1)
		if i >= len(p) || p[i] != ':' {
			return ^i, 0
		}
		if i = skipSpace(p, i+1); i >= len(p) {
			return ^i, 0
		}
		start := i
		if p[i] == '"' {
			if i, s = skipString(p, i+1); i >= 0 {
				i++
			}
		} else {
			i, s = e.skipValue(p, i, 1)
		}
		if i < 0 {
			return i, 0
		}
		flags |= s
		if key < numKeys {
			e.spans[key] = span{uint32(start), uint32(i)}
			e.presentKeys |= 1 << key
			e.escapedKeys = e.escapedKeys&^(1<<key) | s&sawEscape<<key
		}
		if i = skipSpace(p, i); i >= len(p) {
			return ^i, 0
		}
		if p[i] == '}' {
			return i + 1, flags
		}
		if p[i] != ',' {
			return ^i, 0
		}
		i = skipSpace(p, i+1)
	}
}

// skipValue accepts any value, at the given nesting level. It is not recursive: e.stack records
// for each level whether it is an object, and the variable object does so for the current
// level.
func (e *Envelope) skipValue(p []byte, i, level int) (end int, flags uint64) {
	base := level
	object := false
value:
	if i >= len(p) {
		return ^i, 0
	}
	switch p[i] {
	case '"':
		end, s := skipString(p, i+1)
		if end < 0 {
			return end, 0
		}
		flags |= s
		i = end + 1
	case '{':
		if level == MaxDepth {
			e.tooDeep = true
			return ^i, 0
		}
		e.stack[level/64] |= 1 << (level % 64)
		level++
		object = true
		if i = skipSpace(p, i+1); i < len(p) && p[i] == '}' {
			goto pop
		}
		goto key
	case '[':
		if level == MaxDepth {
			e.tooDeep = true
			return ^i, 0
		}
		e.stack[level/64] &^= 1 << (level % 64)
		level++
		object = false
		if i = skipSpace(p, i+1); i < len(p) && p[i] == ']' {
			goto pop
		}
		goto value
	default:
		if i = skipAtom(p, i); i < 0 {
			return i, 0
		}
	}

next: // after a value
	if level == base {
		return i, flags
	}
	if i = skipSpace(p, i); i >= len(p) {
		return ^i, 0
	}
	switch p[i] {
	case ',':
		i = skipSpace(p, i+1)
		if object {
			goto key
		}
		goto value
	case '}':
		if object {
			goto pop
		}
	case ']':
		if !object {
			goto pop
		}
	}
	return ^i, 0

pop: // p[i] is the bracket that closes a level
	i++
	level--
	if level > base {
		object = e.stack[(level-1)/64]>>((level-1)%64)&1 != 0
	}
	goto next

key:
	if i >= len(p) || p[i] != '"' {
		return ^i, 0
	}
	{
		end, s := skipString(p, i+1)
		if end < 0 {
			return end, 0
		}
		flags |= s
		i = skipSpace(p, end+1)
	}
	if i >= len(p) || p[i] != ':' {
		return ^i, 0
	}
	i = skipSpace(p, i+1)
	goto value
}

// lookupEscapedKey is lookupKey for a key with escapes.
func lookupEscapedKey(content []byte) Key {
	var buf [keyBufLen]byte
	n := 0
	for i := 0; i < len(content) && n < len(buf); n++ {
		if content[i] != '\\' {
			buf[n] = content[i]
			i++
			continue
		}
		r, size := unescape(content[i:])
		if r >= utf8.RuneSelf || r < 0 {
			return numKeys
		}
		buf[n] = byte(r)
		i += size
	}
	return lookupKey(buf[:n])
}

func trimSpace(p []byte) []byte {
	i, end := skipSpace(p, 0), len(p)
	for end > i && isSpace(p[end-1]) {
		end--
	}
	return p[i:end]
}

// firstInvalidUTF8 returns the index of the first byte that is not UTF-8.
func firstInvalidUTF8(p []byte) int {
	for i := 0; i < len(p); {
		r, n := utf8.DecodeRune(p[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(p)
}

func (e *Envelope) syntaxError(p []byte, at int) *Error {
	var reason string
	switch byteAt := "at byte " + strconv.Itoa(at); {
	case len(p) == 0:
		reason = "empty frame"
	case e.tooDeep:
		reason = "nested deeper than " + strconv.Itoa(MaxDepth) + " levels " + byteAt
	case at >= len(p):
		reason = "json ends too early, after " + strconv.Itoa(len(p)) + " bytes"
	case p[at] >= utf8.RuneSelf && firstInvalidUTF8(p) == at:
		reason = "not utf-8 " + byteAt + ": " + strconv.QuoteToASCII(string(p[at:at+1]))
	default:
		reason = "not json " + byteAt + ": " + quoteShort(p[at:])
	}
	return &Error{Code: InvalidJSON, Reason: reason}
}
