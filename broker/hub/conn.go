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
	// Port says whether the peer is a submitter or a worker.
	Port wire.Port
	// OwnerData is for the connection's owner, which may store anything here.
	OwnerData any
	// Remote is the address of the peer, or "unix".
	Remote string
	// OpenedAt is when the connection was opened, on the hub's clock.
	OpenedAt int64
	// SendsJobIDs reports that the peer is a worker whose answers carry ids. Only the goroutine that
	// carries out the connection's commands may read it.
	SendsJobIDs bool

	clientName atomic.Pointer[string]

	// The hub's lock guards these fields.
	outbox        outbox
	state         connState
	isInDirtyList bool // the connection is in its sink's list

	unfinished unfinishedFrames

	// creditSpent reports that the peer is a worker with no credit left.
	creditSpent atomic.Bool
}

// connState is the stage of a connection's life. A connection only moves to a later stage.
type connState uint8

const (
	stateOpen    connState = iota
	stateClosing           // nothing more is appended; the connection closes once its output is written
	stateAborted           // the peer does not read; the connection closes at once
	stateClosed            // the owner has closed the connection
)

// Open adds a connection. Any goroutine can find it from now on, so its exported fields, except
// SendsJobIDs, no longer change.
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
	h.Update(func(int64) {
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
		c.outbox.marks, c.outbox.unwrittenPieces, c.outbox.answers = nil, nil, 0
		c.RecordUnfinished(0, 0)
		c.state = stateClosed
		delete(h.closingConns, c)
		h.discard(c)
	})
}

// CloseWith closes c once its output, to which it appends an error frame, is written.
func (h *Hub) CloseWith(c *Conn, why *wire.Error) { h.Update(func(int64) { h.closeWith(c, why) }) }

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

// removePeer removes c from the core. reason says why the broker closes a worker because of what it
// sent; otherwise it is "".
func (h *Hub) removePeer(c *Conn, reason string) {
	if h.connOf(c.Peer) != c {
		return
	}
	effects := h.core.ExpelPeer(h.clock(), c.Peer, reason)
	h.conns[c.Peer.Slot()] = nil
	h.closedConns.add(c, h.clock())
	h.appendEffects(effects)
}

// SetClientName records the name that the peer gave itself in its hello. Any goroutine may call it.
func (c *Conn) SetClientName(name string) { c.clientName.Store(&name) }

// ClientName returns the name that the peer gave itself, or "" if it gave none.
func (c *Conn) ClientName() string {
	if p := c.clientName.Load(); p != nil {
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
	h.Update(func(int64) {
		for _, c := range slices.Clone(h.conns) {
			if c != nil {
				h.closeWith(c, nil)
			}
		}
	})
}

// Backlog returns how many bytes wait for all submitters, how many wait for all peers, and the
// largest number that waits for one peer.
func (h *Hub) Backlog() (submitters, total, largest int) {
	h.EachConn(func(c *Conn) {
		waiting := c.outbox.waitingBytes()
		if c.Port == wire.SubmitPort {
			submitters += waiting
		}
		total += waiting
		largest = max(largest, waiting)
	})
	return submitters, total, largest
}
