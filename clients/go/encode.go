package gloom

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"gloom/wire"
)

// frameBuffers holds slices for encoding frames.
var frameBuffers = sync.Pool{New: func() any { return new([]byte) }}

// returnBuffer returns a slice to frameBuffers unless it is large: while slices are in use, the garbage
// collector frees none of them.
func returnBuffer(buf *[]byte) {
	if cap(*buf) <= maxKeptBuffer {
		frameBuffers.Put(buf)
	}
}

var null = []byte("null")

// appendSubmit encodes a job as a whole frame.
func appendSubmit(buf []byte, job *Job, key string) []byte {
	var typ [64]byte
	r := wire.Request{
		ID: []byte(key), Type: wire.Canonical(typ[:0], job.Type), Body: job.Body, Priority: job.Priority,
		DelayMS: toMillis(job.Delay), TimeoutMS: toMillis(job.Timeout), BackoffMS: toMillis(job.backoffToSend()),
		ExpiresMS: toMillis(job.Expires), AgeMS: toMillis(job.Age), KeepMS: toMillis(job.Keep), Retries: -1,
		Detach: job.Detach, NoAck: job.NoAck, WantProgress: job.OnProgress != nil, Groups: canonicalNames(job.Groups),
	}
	if len(r.Body) == 0 {
		r.Body = null
	}
	if len(job.Headers) > 0 {
		r.Headers = job.Headers
	}
	if job.Retries != 0 {
		r.Retries = max(job.Retries, 0)
	}
	return wire.AppendSubmit(buf, &r)
}

// backoffToSend returns the backoff that is sent: none for NoBackoff or without retries, DefaultBackoff for 0.
func (j *Job) backoffToSend() time.Duration {
	switch {
	case j.Backoff == NoBackoff || j.Backoff == 0 && j.Retries == NoRetries:
		return 0
	case j.Backoff == 0:
		return DefaultBackoff
	}
	return j.Backoff
}

// validate refuses values that the broker would refuse without naming the job, and values that
// would be sent as something else. With trust, it does not check that bodies are JSON.
func (j *Job) validate(trust bool) error {
	err := cmp.Or(checkNames("id", "", j.ID), checkNames("group", j.ID, j.Groups...), checkNames("type", j.ID, j.Type))
	if err == nil && j.Retries < NoRetries {
		err = &RefusedError{Code: ErrInvalidValue, ID: j.ID,
			Reason: fmt.Sprintf("retries is %d: must be 0 … %d, or NoRetries", j.Retries, wire.MaxRetries)}
	}
	if err != nil || trust {
		return err
	}
	return cmp.Or(checkJSON("body", j.ID, j.Body), checkJSON("headers", j.ID, j.Headers))
}

// checkNames refuses names that cannot be sent; it does not check an empty name. id is the id of
// the job that has the names.
func checkNames(field, id string, names ...string) error {
	for _, name := range names {
		if err := wire.CheckName(field, name); name != "" && err != nil {
			return &RefusedError{Code: ErrInvalidType, ID: id, Reason: err.Reason}
		}
	}
	return nil
}

// checkJSON is like checkNames, for a value that must be JSON unless it is empty.
func checkJSON(field, id string, value []byte) error {
	if len(value) == 0 {
		return nil
	}
	if err := wire.CheckBody(field, value); err != nil {
		return &RefusedError{Code: ErrInvalidJSON, ID: id, Reason: err.Reason}
	}
	return nil
}

// toMillis rounds away from zero, because 0 would mean none.
func toMillis(d time.Duration) int64 {
	return d.Milliseconds() + int64(cmp.Compare(d%time.Millisecond, 0))
}

// canonical returns the form in which an id is sent and compared.
func canonical(id string) string {
	var buf [64]byte
	if form := wire.Canonical(buf[:0], id); string(form) != id {
		return string(form)
	}
	return id
}

func canonicalNames(names []string) [][]byte {
	forms := make([][]byte, len(names))
	for i, name := range names {
		forms[i] = wire.Canonical(nil, name)
	}
	return forms
}
