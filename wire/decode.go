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

// Decode reads one payload that arrived on port into req. withID reports whether this worker
// connection has joined with prefetch, so that respond, fail and progress must carry an
// id; on other connections any id in them is ignored.
//
// Decode checks only the frame, not the state of the connection, in this order: JSON, an
// object, the action, the id, the other fields. An error carries the id if the id was readable.
// After an error req is undefined. The id of an error, like the slices of req, is valid until the
// next Decode.
func (d *Decoder) Decode(payload []byte, port Port, withID bool, req *Request) *Error {
	d.Reset()
	return d.DecodeMore(payload, port, withID, req)
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
func (d *Decoder) DecodeMore(payload []byte, port Port, withID bool, req *Request) *Error {
	*req = emptyRequest
	if err := d.envelope.Scan(payload); err != nil {
		return err
	}
	f := fieldReader{envelope: &d.envelope, payload: payload, scratch: &d.scratch, names: &d.names, maxGroups: d.MaxGroups}
	if f.maxGroups == 0 {
		f.maxGroups = MaxGroups
	}
	if err := f.readVerb(port, req); err != nil {
		return err
	}
	switch req.Verb {
	case Submit:
		return d.readSubmit(&f, req)
	case Cancel:
		return f.readID(req)
	case Join:
		return d.readJoin(&f, req)
	case Respond:
		return f.readAnswer(withID, req)
	case Fail:
		return f.readFail(withID, req)
	case Progress:
		return f.readAnswer(withID, req)
	case Hello:
		return f.readHello(req)
	case Release:
		return f.readRelease(withID, req)
	case Change:
		return f.readChange(req)
	case Attach:
		return f.readAttach(req)
	}
	return nil // leave, ping and pong have no keys
}

func (d *Decoder) readSubmit(f *fieldReader, req *Request) (err *Error) {
	if err = f.readID(req); err != nil {
		return err
	}
	if f.isSet(KeyType) {
		if req.Type, err = f.readName(KeyType, req); err != nil {
			return err
		}
	} else if d.DefaultType != "" {
		if string(d.typ) != d.DefaultType {
			d.typ = []byte(d.DefaultType)
		}
		req.Type = d.typ
	} else {
		return missingKeyError(req.Verb, KeyType, req.ID)
	}
	if err = f.readBody(req); err != nil {
		return err
	}
	if f.envelope.presentKeys&(1<<KeyPriority) != 0 {
		if req.Priority, err = f.readPriority(req); err != nil {
			return err
		}
	}
	if f.envelope.presentKeys&submitOptions != 0 {
		return f.readOptions(req)
	}
	return nil
}

func (d *Decoder) readJoin(f *fieldReader, req *Request) (err *Error) {
	if err = f.readServedTypes(req); err != nil {
		return err
	}
	limit := d.MaxPrefetch
	if limit <= 0 {
		limit = DefaultMaxPrefetch
	}
	if f.isSet(KeyPrefetch) {
		n, err := f.readInteger(KeyPrefetch, MinPrefetch, int64(limit), req)
		if err != nil {
			return err
		}
		req.Prefetch = int(n)
	}
	if req.WantCancels, err = f.readBoolean(KeyCancel, false, req); err != nil {
		return err
	}
	req.WantHeaders, err = f.readBoolean(KeyHeaders, false, req)
	return err
}

// readServedTypes reads what a join serves: one type, or lists of names and patterns.
func (f *fieldReader) readServedTypes(req *Request) (err *Error) {
	several := f.isSet(KeyTypes)
	switch {
	case f.isSet(KeyType) && several:
		return refusal(InvalidValue, nil, "join takes type or types, not both: %s and %s", quoteShort(f.rawValue(KeyType)), quoteShort(f.rawValue(KeyTypes)))
	case f.isSet(KeyExcept) && !several:
		return refusal(InvalidValue, nil, "except needs types, and cannot be given with type: %s", quoteShort(f.rawValue(KeyExcept)))
	case several:
		if req.Types, err = f.readList(KeyTypes, 1, MaxTypes, false, req); err != nil || !f.isSet(KeyExcept) {
			return err
		}
		req.Except, err = f.readList(KeyExcept, 1, MaxTypes, false, req)
		return err
	case f.isSet(KeyType):
		req.Type, err = f.readName(KeyType, req)
		return err
	}
	return missingKeyError(req.Verb, KeyType, nil)
}

const submitOptions = 1<<KeyDelayMS | 1<<KeyTimeoutMS | 1<<KeyRetries | 1<<KeyBackoffMS |
	1<<KeyExpiresMS | 1<<KeyDetach | 1<<KeyAck | 1<<KeyProgress | 1<<KeyGroups |
	1<<KeyAgeMS | 1<<KeyKeepMS | 1<<KeyHeaders

func (f *fieldReader) readOptions(req *Request) (err *Error) {
	if req.DelayMS, err = f.readOptionalInteger(KeyDelayMS, MaxDurationMS, 0, req); err != nil {
		return err
	}
	if req.TimeoutMS, err = f.readOptionalInteger(KeyTimeoutMS, MaxDurationMS, 0, req); err != nil {
		return err
	}
	retries, err := f.readOptionalInteger(KeyRetries, MaxRetries, -1, req)
	if err != nil {
		return err
	}
	req.Retries = int(retries)
	if req.BackoffMS, err = f.readOptionalInteger(KeyBackoffMS, MaxBackoffMS, 0, req); err != nil {
		return err
	}
	if req.ExpiresMS, err = f.readOptionalInteger(KeyExpiresMS, MaxDurationMS, 0, req); err != nil {
		return err
	}
	if req.ExpiresMS != 0 && req.DelayMS >= req.ExpiresMS {
		return refusal(InvalidValue, req.ID, "delay_ms must be below expires_ms, %d is not below %d", req.DelayMS, req.ExpiresMS)
	}
	if req.Detach, err = f.readBoolean(KeyDetach, false, req); err != nil {
		return err
	}
	ack, err := f.readBoolean(KeyAck, true, req)
	if err != nil {
		return err
	}
	req.NoAck = !ack
	if req.WantProgress, err = f.readBoolean(KeyProgress, false, req); err != nil {
		return err
	}
	if req.AgeMS, err = f.readOptionalInteger(KeyAgeMS, MaxDurationMS, 0, req); err != nil {
		return err
	}
	if req.KeepMS, err = f.readOptionalInteger(KeyKeepMS, MaxKeepMS, 0, req); err != nil {
		return err
	}
	if req.Detach && req.KeepMS != 0 {
		return refusal(InvalidValue, req.ID, "keep_ms must be 0 with detach, not %d: nobody is told of a detached job's end", req.KeepMS)
	}
	if f.isSet(KeyGroups) {
		if req.Groups, err = f.readList(KeyGroups, 1, f.maxGroups, true, req); err != nil {
			return err
		}
	}
	return f.readHeaders(req)
}

// readHeaders reads the headers of a submit.
func (f *fieldReader) readHeaders(req *Request) *Error {
	if !f.isSet(KeyHeaders) {
		return nil
	}
	raw := f.rawValue(KeyHeaders)
	switch {
	case raw[0] != '{':
		return refusal(InvalidType, req.ID, "headers must be an object, not %s", quoteShort(raw))
	case len(raw) > MaxHeaders:
		return refusal(InvalidValue, req.ID, "headers must have at most %d bytes as sent, not %d", MaxHeaders, len(raw))
	}
	req.Headers = raw
	return nil
}

func (f *fieldReader) readChange(req *Request) (err *Error) {
	if err = f.readID(req); err != nil {
		return err
	}
	req.HasPriority, req.HasGroups = f.isSet(KeyPriority), f.isSet(KeyGroups)
	if !req.HasPriority && !req.HasGroups && !f.isSet(KeyDelayMS) {
		return refusal(MissingField, req.ID, "change needs one or more of priority, groups and delay_ms")
	}
	if req.HasPriority {
		if req.Priority, err = f.readPriority(req); err != nil {
			return err
		}
	}
	if req.HasGroups {
		if req.Groups, err = f.readList(KeyGroups, 0, f.maxGroups, true, req); err != nil {
			return err
		}
	}
	req.AfterMS, err = f.readOptionalInteger(KeyDelayMS, MaxDurationMS, -1, req)
	return err
}

func (f *fieldReader) readAttach(req *Request) (err *Error) {
	if err = f.readID(req); err != nil {
		return err
	}
	req.WantProgress, err = f.readBoolean(KeyProgress, false, req)
	return err
}

func (f *fieldReader) readRelease(withID bool, req *Request) (err *Error) {
	if withID {
		if err = f.readID(req); err != nil {
			return err
		}
	}
	req.AfterMS, err = f.readOptionalInteger(KeyDelayMS, MaxDurationMS, -1, req)
	return err
}

// readAnswer reads the keys of a respond or a progress.
func (f *fieldReader) readAnswer(withID bool, req *Request) *Error {
	if withID {
		if err := f.readID(req); err != nil {
			return err
		}
	}
	return f.readBody(req)
}

func (f *fieldReader) readFail(withID bool, req *Request) (err *Error) {
	if withID {
		if err = f.readID(req); err != nil {
			return err
		}
	}
	if req.Reason, err = f.readText(KeyReason, req); err != nil {
		return err
	}
	if req.Reason != nil && len(req.Reason) == 0 {
		return refusal(InvalidValue, req.ID, "reason must be a string of 1 byte or more, not \"\"")
	}
	retry, err := f.readBoolean(KeyRetry, true, req)
	if err != nil {
		return err
	}
	req.NoRetry = !retry
	req.AfterMS, err = f.readOptionalInteger(KeyDelayMS, MaxDurationMS, -1, req)
	return err
}

func (f *fieldReader) readHello(req *Request) (err *Error) {
	if req.Token, err = f.readText(KeyToken, req); err != nil {
		return err
	}
	req.Token = f.unescapeText(KeyToken, req.Token)
	if req.Client, err = f.readText(KeyClient, req); err != nil {
		return err
	}
	req.Client = f.unescapeText(KeyClient, req.Client)
	req.HeartbeatMS, err = f.readHeartbeat(req)
	return err
}
