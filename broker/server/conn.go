package server

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gloom/broker/guard"
	"gloom/broker/hub"
	"gloom/wire"
)

// conn is a connection. It belongs to its loop, whoever has the turn of that.
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
	// bite bounds a read after the connection had more than a turn's work, so that little
	// is left behind; 0 is no bound.
	bite   int
	thrown int         // bytes thrown away since its frames are not read any more
	over   atomic.Bool // it is closed, and work beside the loop is not needed any more

	grant   *guard.Grant // what its token allows; nil before hello, or without tokens
	waiting *hub.Timer   // for hello
	beat    time.Duration
	heard   int64 // when bytes last came; kept only with a heartbeat
	beater  *time.Timer
}

// source is where a connection's bytes come from and go to: a socket, which the loop
// reads and writes, or a stream, for which goroutines of its own do. Its methods are
// called in the loop's turn.
type source interface {
	// again has the connection come to its turn again, after others.
	again()
	// drain writes as much as is taken at once, and has the connection write on when more
	// can be.
	drain() error
	// finish tells the peer that nothing follows.
	finish()
	// close closes it; gone is called once the hub has been told.
	close()
	gone()
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
	// lingerTime is how long a connection that we close may take to read the
	// reason; lingerBytes is what it may still send meanwhile.
	lingerTime  = 2 * time.Second
	lingerBytes = 64 << 20
	// leastBite is the least that a read takes in, if there is as much.
	leastBite = 16 << 10
	// largeDrop is what of an unfinished frame is collected at once, in bytes.
	largeDrop = 1 << 20
)

// opened is called once the hub knows the connection.
func (c *conn) opened() {
	if c.srv.tokens.Required() {
		c.waiting = c.srv.hub.After(helloTime, func() {
			c.srv.tokenFailed(c.remote)
			c.srv.hub.Dismiss(c.peer, &wire.Error{Code: wire.Unauthorized, Reason: fmt.Sprintf("no hello with a token came within %v", helloTime)})
		})
	}
}

// received carries out what a read has brought, after what earlier reads have left.
func (c *conn) received(data []byte) {
	defer c.rescue()
	if c.state >= draining {
		c.throw(len(data))
		return
	}
	data = c.in.all(data)
	used := 0
	if was := c.reading; was == ready || was == forTurn {
		c.reading = ready
		used = c.take(c.loop.batch, data)
		if c.bite = min(c.bite+c.bite/4, readBuffer); c.reading == forTurn {
			c.bite = max(used, leastBite)
			c.src.again()
		} else if c.reading == ready && was != ready {
			c.src.again() // what came meanwhile has not been read
		}
	}
	if c.state >= draining {
		c.throw(0)
		return
	}
	if len(c.in.waiting) > 0 {
		c.loop.carryOut() // commands that point there
	}
	c.in.leave(data, used)
	c.peer.Partial(c.in.held(), c.in.frames)
}

// rescue is deferred wherever frames are handled.
func (c *conn) rescue() {
	if e := recover(); e != nil {
		c.fault(e, debug.Stack())
	}
}

// fault closes the connection after a panic in decoding, which costs this peer only. (A
// panic in the core ends the process before it gets here.)
func (c *conn) fault(e any, stack []byte) {
	c.srv.log.Error().Str("peer", c.remote).Bytes("stack", stack).Msg(fmt.Sprintf("closed a connection on a fault of ours: %v", e))
	if b := c.loop.batch; b.n > 0 && b.cmd[b.n-1].From == c.peer {
		b.n-- // the command that panicked
	}
	c.loop.close(c)
}

// throw throws away n bytes that have come, and the unfinished frame. A large frame is
// collected at once: peers that hoard them may come back faster than the collector runs.
func (c *conn) throw(n int) {
	if cap(c.in.frame) >= largeDrop {
		notify(c.srv.dropped)
	}
	c.in.drop()
	c.peer.Partial(0, 0)
	if c.reading != ready {
		c.reading = ready
		c.src.again()
	}
	if c.thrown += n; c.thrown > lingerBytes {
		c.loop.close(c)
	}
}

// goOn ends a pause. The heartbeat counts from now, since what the peer sent meanwhile has
// yet to be read.
func (c *conn) goOn() {
	c.heard = c.srv.hub.Now()
	c.reading = forTurn
	c.src.again()
}

// write writes as much of the peer's output as is taken. If too much is left, the connection is
// not read until its peer has read enough.
func (c *conn) write() {
	if err := c.src.drain(); refused(err) {
		c.loop.close(c)
		return
	}
	if c.state == closing && c.peer.Held() == 0 {
		c.src.finish()
	}
	if clogged := c.peer.Clogged(); c.reading == paused && !clogged {
		c.goOn()
	} else if c.reading == ready && clogged && c.state < draining {
		c.reading = paused
	}
}

// wrote notes that n bytes of output have been written.
func (c *conn) wrote(n int) {
	c.srv.bytesOut.Add(uint64(n))
	c.peer.Wrote(n)
}

// linger closes a connection after the peer had time to read its output. Closing at once,
// with unread input, would reset the connection.
func (c *conn) linger() {
	c.state = closing
	c.throw(0)
	if c.peer.Held() == 0 {
		c.src.finish()
	}
	c.srv.hub.After(lingerTime, func() { c.loop.poller.Do(func() { c.loop.close(c) }) })
}

// forget is called once the source has closed.
func (c *conn) forget() {
	c.state = closed
	c.over.Store(true)
	if cap(c.in.frame) >= largeDrop {
		notify(c.srv.dropped)
	}
	c.in.drop()
	if c.beater != nil {
		c.beater.Stop()
	}
	if c.waiting != nil {
		c.waiting.Stop()
	}
}

// startBeat pings the peer at its own pace and drops it after two beats of silence, by the
// clock that stands still while this process does. It waits a quarter of a beat more, in
// which bytes that have just come are read.
func (c *conn) startBeat() {
	start := c.srv.hub.Now()
	c.heard = start
	beats := int64(0)
	suspected := false
	// The pace is counted from the start, so that it does not drift.
	beat := func() {
		if c.state == closed {
			return // stopping this timer misses it while it runs
		}
		now := c.srv.hub.Now()
		silent := c.reading == ready && now-c.heard >= 2*int64(c.beat) // otherwise we are not reading
		if silent && suspected {
			c.srv.log.Info().Str("peer", c.remote).Str("client", c.peer.Client()).Dur("beat", c.beat).Msg("no byte for two beats, dropped")
			c.loop.close(c)
			return
		}
		if suspected = silent; silent {
			c.beater.Reset(c.beat / 4)
			return
		}
		c.srv.hub.Send(c.peer, pingFrame)
		beats = max(beats+1, (now-start)/int64(c.beat))
		c.beater.Reset(time.Duration(start + (beats+1)*int64(c.beat) - now))
	}
	c.beater = time.AfterFunc(c.beat, func() { c.loop.poller.Do(beat) })
}

var pingFrame = wire.AppendPing(nil)

// refused tells whether a send has failed for good.
func refused(err error) bool { return err != nil && err != unix.EAGAIN && err != unix.EINTR }
