package gloom

import (
	"context"
	"errors"
	"net"
	"strconv"

	"gloom/wire"
)

// session is a submitter's connection to one broker: the requests that wait for
// a reply, in order, and the jobs that have not ended, by id.
//
// An error frame with a job's id is either the reply to a request or the end of a
// job taken earlier. Two rules make that unambiguous. Replies come in the order
// of the requests, so only the first request that must be replied to, and the
// silent ones before it, can be meant by a reply. And no id is submitted on a
// connection on which a job of that id is pending, so at most one job can be
// meant.
type session struct {
	link

	compat   bool
	outgoing int // largest frame the broker takes; only the reply to hello changes it

	// Guarded by link.mu.
	waiting fifo[request]
	jobs    map[string]*Pending // by canonical id
	written uint64              // number of the first request not given to the writer
	bare    int                 // detached jobs without ack since the last request with a reply
	retired bool                // takes no new jobs; ends with the last pending one
	refusal *RefusedError       // what the broker said before it closes the connection

	drains   chan struct{} // closed when the broker has said that it drains
	draining bool          // of the reading goroutine: drains is closed
	over     chan struct{} // closed when the session has ended and said so to all

	// Of the reading goroutine.
	decoder wire.ClientDecoder
	event   wire.Event
	settled []*Pending // scratch: jobs proven taken by the frame at hand
}

// errRetired ends a retired session that has nothing left to wait for.
var errRetired = errors.New("retired")

func newSession(c *config, addr string, nc net.Conn) *session {
	s := &session{
		compat: c.compat, outgoing: c.maxFrame, jobs: make(map[string]*Pending),
		drains: make(chan struct{}), over: make(chan struct{}),
	}
	s.init(c, addr, nc)
	s.beforeWrite = s.confirm
	return s
}

// run serves the connection until it goes.
func (s *session) run() {
	defer close(s.over)
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		s.writeLoop()
	}()
	s.fail(s.readLoop(s.handle))
	<-writer
	s.endAll()
}

// endAll ends what is pending, after the link has failed.
func (s *session) endAll() {
	s.mu.Lock()
	cause := s.cause()
	jobs := s.jobs
	s.jobs = nil
	var calls []*call
	for !s.waiting.empty() {
		if r := s.waiting.pop(); r.call != nil {
			calls = append(calls, r.call)
		}
	}
	written := s.written
	s.mu.Unlock()
	for _, p := range jobs {
		p.end(Result{}, p.lost(s.addr, p.seq < written, cause))
	}
	for _, c := range calls {
		c.finish(&LostError{Addr: s.addr, Cause: cause})
	}
}

// cause is why the link failed; called with mu held.
func (s *session) cause() error {
	if s.refusal != nil && !errors.Is(s.err, ErrClosed) {
		return s.refusal
	}
	return s.err
}

// why is cause, for others.
func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause()
}

// confirm is called before each write. Nothing is ever sent about a detached job
// without ack that was taken; the reply to a ping proves that no refusal comes.
func (s *session) confirm() {
	if s.bare > 0 {
		s.bare = 0
		s.waiting.push(request{kind: askPing})
		s.out = wire.AppendPingRequest(s.out)
	}
	s.written = s.waiting.tail
}

// submit sends the frame of a job. It returns errGone when the session takes no
// more jobs, and a channel to wait for when there is no room.
func (s *session) submit(p *Pending, quiet bool, frame []byte) (room <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.retired {
		return nil, errGone
	}
	if room := s.full(); room != nil {
		return room, nil
	}
	if _, held := s.jobs[p.key]; held {
		return nil, &RefusedError{Code: ErrIDExists, ID: p.id, Reason: "id is pending on this connection"}
	}
	r := request{kind: askSubmit, job: p}
	if quiet {
		r.kind = askQuietSubmit
		if p.detach {
			s.bare++
		}
	} else {
		s.bare = 0
	}
	p.session = s
	p.seq = s.waiting.push(r)
	s.jobs[p.key] = p
	s.out = append(s.out, frame...)
	s.kick()
	return nil, nil
}

// ask sends a request that is not about a new job. A nil call waits for nothing.
func (s *session) ask(r request, encode func(dst []byte) []byte) error {
	if s.compat {
		return ErrUnsupported
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return &LostError{Addr: s.addr, Cause: s.cause()}
	}
	if r.kind == askCancel {
		r.job = s.jobs[r.id]
	}
	s.bare = 0
	s.waiting.push(r)
	s.out = encode(s.out)
	s.kick()
	return nil
}

func (s *session) wait(ctx context.Context, c *call) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *session) hello(ctx context.Context, conf *config) error {
	c := newCall()
	err := s.ask(request{kind: askHello, call: c}, func(dst []byte) []byte {
		return wire.AppendHello(dst, conf.token, conf.client, conf.heartbeat.Milliseconds())
	})
	if err != nil {
		return err
	}
	return s.wait(ctx, c)
}

func (s *session) ping(ctx context.Context) error {
	c := newCall()
	if err := s.ask(request{kind: askPing, call: c}, wire.AppendPingRequest); err != nil {
		return err
	}
	return s.wait(ctx, c)
}

func (s *session) cancel(ctx context.Context, key string) error {
	c := newCall()
	if err := s.askCancel(key, c); err != nil {
		return err
	}
	return s.wait(ctx, c)
}

func (s *session) askCancel(key string, c *call) error {
	return s.ask(request{kind: askCancel, id: key, call: c}, func(dst []byte) []byte {
		return wire.AppendCancelRequest(dst, []byte(key))
	})
}

// abandon asks to cancel a job that its caller no longer waits for.
func (s *session) abandon(p *Pending) {
	s.mu.Lock()
	pending := s.jobs[p.key] == p
	s.mu.Unlock()
	if pending {
		_ = s.askCancel(p.key, nil) // lost with the job if it fails
	}
}

// holds reports whether a job with the id is pending here.
func (s *session) holds(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[key] != nil
}

// retire lets the session end when nothing is pending on it any more.
func (s *session) retire() {
	s.mu.Lock()
	s.retired = true
	idle := s.idle()
	s.mu.Unlock()
	if idle {
		s.fail(errRetired)
	}
}

func (s *session) idle() bool {
	return len(s.jobs) == 0 && s.waiting.empty()
}

// handle acts on one frame of the broker.
func (s *session) handle(payload []byte) error {
	ev := &s.event
	if err := s.decoder.Decode(payload, ev); err != nil {
		if errors.Is(err, wire.ErrUnknownFrame) {
			return nil
		}
		return &ProtocolError{Reason: err.Error()}
	}
	switch ev.Kind {
	case wire.EventOK:
		return s.onOK(ev)
	case wire.EventResult:
		s.onResult(ev)
	case wire.EventProgress:
		s.onProgress(ev)
	case wire.EventError:
		return s.onError(ev)
	case wire.EventPing:
		s.mu.Lock()
		if s.err == nil {
			s.out = wire.AppendPong(s.out)
			s.kick()
		}
		s.mu.Unlock()
		return nil
	}
	return s.leftover()
}

// leftover ends a retired session with its last job.
func (s *session) leftover() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired && s.idle() {
		return errRetired
	}
	return nil
}

// due is the number of the first request that must be replied to, or tail. It is
// called with mu held.
func (s *session) due() uint64 {
	n := s.waiting.head
	for n != s.waiting.tail && s.waiting.at(n).kind == askQuietSubmit {
		n++
	}
	return n
}

// settle takes the silent submits before request number n off the queue: a later
// frame proves that they were taken. It is called with mu held.
func (s *session) settle(n uint64) {
	for s.waiting.head != n {
		p := s.waiting.pop().job
		if p.detach {
			delete(s.jobs, p.key)
		}
		s.settled = append(s.settled, p)
	}
}

// tell acks the jobs that settle found, without the lock.
func (s *session) tell() {
	for i, p := range s.settled {
		p.taken()
		s.settled[i] = nil
	}
	s.settled = s.settled[:0]
}

func (s *session) onOK(ev *wire.Event) error {
	s.mu.Lock()
	due := s.due()
	if err := s.mismatch(due, ev); err != nil {
		s.mu.Unlock()
		return err
	}
	s.settle(due)
	r := s.waiting.pop()
	cancelled := r.kind == askCancel && r.job != nil && s.jobs[r.id] == r.job
	if cancelled || r.kind == askSubmit && r.job.detach {
		delete(s.jobs, r.job.key)
	}
	s.mu.Unlock()
	s.tell()
	switch {
	case r.kind == askSubmit:
		r.job.taken()
	case cancelled:
		r.job.end(Result{}, &JobError{Code: ErrCancelled, ID: r.job.id, Reason: "by its submitter"})
	case r.kind == askHello && ev.MaxFrame > 0:
		s.outgoing = ev.MaxFrame
		s.maxIn = max(s.maxIn, ev.MaxFrame+frameSlack)
	}
	r.call.finish(nil)
	return s.leftover()
}

// mismatch checks that an ok fits request number due. It is called with mu held.
func (s *session) mismatch(due uint64, ev *wire.Event) error {
	if due == s.waiting.tail {
		return &ProtocolError{Reason: "ok without a request"}
	}
	want := s.waiting.at(due).name()
	if ev.ID != nil && want != string(ev.ID) {
		return &ProtocolError{Reason: "ok for id " + strconv.Quote(wire.Value(ev.ID)) +
			" in place of " + strconv.Quote(wire.Value([]byte(want)))}
	}
	return nil
}

func (s *session) onResult(ev *wire.Event) {
	s.mu.Lock()
	p := s.jobs[string(ev.ID)]
	if p == nil {
		s.mu.Unlock()
		return
	}
	s.settleThrough(p)
	delete(s.jobs, p.key)
	s.mu.Unlock()
	s.tell()
	p.end(Result{ID: p.id, Body: append([]byte(nil), ev.Body...)}, nil)
}

// settleThrough settles p and what was sent silently before it, if p itself was
// sent silently and no reply is due before it. It is called with mu held, and
// looks at nothing behind p, so that each request is looked at once.
func (s *session) settleThrough(p *Pending) {
	if p.seq < s.waiting.head {
		return
	}
	for n := s.waiting.head; n <= p.seq; n++ {
		if s.waiting.at(n).kind != askQuietSubmit {
			return
		}
	}
	s.settle(p.seq)
	s.waiting.pop()
}

func (s *session) onProgress(ev *wire.Event) {
	s.mu.Lock()
	p := s.jobs[string(ev.ID)]
	if p != nil {
		s.settleThrough(p)
	}
	s.mu.Unlock()
	s.tell()
	if p == nil {
		return
	}
	p.taken()
	if p.progress != nil {
		p.progress(append([]byte(nil), ev.Body...))
	}
}
