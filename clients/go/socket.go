package gloom

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"gloom/wire"
)

// maxReports is how many progress frames may be unanswered on a socket.
const maxReports = 64

// errLeft ends a socket that has left and has nothing more to do.
var errLeft = errors.New("left")

// socket is a worker's connection: the frames that wait for their reply, in
// order, and the runs that are out on it.
type socket struct {
	link
	w        *Worker
	named    bool // joined with prefetch: answers carry ids
	limit    int  // runs that may be out
	outgoing int  // largest frame the broker takes; guarded by link.mu

	ctx     context.Context // of the runs
	lose    context.CancelCauseFunc
	queue   chan *run     // of limit: never full
	reports chan struct{} // holds one element per unanswered progress frame

	// Guarded by link.mu.
	waiting fifo[reply]
	runs    map[string]*run // not yet answered, by canonical id
	greeted bool            // the join is on its way
	leaving bool
	left    bool // no job comes any more
	refusal *RefusedError

	// Of the reading goroutine.
	decoder  wire.ClientDecoder
	event    wire.Event
	joined   bool
	deadline *time.Timer // for the join; nil once it is in
}

// reply is what a worker's frame waits for.
type reply struct {
	kind   replyKind
	run    *run // of an answer
	failed bool // of an answer: it is a fail
}

type replyKind uint8

const (
	toHello replyKind = iota + 1
	toJoin
	toAnswer
	toSubstitute // the answer in place of one that was refused
	toProgress
	toLeave
)

// attend connects to a broker and serves until the connection goes and every
// handler has returned.
func (w *Worker) attend(addr string) (joined bool, err error) {
	ctx, cancel := context.WithTimeout(w.leaving, w.conf.dialTimeout)
	nc, err := w.conf.connect(ctx, addr)
	cancel()
	if err != nil {
		return false, fmt.Errorf("gloom: connect to %s: %w", addr, err)
	}
	if w.leaving.Err() != nil {
		nc.Close()
		return false, errLeft
	}
	s := newSocket(w, addr, nc)
	stopLeave := context.AfterFunc(w.leaving, s.leave)
	stopAbort := context.AfterFunc(w.base, func() { s.fail(ErrClosed) })
	defer func() { stopLeave(); stopAbort() }()

	var all sync.WaitGroup
	all.Go(s.writeLoop)
	for range w.handlers() {
		all.Go(s.work)
	}
	s.deadline = time.AfterFunc(w.conf.dialTimeout, func() {
		s.fail(fmt.Errorf("no answer to join within %v: %w", w.conf.dialTimeout, context.DeadlineExceeded))
	})
	s.greet()
	s.fail(s.readLoop(s.handle))
	s.deadline.Stop()
	cause := s.why()
	s.lose(&LostError{Addr: addr, Cause: cause})
	close(s.queue)
	all.Wait()
	return s.joined, cause
}

func newSocket(w *Worker, addr string, nc net.Conn) *socket {
	s := &socket{
		w: w, named: w.Prefetch > 0,
		limit: max(w.Prefetch, 1), outgoing: w.conf.maxFrame,
		reports: make(chan struct{}, maxReports),
		runs:    make(map[string]*run),
	}
	s.init(w.conf, addr, nc)
	s.queue = make(chan *run, s.limit)
	s.ctx, s.lose = context.WithCancelCause(w.base)
	return s
}

// why is why the socket has ended: what the broker said, if it did.
func (s *socket) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal != nil && s.err != errLeft {
		return s.refusal
	}
	return s.err
}

// greet sends hello, if asked for, and join in one go: a refused hello ends the
// socket anyway.
func (s *socket) greet() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.leaving {
		return
	}
	conf := s.w.conf
	if conf.wantsHello() {
		s.out = wire.AppendHello(s.out, conf.token, conf.client, conf.heartbeat.Milliseconds())
		s.waiting.push(reply{kind: toHello})
	}
	s.out = wire.AppendJoin(s.out, []byte(canonical(s.w.Type)), s.w.Prefetch, !conf.compat)
	s.waiting.push(reply{kind: toJoin})
	s.greeted = true
	s.kick()
}

// leave takes no more jobs. The socket ends when all is answered.
func (s *socket) leave() {
	s.mu.Lock()
	if s.err != nil || s.leaving {
		s.mu.Unlock()
		return
	}
	s.leaving = true
	switch {
	case s.w.conf.compat || !s.greeted: // a join behind a leave would undo it
		s.left = true
	default:
		s.out = wire.AppendLeave(s.out)
		s.waiting.push(reply{kind: toLeave})
		s.kick()
	}
	finished := s.finished()
	s.mu.Unlock()
	if finished {
		s.fail(errLeft)
	}
}

// finished is called with mu held.
func (s *socket) finished() bool {
	return s.left && len(s.runs) == 0 && s.waiting.empty()
}

// handle acts on one frame of the broker.
func (s *socket) handle(payload []byte) error {
	ev := &s.event
	if err := s.decoder.Decode(payload, ev); err != nil {
		if errors.Is(err, wire.ErrUnknownFrame) {
			return nil
		}
		return &ProtocolError{Reason: err.Error()}
	}
	switch ev.Kind {
	case wire.EventJob:
		return s.onJob(ev)
	case wire.EventOK:
		return s.onOK(ev)
	case wire.EventError:
		return s.onError(ev)
	case wire.EventCancel:
		s.mu.Lock()
		r := s.runs[string(ev.ID)]
		s.mu.Unlock()
		if r != nil {
			r.cancel(ErrCancelled)
		}
	case wire.EventPing:
		s.mu.Lock()
		if s.err == nil {
			s.out = wire.AppendPong(s.out)
			s.kick()
		}
		s.mu.Unlock()
	}
	return nil
}

func (s *socket) onJob(ev *wire.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.left && s.w.conf.compat:
		return errLeft // the broker hands the job to another worker
	case s.left:
		return &ProtocolError{Reason: "job after the ok of leave"}
	case len(s.runs) == s.limit:
		return &ProtocolError{Reason: fmt.Sprintf("job while %d are out, the most asked for", s.limit)}
	case s.runs[string(ev.ID)] != nil:
		return &ProtocolError{Reason: "job whose id is out already"}
	}
	r := newRun(s, ev)
	s.runs[r.key] = r
	s.queue <- r
	return nil
}

func (s *socket) onOK(ev *wire.Event) error {
	s.mu.Lock()
	if s.waiting.empty() {
		s.mu.Unlock()
		return &ProtocolError{Reason: "ok without a request"}
	}
	r := s.waiting.pop()
	switch r.kind {
	case toLeave:
		s.left = true
	case toHello:
		if ev.MaxFrame > 0 {
			s.outgoing = ev.MaxFrame
			s.maxIn = max(s.maxIn, ev.MaxFrame+frameSlack)
		}
	case toProgress:
		<-s.reports
	}
	finished := s.finished()
	s.mu.Unlock()
	if r.kind == toJoin {
		s.deadline.Stop()
		s.joined = true
		s.w.noteJoin(s.addr)
	}
	if finished {
		return errLeft
	}
	return nil
}

func (s *socket) onError(ev *wire.Event) error {
	refusal := &RefusedError{Code: Code(ev.Code), Reason: ev.Reason}
	if ev.ID != nil {
		refusal.ID = wire.Value(ev.ID)
	}
	s.mu.Lock()
	if s.waiting.empty() {
		s.refusal = refusal
		s.mu.Unlock()
		return refusal
	}
	r := s.waiting.pop()
	switch r.kind {
	case toHello, toJoin:
		s.mu.Unlock()
		return refusal
	case toProgress:
		<-s.reports
	case toLeave:
		s.left = true // the broker cannot: close as soon as nothing is out
	}
	if c := refusal.Code; c == ErrSizeError || c == ErrInvalidJSON || c == ErrUnauthorized {
		s.refusal = refusal // and it closes the connection now
	}
	finished := s.finished()
	s.mu.Unlock()
	if r.kind == toAnswer && refusal.Code != ErrInvalidState && refusal.Code != ErrUnknownID {
		s.substitute(r.run, r.failed, refusal)
		return nil
	}
	if r.kind == toSubstitute {
		return refusal // the job hangs on this socket: let the broker have it back
	}
	if finished {
		return errLeft
	}
	return nil
}
