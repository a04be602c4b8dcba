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
	// Owner is for the connection's owner, which may store anything here.
	Owner any
	// Remote is the peer's address.
	Remote string
	// Opened is when the connection was opened, on the hub's clock.
	Opened int64
	// Named reports that the peer is a worker whose answers carry ids. Only the goroutine that
	// carries out the connection's commands may read it.
	Named bool

	client atomic.Pointer[string]

	// The hub's lock guards these fields.
	out   outbox
	state state
	dirty bool // the connection is in its sink's list

	partial partial

	// noCredit reports that the peer is a worker with no credit left.
	noCredit atomic.Bool
}

// state is the stage of a connection's life. It only moves to a later one.
type state uint8

const (
	open    state = iota
	closing       // nothing more is appended; the connection is to be closed once its output is written
	aborted       // the peer does not read; the connection is to be closed at once
	closed        // the owner has closed the connection
)

// Open adds a connection. Any goroutine can find it from now on, so its exported fields, except
// Named, no longer change.
func (h *Hub) Open(port wire.Port, sink *Sink, owner any, remote string) *Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &Conn{hub: h, sink: sink, Port: port, Owner: owner, Remote: remote, Opened: h.clock()}
	c.out.unframed = sink.owner.Bare
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
		h.stats.Undelivered += uint64(c.out.answers)
		for _, m := range c.out.marks {
			if m.end > c.out.written.Load() {
				h.stats.Undelivered += uint64(m.answers)
			}
			if m.outcome != 0 {
				h.outcomes--
			}
		}
		c.out.marks, c.out.unwritten, c.out.answers = nil, nil, 0
		c.Partial(0, 0)
		c.state = closed
		delete(h.closing, c)
		h.discard(c)
	})
}

// CloseWith closes c once its output, to which it appends an error frame, is written.
func (h *Hub) CloseWith(c *Conn, why *wire.Error) { h.update(func(int64) { h.closeWith(c, why) }) }

// closeWith is CloseWith for callers that hold the lock. If why is nil, there is no error
// frame.
func (h *Hub) closeWith(c *Conn, why *wire.Error) {
	if c.state != open {
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
	if c.state == open {
		c.state = closing
		h.closing[c] = struct{}{}
		h.markDirty(c)
	}
}

// abort closes a connection whose peer does not read.
func (h *Hub) abort(c *Conn) {
	c.state = aborted
	h.discard(c)
	h.markDirty(c)
	h.stats.Overflows++
	h.removing = append(h.removing, c)
}

// removePeer removes c from the core. If the broker closes a worker because of what it sent,
// reason says why; otherwise it is "".
func (h *Hub) removePeer(c *Conn, reason string) {
	if h.find(c.Peer) != c {
		return
	}
	fx := h.core.ExpelPeer(h.clock(), c.Peer, reason)
	h.conns[c.Peer.Slot()] = nil
	h.recent.add(c, h.clock())
	h.apply(fx)
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

// Find returns the open connection of a peer, or nil.
func (h *Hub) Find(p broker.Peer) *Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.find(p)
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
	h.Each(func(c *Conn) {
		w := c.out.waiting()
		if c.Port == wire.SubmitPort {
			submitters += w
		}
		total += w
		limit = max(limit, w)
	})
	return submitters, total, limit
}
