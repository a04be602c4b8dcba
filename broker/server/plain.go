package server

import (
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"gloom/broker/hub"
	"gloom/wire"
)

// plain is a connection on an event loop, to whose goroutine it belongs.
type plain struct {
	session
	remote string
	loop   *loop
	fd     int  // -1 once closed
	put    bool // something it sent has been read and not been carried out
	// rest is the beginning of a frame, shorter than a big one. Its memory grows
	// with what has come of it, not with what its header announces.
	rest []byte
	held backlog

	lingering bool
	thrown    int // bytes thrown away while lingering

	// busy: something is done aside, and nothing is read; inHand is how many
	// bytes that holds.
	busy   bool
	inHand int
}

const (
	// lingerTime is how long a connection that we close may take to read the
	// reason; lingerBytes is what it may still send meanwhile.
	lingerTime  = 2 * time.Second
	lingerBytes = 64 << 20
	// restsKept is how many pieces of memory for beginnings of frames a loop
	// keeps, restKept how large they are at the most.
	restsKept = 16
	restKept  = 256 << 10
	// writeTurn is how much of what is held back is written before others get
	// their turn.
	writeTurn = 1 << 20
)

func (p *plain) gone() bool { return p.fd < 0 }

// drown is called once the descriptor has closed.
func (p *plain) drown() {
	p.fd = -1
	p.rest, p.held = nil, backlog{}
}

// received carries out what a read has brought. While the connection is busy it
// only keeps it.
func (p *plain) received(data []byte) {
	defer func() {
		if e := recover(); e != nil {
			p.fault(e, debug.Stack())
		}
	}()
	if !p.closing && !p.busy && len(p.rest) > 0 {
		var whole bool
		if data, whole = p.complete(data); whole {
			p.take(p.loop.batch, p.rest)
			p.loop.spareRest(p.rest)
			p.rest = nil
		}
	}
	if !p.closing && !p.busy && (len(data) > 0 || p.big != nil) {
		data = data[p.take(p.loop.batch, data):]
		switch {
		case p.giantFrame != nil:
			p.decodeAside()
		case p.giantCap > 0:
			p.growAside()
		}
	}
	if p.closing {
		p.throwAway(len(data))
		return
	}
	if len(data) > 0 {
		if p.rest == nil {
			p.rest = p.loop.blankRest()
		}
		p.rest = append(p.rest, data...)
	}
	p.recount()
}

func (lp *loop) blankRest() []byte {
	n := len(lp.rests)
	if n == 0 {
		return nil
	}
	b := lp.rests[n-1]
	lp.rests = lp.rests[:n-1]
	return b
}

func (lp *loop) spareRest(b []byte) {
	if len(lp.rests) < restsKept && cap(b) <= restKept {
		lp.rests = append(lp.rests, b[:0])
	}
}

// recount counts what the connection holds of unfinished frames. Memory that
// will be used again counts as far as it is needed here, and what has come while
// the connection is busy not at all: a read or two, behind a frame that must fit.
func (p *plain) recount() {
	if p.busy {
		p.count(p.inHand)
	} else {
		p.count(min(cap(p.rest), 2*len(p.rest)))
	}
}

// fault is for what a recover has returned: a fault in decoding costs this peer
// only. (One in the core has ended the process before it could come here.)
func (p *plain) fault(e any, stack []byte) {
	p.srv.log.Error().Str("peer", p.remote).Bytes("stack", stack).Msg(fmt.Sprintf("closed a connection on a fault of ours: %v", e))
	p.loop.batch.n = 0
	p.loop.close(p)
}

// complete appends to the frame that has begun what data has of it. It returns
// what else is there.
func (p *plain) complete(data []byte) (left []byte, whole bool) {
	for {
		n := wire.HeaderLen
		if len(p.rest) >= n {
			n = p.hungry(p.rest)
		}
		k := min(n-len(p.rest), len(data))
		p.rest = append(p.rest, data[:k]...)
		data = data[k:]
		switch {
		case len(p.rest) < n:
			return nil, false
		case n > wire.HeaderLen || p.hungry(p.rest) == n:
			return data, true
		}
	}
}

func (p *plain) throwAway(n int) {
	p.rest = nil
	p.count(0)
	if p.thrown += n; p.thrown > lingerBytes {
		p.loop.close(p)
	}
}

// write writes an output as far as the socket takes it, holds the rest back,
// and returns how much that is.
func (p *plain) write(o *hub.Output) (unsent int) {
	sent, n := 0, o.Len()
	if p.held.n == 0 && len(o.Refs) == 0 && n > 0 {
		var errno error
		if sent, errno = send(p.fd, o.Buf); refused(errno) {
			p.loop.close(p)
			return n
		}
	}
	if sent == n {
		return p.held.n
	}
	parts := o.Parts(p.loop.parts[:0])
	for i, part := range parts {
		k := min(sent, len(part))
		sent -= k
		p.held.add(part[k:], i%2 == 1) // every second one is a body that is kept
	}
	clear(parts)
	p.loop.parts = parts[:0]
	unsent = p.held.n
	if p.drain(); p.gone() {
		return unsent
	}
	return p.held.n
}

// writeOn writes on when there is room again.
func (p *plain) writeOn() {
	if p.drain(); !p.gone() {
		p.conn.SetHeld(p.held.n)
	}
}

// drain writes what is held back as far as the socket takes it.
func (p *plain) drain() {
	for turn := 0; p.held.n > 0; {
		n, err := p.held.write(p.fd, writeTurn-turn, p.loop.iov[:0])
		if refused(err) {
			p.loop.close(p)
			return
		}
		if err == unix.EAGAIN {
			break // it will be told when there is room
		}
		if turn += n; turn >= writeTurn {
			p.loop.again(p)
			break
		}
	}
	if p.held.n == 0 {
		p.held = backlog{}
		if p.lingering {
			_ = unix.Shutdown(p.fd, unix.SHUT_WR)
		}
	}
}

// linger closes a connection in a way that lets the peer read what it was
// sent: closing with unread input would reset it.
func (p *plain) linger() {
	if p.lingering {
		return
	}
	p.lingering, p.closing = true, true
	p.rest = nil
	p.drop()
	if p.held.n == 0 {
		_ = unix.Shutdown(p.fd, unix.SHUT_WR)
	}
	time.AfterFunc(lingerTime, p.shut)
}
