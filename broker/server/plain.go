package server

import (
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"gloom/broker/hub"
	"gloom/wire"
)

// plain is a connection on an event loop, to which it belongs.
type plain struct {
	session
	remote string
	loop   *loop
	fd     int  // -1 once closed
	put    bool // something it sent has been read and not been carried out
	// rest is the beginning of a frame, shorter than a big one. Its memory grows
	// with what has come of it, not with what its header announces. With more, it
	// is whatever came behind at, to be carried out before anything is read.
	rest []byte
	at   int
	more bool
	// bite is how much a read takes in, of a connection that had more than a turn's
	// work: about that, so that little is left behind; 0 for no bound.
	bite int
	held backlog

	lingering bool
	thrown    int // bytes thrown away while lingering
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
	// leastBite is the least that a read takes in, if there is as much.
	leastBite = 16 << 10
	// writeTurn is how much of what is held back is written before others get
	// their turn.
	writeTurn = 1 << 20
)

func (p *plain) gone() bool { return p.fd < 0 }

// forget is called once the descriptor has closed.
func (p *plain) forget() {
	p.fd = -1
	p.rest, p.held = nil, backlog{}
}

// received carries out what a read has brought, or, with more, what is left of an
// earlier one. While the connection is busy it only keeps it.
func (p *plain) received(data []byte) {
	defer func() {
		if e := recover(); e != nil {
			p.fault(e, debug.Stack())
		}
	}()
	switch {
	case p.closing:
		p.discard(len(data))
		return
	case p.big.busy:
		p.keep(data)
	case p.more:
		p.keep(data) // of a second read in this round
		n := p.carry(p.rest[p.at:])
		if p.at += n; !p.more { // the beginning of a frame is left
			rest := p.rest
			p.rest = nil
			p.keep(rest[p.at:])
			p.loop.spareRest(rest)
			p.at = 0
			p.loop.poller.again(p.fd) // what came meanwhile has not been read
		}
	default:
		if len(p.rest) > 0 {
			var whole bool
			if data, whole = p.complete(data); whole {
				p.take(p.loop.batch, p.rest)
				p.loop.spareRest(p.rest)
				p.rest = nil
			}
		}
		if (len(data) > 0 || p.big.size > 0) && !p.closing {
			p.keep(data[p.carry(data):])
		}
	}
	if p.closing {
		p.discard(0)
		return
	}
	p.recount()
}

// carry has frames carried out for a turn, and returns how much of data that used.
func (p *plain) carry(data []byte) (used int) {
	used, cut := p.take(p.loop.batch, data)
	switch {
	case p.closing:
	case p.big.whole():
		p.decodeGiant()
	case p.big.want > 0:
		p.growGiant()
	}
	p.more = cut || p.big.busy
	if p.bite = min(p.bite+p.bite/4, readBuffer); cut {
		p.bite = max(used, leastBite)
		p.loop.poller.again(p.fd) // for its next turn
	}
	return used
}

// keep appends what has come to rest.
func (p *plain) keep(data []byte) {
	if len(data) == 0 {
		return
	}
	if p.rest == nil {
		p.rest = p.loop.blankRest()
	}
	p.rest = append(p.rest, data...)
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
	left := 0
	if !p.big.busy {
		left = min(cap(p.rest), 2*(len(p.rest)-p.at))
	}
	p.count(left)
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
			n = p.needed(p.rest)
		}
		k := min(n-len(p.rest), len(data))
		p.rest = append(p.rest, data[:k]...)
		data = data[k:]
		switch {
		case len(p.rest) < n:
			return nil, false
		case n > wire.HeaderLen || p.needed(p.rest) == n:
			return data, true
		}
	}
}

func (p *plain) discard(n int) {
	p.rest, p.at, p.more = nil, 0, false
	p.drop()
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
		if i%2 == 1 { // every second one is a body that is kept
			p.held.refer(part[k:])
		} else {
			p.held.add(part[k:], i == len(parts)-1)
		}
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
		p.conn.SetHeld(p.held.n, p.held.memory)
		if p.paused.Load() && !p.conn.Clogged() {
			p.goOn()
		}
	}
}

// goOn reads again from a connection after a pause.
func (p *plain) goOn() {
	p.readAgain()
	p.loop.poller.again(p.fd)
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
			p.loop.poller.again(p.fd)
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
	p.discard(0)
	if p.held.n == 0 {
		_ = unix.Shutdown(p.fd, unix.SHUT_WR)
	}
	p.srv.hub.After(lingerTime, p.shut)
}
