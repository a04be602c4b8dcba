package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/jobd/eot"
)

const (
	maxUnauthorized  = 64 << 10         // bytes of a message before the password is known
	maxUnread        = 1 << 20          // unread bytes of a peer beyond which we stop reading from it
	stallTimeout     = 60 * time.Second // how long a peer may read nothing of what it is sent
	writeChunk       = 256 << 10        // bytes written under one deadline
	lingerTimeout    = 2 * time.Second  // how long a refused peer has to read the reason
	maxRequestNumber = 999999           // largest number of a request; the next one is 1
)

// ErrClosed is the error of a call whose connection has ended. The master's clients get
// its text when a worker was lost.
//
//lint:ignore ST1005 they know this text
var ErrClosed = errors.New("Socket is closed")

// RemoteError is an error with which the peer has answered.
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return e.Text }

var (
	errRefused = errors.New("refused") // the peer was told why; its connection ends
	errForeign = errors.New("not our protocol")
)

// Conn is one connection, accepted or dialled.
type Conn struct {
	// These are immutable.
	sock       net.Conn
	remote     netip.AddrPort
	routes     Routes
	password   string // demanded from a peer that has connected to us, and sent to a peer that we have dialled
	dialled    bool
	log        zerolog.Logger
	ctx        context.Context // done when the socket is closed, or the peer is refused
	cancel     context.CancelFunc
	done       chan struct{}     // closed when nothing more can arrive
	unfinished *unfinishedBudget // shared by the connections of the server; nil if dialled

	// These belong to the reading goroutine.
	input        eot.Splitter
	protocol     protocolCheck
	maxMessage   int
	isAuthorized bool

	acceptedAt   time.Time
	lastHeard    atomic.Int64 // when the peer last sent something, in nanoseconds since acceptedAt; 0: never
	hasRequested atomic.Bool  // it has made a request, with the right password if there is one

	mu              sync.Mutex
	changed         *sync.Cond // signalled when output, writingBytes, pendingRequests or isClosed has changed
	output          []byte     // to be written
	writingBytes    int        // bytes that the writer has taken and not yet written
	pendingRequests int        // requests whose handlers have not returned
	isClosed        bool
	isRefused       bool // the peer has been told the reason
	mayLeaveUnread  bool // no limit on the bytes that it leaves unread
	callsEnded      bool // no more calls are possible
	pendingCalls    map[eot.Num]chan eot.Message
	lastNumber      int
	passwordSent    bool // the password was sent to the peer
}

func newConn(sock net.Conn, opt Options, routes Routes, dialled bool) *Conn {
	c := &Conn{
		sock: sock, routes: routes, password: opt.Password, dialled: dialled, maxMessage: opt.MaxMessage,
		isAuthorized: dialled || opt.Password == "", mayLeaveUnread: dialled,
		done: make(chan struct{}), pendingCalls: make(map[eot.Num]chan eot.Message),
		lastNumber: rand.IntN(maxRequestNumber),
	}
	c.changed = sync.NewCond(&c.mu)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if tcp, ok := sock.RemoteAddr().(*net.TCPAddr); ok {
		a := tcp.AddrPort()
		c.remote = netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
	}
	if !dialled && opt.AllowLocalhost && c.remote.Addr().IsLoopback() {
		c.isAuthorized = true
	}
	c.input.MaxMessage = opt.MaxMessage
	if !c.isAuthorized {
		c.input.MaxMessage = min(opt.MaxMessage, maxUnauthorized)
	}
	c.log = opt.Log.With().Stringer("peer", c.remote).Logger()
	c.acceptedAt = time.Now()
	return c
}

// Remote returns the peer's address.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// Dialled reports whether this side made the connection.
func (c *Conn) Dialled() bool { return c.dialled }

// Done is closed when nothing more can arrive from the peer, which may still be reading.
func (c *Conn) Done() <-chan struct{} { return c.done }

// LastHeard returns the time at which the peer last sent anything or, if it has sent nothing,
// connected.
func (c *Conn) LastHeard() time.Time { return c.acceptedAt.Add(time.Duration(c.lastHeard.Load())) }

// Trust lets the peer send messages of up to max bytes, and leave any amount unread. Handlers call
// it once they know that the peer is a worker.
func (c *Conn) Trust(max int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mayLeaveUnread = true
	c.input.MaxMessage = max
}

// Close ends the connection at once.
func (c *Conn) Close() {
	c.mu.Lock()
	already := c.isClosed
	c.isClosed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	if !already {
		c.cancel()
		c.sock.Close()
	}
}

// Ping sends a ping.
func (c *Conn) Ping() { c.send(eot.Message{Kind: eot.Ping}) }

// Call sends a request, waits for the response and returns its data, nil if there is none. The
// error is a *RemoteError if the peer answered with an error, ErrClosed if the connection ended, or
// the error of ctx.
func (c *Conn) Call(ctx context.Context, typ string, data any) (json.RawMessage, error) {
	raw, err := Marshal(data)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxUnauthorized/2 && c.owesPassword() {
		// Until the peer has the password, it takes no large message.
		if _, err := c.Call(ctx, "status", nil); err != nil {
			return nil, err
		}
	}
	request := eot.Message{Kind: eot.Request, Type: typ, Data: raw}
	answer := make(chan eot.Message, 1)

	c.mu.Lock()
	if c.callsEnded || c.isClosed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	request.Num = c.nextNumber()
	c.pendingCalls[request.Num] = answer
	if c.dialled && !c.passwordSent {
		request.Password, c.passwordSent = c.password, true
	}
	c.enqueue(request.Append(nil))
	c.mu.Unlock()

	var m eot.Message
	select {
	case m = <-answer:
	case <-c.done:
		select {
		case m = <-answer: // the answer came with the last bytes
		default:
			return nil, ErrClosed
		}
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.pendingCalls, request.Num)
		c.mu.Unlock()
		return nil, ctx.Err()
	}
	if m.Error != "" {
		return nil, &RemoteError{m.Error}
	}
	return m.Data, nil
}

// owesPassword reports whether the next request will bring the password to the peer.
func (c *Conn) owesPassword() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialled && c.password != "" && !c.passwordSent
}

// nextNumber returns a number that no call waits for. Callers hold mu.
func (c *Conn) nextNumber() eot.Num {
	for {
		c.lastNumber = c.lastNumber%maxRequestNumber + 1
		if _, inUse := c.pendingCalls[eot.Num(c.lastNumber)]; !inUse {
			return eot.Num(c.lastNumber)
		}
	}
}

// run reads until the connection ends, and closes it.
func (c *Conn) run() {
	defer c.Close()
	go c.writeLoop()
	err := c.readLoop()
	c.mu.Lock()
	c.callsEnded = true
	c.mu.Unlock()
	close(c.done)
	switch {
	case errors.Is(err, errRefused):
		c.linger()
	case errors.Is(err, io.EOF) && !c.dialled, errors.Is(err, os.ErrDeadlineExceeded):
		// The peer has closed its half, or we are shutting down: its requests are still
		// answered.
		c.waitAnswered()
	case !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, errForeign):
		c.log.Debug().Err(err).Msg("connection broke")
	}
}

func (c *Conn) readLoop() error {
	defer func() {
		if c.input = (eot.Splitter{}); c.unfinished != nil {
			c.unfinished.update(c, 0)
		}
	}()
	buf, heldBytes := make([]byte, 16<<10), 0
	for {
		n, err := c.sock.Read(buf)
		if n > 0 {
			c.lastHeard.Store(int64(max(time.Since(c.acceptedAt), 1)))
			if !c.dialled && c.protocol.isForeign(buf[:n]) {
				c.log.Warn().Msg("the peer speaks HTTP or TLS: closing the connection")
				return errForeign
			}
			c.input.Feed(buf[:n])
			if err := c.handleMessages(); err != nil {
				return err
			}
		}
		c.mu.Lock()
		givenUp := c.isRefused
		c.mu.Unlock()
		if givenUp {
			return errRefused
		}
		if now := c.input.HeldBytes(); now != heldBytes && c.unfinished != nil {
			c.unfinished.update(c, now)
			heldBytes = now
		}
		if err != nil {
			return err
		}
	}
}

// refuse sends the peer the reason and closes the connection. It also ends every wait of the
// reader, so that the reader soon frees its memory, which other connections may need.
func (c *Conn) refuse(reason string) {
	c.log.Warn().Msg(reason)
	c.send(eot.Message{Kind: eot.Response, Error: reason})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isRefused = true
	c.cancel()
	c.changed.Broadcast()
	_ = c.sock.SetReadDeadline(time.Now())
}

// waitReadable waits until the peer has read enough to be served again. The error says that the
// connection has ended.
func (c *Conn) waitReadable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.isClosed && !c.isRefused && !c.mayLeaveUnread && len(c.output)+c.writingBytes > maxUnread {
		c.changed.Wait()
	}
	switch {
	case c.isClosed:
		return net.ErrClosed
	case c.isRefused:
		return errRefused
	}
	return nil
}

// handleMessages handles all complete messages that have arrived.
func (c *Conn) handleMessages() error {
	for {
		if err := c.waitReadable(); err != nil {
			return err
		}
		payload, ok, err := c.input.Next()
		if err != nil {
			c.log.Warn().Err(err).Msg("closing the connection")
			c.send(eot.Message{Kind: eot.Response, Error: err.Error()})
			return errRefused
		}
		if !ok {
			return nil
		}
		m, err := eot.Decode(payload)
		var invalid *eot.Error
		switch {
		case errors.As(err, &invalid):
			c.log.Warn().Str("error", clipText(invalid.Text)).Msg("malformed message")
			c.send(eot.Message{Kind: eot.Response, Error: invalid.Text})
		case err != nil:
			c.log.Warn().Int("bytes", len(payload)).Msg("a message that is not JSON is ignored")
		case m.Kind == eot.Ping:
			c.send(eot.Message{Kind: eot.Pong})
		case m.Kind == eot.Response:
			c.handleResponse(m)
		case m.Kind == eot.Request:
			if err := c.handleRequest(m); err != nil {
				return err
			}
		}
	}
}

func (c *Conn) handleResponse(m eot.Message) {
	c.mu.Lock()
	answer := c.pendingCalls[m.Num]
	delete(c.pendingCalls, m.Num)
	c.mu.Unlock()
	if answer == nil {
		c.log.Warn().Stringer("no", m.Num).Str("error", clipText(m.Error)).Msg("response to no pending request")
		return
	}
	answer <- m
}

func (c *Conn) handleRequest(m eot.Message) error {
	if !c.isAuthorized {
		if !samePassword(m.Password, c.password) {
			c.log.Warn().Str("type", clipText(m.Type)).Msg("invalid password")
			c.send(eot.Message{Kind: eot.Response, Num: m.Num, Error: "invalid password"})
			return errRefused
		}
		c.isAuthorized = true
		c.input.MaxMessage = c.maxMessage
	}
	c.hasRequested.Store(true)
	c.log.Debug().Str("type", clipText(m.Type)).Stringer("no", m.Num).Msg("request")
	route, known := c.routes[m.Type]
	if !known {
		c.send(eot.Message{Kind: eot.Response, Num: m.Num, Error: fmt.Sprintf("unknown request type: '%s'", m.Type)})
		return nil
	}
	if !route.Waits {
		c.runHandler(route.Handle, m)
		return nil
	}
	limit := 1024
	c.mu.Lock()
	if c.mayLeaveUnread {
		limit = 64 << 10
	}
	full := c.pendingRequests >= limit
	if !full {
		c.pendingRequests++
	}
	c.mu.Unlock()
	if full {
		c.send(eot.Message{Kind: eot.Response, Num: m.Num, Error: fmt.Sprintf("%d requests of this connection are waiting already", limit)})
		return nil
	}
	go func() {
		c.runHandler(route.Handle, m)
		c.mu.Lock()
		c.pendingRequests--
		c.changed.Broadcast()
		c.mu.Unlock()
	}()
	return nil
}

// runHandler runs a handler and sends its result.
func (c *Conn) runHandler(handle Handler, m eot.Message) {
	result, err := c.callHandler(handle, m)
	after, _ := result.(DeferredReply)
	if after.Do != nil {
		result = after.Data
	}
	answer := eot.Message{Kind: eot.Response, Num: m.Num}
	if err == nil {
		answer.Data, err = Marshal(result)
	}
	if err != nil {
		c.log.Debug().Str("type", m.Type).Stringer("no", m.Num).Err(err).Msg("request failed")
		answer.Error = err.Error()
	}
	c.send(answer)
	if after.Do != nil && err == nil {
		after.Do()
	}
}

// callHandler runs a handler, and turns a panic into an error so that it does not end the daemon
// and its jobs.
func (c *Conn) callHandler(handle Handler, m eot.Message) (result any, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			c.log.Error().Str("type", m.Type).Any("panic", fault).Bytes("stack", debug.Stack()).Msg("handler failed")
			result, err = nil, errors.New("internal error")
		}
	}()
	return handle(c.ctx, c, m.Data)
}

// clipText shortens a peer's text for the log.
func clipText(text string) string {
	if maxLen := 200; len(text) > maxLen {
		return text[:maxLen] + "…"
	}
	return text
}
