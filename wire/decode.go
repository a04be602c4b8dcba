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

	env     Envelope
	scratch []byte   // canonical forms of names that had escapes
	names   [][]byte // the names of lists
	typ     []byte   // DefaultType as bytes
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
	if err := d.env.Scan(payload); err != nil {
		return err
	}
	f := fields{env: &d.env, payload: payload, scratch: &d.scratch, names: &d.names, groups: d.MaxGroups}
	if f.groups == 0 {
		f.groups = MaxGroups
	}
	if err := f.verb(port, r); err != nil {
		return err
	}
	switch r.Verb {
	case Submit:
		return d.submit(&f, r)
	case Cancel:
		return f.id(r)
	case Join:
		return d.join(&f, r)
	case Respond:
		return f.answer(withID, r)
	case Fail:
		return f.fail(withID, r)
	case Progress:
		return f.answer(withID, r)
	case Hello:
		return f.hello(r)
	case Release:
		return f.release(withID, r)
	case Change:
		return f.change(r)
	case Attach:
		return f.attach(r)
	}
	return nil // leave, ping and pong have no keys
}

func (d *Decoder) submit(f *fields, r *Request) (err *Error) {
	if err = f.id(r); err != nil {
		return err
	}
	if f.isSet(KeyType) {
		if r.Type, err = f.name(KeyType, r); err != nil {
			return err
		}
	} else if d.DefaultType != "" {
		if string(d.typ) != d.DefaultType {
			d.typ = []byte(d.DefaultType)
		}
		r.Type = d.typ
	} else {
		return refuseMissing(r.Verb, KeyType, r.ID)
	}
	if err = f.body(r); err != nil {
		return err
	}
	if f.env.present&(1<<KeyPriority) != 0 {
		if r.Priority, err = f.priority(r); err != nil {
			return err
		}
	}
	if f.env.present&submitOptions != 0 {
		return f.options(r)
	}
	return nil
}

func (d *Decoder) join(f *fields, r *Request) (err *Error) {
	if err = f.servedTypes(r); err != nil {
		return err
	}
	limit := d.MaxPrefetch
	if limit <= 0 {
		limit = DefaultMaxPrefetch
	}
	if f.isSet(KeyPrefetch) {
		n, err := f.integer(KeyPrefetch, MinPrefetch, int64(limit), r)
		if err != nil {
			return err
		}
		r.Prefetch = int(n)
	}
	if r.Cancel, err = f.boolean(KeyCancel, false, r); err != nil {
		return err
	}
	r.WantHeaders, err = f.boolean(KeyHeaders, false, r)
	return err
}

// servedTypes reads what a join serves: one type, or lists of names and patterns.
func (f *fields) servedTypes(r *Request) (err *Error) {
	several := f.isSet(KeyTypes)
	switch {
	case f.isSet(KeyType) && several:
		return refuse(InvalidValue, nil, "join takes type or types, not both: %s and %s", quoteShort(f.raw(KeyType)), quoteShort(f.raw(KeyTypes)))
	case f.isSet(KeyExcept) && !several:
		return refuse(InvalidValue, nil, "except needs types, and cannot be given with type: %s", quoteShort(f.raw(KeyExcept)))
	case several:
		if r.Types, err = f.list(KeyTypes, 1, MaxTypes, false, r); err != nil || !f.isSet(KeyExcept) {
			return err
		}
		r.Except, err = f.list(KeyExcept, 1, MaxTypes, false, r)
		return err
	case f.isSet(KeyType):
		r.Type, err = f.name(KeyType, r)
		return err
	}
	return refuseMissing(r.Verb, KeyType, nil)
}

const submitOptions = 1<<KeyDelayMS | 1<<KeyTimeoutMS | 1<<KeyRetries | 1<<KeyBackoffMS |
	1<<KeyExpiresMS | 1<<KeyDetach | 1<<KeyAck | 1<<KeyProgress | 1<<KeyGroups |
	1<<KeyAgeMS | 1<<KeyKeepMS | 1<<KeyHeaders

func (f *fields) options(r *Request) (err *Error) {
	if r.DelayMS, err = f.duration(KeyDelayMS, MaxDurationMS, 0, r); err != nil {
		return err
	}
	if r.TimeoutMS, err = f.duration(KeyTimeoutMS, MaxDurationMS, 0, r); err != nil {
		return err
	}
	retries, err := f.duration(KeyRetries, MaxRetries, -1, r)
	if err != nil {
		return err
	}
	r.Retries = int(retries)
	if r.BackoffMS, err = f.duration(KeyBackoffMS, MaxBackoffMS, 0, r); err != nil {
		return err
	}
	if r.ExpiresMS, err = f.duration(KeyExpiresMS, MaxDurationMS, 0, r); err != nil {
		return err
	}
	if r.ExpiresMS != 0 && r.DelayMS >= r.ExpiresMS {
		return refuse(InvalidValue, r.ID, "delay_ms must be below expires_ms, %d is not below %d", r.DelayMS, r.ExpiresMS)
	}
	if r.Detach, err = f.boolean(KeyDetach, false, r); err != nil {
		return err
	}
	ack, err := f.boolean(KeyAck, true, r)
	if err != nil {
		return err
	}
	r.NoAck = !ack
	if r.Progress, err = f.boolean(KeyProgress, false, r); err != nil {
		return err
	}
	if r.AgeMS, err = f.duration(KeyAgeMS, MaxDurationMS, 0, r); err != nil {
		return err
	}
	if r.KeepMS, err = f.duration(KeyKeepMS, MaxKeepMS, 0, r); err != nil {
		return err
	}
	if r.Detach && r.KeepMS != 0 {
		return refuse(InvalidValue, r.ID, "keep_ms must be 0 with detach, not %d: nobody is told of a detached job's end", r.KeepMS)
	}
	if f.isSet(KeyGroups) {
		if r.Groups, err = f.list(KeyGroups, 1, f.groups, true, r); err != nil {
			return err
		}
	}
	return f.headers(r)
}

// headers reads the headers of a submit.
func (f *fields) headers(r *Request) *Error {
	if !f.isSet(KeyHeaders) {
		return nil
	}
	raw := f.raw(KeyHeaders)
	switch {
	case raw[0] != '{':
		return refuse(InvalidType, r.ID, "headers must be an object, not %s", quoteShort(raw))
	case len(raw) > MaxHeaders:
		return refuse(InvalidValue, r.ID, "headers must have at most %d bytes as sent, not %d", MaxHeaders, len(raw))
	}
	r.Headers = raw
	return nil
}

func (f *fields) change(r *Request) (err *Error) {
	if err = f.id(r); err != nil {
		return err
	}
	r.SetPriority, r.SetGroups = f.isSet(KeyPriority), f.isSet(KeyGroups)
	if !r.SetPriority && !r.SetGroups && !f.isSet(KeyDelayMS) {
		return refuse(MissingField, r.ID, "change needs one or more of priority, groups and delay_ms")
	}
	if r.SetPriority {
		if r.Priority, err = f.priority(r); err != nil {
			return err
		}
	}
	if r.SetGroups {
		if r.Groups, err = f.list(KeyGroups, 0, f.groups, true, r); err != nil {
			return err
		}
	}
	r.AfterMS, err = f.duration(KeyDelayMS, MaxDurationMS, -1, r)
	return err
}

func (f *fields) attach(r *Request) (err *Error) {
	if err = f.id(r); err != nil {
		return err
	}
	r.Progress, err = f.boolean(KeyProgress, false, r)
	return err
}

func (f *fields) release(withID bool, r *Request) (err *Error) {
	if withID {
		if err = f.id(r); err != nil {
			return err
		}
	}
	r.AfterMS, err = f.duration(KeyDelayMS, MaxDurationMS, -1, r)
	return err
}

// answer reads the keys of a respond or a progress.
func (f *fields) answer(withID bool, r *Request) *Error {
	if withID {
		if err := f.id(r); err != nil {
			return err
		}
	}
	return f.body(r)
}

func (f *fields) fail(withID bool, r *Request) (err *Error) {
	if withID {
		if err = f.id(r); err != nil {
			return err
		}
	}
	if r.Reason, err = f.text(KeyReason, r); err != nil {
		return err
	}
	if r.Reason != nil && len(r.Reason) == 0 {
		return refuse(InvalidValue, r.ID, "reason must be a string of 1 byte or more, not \"\"")
	}
	retry, err := f.boolean(KeyRetry, true, r)
	if err != nil {
		return err
	}
	r.NoRetry = !retry
	r.AfterMS, err = f.duration(KeyDelayMS, MaxDurationMS, -1, r)
	return err
}

func (f *fields) hello(r *Request) (err *Error) {
	if r.Token, err = f.text(KeyToken, r); err != nil {
		return err
	}
	r.Token = f.byValue(KeyToken, r.Token)
	if r.Client, err = f.text(KeyClient, r); err != nil {
		return err
	}
	r.Client = f.byValue(KeyClient, r.Client)
	r.HeartbeatMS, err = f.heartbeat()
	return err
}
