package server

import (
	"math"

	"golang.org/x/sys/unix"

	"gloom/broker/hub"
)

// loop is an event loop. It works in rounds: it waits until connections are ready,
// reads from each of them, has the hub step with all that was read, and writes what
// follows from it, once per connection. All its fields belong to whoever has the
// poller's turn: the loop's goroutine or, while that waits, who writes instead.
type loop struct {
	srv    *Server
	all    *loops
	poller *poller
	conns  []*plain // by descriptor
	sink   *hub.Sink
	batch  *batch

	// in is where reads go to, one behind the other; reads tells whose they are.
	in    []byte
	reads []portion
	used  int // bytes of in
	// direct is how many bytes were read to where they belong instead, stepped how
	// many the steps of this round have dealt with.
	direct, stepped int
	rests           [][]byte // spare memory for beginnings of frames

	// cut counts the turns that were used up in this round, crowd those of the round
	// before.
	cut, crowd int

	outs  []hub.Output
	parts [][]byte
	iov   [][]byte

	pace pace
	// round is endRound, as a task; scheduled: it is put on the loop.
	round     func()
	scheduled bool

	stepping, writing bool
	// gone are closed connections that the hub is to hear of.
	gone []*plain
}

// portion is what one read of a connection brought: loop.in[from:to].
type portion struct {
	p        *plain
	from, to int
}

const (
	// readBuffer is how much reads take in at the most, in bytes, before a step.
	// That is done with less than leastRead of it left. After mostRound in all, the
	// round ends early.
	readBuffer = 512 << 10
	leastRead  = 256 << 10
	mostRound  = 4 << 20
	// leftBehind is how much of what was read may be left for later turns, of all
	// connections together, as long as that is leastLeft for each.
	leftBehind = 4 << 20
	leastLeft  = 4 << 10
)

// run waits for events, and closes all connections in the end.
func (lp *loop) run() {
	lp.poller.wait(lp.ready)
	lp.poller.turn.Lock()
	for _, p := range lp.conns {
		if p != nil {
			lp.close(p)
		}
	}
	lp.poller.close()
	lp.poller.turn.Unlock()
}

// ready is called with each event.
func (lp *loop) ready(fd int, ev events) {
	if fd == lp.poller.mark {
		lp.step()
		lp.all.passed()
		return
	}
	if fd >= len(lp.conns) || lp.conns[fd] == nil {
		return // closed earlier in this round
	}
	p := lp.conns[fd]
	if p.held.n > 0 && ev&writable != 0 {
		p.writeOn()
	}
	if ev&(readable|ended) != 0 || p.more {
		lp.read(p, ev&ended != 0)
	}
}

// read reads once. What it brings waits for the round's step with all else that was
// read: between the system calls of a round, neither code nor data of ours would stay
// in the processor's nearest caches.
func (lp *loop) read(p *plain, ended bool) {
	// What was read before belongs in front of what is read to its place now.
	if len(lp.in)-lp.used-lp.direct < leastRead || p.big.size > 0 && p.put {
		if lp.step(); lp.stepped >= mostRound {
			lp.flush()
		}
	}
	if p.big.busy || p.gone() {
		return // resumed asks for it again
	}
	if p.more {
		if !p.put {
			p.put = true
			lp.reads = append(lp.reads, portion{p, lp.used, lp.used})
			lp.afterRead()
		}
		return
	}
	if p.conn.Clogged() && !p.closing {
		p.paused.Store(true)
		return
	}
	into, room := p.big.spare(), lp.in[lp.used:]
	if p.bite > 0 && len(room) > p.bite {
		room = room[:p.bite]
	}
	if most := max(leastLeft, leftBehind/(1+lp.crowd)); len(room) > most {
		room = room[:most]
	}
	if len(into) > readBuffer {
		into, room = into[:readBuffer], nil
	}
	var n int
	var errno unix.Errno
	if len(into) > 0 {
		n, errno = receiveTwo(p.fd, into, room)
	} else {
		n, errno = receive(p.fd, room)
	}
	switch {
	case errno == unix.EAGAIN:
		return
	case errno == unix.EINTR:
		lp.poller.again(p.fd)
		return
	case errno != 0:
		lp.close(p)
		return
	case n == 0:
		lp.flush() // it may still read what its last frames get
		lp.close(p)
		return
	}
	if n == len(into)+len(room) || ended {
		lp.poller.again(p.fd) // there may be more, which would not be told
	}
	if p.beat > 0 {
		p.heard.Store(lp.srv.hub.Now())
	}
	if len(into) > 0 {
		k := min(n, len(into))
		p.big.filled(k)
		lp.srv.bytesIn.Add(uint64(k))
		n -= k
		lp.direct += k
	}
	p.put = true
	lp.reads = append(lp.reads, portion{p, lp.used, lp.used + n})
	lp.used += n
	lp.afterRead()
}

// afterRead sees to it that what was read is carried out and output is written, at
// once or at the end of the round.
func (lp *loop) afterRead() {
	lp.pace.reads++
	switch {
	case lp.scheduled:
	case lp.pace.atOnce():
		lp.flush()
	case !lp.sink.Expect(): // the end of the round is put on the loop already
	default:
		if lp.scheduled = lp.poller.do(lp.round); !lp.scheduled {
			lp.sink.Unexpect()
			lp.flush()
		}
	}
}

func (lp *loop) endRound() {
	lp.pace.endRound()
	lp.scheduled = false
	lp.flush()
}

// flush has all that was read carried out, and writes the output of all the
// loop's connections.
func (lp *loop) flush() {
	lp.step()
	lp.stepped = 0
	lp.crowd, lp.cut, lp.batch.end = lp.cut, 0, math.MaxInt64
	lp.write()
}

// step has the hub carry out all that was read.
func (lp *loop) step() {
	lp.stepping = true
	for i := range lp.reads {
		r := &lp.reads[i]
		r.p.put = false
		if !r.p.gone() {
			lp.turn(r.p)
			r.p.received(lp.in[r.from:r.to])
		}
		r.p = nil
	}
	lp.stepped += lp.used + lp.direct
	lp.reads, lp.used, lp.direct = lp.reads[:0], 0, 0
	lp.stepping = false
	lp.tellGone()
}

// turn begins p's turn, in which crowd decides what p may do on the loop.
func (lp *loop) turn(p *plain) {
	now := lp.srv.hub.Now()
	if now >= lp.batch.end {
		lp.cut++ // whose turn was before
	}
	crowd := max(lp.cut, lp.crowd)
	if p.big.most = giantFrom; crowd > 1 {
		p.big.most = bigFrame
	}
	lp.batch.turn(now, crowd)
}

// write writes what there is for the loop's connections.
func (lp *loop) write() {
	lp.writing = true
	lp.outs = lp.sink.Take(lp.outs[:0])
	for i := range lp.outs {
		lp.writeOne(&lp.outs[i])
		lp.outs[i] = hub.Output{}
	}
	lp.writing = false
	lp.tellGone()
}

// writeInstead is write for somebody else. Where something was read, which may count on
// the wake to come, it leaves all to that: only the loop carries out what it has read.
func (lp *loop) writeInstead() bool {
	if len(lp.reads) > 0 {
		return false
	}
	lp.write()
	return true
}

func (lp *loop) writeOne(o *hub.Output) {
	p := o.Conn.Owner.(*plain)
	if p.gone() {
		lp.sink.Done(o, o.Len(), 0)
		return
	}
	if o.Abort {
		lp.srv.log.Warn().Str("peer", p.remote).Int("max_outbound", lp.srv.opt.MaxOutbound).Msg("closed a connection that does not read")
		lp.close(p)
		return
	}
	lp.srv.bytesOut.Add(uint64(o.Len()))
	unsent := p.write(o)
	closing := o.Close
	lp.sink.Done(o, unsent, p.held.memory)
	if closing && !p.gone() {
		p.linger()
	}
}

// admit lets a connection in.
func (lp *loop) admit(p *plain) {
	if err := lp.poller.add(p.fd); err != nil {
		_ = unix.Close(p.fd)
		lp.srv.conns.Add(-1)
		lp.srv.acceptErrors.Add(1)
		lp.srv.log.Warn().Err(err).Msg("cannot serve a connection")
		return
	}
	for len(lp.conns) <= p.fd {
		lp.conns = append(lp.conns, nil)
	}
	lp.conns[p.fd] = p
	p.conn = lp.srv.hub.Open(p.port, lp.sink, p, p.remote)
	p.opened()
}

// close closes a connection. What it sent before is carried out.
func (lp *loop) close(p *plain) {
	if !lp.stepping {
		lp.step()
	}
	if p.gone() {
		return
	}
	fd := p.fd
	lp.conns[fd] = nil
	lp.poller.remove(fd)
	_ = unix.Close(fd)
	p.forget()
	lp.gone = append(lp.gone, p)
	lp.tellGone()
}

// tellGone tells the hub of the connections that have closed, unless the loop has
// its output in hand.
func (lp *loop) tellGone() {
	if lp.stepping || lp.writing {
		return
	}
	for len(lp.gone) > 0 {
		p := lp.gone[len(lp.gone)-1]
		lp.gone = lp.gone[:len(lp.gone)-1]
		p.closed()
		lp.srv.conns.Add(-1)
	}
}
