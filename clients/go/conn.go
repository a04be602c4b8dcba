package gloom

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"gloom/wire"
)

const (
	// readBuffer is how many bytes a read has room for, at least.
	readBuffer = 8 << 10
	// maxUnsent is how many bytes may wait to be written before callers must wait.
	maxUnsent = 1 << 20
	// keepBuffer is the largest buffer that is kept for reuse, in bytes.
	keepBuffer = 256 << 10
	// finalWriteTime is how long a connection is still read after a write has failed: the broker
	// may have sent the reason.
	finalWriteTime = 250 * time.Millisecond
	// deadBeats is how many beats may pass without a byte from the broker.
	deadBeats = 3
)

// errFinished ends a connection that has nothing more to wait for.
var errFinished = errors.New("finished")

// conn is a connection to a broker. One goroutine writes the frames that others append to a
// buffer, so that one call sends many of them. Another goroutine reads frames.
type conn struct {
	conf *config
	addr string
	nc   net.Conn
	user user
	life context.Context // ends when the connection fails; the cause is a *LostError, or ErrClosed
	end  context.CancelCauseFunc
	over chan struct{} // closed when everything on the connection has been notified of its end

	drained context.Context // ends when the broker has reported that it drains
	drain   context.CancelFunc

	// The largest frames in each direction. Only the reply to hello changes them, before
	// anything large is sent.
	maxIn, maxOut int

	mu      *condMutex // guards the fields below
	out     []byte     // whole frames, not yet given to the writer
	wake    sync.Cond  // the writer waits for frames, or for the end
	mute    bool       // the output ends after out: the writer then shuts down its side
	waiting fifo[request]
	jobs    map[string]*Pending // for a submitter: the jobs pending here, by canonical id
	written uint64              // number of the first request not given to the writer
	bare    bool                // a detached job without ack has been sent since the last request with a reply
	refusal *RefusedError       // why the broker is closing the connection

	// Used only by the reading goroutine.
	in      []byte // what has arrived; frames have been cut from it up to cut
	cut     int
	decoder wire.ClientDecoder
	frame   wire.Event
	news    []notifier // notifiers to call after the current frame
}

// notifier tells the program about the effect of a frame. notify is called without mu held.
type notifier interface{ notify() }

type call func()

func (f call) notify() { f() }

// user is what a connection serves. Its methods are called by the reading goroutine, with mu
// held.
type user interface {
	// replied acts on the reply to a request; refusal is nil for ok. A silent submit counts as
	// accepted once a later frame proves that it was.
	replied(r request, refusal *RefusedError) error
	// event acts on a frame that only workers get.
	event(*wire.Event) error
	// finished reports whether nothing is left to wait for.
	finished() bool
	// gone is called when the connection has ended, and ends everything on it.
	gone(*LostError)
}

// dial connects to a broker and starts to serve the connection, which ends when it fails or life
// ends. Then dial calls greet with mu held, and waits until greet's argument done has been called.
// Both the connecting, which ends with ctx, and the wait are limited by the dial timeout.
func (c *conn) dial(ctx, life context.Context, broker string, greet func(done func(error))) error {
	soon, cancel := c.conf.timeout(ctx)
	defer cancel()
	var err error
	if c.nc, c.addr, err = c.conf.connect(soon, broker); err != nil {
		return fmt.Errorf("gloom: connect to %s: %w", broker, err)
	}
	c.maxIn, c.maxOut = wire.MaxFrameOut(c.conf.maxFrame), c.conf.maxFrame
	c.wake.L, c.over = c.mu, make(chan struct{})
	c.life, c.end = context.WithCancelCause(life)
	c.drained, c.drain = context.WithCancel(context.Background())
	context.AfterFunc(c.life, func() { c.nc.Close() }) // with TLS, Close may wait for the peer
	if ctx.Err() != nil {
		c.fail(ErrClosed)
	}
	go c.writeLoop()
	go c.run()
	soon, cancel = c.conf.timeout(c.life)
	defer cancel()
	if err := await(soon, func(done func(error)) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		greet(done)
		return nil
	}); err != nil {
		c.fail(err)
		<-c.over
		return fmt.Errorf("gloom: connect to %s: %w", c.addr, c.lost().Cause)
	}
	return nil
}

// await passes a function to ask, waits until it is called, and returns its argument. If ctx ends
// first, it returns the context's cause.
func await(ctx context.Context, ask func(done func(error)) error) error {
	var reply error
	replied := make(chan struct{})
	if err := ask(func(err error) { reply = err; close(replied) }); err != nil {
		return err
	}
	if err := wait(ctx, replied); err != nil {
		return err
	}
	return reply
}

// run handles frames until reading or handling one fails, and then ends the connection.
func (c *conn) run() {
	defer close(c.over)
	var err error
	for err == nil {
		err = c.handle()
	}
	c.fail(err)
	lost := c.lost()
	c.mu.Lock()
	for !c.waiting.empty() {
		c.finishRequest(c.waiting.pop(), lost)
	}
	c.out = nil
	c.user.gone(lost)
	c.mu.Unlock()
	c.runNotices()
}

// handle reads a frame and acts on it.
func (c *conn) handle() error {
	payload, err := c.next()
	if err != nil {
		return err
	}
	if err := c.decoder.Decode(payload, &c.frame); errors.Is(err, wire.ErrUnknownFrame) {
		return nil
	} else if err != nil {
		return &ProtocolError{Reason: err.Error()}
	}
	c.mu.Lock()
	err = c.receive(&c.frame)
	if err == nil && c.user.finished() {
		err = errFinished
	}
	c.mu.Unlock()
	c.runNotices()
	return err
}

func (c *conn) runNotices() {
	for i, n := range c.news {
		n.notify()
		c.news[i] = nil
	}
	c.news = c.news[:0]
}

// fail ends the connection. The first cause stays, but a refusal from the broker takes
// precedence.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusal != nil {
		cause = c.refusal
	}
	c.end(&LostError{Addr: c.addr, Cause: cause})
	c.wake.Signal()
}

// lost returns why the connection failed.
func (c *conn) lost() *LostError {
	if lost, ok := context.Cause(c.life).(*LostError); ok {
		return lost
	}
	return &LostError{Addr: c.addr, Cause: ErrClosed}
}

// hello sends a hello if the options ask for one; otherwise it calls then at once. mu must be held.
func (c *conn) hello(then func(error)) {
	if c.conf.token == "" && c.conf.client == "" && c.conf.heartbeat == 0 {
		then(nil)
		return
	}
	hello := wire.AppendHello(nil, c.conf.token, c.conf.client, c.conf.heartbeat.Milliseconds())
	c.send(hello, request{verb: wire.Hello, then: then})
}

// send sends a request. If the connection has failed, but run has not ended its requests yet, run
// ends this one, too. Here and below, mu must be held unless the comment says otherwise.
func (c *conn) send(frame []byte, r request) {
	c.bare = r.silent && (c.bare || r.job.detach)
	c.waiting.push(r)
	c.write(frame)
}

func (c *conn) write(frame []byte) {
	if !c.mute {
		c.out = append(c.out, frame...)
		c.wake.Signal()
	}
}

// endOutput makes the writer shut down its side of the connection once all frames are written.
// Frames from the broker are still read.
func (c *conn) endOutput() {
	c.mute = true
	c.wake.Signal()
}

// full reports whether callers must wait before they append more.
func (c *conn) full() bool { return len(c.out) >= maxUnsent }

func (c *conn) writeLoop() {
	var buf []byte // written and reused in turn with c.out
	for last := false; !last && c.life.Err() == nil; {
		buf, last = c.take(buf)
		_, err := c.nc.Write(buf)
		if err == nil && last {
			err = ErrClosed
			if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
				err = half.CloseWrite()
			}
		}
		if err != nil {
			time.AfterFunc(finalWriteTime, func() { c.fail(err) })
			return
		}
	}
}

// take waits for frames and swaps the buffers: it returns the frames to be written, and keeps
// wrote, the buffer written last, for reuse. If last is true, nothing is written after these
// frames. It returns nothing if the connection has failed. It locks mu.
func (c *conn) take(wrote []byte) (buf []byte, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) == 0 && !c.mute && c.life.Err() == nil {
		c.wake.Wait()
	}
	if c.life.Err() != nil {
		return nil, false
	}
	if c.bare && !c.mute {
		// The broker sends nothing about a detached job without ack that it accepted. The
		// reply to a ping proves that no refusal will come.
		c.send(wire.AppendPingRequest(nil), request{verb: wire.Ping})
	}
	if c.full() {
		c.mu.broadcast()
	}
	if cap(wrote) > keepBuffer {
		wrote = nil
	}
	buf = c.out
	c.out = wrote[:0]
	c.written = c.waiting.tail
	return buf, c.mute
}

// next returns the payload of the next frame, valid until the next call. Memory grows with what
// has arrived, not with what is announced. With a heartbeat, next fails if no byte arrives in
// deadBeats heartbeats.
func (c *conn) next() ([]byte, error) {
	for {
		rest := c.in[c.cut:]
		payload, used, tooLarge := wire.SplitFrame(rest, c.maxIn)
		switch {
		case tooLarge != nil && string(rest[:wire.HeaderLen]) == "HTTP":
			return nil, errors.New("this is an HTTP server")
		case tooLarge != nil:
			return nil, &ProtocolError{Reason: tooLarge.Reason}
		case used > 0:
			c.cut += used
			return payload, nil
		}
		if len(rest) == 0 && cap(c.in) > keepBuffer {
			c.in = nil
		}
		if c.cut > 0 { // otherwise the start of a large frame would be copied at each read
			c.in, c.cut = append(c.in[:0], rest...), 0
		}
		c.in = slices.Grow(c.in, readBuffer)
		quiet := deadBeats * c.conf.heartbeat
		if quiet > 0 {
			c.nc.SetReadDeadline(time.Now().Add(quiet))
		}
		n, err := c.nc.Read(c.in[len(c.in):cap(c.in)])
		c.in = c.in[:len(c.in)+n]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no byte arrived for %v: %w", quiet, err)
		}
		if err != nil && n == 0 {
			return nil, err
		}
	}
}
