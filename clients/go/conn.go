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
	// readBuffer is the minimum room for a read, in bytes.
	readBuffer = 8 << 10
	// maxUnsent is how many bytes may wait to be written before callers must wait.
	maxUnsent = 1 << 20
	// maxKeptBuffer is the largest buffer that is kept for reuse, in bytes.
	maxKeptBuffer = 256 << 10
	// readAfterFailedWrite is how long a connection is still read after a write has failed: the broker
	// may have sent the reason.
	readAfterFailedWrite = 250 * time.Millisecond
	// maxAnyFrame is the largest limit that a broker has, in bytes; without a hello its own limit is unknown.
	maxAnyFrame = 1 << 30
	// maxSilentBeats is how many beats may pass without a byte from the broker.
	maxSilentBeats = 3
)

// errFinished is the cause of the end of a connection that has nothing more to wait for.
var errFinished = errors.New("finished")

// conn is a connection to a broker. One goroutine writes the frames that others append to a
// buffer, so that one call sends many of them. Another goroutine reads frames.
type conn struct {
	conf      *config
	addr      string
	nc        net.Conn
	client    connClient
	ctx       context.Context // ends when the connection fails; the cause is a *LostError, or ErrClosed
	cancelCtx context.CancelCauseFunc
	ended     chan struct{} // closed when everything on the connection has been notified of its end

	drainedCtx    context.Context // ends when the broker has reported that it drains
	cancelDrained context.CancelFunc

	// The largest frames in each direction. Only the reply to hello changes them, before
	// anything large is sent.
	maxIn, maxOut int

	mu             *condMutex // guards the fields below
	outBuf         []byte     // whole frames, not yet given to the writer
	wake           sync.Cond  // the writer waits for frames, or for the end
	outputEnds     bool       // the output ends after outBuf: the writer then shuts down its side
	requests       fifo[request]
	jobs           map[string]*Pending // for a submitter: the jobs pending here, by canonical id
	firstUnwritten uint64              // number of the first request not given to the writer
	hasUnconfirmed bool                // a detached job without ack has been sent since the last request with a reply
	refusal        *RefusedError       // why the broker is closing the connection

	// Used only by the reading goroutine.
	inBuf         []byte // what has arrived; frames have been taken from it up to inPos
	inPos         int
	decoder       wire.ClientDecoder
	frame         wire.Event
	notifications []notifier // notifiers to call after the current frame
}

// notifier tells the program about the effect of a frame. notify is called without mu held.
type notifier interface{ notify() }

type notifyFunc func()

func (f notifyFunc) notify() { f() }

// connClient is the user of a connection: a session or a socket. Its methods are called by the
// reading goroutine, with mu held.
type connClient interface {
	// onReply acts on the reply to a request; refusal is nil for ok. A submit without ack counts as
	// accepted once a later frame proves that it was.
	onReply(r request, refusal *RefusedError) error
	// onEvent acts on a frame that only workers get.
	onEvent(*wire.Event) error
	// isFinished reports whether nothing is left to wait for.
	isFinished() bool
	// onLoss is called when the connection has ended, and ends everything on it.
	onLoss(*LostError)
}

// dial connects to a broker and starts to serve the connection, which ends when it fails or parent
// ends. Then dial calls sendGreeting with mu held, and waits until its argument done has been
// called. The dial timeout limits the connecting, which ends with ctx, and the wait.
func (c *conn) dial(ctx, parent context.Context, broker string, sendGreeting func(done func(error))) error {
	dialCtx, cancel := c.conf.withTimeout(ctx)
	defer cancel()
	var err error
	if c.nc, c.addr, err = c.conf.connect(dialCtx, broker); err != nil {
		return fmt.Errorf("gloom: connect to %s: %w", broker, err)
	}
	c.maxIn, c.maxOut = wire.MaxPayloadOut(max(maxAnyFrame, c.conf.maxFrame)), c.conf.maxFrame
	c.wake.L, c.ended = c.mu, make(chan struct{})
	c.ctx, c.cancelCtx = context.WithCancelCause(parent)
	c.drainedCtx, c.cancelDrained = context.WithCancel(context.Background())
	context.AfterFunc(c.ctx, func() { c.nc.Close() }) // with TLS, Close may wait for the peer
	if ctx.Err() != nil {
		c.fail(ErrClosed)
	}
	go c.writeLoop()
	go c.run()
	dialCtx, cancel = c.conf.withTimeout(c.ctx)
	defer cancel()
	if err := await(dialCtx, func(done func(error)) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		sendGreeting(done)
		return nil
	}); err != nil {
		c.fail(err)
		<-c.ended
		return fmt.Errorf("gloom: connect to %s: %w", c.addr, c.lostError().Cause)
	}
	return nil
}

// await passes a function to ask, waits until it is called, and returns its argument. If ctx ends
// first, it returns the context's cause.
func await(ctx context.Context, ask func(done func(error)) error) error {
	var reply error
	replyDone := make(chan struct{})
	if err := ask(func(err error) { reply = err; close(replyDone) }); err != nil {
		return err
	}
	if err := waitDone(ctx, replyDone); err != nil {
		return err
	}
	return reply
}

// run handles frames until reading or handling one fails, and then ends the connection.
func (c *conn) run() {
	defer close(c.ended)
	var err error
	for err == nil {
		err = c.handle()
	}
	c.fail(err)
	loss := c.lostError()
	c.mu.Lock()
	for !c.requests.isEmpty() {
		c.finishRequest(c.requests.pop(), loss)
	}
	c.outBuf = nil
	c.client.onLoss(loss)
	c.mu.Unlock()
	c.runNotifications()
}

// handle reads a frame and acts on it.
func (c *conn) handle() error {
	payload, err := c.nextFrame()
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
	if err == nil && c.client.isFinished() {
		err = errFinished
	}
	c.mu.Unlock()
	c.runNotifications()
	return err
}

func (c *conn) runNotifications() {
	for i, n := range c.notifications {
		n.notify()
		c.notifications[i] = nil
	}
	c.notifications = c.notifications[:0]
}

// fail ends the connection. The first cause stays, but a refusal from the broker takes
// precedence.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusal != nil {
		cause = c.refusal
	}
	c.cancelCtx(&LostError{Addr: c.addr, Cause: cause})
	c.wake.Signal()
}

// lostError returns why the connection failed.
func (c *conn) lostError() *LostError {
	if loss, ok := context.Cause(c.ctx).(*LostError); ok {
		return loss
	}
	return &LostError{Addr: c.addr, Cause: ErrClosed}
}

// sendHello sends a hello if the options ask for one; otherwise it calls then at once. mu must be held.
func (c *conn) sendHello(then func(error)) {
	if c.conf.token == "" && c.conf.client == "" && c.conf.heartbeat == 0 {
		then(nil)
		return
	}
	hello := wire.AppendHello(nil, c.conf.token, c.conf.client, c.conf.heartbeat.Milliseconds())
	c.send(hello, request{verb: wire.Hello, done: then})
}

// send sends a request. If the connection has failed, but run has not ended its requests yet, run
// ends the new request, too. Here and below, mu must be held unless the comment says otherwise.
func (c *conn) send(frame []byte, r request) {
	c.hasUnconfirmed = r.noAck && (c.hasUnconfirmed || r.job.isDetached)
	c.requests.push(r)
	c.write(frame)
}

func (c *conn) write(frame []byte) {
	if !c.outputEnds {
		c.outBuf = append(c.outBuf, frame...)
		c.wake.Signal()
	}
}

// endOutput makes the writer shut down its side of the connection once all frames are written.
// Frames from the broker are still read.
func (c *conn) endOutput() {
	c.outputEnds = true
	c.wake.Signal()
}

// isFull reports whether callers must wait before they append more.
func (c *conn) isFull() bool { return len(c.outBuf) >= maxUnsent }

func (c *conn) writeLoop() {
	var buf []byte // written and reused in turn with c.outBuf
	for last := false; !last && c.ctx.Err() == nil; {
		buf, last = c.takeOutput(buf)
		_, err := c.nc.Write(buf)
		if err == nil && last {
			err = ErrClosed
			if closer, ok := c.nc.(interface{ CloseWrite() error }); ok {
				err = closer.CloseWrite()
			}
		}
		if err != nil {
			time.AfterFunc(readAfterFailedWrite, func() { c.fail(err) })
			return
		}
	}
}

// takeOutput waits for frames and swaps the buffers: it returns the frames to be written, and keeps
// used, the buffer written last, for reuse. If last is true, nothing is written after these
// frames. It returns nothing if the connection has failed. It locks mu.
func (c *conn) takeOutput(usedBuf []byte) (buf []byte, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.outBuf) == 0 && !c.outputEnds && c.ctx.Err() == nil {
		c.wake.Wait()
	}
	if c.ctx.Err() != nil {
		return nil, false
	}
	if c.hasUnconfirmed && !c.outputEnds {
		// The broker sends nothing about a detached job without ack that it accepted. The
		// reply to a ping proves that no refusal will come.
		c.send(wire.AppendPing(nil), request{verb: wire.Ping})
	}
	if c.isFull() {
		c.mu.wakeAll()
	}
	if cap(usedBuf) > maxKeptBuffer {
		usedBuf = nil
	}
	buf = c.outBuf
	c.outBuf = usedBuf[:0]
	c.firstUnwritten = c.requests.nextNumber
	return buf, c.outputEnds
}

// nextFrame returns the payload of the next frame, valid until the next call. Memory grows with
// what has arrived, not with what is announced. With a heartbeat, nextFrame fails if no byte
// arrives in maxSilentBeats heartbeats.
func (c *conn) nextFrame() ([]byte, error) {
	for {
		rest := c.inBuf[c.inPos:]
		payload, usedBytes, tooLarge := wire.SplitFrame(rest, c.maxIn)
		switch {
		case tooLarge != nil && string(rest[:wire.HeaderLen]) == "HTTP":
			return nil, errors.New("this is an HTTP server")
		case tooLarge != nil:
			return nil, &ProtocolError{Reason: tooLarge.Reason}
		case usedBytes > 0:
			c.inPos += usedBytes
			return payload, nil
		}
		if len(rest) == 0 && cap(c.inBuf) > maxKeptBuffer {
			c.inBuf = nil
		}
		if c.inPos > 0 { // otherwise the start of a large frame would be copied at each read
			c.inBuf, c.inPos = append(c.inBuf[:0], rest...), 0
		}
		c.inBuf = slices.Grow(c.inBuf, readBuffer)
		silenceLimit := maxSilentBeats * c.conf.heartbeat
		if silenceLimit > 0 {
			c.nc.SetReadDeadline(time.Now().Add(silenceLimit))
		}
		n, err := c.nc.Read(c.inBuf[len(c.inBuf):cap(c.inBuf)])
		c.inBuf = c.inBuf[:len(c.inBuf)+n]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no byte arrived for %v: %w", silenceLimit, err)
		}
		if err != nil && n == 0 {
			return nil, err
		}
	}
}
