package wire

import (
	"errors"
	"fmt"
	"math"
)

// EventKind is the kind of a frame from the broker.
type EventKind uint8

const (
	EventOK       EventKind = iota + 1 // the reply to a request
	EventError                         // a refusal, or the end of a job without an answer
	EventJob                           // a job for a worker to run
	EventResult                        // the answer to a job, for its submitter
	EventProgress                      // progress of a job, for its submitter
	EventCancel                        // tells a worker that a run is no longer wanted
	EventPing                          // asks for a pong
)

var eventNames = [...]string{"none", "ok", "error", "job", "result", "progress", "cancel", "ping"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return eventNames[0]
}

// Event is a frame from the broker. Its slices point into the payload or the
// decoder's scratch and are valid until the next Decode.
type Event struct {
	Kind EventKind
	ID   []byte // canonical; nil if the frame has no id
	Type []byte // the type of a job, in canonical form
	Body []byte // the body of a job, result or progress, as verbatim JSON
	// Headers are the headers of a job, a verbatim JSON object; nil if there are none.
	Headers []byte
	// State is "delayed", "queued", "running" or "ended" in the reply to attach.
	State string

	Code   string // the code of an error: its name on the wire
	Reason string // the reason of an error, without escapes
	Cause  string // of an error, "" if it has none: CauseLost, CauseFinal, CauseLater

	DelayMS int64 // of CauseLater

	Server      string // of the reply to hello; "" in other frames
	MaxFrame    int    // bytes; these five limits are 0 if the frame does not have them
	MaxFrameOut int    // bytes
	MaxID       int    // bytes
	MaxPrefetch int
	MaxTypes    int
}

// ErrUnknownFrame reports a valid message of a kind that this package does not know. A client
// should ignore such a message: later brokers may send more kinds.
var ErrUnknownFrame = errors.New("unknown frame")

// ClientDecoder reads the frames of a broker. It can be reused, but is not safe for concurrent
// use. The zero value is ready for use. It ignores unknown keys.
type ClientDecoder struct {
	env     Envelope
	limits  Envelope
	scratch []byte
}

// Decode reads one payload into ev. Its error is an *Error if the payload is not a message, and
// wraps ErrUnknownFrame if the message is of an unknown kind. Any other error names a key that
// is missing or wrong; after it, the connection cannot be used. An error frame of the broker is
// an event, not an error of Decode.
func (d *ClientDecoder) Decode(payload []byte, ev *Event) error {
	*ev = Event{}
	if cap(d.scratch) > maxScratch {
		d.scratch = nil
	}
	d.scratch = d.scratch[:0]
	if err := d.env.Scan(payload); err != nil {
		return err
	}
	f := fields{env: &d.env, payload: payload, scratch: &d.scratch}
	switch present := d.env.present; {
	case present>>KeyError&1 != 0:
		return d.error(&f, ev)
	case present>>KeyAction&1 != 0:
		return d.action(&f, ev)
	case present>>KeyOK&1 != 0:
		return d.ok(&f, ev)
	case present>>KeyID&1 != 0 && present>>KeyBody&1 != 0:
		ev.Kind, ev.Body = EventResult, f.raw(KeyBody)
		return f.eventID(ev)
	case present>>KeyID&1 != 0 && present>>KeyProgress&1 != 0:
		ev.Kind, ev.Body = EventProgress, f.raw(KeyProgress)
		return f.eventID(ev)
	}
	return fmt.Errorf("%w: %s", ErrUnknownFrame, quoteShort(payload))
}

func (d *ClientDecoder) error(f *fields, ev *Event) error {
	ev.Kind = EventError
	code, err := f.eventString(KeyError)
	if err != nil {
		return err
	}
	reason, err := f.eventString(KeyReason)
	if err != nil {
		return err
	}
	if c, ok := ParseCode(string(code)); ok {
		ev.Code = c.String()
	} else {
		ev.Code = Value(code)
	}
	ev.Reason = Value(reason)
	if f.isSet(KeyCause) {
		cause, err := f.eventString(KeyCause)
		if err != nil {
			return err
		}
		ev.Cause = Value(cause)
	}
	if ev.Cause == CauseLater && f.isSet(KeyDelayMS) {
		n, kind := parseInteger(f.raw(KeyDelayMS))
		if kind != inRange || n < 0 {
			return fmt.Errorf("delay_ms must be an integer of at least 0, not %s", quoteShort(f.raw(KeyDelayMS)))
		}
		ev.DelayMS = n
	}
	if !f.isSet(KeyID) {
		return nil
	}
	return f.eventID(ev)
}

func (d *ClientDecoder) action(f *fields, ev *Event) (err error) {
	action, err := f.eventString(KeyAction)
	if err != nil {
		return err
	}
	switch string(action) {
	case "job":
		ev.Kind = EventJob
		if ev.Type, err = f.eventString(KeyType); err != nil {
			return err
		}
		if ev.Body = f.raw(KeyBody); ev.Body == nil {
			return errors.New("job without body")
		}
		if f.isSet(KeyHeaders) {
			if ev.Headers = f.raw(KeyHeaders); ev.Headers[0] != '{' {
				return fmt.Errorf("headers must be an object, not %s", quoteShort(ev.Headers))
			}
		}
		return f.eventID(ev)
	case "cancel":
		ev.Kind = EventCancel
		return f.eventID(ev)
	case "ping":
		ev.Kind = EventPing
		return nil
	}
	return fmt.Errorf("%w: action %s", ErrUnknownFrame, quoteShort(f.raw(KeyAction)))
}

func (d *ClientDecoder) ok(f *fields, ev *Event) (err error) {
	if raw := f.raw(KeyOK); string(raw) != "true" {
		return fmt.Errorf("ok must be true, not %s", quoteShort(raw))
	}
	ev.Kind = EventOK
	if f.isSet(KeyServer) {
		server, err := f.eventString(KeyServer)
		if err != nil {
			return err
		}
		ev.Server = Value(server)
	}
	if f.isSet(KeyState) {
		state, err := f.eventString(KeyState)
		if err != nil {
			return err
		}
		ev.State = Value(state)
	}
	if f.isSet(KeyLimits) {
		if err := d.readLimits(f.raw(KeyLimits), ev); err != nil {
			return err
		}
	}
	if !f.isSet(KeyID) {
		return nil
	}
	return f.eventID(ev)
}

func (d *ClientDecoder) readLimits(raw []byte, ev *Event) error {
	if err := d.limits.Scan(raw); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	f := fields{env: &d.limits, payload: raw, scratch: &d.scratch}
	for _, limit := range [...]struct {
		key Key
		to  *int
	}{{KeyMaxFrame, &ev.MaxFrame}, {KeyMaxFrameOut, &ev.MaxFrameOut}, {KeyMaxID, &ev.MaxID}, {KeyMaxPrefetch, &ev.MaxPrefetch}, {KeyMaxTypes, &ev.MaxTypes}} {
		if !f.isSet(limit.key) {
			continue
		}
		n, kind := parseInteger(f.raw(limit.key))
		if kind != inRange || n < 0 || n > math.MaxInt {
			return fmt.Errorf("%s must be an integer of at least 0, not %s", limit.key, quoteShort(f.raw(limit.key)))
		}
		*limit.to = int(n)
	}
	return nil
}

func (f *fields) eventID(ev *Event) (err error) {
	ev.ID, err = f.eventString(KeyID)
	return err
}

// eventString returns the value of a required key that is a string, in canonical form.
func (f *fields) eventString(k Key) ([]byte, error) {
	raw := f.raw(k)
	if raw == nil {
		return nil, fmt.Errorf("%s is missing", k)
	}
	if raw[0] != '"' {
		return nil, fmt.Errorf("%s must be a string, not %s", k, quoteShort(raw))
	}
	content := raw[1 : len(raw)-1 : len(raw)-1]
	if f.env.escapedKeys>>k&1 != 0 {
		content, _, _ = f.canonical(content)
	}
	return content, nil
}
