package gloom

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"gloom/wire"
)

// Run is one execution of a job, for a Worker with Take. Take's receiver must call Answer when the
// run has ended.
type Run struct {
	job          Job
	key          string // canonical id
	nameInFrames []byte // the id in frames about the run, nil if it is implied
	socket       *socket
	ctx          context.Context
	cancel       context.CancelCauseFunc // of a handler; nil for Take
}

// Job returns the job to be done: its ID, Type, Body and Headers.
func (r *Run) Job() *Job { return &r.job }

// Answer ends the run with what a Handler would return. It does not block, and does nothing if
// the run has been answered already or its connection is lost.
func (r *Run) Answer(value any, err error) {
	body, err := encodeAnswer(value, err)
	r.socket.answer(r, body, err, request{})
}

// cancelUnwanted ends the handler's context, or calls OnUnwanted, because nobody waits for the run any
// more. The socket's mu must be held.
func (r *Run) cancelUnwanted(cause error) {
	if r.cancel != nil {
		r.cancel(cause)
	} else if r.socket.worker.OnUnwanted != nil {
		r.socket.notifications = append(r.socket.notifications, notifyFunc(func() { r.socket.worker.OnUnwanted(r, cause) }))
	}
}

func (r *Run) notify() { r.socket.worker.Take(r) }

func newRun(s *socket, ev *wire.Event) *Run {
	r := &Run{socket: s, key: string(ev.ID), ctx: s.ctx}
	r.job = Job{
		ID: wire.Value(ev.ID), Type: wire.Value(ev.Type),
		Body: bytes.Clone(ev.Body), Headers: Headers(bytes.Clone(ev.Headers)), run: r,
	}
	if s.namesJobs {
		r.nameInFrames = []byte(r.key)
	}
	if s.worker.Take == nil {
		r.ctx, r.cancel = context.WithCancelCause(s.ctx)
	}
	return r
}

func (r *Run) callHandler(h Handler) (body []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			p := &PanicError{ID: r.job.ID, Value: v, Stack: debug.Stack()}
			r.socket.conf.notify(Notice{Event: EventPanic, Addr: r.socket.addr, Err: p})
			body, err = nil, fmt.Errorf("panic: %v", v)
		}
	}()
	return encodeAnswer(h(r.ctx, &r.job))
}

// encodeAnswer encodes what a handler returns as a body.
func encodeAnswer(v any, err error) ([]byte, error) {
	if err != nil {
		_, _ = err.Error(), errors.As(err, new(*failure)) // a nil pointer may panic: here it fails only the run
		return nil, err
	}
	body, err := JSON(v)
	if err != nil {
		return nil, Fatal(fmt.Errorf("encode answer: %w", err))
	}
	if body == nil {
		return null, nil
	}
	return body, nil
}

// appendAnswer encodes the end of a run: its body, or what the handler's error asks for. A body
// that the broker would refuse makes the job fail.
func (r *Run) appendAnswer(buf, body []byte, err error) ([]byte, wire.Verb) {
	if err == nil {
		frame := wire.AppendRespond(buf, r.nameInFrames, body)
		if err = r.socket.checkAnswer(frame, body); err == nil {
			return frame, wire.Respond
		}
	}
	f := &failure{delay: -1}
	errors.As(err, &f) // the outermost one
	if f.isRelease {
		return wire.AppendRelease(buf, r.nameInFrames, toMillis(f.delay)), wire.Release
	}
	reason := cmp.Or(err.Error(), wire.DefaultFailReason)
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	return wire.AppendFail(buf, r.nameInFrames, wire.Canonical(nil, reason), !f.isFinal, toMillis(f.delay)), wire.Fail
}

// checkAnswer refuses a body that the broker would refuse.
func (s *socket) checkAnswer(frame, body []byte) error {
	if size := len(frame) - wire.HeaderLen; size > s.maxOut {
		return Fatal(fmt.Errorf("answer makes a frame of %d bytes, at most %d are allowed", size, s.maxOut))
	}
	if s.conf.trustBodies {
		return nil
	}
	if err := wire.CheckBody("answer", body); err != nil {
		return Fatal(errors.New(err.Reason))
	}
	return nil
}

// maxReason is how many bytes of an error's text are sent as a reason.
const maxReason = 4096

// failure is a handler's error, and says how the broker is to treat the job.
type failure struct {
	error
	isFinal, isRelease bool
	delay              time.Duration // -1 if it is not set
}

func (f *failure) Unwrap() error { return f.error }

// Fatal marks a handler's error as final: the job fails at once, even if retries are left. It
// returns nil for nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &failure{error: err, isFinal: true, delay: -1}
}

// RetryAfter makes a failed job wait for d, from 0 to a year, before its next run, instead of for
// its backoff. It returns nil for a nil err.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &failure{error: err, delay: max(d, 0)}
}

// Release returns an error with which a handler gives its job back. That uses no retry. The job
// waits for d, at most a year; with 0 this worker may get it again at once.
func Release(d time.Duration) error {
	if d <= 0 {
		d = -1
	}
	return &failure{error: errors.New("released by the worker"), isRelease: true, delay: d}
}
