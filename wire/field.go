package wire

import (
	"math"
	"slices"
)

// fieldReader reads the values of single keys of a scanned message. Its errors carry the request's
// ID, which is nil until the id has been read.
type fieldReader struct {
	envelope  *Envelope
	payload   []byte
	scratch   *[]byte
	names     *[][]byte
	maxGroups int // how many groups a job may be in
}

func (f *fieldReader) rawValue(key Key) []byte { return f.envelope.Raw(f.payload, key) }

// isSet reports whether a key is present and not null.
func (f *fieldReader) isSet(key Key) bool {
	return f.envelope.presentKeys>>key&1 != 0 && f.payload[f.envelope.spans[key].start] != 'n'
}

func (f *fieldReader) readVerb(port Port, req *Request) *Error {
	raw := f.rawValue(KeyAction)
	if raw == nil {
		return refusal(MissingField, nil, "a message needs action")
	}
	if raw[0] != '"' {
		return refusal(InvalidType, nil, "action must be a string, not %s", quoteShort(raw))
	}
	action := raw[1 : len(raw)-1]
	if f.envelope.escapedKeys>>KeyAction&1 != 0 {
		var complete bool
		if action, complete = appendValue(nil, action, 0); !complete {
			return f.loneSurrogateError(KeyAction, req)
		}
	}
	v := lookupVerb(action)
	switch {
	case v == 0:
		return refusal(UnknownAction, nil, "no action %s on the %s", quoteShort(raw), port)
	case v.AllowedOn(port):
		req.Verb = v
		return nil
	case port == WorkerPort:
		return refusal(InvalidAction, nil, "not_a_master: %s is for the submitter port, this is the worker port", v)
	}
	return refusal(InvalidAction, nil, "not_a_slave: %s is for the worker port, this is the submitter port", v)
}

func (f *fieldReader) loneSurrogateError(key Key, req *Request) *Error {
	return refusal(InvalidType, req.ID, "%s must be a string without lone surrogates, not %s", key, quoteShort(f.rawValue(key)))
}

// readID reads the id of a request whose verb requires one.
func (f *fieldReader) readID(req *Request) (err *Error) {
	if f.envelope.presentKeys>>KeyID&1 == 0 {
		return missingKeyError(req.Verb, KeyID, nil)
	}
	req.ID, err = f.readName(KeyID, req)
	return err
}

// readName reads an id or a type. The key must be present.
func (f *fieldReader) readName(key Key, req *Request) ([]byte, *Error) {
	raw, escapes := f.rawValue(key), f.envelope.escapedKeys>>key&1 != 0
	if n := len(raw) - 2; !escapes && raw[0] == '"' && n > 0 && n <= MaxNameBytes {
		return raw[1 : n+1 : n+1], nil
	}
	return f.parseName(raw, escapes, key.String(), req)
}

// parseName reads a JSON value as a name. label describes the value in errors.
func (f *fieldReader) parseName(raw []byte, escapes bool, label string, req *Request) ([]byte, *Error) {
	if raw[0] != '"' || len(raw) == 2 {
		return nil, refusal(InvalidType, req.ID, "%s must be a string of 1 to %d bytes, not %s", label, MaxNameBytes, quoteShort(raw))
	}
	name := raw[1 : len(raw)-1 : len(raw)-1]
	size := len(name)
	if escapes {
		var complete bool
		if name, size, complete = f.writeCanonical(name); !complete {
			return nil, refusal(InvalidType, req.ID, "%s must be a string without lone surrogates, not %s", label, quoteShort(raw))
		}
	}
	if size > MaxNameBytes {
		return nil, refusal(InvalidType, req.ID, "%s must be a string of 1 to %d bytes, %s has %d", label, MaxNameBytes, quoteShort(raw), size)
	}
	return name, nil
}

// maxComparedNames is the length up to which a list's names are compared with each other, which saves the
// cost of a map.
const maxComparedNames = 64

// readList reads an array of min to max names. The key must be present. If all names must differ, a
// repeated name is refused; otherwise it counts once, and the array may have up to ten times
// max names, repetitions included.
func (f *fieldReader) readList(key Key, min, max int, distinct bool, req *Request) ([][]byte, *Error) {
	raw := f.rawValue(key)
	if raw[0] != '[' {
		return nil, refusal(InvalidType, req.ID, "%s must be an array of %d to %d names, not %s", key, min, max, quoteShort(raw))
	}
	var knownNames map[string]bool // used for lists longer than maxComparedNames
	start, count, total := len(*f.names), 0, 0
	label := "a name in " + key.String()
	for i := skipSpace(raw, 1); raw[i] != ']'; {
		end, escapes := f.nextElement(raw, i)
		name, err := f.parseName(raw[i:end], escapes, label, req)
		if err != nil {
			return nil, err
		}
		if count == maxComparedNames && knownNames == nil {
			knownNames = make(map[string]bool, 2*maxComparedNames)
			for _, n := range (*f.names)[start:] {
				knownNames[string(n)] = true
			}
		}
		repeated := knownNames[string(name)]
		if knownNames == nil {
			repeated = slices.ContainsFunc((*f.names)[start:], func(n []byte) bool { return string(n) == string(name) })
		} else {
			knownNames[string(name)] = true
		}
		switch {
		case !repeated && count == max, total == 10*max:
			return nil, refusal(InvalidValue, req.ID, "%s must have %d to %d names, not %d", key, min, max, total+f.countElements(raw, i))
		case !repeated:
			count++
			*f.names = append(*f.names, name)
		case distinct:
			return nil, refusal(InvalidValue, req.ID, "%s must be all different, %s comes twice", key, quoteShort(raw[i:end]))
		}
		total++
		if i = skipSpace(raw, end); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	if count < min {
		return nil, refusal(InvalidValue, req.ID, "%s must have %d to %d names, not %s", key, min, max, quoteShort(raw))
	}
	list := (*f.names)[start:]
	return list[:len(list):len(list)], nil
}

// countElements counts the elements of a valid array from the element at i to the end.
func (f *fieldReader) countElements(raw []byte, i int) (n int) {
	for ; raw[i] != ']'; n++ {
		i, _ = f.nextElement(raw, i)
		if i = skipSpace(raw, i); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return n
}

// nextElement returns the end of the element that begins at i in a valid array, and whether the
// element is a string with escapes.
func (f *fieldReader) nextElement(raw []byte, i int) (end int, escapes bool) {
	if raw[i] != '"' {
		end, _ = f.envelope.skipValue(raw, i, 1)
		return end, false
	}
	end, flags := skipString(raw, i+1)
	return end + 1, flags&sawEscape != 0
}

// writeCanonical writes the canonical form of content, the text between the quotes of a string, to
// the scratch buffer.
func (f *fieldReader) writeCanonical(content []byte) (name []byte, size int, complete bool) {
	start := len(*f.scratch)
	*f.scratch, size, complete = appendCanonical(*f.scratch, content)
	return (*f.scratch)[start:len(*f.scratch):len(*f.scratch)], size, complete
}

// readText reads an optional string of any length and returns it in canonical form, or nil if it is
// absent or null.
func (f *fieldReader) readText(key Key, req *Request) ([]byte, *Error) {
	if !f.isSet(key) {
		return nil, nil
	}
	raw := f.rawValue(key)
	if raw[0] != '"' {
		return nil, refusal(InvalidType, req.ID, "%s must be a string, not %s", key, quoteShort(raw))
	}
	text := raw[1 : len(raw)-1 : len(raw)-1]
	if f.envelope.escapedKeys>>key&1 != 0 {
		var complete bool
		if text, _, complete = f.writeCanonical(text); !complete {
			return nil, f.loneSurrogateError(key, req)
		}
	}
	return text, nil
}

// unescapeText resolves the escapes that are left in a canonical form.
func (f *fieldReader) unescapeText(key Key, text []byte) []byte {
	if text == nil || f.envelope.escapedKeys>>key&1 == 0 {
		return text
	}
	start := len(*f.scratch)
	*f.scratch, _ = appendValue(*f.scratch, text, 0)
	return (*f.scratch)[start:len(*f.scratch):len(*f.scratch)]
}

func (f *fieldReader) readBody(req *Request) *Error {
	if req.Body = f.rawValue(KeyBody); req.Body == nil {
		return missingKeyError(req.Verb, KeyBody, req.ID)
	}
	return nil
}

func (f *fieldReader) readPriority(req *Request) (int64, *Error) {
	raw := f.rawValue(KeyPriority)
	n, kind := parseInteger(raw)
	if kind != inRange {
		return 0, refusal(InvalidType, req.ID, "priority must be an integer from %d to %d, not %s",
			int64(math.MinInt64), int64(math.MaxInt64), quoteShort(raw))
	}
	return n, nil
}

// readOptionalInteger reads an optional integer from 0 to max.
func (f *fieldReader) readOptionalInteger(key Key, max, fallback int64, req *Request) (int64, *Error) {
	if !f.isSet(key) {
		return fallback, nil
	}
	return f.readInteger(key, 0, max, req)
}

// readInteger reads an integer. The key must be present and not null.
func (f *fieldReader) readInteger(key Key, min, max int64, req *Request) (int64, *Error) {
	raw := f.rawValue(key)
	n, kind := parseInteger(raw)
	code := InvalidValue
	switch {
	case kind == notInteger:
		code = InvalidType
	case kind == inRange && n >= min && n <= max:
		return n, nil
	}
	return 0, refusal(code, req.ID, "%s must be an integer from %d to %d, not %s", key, min, max, quoteShort(raw))
}

// readHeartbeat reads the optional heartbeat_ms: 0, or MinHeartbeatMS to MaxHeartbeatMS.
func (f *fieldReader) readHeartbeat(req *Request) (int64, *Error) {
	n, err := f.readOptionalInteger(KeyHeartbeatMS, MaxHeartbeatMS, 0, req)
	code := InvalidValue
	if err != nil {
		code = err.Code
	} else if n == 0 || n >= MinHeartbeatMS {
		return n, nil
	}
	return 0, refusal(code, nil, "heartbeat_ms must be 0 or an integer from %d to %d, not %s",
		MinHeartbeatMS, MaxHeartbeatMS, quoteShort(f.rawValue(KeyHeartbeatMS)))
}

func (f *fieldReader) readBoolean(key Key, absent bool, req *Request) (bool, *Error) {
	if !f.isSet(key) {
		return absent, nil
	}
	raw := f.rawValue(key)
	switch raw[0] {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return absent, refusal(InvalidType, req.ID, "%s must be true or false, not %s", key, quoteShort(raw))
}

// integerKind says whether a JSON value is an integer that fits in 64 bits.
type integerKind uint8

const (
	notInteger integerKind = iota // not a number, or a number with a fraction or an exponent
	outOfRange                    // does not fit in int64
	inRange
)

// parseInteger reads a valid JSON value as a 64-bit integer.
func parseInteger(raw []byte) (int64, integerKind) {
	digits := raw
	negative := raw[0] == '-'
	if negative {
		digits = raw[1:]
	}
	var n uint64
	noOverflow := true
	for _, c := range digits {
		if !isDigit(c) {
			return 0, notInteger
		}
		if n > (math.MaxUint64-9)/10 {
			noOverflow = false // go on: later characters may show that this is not an integer
			continue
		}
		n = n*10 + uint64(c-'0')
	}
	switch {
	case !noOverflow:
		return 0, outOfRange
	case negative && n <= 1<<63:
		return int64(-n), inRange
	case !negative && n <= math.MaxInt64:
		return int64(n), inRange
	}
	return 0, outOfRange
}
