package gloom

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/goccy/go-json"

	"gloom/wire"
)

// run is one execution of a job on a worker's socket.
type run struct {
	job    Job
	key    string // canonical id
	socket *socket
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newRun(s *socket, ev *wire.Event) *run {
	r := &run{socket: s, key: string(ev.ID)}
	r.job = Job{ID: r.key, Type: s.w.Type, Body: append([]byte(nil), ev.Body...), run: r}
	if id := wire.Value(ev.ID); id != r.key {
		r.job.ID = id
	}
	if typ := wire.Value(ev.Type); typ != s.w.Type {
		r.job.Type = typ
	}
	r.ctx, r.cancel = context.WithCancelCause(s.ctx)
	return r
}

// work runs jobs until the socket has ended.
func (s *socket) work() {
	regular := false
	defer func() {
		if !regular {
			s.fail(errors.New("handler ended its goroutine"))
		}
	}()
	for r := range s.queue {
		var body json.RawMessage
		err := context.Cause(r.ctx)
		if err == nil { // else cancelled while it waited
			body, err = s.call(r)
		}
		if s.ctx.Err() == nil { // else the run is lost, however its handler took that
			s.answer(r, body, err)
		}
		r.cancel(nil)
	}
	regular = true
}

// call runs the handler.
func (s *socket) call(r *run) (body json.RawMessage, err error) {
	defer func() {
		if v := recover(); v != nil {
			p := &PanicError{ID: r.job.ID, Value: v, Stack: debug.Stack()}
			s.w.conf.notify(Notice{Event: EventPanic, Addr: s.addr, Err: p})
			body, err = nil, fmt.Errorf("panic: %s", panicText(v))
		}
	}()
	v, err := s.w.Handler(r.ctx, &r.job)
	if err != nil {
		return nil, err
	}
	return s.encode(v)
}

// encode makes a body of what a handler gives.
func (s *socket) encode(v any) (json.RawMessage, error) {
	body, err := JSON(v)
	if err != nil {
		return nil, Fatal(fmt.Errorf("encode answer: %w", err))
	}
	if body == nil {
		return null, nil
	}
	return body, nil
}

// answer sends the outcome of a run, unless the connection has gone.
func (s *socket) answer(r *run, body json.RawMessage, err error) {
	e := encoders.Get().(*encoder)
	defer e.release()
	if err == nil {
		e.frame = wire.AppendRespond(e.frame[:0], s.nameOf(r), body)
		err = s.check(e, body)
	}
	failed := err != nil
	if failed {
		s.encodeFailure(e, r, err)
	}
	s.send(context.Background(), r, reply{kind: toAnswer, run: r, failed: failed}, e.frame)
}

// check refuses what the broker would not take; trying again would not help.
func (s *socket) check(e *encoder, body []byte) error {
	if size := len(e.frame) - wire.HeaderLen; size > s.largest() {
		return Fatal(fmt.Errorf("answer makes a frame of %d bytes, at most %d are taken", size, s.largest()))
	}
	if s.w.conf.trust {
		return nil
	}
	if reason := e.wrong(body); reason != "" {
		return Fatal(fmt.Errorf("answer: %s", reason))
	}
	return nil
}

func (s *socket) largest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outgoing
}

// nameOf is the id that frames about a run carry, nil where it is implied.
func (s *socket) nameOf(r *run) []byte {
	if !s.named {
		return nil
	}
	return []byte(r.key)
}

func (s *socket) encodeFailure(e *encoder, r *run, err error) {
	reason, retry, delayMS := verdict(err)
	if s.w.conf.compat {
		e.names = append(e.names[:0], `{"error":"`...)
		e.names = append(wire.Canonical(e.names, reason), `"}`...)
		e.frame = wire.AppendRespond(e.frame[:0], nil, e.names)
		return
	}
	e.names = wire.Canonical(e.names[:0], reason)
	if len(e.names) == 0 {
		e.names = append(e.names, wire.DefaultFailReason...)
	}
	e.frame = wire.AppendFail(e.frame[:0], s.nameOf(r), e.names, retry, delayMS)
}

// substitute answers in place of an answer that the broker refused: that left
// the job running on this socket. It is called by the reading goroutine and does
// not wait for room.
func (s *socket) substitute(r *run, failed bool, refusal *RefusedError) {
	e := encoders.Get().(*encoder)
	defer e.release()
	err := fmt.Errorf("answer refused: %s: %s", refusal.Code, refusal.Reason)
	if !failed {
		err = Fatal(err)
	}
	s.encodeFailure(e, r, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.waiting.push(reply{kind: toSubstitute, run: r})
		s.out = append(s.out, e.frame...)
		s.kick()
	}
}

// errAnswered is what Progress returns when it comes too late.
var errAnswered = errors.New("gloom: job has been answered")

// progress sends news of the run.
func (r *run) progress(v any) error {
	s := r.socket
	if s.w.conf.compat {
		return ErrUnsupported
	}
	body, err := s.encode(v)
	if err != nil {
		return err
	}
	e := encoders.Get().(*encoder)
	defer e.release()
	e.frame = wire.AppendWorkerProgress(e.frame[:0], s.nameOf(r), body)
	if err := s.check(e, body); err != nil {
		return err
	}
	select {
	case s.reports <- struct{}{}:
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	if err := s.send(r.ctx, r, reply{kind: toProgress}, e.frame); err != nil {
		<-s.reports
		return err
	}
	return nil
}

// send puts a frame about a run on the socket, waiting for room. An answer ends
// the run.
func (s *socket) send(ctx context.Context, r *run, then reply, frame []byte) error {
	for {
		room, err := s.trySend(r, then, frame)
		if room == nil {
			return err
		}
		if err := s.await(ctx, room); err == errGone {
			return context.Cause(s.ctx)
		} else if err != nil {
			return err
		}
	}
}

func (s *socket) trySend(r *run, then reply, frame []byte) (room <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, &LostError{Addr: s.addr, Cause: s.err}
	}
	if s.runs[r.key] != r {
		return nil, errAnswered
	}
	if room := s.full(); room != nil {
		return room, nil
	}
	if then.kind == toAnswer {
		delete(s.runs, r.key)
	}
	s.waiting.push(then)
	s.out = append(s.out, frame...)
	s.kick()
	return nil, nil
}
