package server

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"gloom/broker/container"
	"gloom/broker/hub"
	"gloom/broker/poll"
)

// loop is an event loop. It works in rounds: it waits until sockets are ready, reads from each
// of them, turns what was read into commands, lets the hub carry them out, and writes the output,
// once per connection. This file shows a job's way from top to bottom. Decoding continues in
// input.go (frames) and command.go (commands); writing continues in the hub's files step.go
// (the lock), outbox.go (effects) and output.go (bytes).
//
// A stream (TLS, or a pipe within the process) has a loop of its own that does not wait for events: the stream's goroutine gives it
// what it has read.
//
// The fields and the connections of a loop belong to the goroutine that holds the poller. The
// holder is the loop's own goroutine or, while the loop waits, a goroutine that writes in its place
// or brings a stream's data.
type loop struct {
	srv    *Server
	group  *loops
	poller *poll.Poller
	conns  []*conn // by descriptor; streams have none
	sink   *hub.Sink
	batch  *batch

	// readBuf is the buffer for the data of all reads, one after the other. reads says which part
	// belongs to which connection.
	readBuf   []byte
	reads     []readPart
	readBytes int // how many bytes of readBuf are used
	// directBytes counts the bytes that were read directly into big frames, steppedBytes the
	// bytes that have been carried out in this round.
	directBytes, steppedBytes int
	// pool holds memory for frames that must wait. If pool is nil, such memory is left to the
	// collector.
	pool *container.Buffers

	// cutTurns counts the turns of this round that were cut short, lastCutTurns those of the last
	// round.
	cutTurns, lastCutTurns int

	outputs []hub.Output
	parts   [][]byte // its capacity is the number of pieces that are written at a time

	pace         writePace
	endRoundTask func() // lp.endRound as a func value, which is allocated once
}

// readPart says that loop.readBuf[from:to] was read from connection c.
type readPart struct {
	conn     *conn
	from, to int
}

const (
	// readBufSize is the size of the buffer that is filled before a step. When less than minRead of
	// it is free, a step is due. After maxRound bytes in total, the round ends early.
	readBufSize = 512 << 10
	minRead     = 256 << 10
	maxRound    = 4 << 20
	// maxTotalBacklog is roughly how much input all connections together may leave for later
	// turns; each may leave minConnBacklog.
	maxTotalBacklog = 4 << 20
	minConnBacklog  = 4 << 10
	// maxPool bounds the memory that a loop keeps for frames that must wait, in bytes.
	maxPool = 4 << 20
	// maxWriteTurn limits the bytes that one connection is sent before other connections get their
	// turn.
	maxWriteTurn = 256 << 10
)

// run handles events until the poller stops. Then it closes all connections.
func (lp *loop) run() {
	lp.poller.Wait(lp.onReady)
	lp.poller.Call(func() {
		for _, c := range lp.conns {
			if c != nil {
				lp.closeConn(c)
			}
		}
		lp.poller.Close()
	})
}

// onReady handles one event of the poller.
func (lp *loop) onReady(fd int, ev poll.Events) {
	if fd == lp.poller.MarkFD() {
		lp.step()
		lp.group.markReached()
		return
	}
	if fd >= len(lp.conns) || lp.conns[fd] == nil {
		return // the connection was closed earlier in this round
	}
	c := lp.conns[fd]
	if ev&poll.Writable != 0 && c.hubConn.UnreadBytes() > 0 {
		lp.send(c)
	}
	if ev&(poll.Readable|poll.Ended) != 0 || c.readState == readAtNextTurn {
		lp.read(c, fd, ev&poll.Ended != 0)
	}
}

// read reads once. The data waits for the step of the round: handling it between system calls
// would evict code and data from the processor's nearest caches.
func (lp *loop) read(c *conn, fd int, eof bool) {
	// Earlier input must be handled before more is read directly into its frame. It must also be
	// handled before a read that would exceed the turn, because the excess would have to be stored.
	if len(lp.readBuf)-lp.readBytes-lp.directBytes < minRead || c.hasInput && (c.input.isBig() || lp.readBytes >= c.readLimit) {
		if lp.step(); lp.steppedBytes >= maxRound {
			lp.flush()
		}
	}
	switch {
	case c.state == stateClosed || c.readState == readAfterOffload || c.readState == readPaused: // read later
		return
	case c.readState == readAtNextTurn:
		if !c.hasInput {
			lp.queueInput(c, 0)
		}
		return
	}
	frameSpace, room := c.input.freeSpace(), lp.readBuf[lp.readBytes:]
	room = room[:min(len(room), c.readLimit, max(minConnBacklog, maxTotalBacklog/(1+lp.lastCutTurns)))]
	if len(frameSpace) > readBufSize {
		frameSpace, room = frameSpace[:readBufSize], nil
	}
	var n int
	var errno unix.Errno
	if len(frameSpace) > 0 {
		n, errno = poll.ReceiveTwo(fd, frameSpace, room)
	} else {
		n, errno = poll.Receive(fd, room)
	}
	switch {
	case errno == unix.EAGAIN:
		return
	case errno == unix.EINTR:
		c.source.requestTurn()
		return
	case errno != 0:
		lp.closeConn(c)
		return
	case n == 0:
		lp.flush() // the peer may still read the replies to its last frames
		lp.closeConn(c)
		return
	}
	if n == len(frameSpace)+len(room) || eof {
		c.source.requestTurn() // there may be more, and no event would report it
	}
	c.recordHeard()
	if len(frameSpace) > 0 {
		directBytes := min(n, len(frameSpace))
		c.input.addRead(directBytes)
		lp.srv.bytesIn.Add(uint64(directBytes))
		n -= directBytes
		lp.directBytes += directBytes
	}
	lp.queueInput(c, n)
}

// queueInput takes n bytes that were read. Their commands are carried out and the output is
// written at once or at the end of the round.
func (lp *loop) queueInput(c *conn, n int) {
	c.hasInput = true
	lp.reads = append(lp.reads, readPart{c, lp.readBytes, lp.readBytes + n})
	lp.readBytes += n
	lp.pace.reads++
	switch {
	case lp.pace.writeNow():
		lp.flush()
	case lp.sink.ClaimTake(): // if false, the end of the round is scheduled already
		lp.poller.Do(lp.endRoundTask)
	}
}

// writePace decides whether a loop writes at once or once per round. While reads come one by one,
// the loop writes at once, which costs a write per frame and saves the time of another round.
// When many connections are ready at a time, the loop writes at the end of the round, which
// saves most of the writes.
type writePace struct {
	reads          int // reads since the last round
	singleReads    int // consecutive rounds with one read
	writesAtOnce   bool
	uncountedReads int // reads since the last round that was counted
}

const (
	// minSingleReads is the number of consecutive rounds with only one read after which output is
	// written at once.
	minSingleReads = 8
	// recountEvery is the number of reads after which one read is counted as a round while the loop
	// writes at once.
	recountEvery = 16
)

// writeNow reports whether to write right after the last read.
func (p *writePace) writeNow() bool {
	if !p.writesAtOnce {
		return false
	}
	if p.uncountedReads++; p.uncountedReads < recountEvery {
		return true
	}
	// Count the reads of one round, to see whether they still come one by one.
	*p = writePace{reads: 1, singleReads: minSingleReads - 1}
	return false
}

func (lp *loop) endRound() {
	p := &lp.pace
	if p.reads <= 1 {
		p.singleReads++
	} else {
		p.singleReads = 0
	}
	p.writesAtOnce, p.reads = p.singleReads >= minSingleReads, 0
	lp.flush()
}

// flush carries out everything that was read, and writes the output of all connections of the
// loop.
func (lp *loop) flush() {
	lp.decodeReads()
	lp.steppedBytes = 0
	lp.lastCutTurns, lp.cutTurns, lp.batch.turnEnd = lp.cutTurns, 0, math.MaxInt64
	lp.write()
}

// decodeReads turns everything that was read into commands.
func (lp *loop) decodeReads() {
	reads := lp.reads
	lp.steppedBytes += lp.readBytes + lp.directBytes
	lp.reads, lp.readBytes, lp.directBytes = reads[:0], 0, 0
	for i := range reads {
		r := &reads[i]
		r.conn.hasInput = false
		if r.conn.state < stateClosed {
			lp.beginTurn(r.conn, 0)
			r.conn.handleInput(lp.readBuf[r.from:r.to])
		}
		r.conn = nil
	}
}

const (
	// maxTurnFrames and maxTurnTime bound the turn of a connection; the rest of its frames wait
	// for the next turn. (An empty frame is four bytes: a read may bring a hundred thousand of
	// them.) When several connections have more than a turn's work, all their turns together
	// take maxRoundTime, but each takes at least minTurnTime.
	maxTurnFrames = 4096
	maxTurnTime   = 200 * time.Microsecond
	maxRoundTime  = 2 * time.Millisecond
	minTurnTime   = 40 * time.Microsecond
	// streamBusyConns is how many other busy connections a stream assumes, since its loop has none
	// to count.
	streamBusyConns = int(maxRoundTime / minTurnTime)
)

// beginTurn begins c's turn. The turn is shorter if many other connections have more than a
// turn's work. Their number is taken to be at least minBusy.
func (lp *loop) beginTurn(c *conn, minBusy int) {
	now := lp.srv.hub.Now()
	if now >= lp.batch.turnEnd {
		lp.cutTurns++ // the turn before this one was cut short
	}
	busy := max(lp.cutTurns, lp.lastCutTurns, minBusy)
	c.input.maxOwnAlloc = minOffload
	if busy > 1 {
		c.input.maxOwnAlloc = minBigFrame
	}
	lp.batch.turnFrames = 0
	lp.batch.turnEnd = now + int64(max(minTurnTime, min(maxTurnTime, maxRoundTime/time.Duration(busy+1))))
}

// step decodes everything that was read and lets the hub carry it out.
func (lp *loop) step() {
	lp.decodeReads()
	lp.runBatch()
}

// runBatch lets the hub carry out the batch.
func (lp *loop) runBatch() {
	if lp.batch.count > 0 {
		lp.sink.Step(lp.batch.commands[:lp.batch.count], nil)
		lp.batch.reset()
	}
}

// write lets the hub carry out the rest of the batch and writes the output of the loop's
// connections.
func (lp *loop) write() {
	lp.outputs = lp.outputs[:0]
	lp.sink.Step(lp.batch.commands[:lp.batch.count], &lp.outputs)
	lp.batch.reset()
	for i := range lp.outputs {
		o := &lp.outputs[i]
		switch c := o.Conn.OwnerData.(*conn); {
		case c.state == stateClosed:
		case o.Abort:
			lp.srv.log.Warn().Str("peer", c.remote).Int("max_outbound", lp.srv.options.MaxOutbound).Int64("max_unread", lp.srv.options.MaxUnread).Msg("closed a connection that does not read")
			lp.closeConn(c)
		default:
			if lp.send(c); o.Close && c.state < stateClosing {
				c.linger()
			}
		}
		*o = hub.Output{}
	}
}

// writeForLoop is write, called on another goroutine. If the loop has read something,
// writeForLoop returns false: only the loop carries out what it has read, and may rely on being
// woken for that.
func (lp *loop) writeForLoop() bool {
	if len(lp.reads) > 0 {
		return false
	}
	lp.write()
	return true
}

// send writes as much of c's output as the system accepts. If too much is left, c is not read
// until its peer has read enough.
func (lp *loop) send(c *conn) {
	budget := maxWriteTurn
	parts, unsent := c.hubConn.NextParts(lp.parts[:0], budget)
	for unsent > 0 && budget > 0 {
		n, err := c.source.send(parts)
		clear(parts)
		if err != nil {
			lp.closeConn(c)
			return
		}
		if n < 0 {
			break
		}
		lp.srv.bytesOut.Add(uint64(n))
		outcomes := c.hubConn.MarkWritten(n)
		if n == 0 {
			break
		}
		if budget -= n; outcomes {
			budget = 0
		}
		parts, unsent = c.hubConn.NextParts(lp.parts[:0], budget)
	}
	switch congested := unsent > 0 && c.hubConn.Congested(); {
	case c.readState == readPaused && !congested:
		c.resume()
	case c.readState == readReady && congested && c.state < stateDraining:
		c.readState = readPaused
	}
	if unsent == 0 && c.state == stateClosing {
		c.source.finish()
	} else if unsent > 0 && budget == 0 {
		c.source.requestTurn()
	}
}
