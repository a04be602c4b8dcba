package hub

import (
	"slices"
	"sync/atomic"

	"gloom/broker"
	"gloom/broker/wording"
	"gloom/wire"
)

// outbox is the stream of bytes sent to a connection, from the effects to the last byte that
// the system has taken. Frames are appended under the hub's lock. The owner of the connection
// takes everything that has been appended, writes it, and only then takes more.
type outbox struct {
	// The hub's lock guards these fields: what has been appended and not taken. It is in
	// sealedPieces and then in buf, which begins at position sealedEnd of the stream. The owner
	// has taken the stream up to position takenEnd.
	sealedPieces        []piece
	buf                 []byte
	sealedEnd, takenEnd uint64
	sealedBytes         int64 // the memory of sealedPieces
	answers             int   // the number of answers that have not been taken
	// marks are positions in the stream, in order. Each is handled once the stream has been
	// written up to it.
	marks []mark

	// Only the owner uses these: the pieces that it has taken and not written completely. The
	// first firstPieceWritten bytes of the first piece are written.
	unwrittenPieces   []piece
	firstPieceWritten int
	hasOutcomes       bool   // unwrittenPieces contains kept outcomes
	writeLimit        uint64 // if hasOutcomes, the position at which one write must end

	// Only the owner writes these; any goroutine may read them. They are positions in the stream:
	// its end when the owner last looked, how far it is written and, if hasOutcomes, how far the
	// peer may have read.
	knownEnd, writtenEnd, maybeReadEnd atomic.Uint64
	// waitingSince is when the owner last wrote or took some of the output that waits; 0 if
	// none waits. waitingMemory is how many bytes the waiting output occupies.
	waitingSince, waitingMemory atomic.Int64

	// isUnframed reports that the stream consists only of the bodies of answers and the reasons of
	// errors, without frames.
	isUnframed bool
	result     UnframedResult
}

// piece is a part of an outbox. Its memory is the capacity of mem.
type piece struct {
	mem    []byte
	shared bool // mem is a body to which others refer, too
}

// mark is a position in the stream: the end of a kept outcome's frame, or the end of what the owner
// took at one time. answers counts the answers in what was taken.
type mark struct {
	end     uint64
	outcome uint64 // broker.Effect.Outcome
	answers int
}

// UnframedResult holds what a connection of an unframed sink gets besides its output.
type UnframedResult struct {
	WasAccepted bool      // the request was accepted
	FailureCode wire.Code // the code with which the request was refused or the job failed, or 0
}

func (o *outbox) endPosition() uint64 { return o.sealedEnd + uint64(len(o.buf)) }

// untakenMemory returns the memory, in bytes, of the output that the owner has not taken.
func (o *outbox) untakenMemory() int64 { return o.sealedBytes + int64(cap(o.buf)) }

// waitingBytes returns how many bytes wait for the peer to read them.
func (o *outbox) waitingBytes() int { return int(o.endPosition() - o.writtenEnd.Load()) }

// isSlow reports whether so much output waits for c that c gets only frames that must be sent.
func (c *Conn) isSlow() bool { return c.outbox.waitingBytes() > c.hub.cfg.MaxOutbound/2 }

// minSharedBody is the shortest length of immutable bodies that are shared instead of copied.
const minSharedBody = 128 << 10

// appendEffects appends each effect to its peer's output.
func (h *Hub) appendEffects(effects []broker.Effect) {
	for i := range effects {
		e := &effects[i]
		c := h.connOf(e.Peer)
		if c == nil && h.fleet != nil && h.fleet.HandleEffect(e) {
			continue
		}
		if c == nil || c.state != stateOpen {
			if e.Op == broker.OpResult {
				h.stats.UndeliveredAnswers++
			}
			continue
		}
		reason := ""
		switch e.Op {
		case broker.OpProgress:
			if c.isSlow() {
				h.stats.DroppedProgress++
				continue
			}
		case broker.OpClose:
			h.finish(c)
			h.connsToRemove = append(h.connsToRemove, c)
			continue
		case broker.OpRefuse, broker.OpEnd:
			h.stats.Errors[wireCodes[e.Code]]++
			reason = wording.Reason(e.Reason)
		case broker.OpJob:
			if e.CreditSpent {
				c.creditSpent.Store(true)
			}
		}
		n := len(e.ID) + len(e.Type) + len(e.Headers) + len(reason)
		share := e.StableBody && len(e.Body) >= minSharedBody
		if !share {
			n += len(e.Body)
		}
		h.appendFrame(c, n, func(o *outbox) {
			h.appendEffect(o, e, reason, share)
			if e.Outcome != 0 {
				h.outcomes++
				o.marks = append(o.marks, mark{end: o.endPosition(), outcome: e.Outcome})
			}
		})
	}
}

func (h *Hub) connOf(p broker.Peer) *Conn {
	if s := int(p.Slot()); s < len(h.conns) && h.conns[s] != nil && h.conns[s].Peer == p {
		return h.conns[s]
	}
	return nil
}

// appendEffect appends the frame of e, with reason as its text. If share is set, the frame refers
// to e.Body; otherwise the body is copied.
func (h *Hub) appendEffect(o *outbox, e *broker.Effect, reason string, share bool) {
	switch e.Op {
	case broker.OpOK:
		switch {
		case o.isUnframed:
			o.result.WasAccepted = true
		case e.State != 0:
			o.buf = wire.AppendAttached(o.buf, e.ID, e.State.String())
		case e.ID != nil:
			o.buf = wire.AppendOKID(o.buf, e.ID)
		default:
			o.buf = wire.AppendOK(o.buf)
		}
	case broker.OpJob:
		o.buf = wire.AppendJobHead(o.buf, e.ID, e.Type, e.Headers, len(e.Body))
		h.appendBody(o, e.Body, share)
	case broker.OpResult:
		o.answers++
		if !o.isUnframed {
			o.buf = wire.AppendResultHead(o.buf, e.ID, len(e.Body))
		}
		h.appendBody(o, e.Body, share)
	case broker.OpProgress:
		o.buf = wire.AppendProgressHead(o.buf, e.ID, len(e.Body))
		h.appendBody(o, e.Body, share)
	case broker.OpCancel:
		o.buf = wire.AppendCancel(o.buf, e.ID)
	case broker.OpRefuse, broker.OpEnd:
		if cause := causes[e.Code]; cause != "" && !o.isUnframed {
			o.buf = wire.AppendJobFailed(o.buf, reason, cause, e.Delay/1e6, e.ID)
			return
		}
		o.appendError(wireCodes[e.Code], reason, e.ID)
	}
}

func (o *outbox) appendError(code wire.Code, reason string, id []byte) {
	if o.isUnframed {
		o.result.FailureCode = code
		o.buf = append(o.buf, reason...)
		return
	}
	o.buf = wire.AppendError(o.buf, code, reason, id)
}

// appendBody completes a frame whose beginning is in o.buf.
func (h *Hub) appendBody(o *outbox, body []byte, share bool) {
	buf := o.buf
	if share {
		o.seal()
		o.add(piece{body[:len(body):len(body)], true})
		h.grow(o, 1)
		buf = o.buf
	} else {
		buf = append(buf, body...)
	}
	if !o.isUnframed {
		buf = append(buf, wire.BodyEnd)
	}
	o.buf = buf
}

// frameSlack is an upper bound on the bytes of a frame besides its id, type, headers, reason and
// body.
const frameSlack = 64

// appendFrame appends one whole frame to c's output; nothing else does that. It decides whether c
// gets the frame before it touches c's buffers, so that a frame that is left out never leaves c
// with a buffer that another connection uses. n is roughly the frame's length; encode appends
// exactly one frame.
//
// If more than the limit was waiting before, appendFrame closes c instead. The frame that
// exceeds the limit is still accepted: otherwise a big job would cost every worker its connection.
func (h *Hub) appendFrame(c *Conn, n int, encode func(o *outbox)) {
	if c.state != stateOpen {
		return
	}
	o := &c.outbox
	before, memory := o.waitingBytes(), o.untakenMemory()
	h.grow(o, n+frameSlack)
	encode(o)
	h.stats.FramesOut++
	h.markDirty(c)
	if growth := o.untakenMemory() - memory; growth != 0 {
		c.countMemory(growth)
	}
	if before > h.cfg.MaxOutbound {
		h.abort(c)
	}
}

// countMemory adds n bytes to the memory that the output of c occupies.
func (c *Conn) countMemory(n int64) {
	c.outbox.waitingMemory.Add(n)
	c.hub.unreadBytes[c.Port].Add(n)
}

// markDirty puts c on its sink's list of connections with new output.
func (h *Hub) markDirty(c *Conn) {
	if c.isInDirtyList {
		return
	}
	c.isInDirtyList = true
	s := c.sink
	s.dirtyConns = append(s.dirtyConns, c)
	if s.takeClaimed.CompareAndSwap(false, true) {
		h.sinksToWake = append(h.sinksToWake, s)
	}
}

// pieceSize is the size, in bytes, up to which a piece grows.
const pieceSize = 64 << 10

// grow makes room for n more bytes in o.buf. A piece grows by a factor of four, and its old
// memory is reused.
func (h *Hub) grow(o *outbox, n int) {
	switch b, size := o.buf, cap(o.buf); {
	case len(b)+n <= size:
	case size >= pieceSize:
		o.seal()
		o.buf = h.spareBuffers.Get(max(n, pieceSize))
	default:
		o.buf = append(h.spareBuffers.Get(max(len(b)+n, min(4*size, pieceSize))), b...)
		h.spareBuffers.Put(b)
	}
}

// seal appends buf to the sealed pieces.
func (o *outbox) seal() {
	if len(o.buf) > 0 {
		o.add(piece{mem: o.buf})
		o.buf = nil
	}
}

func (o *outbox) add(p piece) {
	o.sealedPieces = append(o.sealedPieces, p)
	o.sealedEnd += uint64(len(p.mem))
	o.sealedBytes += int64(cap(p.mem))
}

// Take is Step without commands.
func (s *Sink) Take() (outs []Output) {
	s.Step(nil, &outs)
	return outs
}

func (s *Sink) collectOutputs(now int64, outs []Output) []Output {
	h := s.hub
	s.takeClaimed.Store(false)
	for _, b := range s.returnedBuffers {
		h.spareBuffers.Put(b)
	}
	for _, c := range s.dirtyConns {
		c.isInDirtyList = false
		switch c.state {
		case stateClosed:
			continue
		case stateAborted:
			outs = append(outs, Output{Conn: c, Abort: true})
			continue
		}
		c.outbox.take(now)
		outs = append(outs, Output{Conn: c, Close: c.state == stateClosing, Unframed: c.outbox.result})
	}
	s.dirtyConns = s.dirtyConns[:0]
	s.returnedBuffers, s.returnRoom = s.returnedBuffers[:0], maxReturnedBytes
	return outs
}

// take gives the owner everything that has been appended, unless the owner still has output
// from before.
func (o *outbox) take(now int64) {
	if len(o.unwrittenPieces) == 0 && o.endPosition() > o.takenEnd {
		o.seal()
		o.sealedPieces, o.unwrittenPieces = o.unwrittenPieces, o.sealedPieces
		o.takenEnd, o.sealedBytes = o.sealedEnd, 0
		if o.waitingSince.Load() == 0 {
			o.waitingSince.Store(now)
		}
		writtenEnd, first := o.writtenEnd.Load(), 0
		for first < len(o.marks) && o.marks[first].end <= writtenEnd && o.marks[first].outcome == 0 {
			first++
		}
		if o.marks = slices.Delete(o.marks, 0, first); o.answers > 0 {
			o.marks = append(o.marks, mark{end: o.takenEnd, answers: o.answers})
			o.answers = 0
		}
		if o.hasOutcomes = slices.ContainsFunc(o.marks, func(m mark) bool { return m.outcome != 0 }); o.hasOutcomes {
			o.maybeReadEnd.Store(o.takenEnd)
			o.setWriteLimit()
		}
	}
	o.knownEnd.Store(o.endPosition())
}

// discard drops output that the owner will not take.
func (h *Hub) discard(c *Conn) {
	o := &c.outbox
	c.countMemory(-o.waitingMemory.Load())
	h.spareBuffers.Put(o.buf)
	o.sealedPieces, o.buf, o.sealedEnd, o.sealedBytes = nil, nil, o.takenEnd, 0
	o.knownEnd.Store(min(o.knownEnd.Load(), o.takenEnd))
}

// Send appends a whole frame to c's output.
func (h *Hub) Send(c *Conn, frame []byte) {
	h.Update(func(int64) { h.appendBytes(c, frame) })
}

func (h *Hub) appendBytes(c *Conn, frame []byte) {
	h.appendFrame(c, len(frame), func(o *outbox) { o.buf = append(o.buf, frame...) })
}

func (h *Hub) refuse(c *Conn, e *wire.Error) {
	if c.state != stateOpen {
		return
	}
	h.stats.Errors[e.Code]++
	h.appendFrame(c, len(e.Reason)+len(e.ID), func(o *outbox) { o.appendError(e.Code, e.Reason, e.ID) })
}
