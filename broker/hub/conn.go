package hub

import (
	"slices"
	"sync/atomic"

	"gloom/broker"
	"gloom/wire"
)

// Conn is a connection as the hub knows it.
type Conn struct {
	hub  *Hub
	sink *Sink
	// Peer is the connection's number in the core.
	Peer broker.Peer
	// Port is the port on which the connection was accepted.
	Port wire.Port
	// OwnerData is for the connection's owner, which may store anything here.
	OwnerData any
	// Remote is the peer's address.
	Remote string
	// OpenedAt is when the connection was opened, on the hub's clock.
	OpenedAt int64
	// NamesJobs reports that the peer is a worker whose answers carry ids. Only the goroutine that
	// carries out the connection's commands may read it.
	NamesJobs bool

	client atomic.Pointer[string]

	// The hub's lock guards these fields.
	outbox        outbox
	state         connState
	isInDirtyList bool // the connection is in its sink's list

	unfinished unfinishedFrames

	// creditSpent reports that the peer is a worker with no credit left.
	creditSpent atomic.Bool
}

// connState is the stage of a connection's life. It only moves to a later one.
type connState uint8

const (
	stateOpen    connState = iota
	stateClosing           // nothing more is appended; the connection closes once its output is written
	stateAborted           // the peer does not read; the connection closes at once
	stateClosed            // the owner has closed the connection
)

// Open adds a connection. Any goroutine can find it from now on, so its exported fields, except
// NamesJobs, no longer change.
func (h *Hub) Open(port wire.Port, sink *Sink, owner any, remote string) *Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &Conn{hub: h, sink: sink, Port: port, OwnerData: owner, Remote: remote, OpenedAt: h.clock()}
	c.outbox.isUnframed = sink.owner.Unframed
	if port == wire.SubmitPort {
		c.Peer = h.core.AddSubmitter()
	} else {
		c.Peer = h.core.AddWorker()
	}
	slot := int(c.Peer.Slot())
	for len(h.conns) <= slot {
		h.conns = append(h.conns, nil)
	}
	h.conns[slot] = c
	return c
}

// Remove removes a connection that is lost. It may be called twice.
func (h *Hub) Remove(c *Conn) {
	h.update(func(int64) {
		h.removePeer(c, "")
		h.stats.UndeliveredAnswers += uint64(c.outbox.answers)
		for _, m := range c.outbox.marks {
			if m.end > c.outbox.writtenEnd.Load() {
				h.stats.UndeliveredAnswers += uint64(m.answers)
			}
			if m.outcome != 0 {
				h.outcomes--
			}
		}
		c.outbox.marks, c.outbox.unwritten, c.outbox.answers = nil, nil, 0
		c.RecordUnfinished(0, 0)
		c.state = stateClosed
		delete(h.closingConns, c)
		h.discard(c)
	})
}

// CloseWith closes c once its output, to which it appends an error frame, is written.
func (h *Hub) CloseWith(c *Conn, why *wire.Error) { h.update(func(int64) { h.closeWith(c, why) }) }

// closeWith is CloseWith for callers that hold the lock. If why is nil, there is no error
// frame.
func (h *Hub) closeWith(c *Conn, why *wire.Error) {
	if c.state != stateOpen {
		return
	}
	reason := ""
	if why != nil {
		if h.refuse(c, why); why.Code == wire.SizeError || why.Code == wire.InvalidJSON {
			reason = why.Code.String() + ": " + why.Reason
		}
	}
	h.finish(c)
	h.removePeer(c, reason)
}

// finish makes c close after its output. Nothing more is added to the output.
func (h *Hub) finish(c *Conn) {
	if c.state == stateOpen {
		c.state = stateClosing
		h.closingConns[c] = struct{}{}
		h.markDirty(c)
	}
}

// abort closes a connection whose peer does not read.
func (h *Hub) abort(c *Conn) {
	c.state = stateAborted
	h.discard(c)
	h.markDirty(c)
	h.stats.Overflows++
	h.connsToRemove = append(h.connsToRemove, c)
}

// removePeer removes c from the core. If the broker closes a worker because of what it sent,
// reason says why; otherwise it is "".
func (h *Hub) removePeer(c *Conn, reason string) {
	if h.connOf(c.Peer) != c {
		return
	}
	fx := h.core.ExpelPeer(h.clock(), c.Peer, reason)
	h.conns[c.Peer.Slot()] = nil
	h.closedConns.add(c, h.clock())
	h.appendEffects(fx)
}

// SetClient sets the name that a peer gave itself.
func (c *Conn) SetClient(name string) { c.client.Store(&name) }

// Client returns the name that the peer gave itself.
func (c *Conn) Client() string {
	if p := c.client.Load(); p != nil {
		return *p
	}
	return ""
}

// FindConn returns the open connection of a peer, or nil.
func (h *Hub) FindConn(p broker.Peer) *Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.connOf(p)
}

// CloseAll closes every connection once its output is written.
func (h *Hub) CloseAll() {
	h.update(func(int64) {
		for _, c := range slices.Clone(h.conns) {
			if c != nil {
				h.closeWith(c, nil)
			}
		}
	})
}

// Backlog returns how many bytes wait for all submitters, for all peers, and for the peer for
// which most wait.
func (h *Hub) Backlog() (submitters, total, limit int) {
	h.EachConn(func(c *Conn) {
		w := c.outbox.waitingBytes()
		if c.Port == wire.SubmitPort {
			submitters += w
		}
		total += w
		limit = max(limit, w)
	})
	return submitters, total, limit
}
