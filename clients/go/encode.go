package gloom

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"gloom/wire"
)

// encoder has the buffers for encoding a frame. Encoders are pooled.
type encoder struct {
	frame []byte
	names []byte
	env   wire.Envelope
	req   wire.Request
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

func (e *encoder) release() {
	if cap(e.frame) > keepBuffer {
		e.frame = nil
	}
	e.req.Body, e.req.Groups, e.req.Headers = nil, nil, nil // they belong to the caller
	encoders.Put(e)
}

var null = []byte("null")

// submit encodes a job as a whole frame, valid until release.
func (e *encoder) submit(job *Job, p *Pending, conf *config) ([]byte, error) {
	key := p.key
	r := &e.req
	wire.ResetRequest(r)
	e.names = append(e.names[:0], key...)
	e.names = wire.Canonical(e.names, job.Type)
	r.ID = e.names[:len(key):len(key)]
	r.Type = e.names[len(key):]
	r.Body, r.Priority = job.Body, job.Priority
	if len(r.Body) == 0 {
		r.Body = null
	}
	r.Options = true
	r.DelayMS, r.TimeoutMS = millis(job.Delay), millis(job.Timeout)
	r.BackoffMS, r.ExpiresMS = millis(job.backoff()), millis(job.Expires)
	r.AgeMS, r.KeepMS = millis(job.Age), millis(job.Keep)
	r.Detach, r.NoAck, r.Progress = job.Detach, job.NoAck, job.OnProgress != nil
	r.Groups = canonicals(job.Groups)
	if len(job.Headers) > 0 {
		r.Headers = job.Headers
	}
	if job.Retries != 0 {
		r.Retries = max(job.Retries, 0)
	}
	e.frame = wire.AppendSubmit(e.frame[:0], r)
	if conf.trust {
		return e.frame, nil
	}
	reason := e.wrong("body", wire.KeyBody, r.Body)
	if reason == "" && r.Headers != nil {
		reason = e.wrong("headers", wire.KeyHeaders, r.Headers)
	}
	if reason != "" {
		return nil, &RefusedError{Code: ErrInvalidJSON, ID: p.id, Reason: reason}
	}
	return e.frame, nil
}

// wrong returns why the value under a key of the frame is not one JSON value that a broker
// accepts; "" if it is.
func (e *encoder) wrong(what string, key wire.Key, value []byte) string {
	payload := e.frame[wire.HeaderLen:]
	if err := e.env.Scan(payload); err != nil {
		return what + ": " + err.Reason
	}
	// It is not enough that the whole frame is valid: a value could end the message and begin
	// another key.
	if seen := e.env.Raw(payload, key); len(seen) != len(bytes.Trim(value, " \t\r\n")) {
		return what + ": not one JSON value"
	}
	return ""
}

// backoff returns the backoff to send for Backoff.
func (j *Job) backoff() time.Duration {
	switch {
	case j.Backoff == NoBackoff || j.Backoff == 0 && j.Retries == NoRetries:
		return 0
	case j.Backoff == 0:
		return DefaultBackoff
	}
	return j.Backoff
}

// validate refuses values that the broker would refuse without naming the job, and values that
// would be sent as something else.
func (j *Job) validate() error {
	if err := cmp.Or(checkNames("id", "", j.ID), checkNames("group", j.ID, j.Groups...), checkNames("type", j.ID, j.Type)); err != nil {
		return err
	}
	if j.Retries < NoRetries {
		return &RefusedError{Code: ErrInvalidValue, ID: j.ID,
			Reason: fmt.Sprintf("retries is %d: must be 0 … %d, or NoRetries", j.Retries, wire.MaxRetries)}
	}
	return nil
}

// checkNames refuses names that cannot be sent; it does not check an empty name. id is the id of
// the job that has the names.
func checkNames(what, id string, names ...string) error {
	for _, name := range names {
		if err := wire.CheckName(what, name); name != "" && err != nil {
			return &RefusedError{Code: ErrInvalidType, ID: id, Reason: err.Reason}
		}
	}
	return nil
}

// millis rounds away from zero, because 0 would mean none.
func millis(d time.Duration) int64 {
	return d.Milliseconds() + int64(cmp.Compare(d%time.Millisecond, 0))
}

// canonical returns the form in which an id is sent and compared.
func canonical(id string) string {
	for i := range len(id) {
		if c := id[i]; c < ' ' || c == '"' || c == '\\' {
			return string(wire.Canonical(nil, id))
		}
	}
	return id
}

func canonicals(names []string) (all [][]byte) {
	all = slices.Grow(all, len(names))
	for _, name := range names {
		all = append(all, wire.Canonical(nil, name))
	}
	return all
}
