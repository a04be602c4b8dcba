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

	DelayMS int64 // the delay that the worker asked for; only with CauseLater

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
	envelope       Envelope
	limitsEnvelope Envelope
	scratch        []byte
}

// Decode reads one payload into ev. The error is an *Error if the payload is not a message; it
// wraps ErrUnknownFrame if the message is of an unknown kind. Any other error names a key that is
// missing or wrong; after it, the connection cannot be used. An error frame of the broker is an
// event, not an error of Decode.
func (d *ClientDecoder) Decode(payload []byte, ev *Event) error {
	*ev = Event{}
	if cap(d.scratch) > maxScratch {
		d.scratch = nil
	}
	d.scratch = d.scratch[:0]
	if err := d.envelope.Scan(payload); err != nil {
		return err
	}
	f := fieldReader{envelope: &d.envelope, payload: payload, scratch: &d.scratch}
	switch presentKeys := d.envelope.presentKeys; {
	case presentKeys>>KeyError&1 != 0:
		return d.readError(&f, ev)
	case presentKeys>>KeyAction&1 != 0:
		return d.readAction(&f, ev)
	case presentKeys>>KeyOK&1 != 0:
		return d.readOK(&f, ev)
	case presentKeys>>KeyID&1 != 0 && presentKeys>>KeyBody&1 != 0:
		ev.Kind, ev.Body = EventResult, f.rawValue(KeyBody)
		return f.readEventID(ev)
	case presentKeys>>KeyID&1 != 0 && presentKeys>>KeyProgress&1 != 0:
		ev.Kind, ev.Body = EventProgress, f.rawValue(KeyProgress)
		return f.readEventID(ev)
	}
	return fmt.Errorf("%w: %s", ErrUnknownFrame, quoteShort(payload))
}

func (d *ClientDecoder) readError(f *fieldReader, ev *Event) error {
	ev.Kind = EventError
	code, err := f.readEventString(KeyError)
	if err != nil {
		return err
	}
	reason, err := f.readEventString(KeyReason)
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
		cause, err := f.readEventString(KeyCause)
		if err != nil {
			return err
		}
		ev.Cause = Value(cause)
	}
	if ev.Cause == CauseLater && f.isSet(KeyDelayMS) {
		n, kind := parseInteger(f.rawValue(KeyDelayMS))
		if kind != inRange || n < 0 {
			return fmt.Errorf("delay_ms must be an integer of at least 0, not %s", quoteShort(f.rawValue(KeyDelayMS)))
		}
		ev.DelayMS = n
	}
	if !f.isSet(KeyID) {
		return nil
	}
	return f.readEventID(ev)
}

func (d *ClientDecoder) readAction(f *fieldReader, ev *Event) (err error) {
	action, err := f.readEventString(KeyAction)
	if err != nil {
		return err
	}
	switch string(action) {
	case "job":
		ev.Kind = EventJob
		if ev.Type, err = f.readEventString(KeyType); err != nil {
			return err
		}
		if ev.Body = f.rawValue(KeyBody); ev.Body == nil {
			return errors.New("job without body")
		}
		if f.isSet(KeyHeaders) {
			if ev.Headers = f.rawValue(KeyHeaders); ev.Headers[0] != '{' {
				return fmt.Errorf("headers must be an object, not %s", quoteShort(ev.Headers))
			}
		}
		return f.readEventID(ev)
	case "cancel":
		ev.Kind = EventCancel
		return f.readEventID(ev)
	case "ping":
		ev.Kind = EventPing
		return nil
	}
	return fmt.Errorf("%w: action %s", ErrUnknownFrame, quoteShort(f.rawValue(KeyAction)))
}

func (d *ClientDecoder) readOK(f *fieldReader, ev *Event) (err error) {
	if raw := f.rawValue(KeyOK); string(raw) != "true" {
		return fmt.Errorf("ok must be true, not %s", quoteShort(raw))
	}
	ev.Kind = EventOK
	if f.isSet(KeyServer) {
		server, err := f.readEventString(KeyServer)
		if err != nil {
			return err
		}
		ev.Server = Value(server)
	}
	if f.isSet(KeyState) {
		state, err := f.readEventString(KeyState)
		if err != nil {
			return err
		}
		ev.State = Value(state)
	}
	if f.isSet(KeyLimits) {
		if err := d.readLimits(f.rawValue(KeyLimits), ev); err != nil {
			return err
		}
	}
	if !f.isSet(KeyID) {
		return nil
	}
	return f.readEventID(ev)
}

func (d *ClientDecoder) readLimits(raw []byte, ev *Event) error {
	if err := d.limitsEnvelope.Scan(raw); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	f := fieldReader{envelope: &d.limitsEnvelope, payload: raw, scratch: &d.scratch}
	for _, limit := range [...]struct {
		key Key
		to  *int
	}{{KeyMaxFrame, &ev.MaxFrame}, {KeyMaxFrameOut, &ev.MaxFrameOut}, {KeyMaxID, &ev.MaxID}, {KeyMaxPrefetch, &ev.MaxPrefetch}, {KeyMaxTypes, &ev.MaxTypes}} {
		if !f.isSet(limit.key) {
			continue
		}
		n, kind := parseInteger(f.rawValue(limit.key))
		if kind != inRange || n < 0 || n > math.MaxInt {
			return fmt.Errorf("%s must be an integer of at least 0, not %s", limit.key, quoteShort(f.rawValue(limit.key)))
		}
		*limit.to = int(n)
	}
	return nil
}

func (f *fieldReader) readEventID(ev *Event) (err error) {
	ev.ID, err = f.readEventString(KeyID)
	return err
}

// readEventString returns the value of a required key that is a string, in canonical form.
func (f *fieldReader) readEventString(key Key) ([]byte, error) {
	raw := f.rawValue(key)
	if raw == nil {
		return nil, fmt.Errorf("%s is missing", key)
	}
	if raw[0] != '"' {
		return nil, fmt.Errorf("%s must be a string, not %s", key, quoteShort(raw))
	}
	content := raw[1 : len(raw)-1 : len(raw)-1]
	if f.envelope.escapedKeys>>key&1 != 0 {
		content, _, _ = f.writeCanonical(content)
	}
	return content, nil
}
