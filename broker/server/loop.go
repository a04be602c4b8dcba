package server

import (
	"math"

	"golang.org/x/sys/unix"

	"gloom/broker/container"
	"gloom/broker/hub"
	"gloom/broker/poll"
)

// loop is an event loop. It works in rounds: it waits until sockets are ready, reads from
// each of them, has the hub carry out everything that was read, and writes the output, once
// per connection. A stream has a loop of its own that does not wait: the stream's goroutine
// hands in what it has read.
//
// A job's way: ready, read (bytes); decode, conn.received, input.next (frames); conn.take,
// conn.command, permit (commands); write, hub.Sink.Round (the lock, the core, effects);
// writeOne, conn.write, source.send (bytes).
//
// All its fields and its connections belong to whoever has the poller's turn: the loop's
// goroutine or, while that waits, a goroutine that writes in its place or brings what a
// stream has read.
type loop struct {
	srv    *Server
	all    *loops
	poller *poll.Poller
	conns  []*conn // by descriptor; streams have none
	sink   *hub.Sink
	batch  *batch

	// in receives one read after the other; reads tells which connection each part belongs
	// to.
	in    []byte
	reads []portion
	used  int // bytes of in
	// direct counts the bytes that were read directly into a big frame, stepped the bytes
	// that the steps of this round have handled.
	direct, stepped int
	// pool has memory for frames that must wait. If it is nil, the collector sees to that.
	pool *container.Buffers

	// cut counts the turns of this round that were too short, crowd those of the round before.
	cut, crowd int

	outs  []hub.Output
	parts [][]byte // has room for what is written at a time

	pace pace
	// round is endRound, as a task; scheduled: it is put on the loop.
	round     func()
	scheduled bool
}

// portion is what one read of a connection brought: loop.in[from:to].
type portion struct {
	c        *conn
	from, to int
}

const (
	// readBuffer is the most that reads take in before a step, in bytes. A step is due when
	// less than leastRead of it is left. After mostRound in all, the round ends early.
	readBuffer = 512 << 10
	leastRead  = 256 << 10
	mostRound  = 4 << 20
	// leftBehind is about how much input all connections together may leave for later
	// turns; each may leave leastLeft.
	leftBehind = 4 << 20
	leastLeft  = 4 << 10
	// maxPool is what a loop keeps for frames that must wait, in bytes.
	maxPool = 4 << 20
)

// run waits for events, and closes all connections in the end.
func (lp *loop) run() {
	lp.poller.Wait(lp.ready)
	lp.poller.Call(func() {
		for _, c := range lp.conns {
			if c != nil {
				lp.close(c)
			}
		}
		lp.poller.Close()
	})
}

// ready is called with each event.
func (lp *loop) ready(fd int, ev poll.Events) {
	if fd == lp.poller.Mark() {
		lp.step()
		lp.all.passed()
		return
	}
	if fd >= len(lp.conns) || lp.conns[fd] == nil {
		return // closed earlier in this round
	}
	c := lp.conns[fd]
	if ev&poll.Writable != 0 && c.peer.Held() > 0 {
		c.write()
	}
	if ev&(poll.Readable|poll.Ended) != 0 || c.reading == forTurn {
		lp.read(c, fd, ev&poll.Ended != 0)
	}
}

// read reads once. What it brings waits for the round's step, because neither our code nor
// our data would stay in the processor's nearest caches between the system calls of a round.
func (lp *loop) read(c *conn, fd int, ended bool) {
	// Earlier input comes before what is now read directly into the frame.
	if len(lp.in)-lp.used-lp.direct < leastRead || c.put && c.in.big() {
		if lp.step(); lp.stepped >= mostRound {
			lp.flush()
		}
	}
	switch {
	case c.state == closed || c.reading == aside || c.reading == paused: // it is read again later
		return
	case c.reading == forTurn:
		if !c.put {
			lp.put(c, 0)
		}
		return
	}
	into, room := c.in.spare(), lp.in[lp.used:]
	if c.bite > 0 && len(room) > c.bite {
		room = room[:c.bite]
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
		n, errno = poll.ReceiveTwo(fd, into, room)
	} else {
		n, errno = poll.Receive(fd, room)
	}
	switch {
	case errno == unix.EAGAIN:
		return
	case errno == unix.EINTR:
		c.src.again()
		return
	case errno != 0:
		lp.close(c)
		return
	case n == 0:
		lp.flush() // it may still read the replies to its last frames
		lp.close(c)
		return
	}
	if n == len(into)+len(room) || ended {
		c.src.again() // there may be more, and no event would tell
	}
	if c.beat > 0 {
		c.heard = lp.srv.hub.Now()
	}
	if len(into) > 0 {
		k := min(n, len(into))
		c.in.filled(k)
		lp.srv.bytesIn.Add(uint64(k))
		n -= k
		lp.direct += k
	}
	lp.put(c, n)
}

// arrived gives a stream's connection its turn, with what was read, if anything, and the
// error after it.
func (lp *loop) arrived(c *conn, data []byte, err error) {
	if c.state == closed {
		return
	}
	if c.reading != aside {
		if len(data) > 0 && c.beat > 0 {
			c.heard = lp.srv.hub.Now()
		}
		lp.turn(c, crowded)
		c.received(data)
	}
	lp.flush()
	if err != nil {
		lp.close(c)
	}
}

// put has n bytes that were read handled, at once or at the end of the round.
func (lp *loop) put(c *conn, n int) {
	c.put = true
	lp.reads = append(lp.reads, portion{c, lp.used, lp.used + n})
	lp.used += n
	lp.afterRead()
}

// afterRead handles what was read and writes output, at once or at the end of the round.
func (lp *loop) afterRead() {
	lp.pace.reads++
	switch {
	case lp.scheduled:
	case lp.pace.atOnce():
		lp.flush()
	case !lp.sink.Expect(): // the end of the round is scheduled already
	default:
		if lp.scheduled = lp.poller.Do(lp.round); !lp.scheduled {
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

// flush carries out everything that was read and writes the output of all the loop's
// connections.
func (lp *loop) flush() {
	lp.decode()
	lp.stepped = 0
	lp.crowd, lp.cut, lp.batch.end = lp.cut, 0, math.MaxInt64
	lp.write()
}

// step has the hub carry out everything that was read.
func (lp *loop) step() {
	lp.decode()
	lp.carryOut()
}

// carryOut has the hub carry out what the batch has gathered.
func (lp *loop) carryOut() {
	if lp.batch.n > 0 {
		lp.sink.Step(lp.batch.cmd[:lp.batch.n])
		lp.batch.done()
	}
}

// decode makes commands of everything that was read.
func (lp *loop) decode() {
	reads := lp.reads
	lp.stepped += lp.used + lp.direct
	lp.reads, lp.used, lp.direct = reads[:0], 0, 0
	for i := range reads {
		r := &reads[i]
		r.c.put = false
		if r.c.state < closed {
			lp.turn(r.c, 0)
			r.c.received(lp.in[r.from:r.to])
		}
		r.c = nil
	}
}

// turn begins c's turn. The larger the crowd, which is least at least, the less c may do on
// the loop.
func (lp *loop) turn(c *conn, least int) {
	now := lp.srv.hub.Now()
	if now >= lp.batch.end {
		lp.cut++ // the turn before this one
	}
	crowd := max(lp.cut, lp.crowd, least)
	if c.in.most = giantFrom; crowd > 1 {
		c.in.most = bigFrame
	}
	lp.batch.turn(now, crowd)
}

// write has the hub carry out what is left and writes the output of the loop's connections.
func (lp *loop) write() {
	lp.outs = lp.sink.Round(lp.batch.cmd[:lp.batch.n], lp.outs[:0])
	lp.batch.done()
	for i := range lp.outs {
		lp.writeOne(&lp.outs[i])
		lp.outs[i] = hub.Output{}
	}
}

// writeInstead is write on another goroutine. If the loop has read something, it does
// nothing: only the loop carries out what it has read, and that may rely on the wake to come.
func (lp *loop) writeInstead() bool {
	if len(lp.reads) > 0 {
		return false
	}
	lp.write()
	return true
}

func (lp *loop) writeOne(o *hub.Output) {
	c := o.Conn.Owner.(*conn)
	switch {
	case c.state == closed:
		return
	case o.Abort:
		lp.srv.log.Warn().Str("peer", c.remote).Int("max_outbound", lp.srv.opt.MaxOutbound).Msg("closed a connection that does not read")
		lp.close(c)
		return
	}
	if c.write(); o.Close && c.state < closing {
		c.linger()
	}
}

// wrote continues with a stream after n bytes of its output have been written.
func (lp *loop) wrote(s *stream, n int, err error) {
	s.writing = false
	switch c := s.conn; {
	case c.state == closed:
	case err != nil:
		lp.close(c)
	default:
		c.wrote(n)
		c.write()
	}
}

// admit adds a connection.
func (lp *loop) admit(c *conn) {
	c.peer = lp.srv.hub.Open(c.port, lp.sink, c, c.remote)
	c.opened()
}

// close closes a connection, after what it has sent is carried out.
func (lp *loop) close(c *conn) {
	if lp.step(); c.state == closed {
		return
	}
	c.src.close()
	c.forget()
	lp.srv.hub.Gone(c.peer)
	c.src.gone()
}
