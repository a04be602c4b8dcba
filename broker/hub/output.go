package hub

import (
	"slices"
	"sync/atomic"
)

// Sink represents an owner of connections. Only that owner writes to them.
type Sink struct {
	hub   *Hub
	owner SinkOwner

	takeClaimed atomic.Bool // the owner has claimed the next Take: it will call Take without being woken

	// The hub's lock guards this field.
	dirtyConns []*Conn

	// returnedBuffers have been written and go back to the hub with the next Take. returnRoom is how
	// many more bytes of them the owner may keep until then. Only the owner uses both fields.
	returnedBuffers [][]byte
	returnRoom      int
}

// maxReturnedBytes bounds the bytes of written buffers that an owner keeps between two Takes.
const maxReturnedBytes = 1 << 20

// SinkOwner holds the functions that a sink needs from the owner of its connections.
type SinkOwner struct {
	// Wake asks the owner to call Take soon. It is called without the lock, on any goroutine,
	// at most once between two Takes.
	Wake func()
	// Write, if it is set, is called before Wake: it takes and writes the output at once. If it
	// returns false, because the owner is busy, Wake is called.
	Write func() bool
	// Unframed reports that the connections are not sockets; they get bodies and reasons without
	// frames.
	Unframed bool
}

// NewSink returns a sink without connections.
func (h *Hub) NewSink(o SinkOwner) *Sink { return &Sink{hub: h, owner: o} }

// Output tells the owner of a connection what to do for it.
type Output struct {
	// Conn is the connection. It has output (NextParts), or must be closed.
	Conn *Conn
	// Close reports that no more output follows. The owner must close the connection when its
	// output is written.
	Close bool
	// Abort reports that the owner must close the connection at once, and writes nothing more.
	Abort bool
	// Unframed holds all bytes that the connection has received so far, if the sink is unframed.
	Unframed UnframedResult
}

// ClaimTake says that the owner will call Take without being woken. It returns false if the
// owner is being woken already.
func (s *Sink) ClaimTake() bool { return s.takeClaimed.CompareAndSwap(false, true) }

// UnreadBytes returns how many bytes wait for the peer, as far as the owner knows. Any goroutine may
// call it.
func (c *Conn) UnreadBytes() int { return int(c.outbox.knownEnd.Load() - c.outbox.writtenEnd.Load()) }

// NextParts appends to parts, up to its capacity, the next pieces that the owner has taken, at
// most limit bytes, and returns what UnreadBytes returns. From then on the peer may have read the
// pieces. Only the owner calls it.
func (c *Conn) NextParts(parts [][]byte, limit int) (_ [][]byte, unread int) {
	o, offset, n := &c.outbox, c.outbox.firstPieceWritten, 0
	if o.hasOutcomes {
		limit = min(limit, int(o.writeLimit-o.writtenEnd.Load()))
	}
	for _, p := range o.unwrittenPieces {
		if n == limit || len(parts) == cap(parts) {
			break
		}
		part := p.mem[offset:]
		part = part[:min(len(part), limit-n)]
		parts, offset = append(parts, part), 0
		n += len(part)
	}
	if o.hasOutcomes {
		o.maybeReadEnd.Store(o.writtenEnd.Load() + uint64(n))
	}
	return parts, c.UnreadBytes()
}

// MarkWritten records that n bytes of what NextParts returned have been written, and that no
// more of it is being written. When everything that was taken has been written, it takes more.
// If outcomes is true, kept outcomes wait to be written, and other connections should get their
// turn first. Only the owner calls it.
func (c *Conn) MarkWritten(n int) (outcomes bool) {
	o, h := &c.outbox, c.hub
	writtenEnd := o.writtenEnd.Add(uint64(n))
	writtenPieces, freedBytes := 0, int64(0)
	for o.firstPieceWritten += n; writtenPieces < len(o.unwrittenPieces) && o.firstPieceWritten >= len(o.unwrittenPieces[writtenPieces].mem); writtenPieces++ {
		p := &o.unwrittenPieces[writtenPieces]
		o.firstPieceWritten -= len(p.mem)
		freedBytes += int64(cap(p.mem))
		if s := c.sink; !p.shared && s.returnRoom >= cap(p.mem) {
			s.returnRoom -= cap(p.mem)
			s.returnedBuffers = append(s.returnedBuffers, p.mem[:0])
		}
	}
	if o.unwrittenPieces = slices.Delete(o.unwrittenPieces, 0, writtenPieces); len(o.unwrittenPieces) == 0 && cap(o.unwrittenPieces) > maxIdlePieces {
		o.unwrittenPieces = nil
	}
	if freedBytes > 0 {
		c.countMemory(-freedBytes)
	}
	unread := o.knownEnd.Load() > writtenEnd
	if !unread {
		o.waitingSince.Store(0)
	} else if n > 0 {
		o.waitingSince.Store(h.clock())
	}
	if o.hasOutcomes {
		o.maybeReadEnd.Store(writtenEnd)
		h.outcomesWritten(c, writtenEnd)
	}
	if n > 0 && c.creditSpent.Load() { // a peer that reads nothing may be lost
		h.renewCredit(c)
	}
	if unread && len(o.unwrittenPieces) == 0 {
		h.mu.Lock()
		o.take(h.clock())
		h.mu.Unlock()
	}
	return o.hasOutcomes && c.UnreadBytes() > 0
}

// maxIdlePieces is the longest empty list of pieces that a connection keeps.
const maxIdlePieces = 16
