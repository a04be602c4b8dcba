package wire

import (
	"math"
	"slices"
)

// fields reads the values of single keys of a scanned message. Its errors carry r.ID, which is
// nil until the id has been read.
type fields struct {
	env     *Envelope
	payload []byte
	scratch *[]byte
	names   *[][]byte
	groups  int // how many groups a job may be in
}

func (f *fields) raw(k Key) []byte { return f.env.Raw(f.payload, k) }

// isSet reports whether a key is present and not null.
func (f *fields) isSet(k Key) bool {
	return f.env.present>>k&1 != 0 && f.payload[f.env.spans[k].start] != 'n'
}

func (f *fields) verb(port Port, r *Request) *Error {
	raw := f.raw(KeyAction)
	if raw == nil {
		return refuse(MissingField, nil, "a message needs action")
	}
	if raw[0] != '"' {
		return refuse(InvalidType, nil, "action must be a string, not %s", quoteShort(raw))
	}
	action := raw[1 : len(raw)-1]
	if f.env.escapedKeys>>KeyAction&1 != 0 {
		var complete bool
		if action, complete = appendValue(nil, action, 0); !complete {
			return f.loneSurrogate(KeyAction, r)
		}
	}
	v := lookupVerb(action)
	switch {
	case v == 0:
		return refuse(UnknownAction, nil, "no action %s on the %s", quoteShort(raw), port)
	case v.AllowedOn(port):
		r.Verb = v
		return nil
	case port == WorkerPort:
		return refuse(InvalidAction, nil, "not_a_master: %s is for the submitter port, this is the worker port", v)
	}
	return refuse(InvalidAction, nil, "not_a_slave: %s is for the worker port, this is the submitter port", v)
}

func (f *fields) loneSurrogate(k Key, r *Request) *Error {
	return refuse(InvalidType, r.ID, "%s must be a string without lone surrogates, not %s", k, quoteShort(f.raw(k)))
}

// id reads the id of a request whose verb requires one.
func (f *fields) id(r *Request) (err *Error) {
	if f.env.present>>KeyID&1 == 0 {
		return refuseMissing(r.Verb, KeyID, nil)
	}
	r.ID, err = f.name(KeyID, r)
	return err
}

// name reads an id or a type. The key must be present.
func (f *fields) name(k Key, r *Request) ([]byte, *Error) {
	raw, escapes := f.raw(k), f.env.escapedKeys>>k&1 != 0
	if n := len(raw) - 2; !escapes && raw[0] == '"' && n > 0 && n <= MaxName {
		return raw[1 : n+1 : n+1], nil
	}
	return f.nameOf(raw, escapes, k.String(), r)
}

// nameOf reads a JSON value as a name. label describes the value in errors.
func (f *fields) nameOf(raw []byte, escapes bool, label string, r *Request) ([]byte, *Error) {
	if raw[0] != '"' || len(raw) == 2 {
		return nil, refuse(InvalidType, r.ID, "%s must be a string of 1 to %d bytes, not %s", label, MaxName, quoteShort(raw))
	}
	name := raw[1 : len(raw)-1 : len(raw)-1]
	size := len(name)
	if escapes {
		var complete bool
		if name, size, complete = f.canonical(name); !complete {
			return nil, refuse(InvalidType, r.ID, "%s must be a string without lone surrogates, not %s", label, quoteShort(raw))
		}
	}
	if size > MaxName {
		return nil, refuse(InvalidType, r.ID, "%s must be a string of 1 to %d bytes, %s has %d", label, MaxName, quoteShort(raw), size)
	}
	return name, nil
}

// fewNames is the length up to which a list's names are compared with each other, which saves the
// cost of a map.
const fewNames = 64

// list reads an array of min to max names. The key must be present. If all names must differ, a
// repeated name is refused; otherwise it counts once, and the array may have up to ten times
// max names, repetitions included.
func (f *fields) list(k Key, min, max int, distinct bool, r *Request) ([][]byte, *Error) {
	raw := f.raw(k)
	if raw[0] != '[' {
		return nil, refuse(InvalidType, r.ID, "%s must be an array of %d to %d names, not %s", k, min, max, quoteShort(raw))
	}
	var known map[string]bool // used for lists longer than fewNames
	start, count, total := len(*f.names), 0, 0
	label := "a name in " + k.String()
	for i := skipSpace(raw, 1); raw[i] != ']'; {
		end, escapes := f.nextElement(raw, i)
		name, err := f.nameOf(raw[i:end], escapes, label, r)
		if err != nil {
			return nil, err
		}
		if count == fewNames && known == nil {
			known = make(map[string]bool, 2*fewNames)
			for _, n := range (*f.names)[start:] {
				known[string(n)] = true
			}
		}
		repeated := known[string(name)]
		if known == nil {
			repeated = slices.ContainsFunc((*f.names)[start:], func(n []byte) bool { return string(n) == string(name) })
		} else {
			known[string(name)] = true
		}
		switch {
		case !repeated && count == max, total == 10*max:
			return nil, refuse(InvalidValue, r.ID, "%s must have %d to %d names, not %d", k, min, max, total+f.countElements(raw, i))
		case !repeated:
			count++
			*f.names = append(*f.names, name)
		case distinct:
			return nil, refuse(InvalidValue, r.ID, "%s must be all different, %s comes twice", k, quoteShort(raw[i:end]))
		}
		total++
		if i = skipSpace(raw, end); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	if count < min {
		return nil, refuse(InvalidValue, r.ID, "%s must have %d to %d names, not %s", k, min, max, quoteShort(raw))
	}
	list := (*f.names)[start:]
	return list[:len(list):len(list)], nil
}

// countElements counts the elements of a valid array from the element at i to the end.
func (f *fields) countElements(raw []byte, i int) (n int) {
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
func (f *fields) nextElement(raw []byte, i int) (end int, escapes bool) {
	if raw[i] != '"' {
		end, _ = f.env.skipValue(raw, i, 1)
		return end, false
	}
	end, flags := skipString(raw, i+1)
	return end + 1, flags&sawEscape != 0
}

// canonical writes the canonical form of content, the text between the quotes of a string, to
// the scratch buffer.
func (f *fields) canonical(content []byte) (name []byte, size int, complete bool) {
	start := len(*f.scratch)
	*f.scratch, size, complete = appendCanonical(*f.scratch, content)
	return (*f.scratch)[start:len(*f.scratch):len(*f.scratch)], size, complete
}

// text reads an optional string of any length and returns it in canonical form, or nil if it is
// absent or null.
func (f *fields) text(k Key, r *Request) ([]byte, *Error) {
	if !f.isSet(k) {
		return nil, nil
	}
	raw := f.raw(k)
	if raw[0] != '"' {
		return nil, refuse(InvalidType, r.ID, "%s must be a string, not %s", k, quoteShort(raw))
	}
	text := raw[1 : len(raw)-1 : len(raw)-1]
	if f.env.escapedKeys>>k&1 != 0 {
		var complete bool
		if text, _, complete = f.canonical(text); !complete {
			return nil, f.loneSurrogate(k, r)
		}
	}
	return text, nil
}

// byValue resolves the escapes that are left in a canonical form.
func (f *fields) byValue(k Key, text []byte) []byte {
	if text == nil || f.env.escapedKeys>>k&1 == 0 {
		return text
	}
	start := len(*f.scratch)
	*f.scratch, _ = appendValue(*f.scratch, text, 0)
	return (*f.scratch)[start:len(*f.scratch):len(*f.scratch)]
}

func (f *fields) body(r *Request) *Error {
	if r.Body = f.raw(KeyBody); r.Body == nil {
		return refuseMissing(r.Verb, KeyBody, r.ID)
	}
	return nil
}

func (f *fields) priority(r *Request) (int64, *Error) {
	raw := f.raw(KeyPriority)
	n, kind := parseInteger(raw)
	if kind != inRange {
		return 0, refuse(InvalidType, r.ID, "priority must be an integer from %d to %d, not %s",
			int64(math.MinInt64), int64(math.MaxInt64), quoteShort(raw))
	}
	return n, nil
}

// duration reads an optional integer from 0 to max.
func (f *fields) duration(k Key, max, absent int64, r *Request) (int64, *Error) {
	if !f.isSet(k) {
		return absent, nil
	}
	return f.integer(k, 0, max, r)
}

// integer reads an integer. The key must be present and not null.
func (f *fields) integer(k Key, min, max int64, r *Request) (int64, *Error) {
	raw := f.raw(k)
	n, kind := parseInteger(raw)
	code := InvalidValue
	switch {
	case kind == noInteger:
		code = InvalidType
	case kind == inRange && n >= min && n <= max:
		return n, nil
	}
	return 0, refuse(code, r.ID, "%s must be an integer from %d to %d, not %s", k, min, max, quoteShort(raw))
}

// heartbeat reads the optional heartbeat_ms: 0, or MinHeartbeatMS to MaxHeartbeatMS.
func (f *fields) heartbeat() (int64, *Error) {
	if !f.isSet(KeyHeartbeatMS) {
		return 0, nil
	}
	raw := f.raw(KeyHeartbeatMS)
	n, kind := parseInteger(raw)
	code := InvalidValue
	switch {
	case kind == noInteger:
		code = InvalidType
	case kind == inRange && (n == 0 || n >= MinHeartbeatMS && n <= MaxHeartbeatMS):
		return n, nil
	}
	return 0, refuse(code, nil, "heartbeat_ms must be 0 or an integer from %d to %d, not %s",
		MinHeartbeatMS, MaxHeartbeatMS, quoteShort(raw))
}

func (f *fields) boolean(k Key, absent bool, r *Request) (bool, *Error) {
	if !f.isSet(k) {
		return absent, nil
	}
	raw := f.raw(k)
	switch raw[0] {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return absent, refuse(InvalidType, r.ID, "%s must be true or false, not %s", k, quoteShort(raw))
}

type integerKind uint8

const (
	noInteger  integerKind = iota // not a number, or a number with a fraction or an exponent
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
			return 0, noInteger
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
