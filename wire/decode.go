package wire

// Decoder reads the requests of peers. It can be reused, but is not safe for concurrent use.
// The zero Decoder is ready for use and has no default type.
type Decoder struct {
	// DefaultType is the canonical type of submits without one; "" refuses them.
	DefaultType string
	// MaxPrefetch is the largest prefetch; 0 means DefaultMaxPrefetch.
	MaxPrefetch int
	// MaxGroups limits the groups of a job; 0 means the protocol's limit.
	MaxGroups int

	envelope Envelope
	scratch  []byte   // canonical forms of names that had escapes
	names    [][]byte // the names of lists
	typ      []byte   // DefaultType as bytes
}

// maxScratch is the maximum memory, in bytes, that a decoder keeps between messages.
const maxScratch = 64 << 10

// Decode reads one payload that arrived on port into r. withID reports whether this worker
// connection has joined with prefetch, so that respond, fail and progress must carry an
// id; on other connections any id in them is ignored.
//
// Decode checks only the frame, not the state of the connection, in this order: JSON, an
// object, the action, the id, the other fields. An error carries the id if the id was readable.
// r is undefined after an error. The id of an error, like the slices of r, is valid until the
// next Decode.
func (d *Decoder) Decode(payload []byte, port Port, withID bool, r *Request) *Error {
	d.Reset()
	return d.DecodeMore(payload, port, withID, r)
}

// Reset forgets all decoded requests, whose slices are no longer valid.
func (d *Decoder) Reset() {
	if cap(d.scratch) > maxScratch {
		d.scratch = nil
	}
	d.scratch = d.scratch[:0]
	if cap(d.names) > 2*MaxGroups {
		d.names = nil
	}
	d.names = d.names[:0]
}

// DecodeMore is Decode for one of several payloads: everything decoded since the last
// Reset stays valid until the next one.
func (d *Decoder) DecodeMore(payload []byte, port Port, withID bool, r *Request) *Error {
	*r = emptyRequest
	if err := d.envelope.Scan(payload); err != nil {
		return err
	}
	f := fieldReader{envelope: &d.envelope, payload: payload, scratch: &d.scratch, names: &d.names, maxGroups: d.MaxGroups}
	if f.maxGroups == 0 {
		f.maxGroups = MaxGroups
	}
	if err := f.readVerb(port, r); err != nil {
		return err
	}
	switch r.Verb {
	case Submit:
		return d.readSubmit(&f, r)
	case Cancel:
		return f.readID(r)
	case Join:
		return d.readJoin(&f, r)
	case Respond:
		return f.readAnswer(withID, r)
	case Fail:
		return f.readFail(withID, r)
	case Progress:
		return f.readAnswer(withID, r)
	case Hello:
		return f.readHello(r)
	case Release:
		return f.readRelease(withID, r)
	case Change:
		return f.readChange(r)
	case Attach:
		return f.readAttach(r)
	}
	return nil // leave, ping and pong have no keys
}

func (d *Decoder) readSubmit(f *fieldReader, r *Request) (err *Error) {
	if err = f.readID(r); err != nil {
		return err
	}
	if f.isSet(KeyType) {
		if r.Type, err = f.readName(KeyType, r); err != nil {
			return err
		}
	} else if d.DefaultType != "" {
		if string(d.typ) != d.DefaultType {
			d.typ = []byte(d.DefaultType)
		}
		r.Type = d.typ
	} else {
		return missingKeyError(r.Verb, KeyType, r.ID)
	}
	if err = f.readBody(r); err != nil {
		return err
	}
	if f.envelope.present&(1<<KeyPriority) != 0 {
		if r.Priority, err = f.readPriority(r); err != nil {
			return err
		}
	}
	if f.envelope.present&submitOptions != 0 {
		return f.readOptions(r)
	}
	return nil
}

func (d *Decoder) readJoin(f *fieldReader, r *Request) (err *Error) {
	if err = f.readServedTypes(r); err != nil {
		return err
	}
	limit := d.MaxPrefetch
	if limit <= 0 {
		limit = DefaultMaxPrefetch
	}
	if f.isSet(KeyPrefetch) {
		n, err := f.readInteger(KeyPrefetch, MinPrefetch, int64(limit), r)
		if err != nil {
			return err
		}
		r.Prefetch = int(n)
	}
	if r.WantCancels, err = f.readBoolean(KeyCancel, false, r); err != nil {
		return err
	}
	r.WantHeaders, err = f.readBoolean(KeyHeaders, false, r)
	return err
}

// readServedTypes reads what a join serves: one type, or lists of names and patterns.
func (f *fieldReader) readServedTypes(r *Request) (err *Error) {
	several := f.isSet(KeyTypes)
	switch {
	case f.isSet(KeyType) && several:
		return refusal(InvalidValue, nil, "join takes type or types, not both: %s and %s", quoteShort(f.rawValue(KeyType)), quoteShort(f.rawValue(KeyTypes)))
	case f.isSet(KeyExcept) && !several:
		return refusal(InvalidValue, nil, "except needs types, and cannot be given with type: %s", quoteShort(f.rawValue(KeyExcept)))
	case several:
		if r.Types, err = f.readList(KeyTypes, 1, MaxTypes, false, r); err != nil || !f.isSet(KeyExcept) {
			return err
		}
		r.Except, err = f.readList(KeyExcept, 1, MaxTypes, false, r)
		return err
	case f.isSet(KeyType):
		r.Type, err = f.readName(KeyType, r)
		return err
	}
	return missingKeyError(r.Verb, KeyType, nil)
}

const submitOptions = 1<<KeyDelayMS | 1<<KeyTimeoutMS | 1<<KeyRetries | 1<<KeyBackoffMS |
	1<<KeyExpiresMS | 1<<KeyDetach | 1<<KeyAck | 1<<KeyProgress | 1<<KeyGroups |
	1<<KeyAgeMS | 1<<KeyKeepMS | 1<<KeyHeaders

func (f *fieldReader) readOptions(r *Request) (err *Error) {
	if r.DelayMS, err = f.readDuration(KeyDelayMS, MaxDurationMS, 0, r); err != nil {
		return err
	}
	if r.TimeoutMS, err = f.readDuration(KeyTimeoutMS, MaxDurationMS, 0, r); err != nil {
		return err
	}
	retries, err := f.readDuration(KeyRetries, MaxRetries, -1, r)
	if err != nil {
		return err
	}
	r.Retries = int(retries)
	if r.BackoffMS, err = f.readDuration(KeyBackoffMS, MaxBackoffMS, 0, r); err != nil {
		return err
	}
	if r.ExpiresMS, err = f.readDuration(KeyExpiresMS, MaxDurationMS, 0, r); err != nil {
		return err
	}
	if r.ExpiresMS != 0 && r.DelayMS >= r.ExpiresMS {
		return refusal(InvalidValue, r.ID, "delay_ms must be below expires_ms, %d is not below %d", r.DelayMS, r.ExpiresMS)
	}
	if r.Detach, err = f.readBoolean(KeyDetach, false, r); err != nil {
		return err
	}
	ack, err := f.readBoolean(KeyAck, true, r)
	if err != nil {
		return err
	}
	r.NoAck = !ack
	if r.WantProgress, err = f.readBoolean(KeyProgress, false, r); err != nil {
		return err
	}
	if r.AgeMS, err = f.readDuration(KeyAgeMS, MaxDurationMS, 0, r); err != nil {
		return err
	}
	if r.KeepMS, err = f.readDuration(KeyKeepMS, MaxKeepMS, 0, r); err != nil {
		return err
	}
	if r.Detach && r.KeepMS != 0 {
		return refusal(InvalidValue, r.ID, "keep_ms must be 0 with detach, not %d: nobody is told of a detached job's end", r.KeepMS)
	}
	if f.isSet(KeyGroups) {
		if r.Groups, err = f.readList(KeyGroups, 1, f.maxGroups, true, r); err != nil {
			return err
		}
	}
	return f.readHeaders(r)
}

// readHeaders reads the headers of a submit.
func (f *fieldReader) readHeaders(r *Request) *Error {
	if !f.isSet(KeyHeaders) {
		return nil
	}
	raw := f.rawValue(KeyHeaders)
	switch {
	case raw[0] != '{':
		return refusal(InvalidType, r.ID, "headers must be an object, not %s", quoteShort(raw))
	case len(raw) > MaxHeaders:
		return refusal(InvalidValue, r.ID, "headers must have at most %d bytes as sent, not %d", MaxHeaders, len(raw))
	}
	r.Headers = raw
	return nil
}

func (f *fieldReader) readChange(r *Request) (err *Error) {
	if err = f.readID(r); err != nil {
		return err
	}
	r.HasPriority, r.HasGroups = f.isSet(KeyPriority), f.isSet(KeyGroups)
	if !r.HasPriority && !r.HasGroups && !f.isSet(KeyDelayMS) {
		return refusal(MissingField, r.ID, "change needs one or more of priority, groups and delay_ms")
	}
	if r.HasPriority {
		if r.Priority, err = f.readPriority(r); err != nil {
			return err
		}
	}
	if r.HasGroups {
		if r.Groups, err = f.readList(KeyGroups, 0, f.maxGroups, true, r); err != nil {
			return err
		}
	}
	r.AfterMS, err = f.readDuration(KeyDelayMS, MaxDurationMS, -1, r)
	return err
}

func (f *fieldReader) readAttach(r *Request) (err *Error) {
	if err = f.readID(r); err != nil {
		return err
	}
	r.WantProgress, err = f.readBoolean(KeyProgress, false, r)
	return err
}

func (f *fieldReader) readRelease(withID bool, r *Request) (err *Error) {
	if withID {
		if err = f.readID(r); err != nil {
			return err
		}
	}
	r.AfterMS, err = f.readDuration(KeyDelayMS, MaxDurationMS, -1, r)
	return err
}

// readAnswer reads the keys of a respond or a progress.
func (f *fieldReader) readAnswer(withID bool, r *Request) *Error {
	if withID {
		if err := f.readID(r); err != nil {
			return err
		}
	}
	return f.readBody(r)
}

func (f *fieldReader) readFail(withID bool, r *Request) (err *Error) {
	if withID {
		if err = f.readID(r); err != nil {
			return err
		}
	}
	if r.Reason, err = f.readText(KeyReason, r); err != nil {
		return err
	}
	if r.Reason != nil && len(r.Reason) == 0 {
		return refusal(InvalidValue, r.ID, "reason must be a string of 1 byte or more, not \"\"")
	}
	retry, err := f.readBoolean(KeyRetry, true, r)
	if err != nil {
		return err
	}
	r.NoRetry = !retry
	r.AfterMS, err = f.readDuration(KeyDelayMS, MaxDurationMS, -1, r)
	return err
}

func (f *fieldReader) readHello(r *Request) (err *Error) {
	if r.Token, err = f.readText(KeyToken, r); err != nil {
		return err
	}
	r.Token = f.unescapeText(KeyToken, r.Token)
	if r.Client, err = f.readText(KeyClient, r); err != nil {
		return err
	}
	r.Client = f.unescapeText(KeyClient, r.Client)
	r.HeartbeatMS, err = f.readHeartbeat()
	return err
}
