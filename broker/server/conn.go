package server

import (
	"fmt"
	"sync/atomic"
	"time"

	"gloom/broker/clock"
	"gloom/broker/guard"
	"gloom/broker/hub"
	"gloom/wire"
)

// conn is a connection. It belongs to the goroutine that has its loop's turn.
type conn struct {
	srv     *Server
	loop    *loop
	source  source
	port    wire.Port
	remote  string
	hubConn *hub.Conn // the connection as the hub knows it

	state     connState
	readState readState
	hasInput  bool // bytes of the connection have been read, and their requests not carried out
	input     input
	// readLimit bounds the bytes of one read. It grows with each read until the connection has more
	// input than fits in a turn, so that little is left over.
	readLimit    int
	droppedBytes int         // how many bytes have been dropped since frames are no longer read
	isClosed     atomic.Bool // the connection is closed, so offloaded work is not needed

	grant          *guard.Grant     // what the peer's token allows; nil before hello, or without tokens
	helloTimer     *time.Timer      // for hello
	heartbeat      *clock.Heartbeat // nil if the peer has not asked for it
	heartbeatTimer *time.Timer
}

// source is the origin and destination of a connection's bytes: a socket, which the loop reads and
// writes, or a stream, whose own goroutines do. Its methods are called in the loop's turn.
type source interface {
	// requestTurn gives the connection another turn, after other connections.
	requestTurn()
	// send writes as much as the system accepts without waiting. If the system accepts nothing, the
	// connection gets a turn when there is room. A negative n means that the parts are being
	// written; the end of the write is reported later.
	send(parts [][]byte) (n int, err error)
	// finish tells the peer that no more output follows.
	finish()
	close()
}

// connState is the stage of a connection's life. It only moves to a later one.
type connState uint8

const (
	stateGreeting connState = iota // no frame has arrived except a refused hello
	stateOpen
	stateDraining // input is dropped, output is still written
	stateClosing  // like draining, but the peer has only a limited time to read the rest
	stateClosed
)

// readState says what a connection waits for before it is read again.
type readState uint8

const (
	readReady        readState = iota // it waits for nothing: bytes are read as they arrive
	readAtNextTurn                    // it waits for its next turn, which begins with the work that the last turn left
	readAfterOffload                  // it waits for slow work on its frame, which is done outside the loop
	readPaused                        // it waits until the peer, which has too much to read, has read some of it
)

const (
	// helloTimeout is how long a peer may take to send a hello with its token.
	helloTimeout = 10 * time.Second
	// lingerTimeout is how long a peer may take to read why its connection is being closed.
	// lingerBytes limits the bytes that the peer may still send in that time.
	lingerTimeout = 2 * time.Second
	lingerBytes   = 64 << 20
	// minReadLimit is the smallest readLimit, and the first readLimit, in bytes.
	minReadLimit = 16 << 10
	// minCollectedDrop is the size, in bytes, from which the memory of an unfinished frame that is
	// dropped is collected at once.
	minCollectedDrop = 1 << 20
)

// openConn adds a connection.
func (lp *loop) openConn(c *conn) {
	c.hubConn = lp.srv.hub.Open(c.port, lp.sink, c, c.remote)
	if lp.srv.tokens.Required() {
		c.helloTimer = lp.srv.hub.After(helloTimeout, func() {
			lp.srv.recordBadToken(c.remote)
			lp.srv.hub.CloseWith(c.hubConn, &wire.Error{Code: wire.Unauthorized, Reason: fmt.Sprintf("no hello with a token arrived within %v", helloTimeout)})
		})
	}
}

// dropInput drops the unfinished frame. A large one is collected at once: peers that hoard
// them may reconnect faster than the collector runs.
func (c *conn) dropInput() {
	if cap(c.input.frame) >= minCollectedDrop {
		notify(c.srv.largeDropped)
	}
	c.input.drop()
	c.hubConn.RecordUnfinished(0, 0)
}

// dropBytes drops n bytes that have arrived, and the unfinished frame.
func (c *conn) dropBytes(n int) {
	c.dropInput()
	if c.readState != readReady {
		c.readState = readReady
		c.source.requestTurn()
	}
	if c.droppedBytes += n; c.droppedBytes > lingerBytes {
		c.loop.closeConn(c)
	}
}

// resume ends a pause in reading. The heartbeat counts from now, because nothing that the peer
// sent during the pause has been read.
func (c *conn) resume() {
	c.recordHeard()
	c.readState = readAtNextTurn
	c.source.requestTurn()
}

// linger closes a connection once its peer has had time to read the output. Closing at once,
// with unread input, would reset the connection.
func (c *conn) linger() {
	c.state = stateClosing
	c.dropBytes(0)
	if c.hubConn.UnreadBytes() == 0 {
		c.source.finish()
	}
	c.srv.hub.After(lingerTimeout, func() { c.loop.poller.Do(func() { c.loop.closeConn(c) }) })
}

// closeConn closes a connection after carrying out the requests that it has sent.
func (lp *loop) closeConn(c *conn) {
	if lp.step(); c.state == stateClosed {
		return
	}
	c.source.close()
	c.state = stateClosed
	c.isClosed.Store(true)
	c.dropInput()
	if c.heartbeatTimer != nil {
		c.heartbeatTimer.Stop()
	}
	if c.helloTimer != nil {
		c.helloTimer.Stop()
	}
	lp.srv.hub.Remove(c.hubConn)
	if lp.conns != nil { // a stream is counted by the goroutine that serves it
		lp.srv.conns.Add(-1)
	}
}

// startHeartbeat pings the peer at the interval that it asked for, gives it no jobs while it does
// not answer, and closes the connection after two intervals of silence. The intervals are measured
// by the hub's clock, which stands still while this process does.
func (c *conn) startHeartbeat(beat time.Duration) {
	c.heartbeat = clock.StartHeartbeat(c.srv.hub.Now(), beat)
	check := func() {
		if c.state == stateClosed {
			return // the timer had fired already when it was stopped
		}
		event, wait := c.heartbeat.Check(c.srv.hub.Now(), c.readState == readReady) // in other states nothing is read
		switch event {
		case clock.Lost:
			c.srv.log.Info().Str("peer", c.remote).Str("client", c.hubConn.ClientName()).Stringer("beat", beat).Msg("closed a connection that was silent for two beats")
			c.loop.closeConn(c)
			return
		case clock.Ping:
			c.srv.hub.Send(c.hubConn, pingFrame)
		case clock.Doubtful:
			c.srv.hub.SetDoubtful(c.hubConn, true)
		}
		c.heartbeatTimer.Reset(wait)
	}
	c.heartbeatTimer = time.AfterFunc(beat, func() { c.loop.poller.Do(check) })
}

// recordHeard records, if there is a heartbeat, that bytes have arrived or could not be read before.
func (c *conn) recordHeard() {
	if c.heartbeat != nil && c.heartbeat.Hear(c.srv.hub.Now()) {
		c.srv.hub.SetDoubtful(c.hubConn, false)
	}
}

var pingFrame = wire.AppendPing(nil)
