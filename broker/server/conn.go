package server

import (
	"fmt"
	"sync/atomic"
	"time"

	"gloom/broker/guard"
	"gloom/broker/hub"
	"gloom/wire"
)

// conn is a connection. It belongs to whoever has its loop's turn.
type conn struct {
	srv    *Server
	loop   *loop
	src    source
	port   wire.Port
	remote string
	peer   *hub.Conn // as the hub knows it

	state   state
	reading reading
	put     bool // something it sent has been read and not been carried out
	in      input
	// bite bounds a read after the connection had more than a turn's work, so that little is
	// left behind. 0 is no bound.
	bite   int
	thrown int         // bytes thrown away since its frames are not read any more
	over   atomic.Bool // it is closed, and work beside the loop is not needed any more

	grant   *guard.Grant // what its token allows; nil before hello, or without tokens
	waiting *time.Timer  // for hello
	beat    time.Duration
	heard   int64 // when bytes last came; kept only with a heartbeat
	beater  *time.Timer
}

// source is where a connection's bytes come from and go to: a socket, which the loop reads and
// writes, or a stream, whose own goroutines do. Its methods are called in the loop's turn.
type source interface {
	// again gives the connection another turn, after others.
	again()
	// send writes what the system takes at once. If that is nothing, the connection gets a
	// turn when there is room. A negative n means that the parts are being written, and
	// reported later.
	send(parts [][]byte) (n int, err error)
	// finish tells the peer that nothing follows.
	finish()
	close()
}

// state is the stage of a connection's life. It only moves to a later one.
type state uint8

const (
	greeting state = iota // no frame has come but a refused hello
	open
	draining // its input is thrown away; its output is still written
	closing  // the same, and it has a while to read the last of it
	closed
)

// reading tells what a connection waits for before it is read again.
type reading uint8

const (
	ready   reading = iota // nothing: bytes are read as they come
	forTurn                // its next turn, which begins with the rest of the last one's work
	aside                  // slow work on its frame, beside the loop
	paused                 // the peer, which has too much to read
)

const (
	// helloTime is how long a peer may wait with its token.
	helloTime = 10 * time.Second
	// lingerTime is how long a connection that we close may take to read the reason;
	// lingerBytes is what it may still send meanwhile.
	lingerTime  = 2 * time.Second
	lingerBytes = 64 << 20
	// leastBite is the least that bite becomes, in bytes.
	leastBite = 16 << 10
	// largeDrop is the size from which a dropped unfinished frame is collected at once, in
	// bytes.
	largeDrop = 1 << 20
)

// admit adds a connection.
func (lp *loop) admit(c *conn) {
	c.peer = lp.srv.hub.Open(c.port, lp.sink, c, c.remote)
	if lp.srv.tokens.Required() {
		c.waiting = lp.srv.hub.After(helloTime, func() {
			lp.srv.tokenFailed(c.remote)
			lp.srv.hub.Dismiss(c.peer, &wire.Error{Code: wire.Unauthorized, Reason: fmt.Sprintf("no hello with a token came within %v", helloTime)})
		})
	}
}

// dropInput throws away the unfinished frame. A large one is collected at once: peers that
// hoard them may come back faster than the collector runs.
func (c *conn) dropInput() {
	if cap(c.in.frame) >= largeDrop {
		notify(c.srv.dropped)
	}
	c.in.drop()
	c.peer.Partial(0, 0)
}

// throw throws away n bytes that have come, and the unfinished frame.
func (c *conn) throw(n int) {
	c.dropInput()
	if c.reading != ready {
		c.reading = ready
		c.src.again()
	}
	if c.thrown += n; c.thrown > lingerBytes {
		c.loop.close(c)
	}
}

// goOn ends a pause. The heartbeat counts from now, because what the peer sent meanwhile has
// not been read.
func (c *conn) goOn() {
	c.heard = c.srv.hub.Now()
	c.reading = forTurn
	c.src.again()
}

// linger closes a connection once its peer has had time to read the output. Closing at once,
// with unread input, would reset the connection.
func (c *conn) linger() {
	c.state = closing
	c.throw(0)
	if c.peer.Held() == 0 {
		c.src.finish()
	}
	c.srv.hub.After(lingerTime, func() { c.loop.poller.Do(func() { c.loop.close(c) }) })
}

// close closes a connection after carrying out what it has sent.
func (lp *loop) close(c *conn) {
	if lp.step(); c.state == closed {
		return
	}
	c.src.close()
	c.state = closed
	c.over.Store(true)
	c.dropInput()
	if c.beater != nil {
		c.beater.Stop()
	}
	if c.waiting != nil {
		c.waiting.Stop()
	}
	lp.srv.hub.Gone(c.peer)
	if lp.conns != nil { // whoever serves a stream counts it
		lp.srv.conns.Add(-1)
	}
}

// startBeat pings the peer at its own pace and drops it after two beats of silence, by the
// clock that stands still while this process does. It waits a quarter of a beat more, so that
// bytes that have just come are read.
func (c *conn) startBeat() {
	const silence = 2 // beats
	interval := int64(c.beat)
	c.heard = c.srv.hub.Now()
	due := c.heard + interval // when the next ping is, counted from the start, so that the pace does not drift
	suspected := false
	beat := func() {
		if c.state == closed {
			return // stopping this timer misses it while it runs
		}
		now := c.srv.hub.Now()
		over := c.heard + silence*interval
		silent := c.reading == ready && now >= over // otherwise we are not reading
		if silent && suspected {
			c.srv.log.Info().Str("peer", c.remote).Str("client", c.peer.Client()).Dur("beat", c.beat).Msg("no byte for two beats, dropped")
			c.loop.close(c)
			return
		}
		if suspected = silent; silent {
			c.beater.Reset(c.beat / 4)
			return
		}
		if now >= due {
			c.srv.hub.Send(c.peer, pingFrame)
			due += interval * ((now-due)/interval + 1)
		}
		// The last byte came between two pings, and so does the end of the silence.
		if over <= now { // in a pause
			over = due
		}
		c.beater.Reset(time.Duration(min(due, over) - now))
	}
	c.beater = time.AfterFunc(c.beat, func() { c.loop.poller.Do(beat) })
}

var pingFrame = wire.AppendPing(nil)
