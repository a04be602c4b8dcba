package gloom

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"gloom/wire"
)

const (
	// maxUnsent is how many bytes may wait to be written before callers wait.
	maxUnsent = 1 << 20
	// keepBuffer is the largest buffer kept after a large frame has gone through.
	keepBuffer = 256 << 10
	// lastWords is how long a connection that cannot be written to is still read:
	// the broker may have said why.
	lastWords = 250 * time.Millisecond
	// deadBeats is how many beats may pass without a byte from the broker.
	deadBeats = 3
)

var (
	// errGone is what becomes of frames for a connection that has ended.
	errGone = errors.New("connection has gone")
	// errFinished ends a connection that has nothing more to wait for.
	errFinished = errors.New("finished")
)

// conn is a connection to a broker, of a submitter or a worker: a goroutine that
// writes what others append to a buffer, so that many frames leave in one call;
// a loop that reads frames; and, in order, the requests that wait for a reply.
type conn struct {
	conf *config
	addr string
	nc   net.Conn
	user user
	wake chan struct{}   // to the writer: there is something to write
	life context.Context // ends when the connection fails; the cause is a *LostError, or ErrClosed
	end  context.CancelCauseFunc

	// Largest frames either way. Only the reply to hello changes them, before
	// there is anything large to send.
	maxIn, maxOut int

	mu      sync.Mutex // guards what follows
	out     []byte     // whole frames, not yet written
	kicked  bool       // wake has been sent and not been acted on
	room    chan struct{}
	waiting fifo[request]
	written uint64        // number of the first request not given to the writer
	bare    int           // detached jobs without ack since the last request with a reply
	refusal *RefusedError // what the broker said before it closes the connection

	// Of the reading goroutine.
	decoder wire.ClientDecoder
	frame   wire.Event
	news    []teller // what the frame at hand means to others
}

// teller tells others what a frame meant, without mu held.
type teller interface{ tell() }

type call func()

func (f call) tell() { f() }

// user is whom a connection serves. The reading goroutine calls its methods, with
// the connection's mu held.
type user interface {
	// replied acts on the reply to a request: ok if refusal is nil. A detached or
	// other silent submit is ok when a later frame proves it.
	replied(r request, refusal *RefusedError) error
	// event acts on a frame that is neither ok nor ping.
	event(*wire.Event) error
	// finished says whether there is nothing left to wait for, now that all of
	// what a frame means is known.
	finished() bool
}

// request is something asked of the broker. Replies come in the order of the
// requests; only a silent one is replied to just when it is refused.
type request struct {
	verb    wire.Verb
	silent  bool        // "ack":false
	again   bool        // of an answer: in place of one that was refused
	unbegun bool        // of a release: its run has not begun
	last    bool        // of a leave: the worker stops
	key     string      // the canonical id that a reply may carry, "" for none
	job     *Pending    // of a submit and an attach
	run     *Run        // of an answer
	then    func(error) // who is told of the reply, without mu held
}

// init makes a connection that ends with parent.
func (c *conn) init(parent context.Context, conf *config, addr string, nc net.Conn, user user) {
	c.conf, c.addr, c.nc, c.user = conf, addr, nc, user
	c.maxIn, c.maxOut = wire.MaxFrameOut(conf.maxFrame), conf.maxFrame
	c.wake = make(chan struct{}, 1)
	c.life, c.end = context.WithCancelCause(parent)
	context.AfterFunc(c.life, func() { nc.Close() }) // over TLS this may wait for the peer
}

// run serves the connection until it goes, and returns why.
func (c *conn) run() *LostError {
	var writer sync.WaitGroup
	writer.Go(c.writeLoop)
	c.fail(c.readLoop())
	writer.Wait()
	lost := c.lost()
	c.mu.Lock()
	for !c.waiting.empty() {
		c.inform(c.waiting.pop(), lost)
	}
	c.out = nil
	c.mu.Unlock()
	c.tell()
	return lost
}

// inform tells of the reply to a request, or that none comes.
func (c *conn) inform(r request, err error) {
	if r.then != nil {
		c.news = append(c.news, call(func() { r.then(err) }))
	}
}

// tell passes on what a frame meant, where that must not hold up others.
func (c *conn) tell() {
	for i, n := range c.news {
		n.tell()
		c.news[i] = nil
	}
	c.news = c.news[:0]
}

// fail ends the connection, once; the first cause stays, but for what the broker
// has said.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusal != nil && cause != errFinished {
		cause = c.refusal
	}
	c.end(&LostError{Addr: c.addr, Cause: cause})
}

// finish ends the connection if it has nothing more to wait for.
func (c *conn) finish() {
	c.mu.Lock()
	finished := c.user.finished()
	c.mu.Unlock()
	if finished {
		c.fail(errFinished)
	}
}

// lost is why the connection failed.
func (c *conn) lost() *LostError {
	if lost, ok := context.Cause(c.life).(*LostError); ok {
		return lost
	}
	return &LostError{Addr: c.addr, Cause: ErrClosed}
}

// post sends a request, unless the connection has gone. It is called with mu held,
// as are all below that do not say otherwise.
func (c *conn) post(frame []byte, r request) {
	if c.life.Err() != nil {
		return
	}
	c.out = append(c.out, frame...)
	switch {
	case !r.silent:
		c.bare = 0
	case r.job.detach:
		c.bare++
	}
	c.waiting.push(r)
	c.kick()
}

// kick makes the writer look at out.
func (c *conn) kick() {
	if !c.kicked {
		c.kicked = true
		c.wake <- struct{}{} // has room: kicked says that it is empty
	}
}

// put sends a frame when there is room for it, without mu held. Then enter says
// what it asks for, or why it is not to be sent.
func (c *conn) put(ctx context.Context, wait bool, frame []byte, enter func() (request, error)) error {
	for {
		c.mu.Lock()
		room, err := c.tryPut(frame, enter)
		c.mu.Unlock()
		if room == nil {
			return err
		}
		if !wait {
			return ErrWindowFull
		}
		select {
		case <-room:
		case <-c.life.Done():
			return errGone
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryPut returns a channel to wait for when there is no room.
func (c *conn) tryPut(frame []byte, enter func() (request, error)) (room <-chan struct{}, err error) {
	if c.life.Err() != nil {
		return nil, errGone
	}
	if len(c.out) >= maxUnsent {
		if c.room == nil {
			c.room = make(chan struct{})
		}
		return c.room, nil
	}
	r, err := enter()
	if err != nil {
		return nil, err
	}
	c.post(frame, r)
	return nil, nil
}

func (c *conn) writeLoop() {
	var buf []byte // out is the other one
	for {
		select {
		case <-c.wake:
		case <-c.life.Done():
			return
		}
		for buf = c.take(buf); len(buf) > 0; buf = c.take(buf) {
			if _, err := c.nc.Write(buf); err != nil {
				select {
				case <-time.After(lastWords):
					c.fail(err)
				case <-c.life.Done():
				}
				return
			}
		}
	}
}

// take returns what is to be written, and gives back the buffer of what was
// written. It is called without mu held.
func (c *conn) take(wrote []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil
	}
	if c.bare > 0 {
		// The broker sends nothing about a detached job without ack that it has accepted;
		// the reply to a ping proves that no refusal will come.
		c.post(wire.AppendPingRequest(nil), request{verb: wire.Ping})
	}
	if cap(wrote) > keepBuffer {
		wrote = nil
	}
	buf := c.out
	c.out = wrote[:0]
	c.written = c.waiting.tail
	c.kicked = len(buf) > 0
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
	return buf
}

// Read is nc's, for the reading goroutine: with a heartbeat, bytes must come.
func (c *conn) Read(p []byte) (int, error) {
	beat := c.conf.heartbeat
	if beat > 0 {
		c.nc.SetReadDeadline(time.Now().Add(deadBeats * beat))
	}
	n, err := c.nc.Read(p)
	if beat > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("nothing came for %v: %w", deadBeats*beat, err)
	}
	return n, err
}

// readLoop handles frames until reading or handling fails.
func (c *conn) readLoop() error {
	in := frames{from: c}
	for {
		payload, err := in.next(c.maxIn)
		if err == nil {
			err = c.handle(payload)
		}
		if err != nil {
			return err
		}
	}
}

// handle acts on one frame of the broker, without mu held.
func (c *conn) handle(payload []byte) error {
	if err := c.decoder.Decode(payload, &c.frame); err != nil {
		if errors.Is(err, wire.ErrUnknownFrame) {
			return nil
		}
		return &ProtocolError{Reason: err.Error()}
	}
	c.mu.Lock()
	err := c.act(&c.frame)
	if err == nil && c.user.finished() {
		err = errFinished
	}
	c.mu.Unlock()
	c.tell()
	return err
}

func (c *conn) act(ev *wire.Event) error {
	switch ev.Kind {
	case wire.EventOK:
		return c.accepted(ev)
	case wire.EventPing:
		c.out = wire.AppendPong(c.out)
		c.kick()
		return nil
	}
	return c.user.event(ev)
}

// due is the number of the first request that must be replied to, or tail.
func (c *conn) due() uint64 {
	n := c.waiting.head
	for n != c.waiting.tail && c.waiting.at(n).silent {
		n++
	}
	return n
}

// settle takes the silent submits before request number n off the queue, up to
// one that must be replied to: a later frame proves that they were taken.
func (c *conn) settle(n uint64) {
	for c.waiting.head < n && c.waiting.at(c.waiting.head).silent {
		c.user.replied(c.waiting.pop(), nil)
	}
}

// reply takes request number due off the queue, which has been replied to.
func (c *conn) reply(due uint64, refusal *RefusedError) error {
	c.settle(due)
	r := c.waiting.pop()
	if refusal == nil {
		c.inform(r, nil)
	} else {
		c.inform(r, refusal)
	}
	return c.user.replied(r, refusal)
}

func (c *conn) accepted(ev *wire.Event) error {
	due := c.due()
	if due == c.waiting.tail {
		return &ProtocolError{Reason: "ok without a request"}
	}
	r := c.waiting.at(due)
	if ev.ID != nil && r.key != string(ev.ID) {
		return &ProtocolError{Reason: "ok for id " + strconv.Quote(wire.Value(ev.ID)) +
			" in place of " + strconv.Quote(wire.Value([]byte(r.key)))}
	}
	if r.verb == wire.Hello && ev.MaxFrame > 0 {
		c.maxOut = ev.MaxFrame
		c.maxIn = max(c.maxIn, ev.MaxFrameOut, wire.MaxFrameOut(ev.MaxFrame))
	}
	return c.reply(due, nil)
}

// refused acts on an error that is no job's end: the next reply, or the broker's
// word before it closes the connection.
func (c *conn) refused(ev *wire.Event) error {
	refusal := newRefusal(ev)
	due := c.due()
	none := due == c.waiting.tail
	switch refusal.Code {
	case ErrOverloaded, ErrUnauthorized:
		none = none || ev.ID == nil && c.waiting.at(due).verb != wire.Hello
	case ErrSizeError, ErrInvalidJSON:
		c.refusal = refusal
	}
	if none {
		c.refusal = refusal
		return refusal
	}
	return c.reply(due, refusal)
}

func newRefusal(ev *wire.Event) *RefusedError {
	r := &RefusedError{Code: Code(ev.Code), Reason: ev.Reason}
	if ev.ID != nil {
		r.ID = wire.Value(ev.ID)
	}
	return r
}
