package hub

import (
	"sync/atomic"

	"gloom/broker"
	"gloom/wire"
)

// Conn is a connection as the hub knows it.
type Conn struct {
	hub  *Hub
	sink *Sink
	port wire.Port
	peer broker.Peer
	// Owner is whatever the connection's owner wants to find here.
	Owner any
	// Remote is the peer's address.
	Remote string
	// Opened is when it came, on the hub's clock.
	Opened int64

	client atomic.Pointer[string]

	// Guarded by the hub's lock.
	out   outbox
	state state
	dirty bool // it stands in its sink's list
	named bool // a worker whose answers carry ids

	partial partial

	// held is what the owner could not write yet, in bytes, pinned the memory of
	// that, since when nothing of it has been read (0: nothing is held). The owner
	// writes them.
	held, pinned, since atomic.Int64
	// spent: it is a worker that has used up its credit.
	spent atomic.Bool
	// batches are the outputs not wholly written. Of the owner only.
	batches []batch
	written uint64 // bytes handed to the connection
	// outcomes are the kept outcomes taken and not wholly written, as far as the
	// owner has told, taken the bytes taken. Of the owner, under the hub's lock.
	outcomes []outcome
	taken    uint64
	// told is how far the stream was taken when the owner last told of what it wrote,
	// begun how far it had begun to write. Kept while there are outcomes.
	told, begun atomic.Uint64
}

// state says what becomes of a connection. It only goes on to a later one.
type state uint8

const (
	open    state = iota
	leaving       // nothing is appended any more; it is to be closed behind its output
	cut           // it does not read: it is to be closed at once
	lost          // its owner has closed it
)

// batch is an output whose last byte is at end of the stream.
type batch struct {
	end     uint64
	answers int
}

// Open lets a connection in. Others can find it from now on, so what it is
// opened with does not change any more.
func (h *Hub) Open(port wire.Port, sink *Sink, owner any, remote string) *Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &Conn{hub: h, sink: sink, port: port, Owner: owner, Remote: remote, Opened: h.clock()}
	if port == wire.SubmitPort {
		c.peer = h.core.AddSubmitter()
	} else {
		c.peer = h.core.AddWorker()
	}
	slot := int(c.peer.Slot())
	for len(h.conns) <= slot {
		h.conns = append(h.conns, nil)
	}
	h.conns[slot] = c
	return c
}

// Gone tells that a connection is lost. It may be called twice.
func (h *Hub) Gone(c *Conn) {
	h.lock()
	h.leave(c, "")
	h.stats.Undelivered += uint64(c.undelivered())
	c.Partial(0, 0)
	c.state = lost
	delete(h.leaving, c)
	h.outcomes -= len(c.outcomes)
	c.outcomes = nil
	h.discard(c)
	h.unlock(nil)
}

// leave takes c from the core. For a worker, a reason says why we close it.
func (h *Hub) leave(c *Conn, reason string) {
	if !h.knows(c) {
		return
	}
	defer h.guard()
	var fx []broker.Effect
	if reason != "" {
		fx = h.core.Expelled(h.clock(), c.peer, reason)
	} else {
		fx = h.core.Gone(h.clock(), c.peer)
	}
	h.conns[c.peer.Slot()] = nil
	h.apply(fx)
}

// knows tells that the core knows c.
func (h *Hub) knows(c *Conn) bool { return h.find(c.peer) == c }

// Peer is the connection's number in the core.
func (c *Conn) Peer() broker.Peer { return c.peer }

// Port is the port it came in on.
func (c *Conn) Port() wire.Port { return c.port }

// SetClient notes the name that a peer gave itself.
func (c *Conn) SetClient(name string) { c.client.Store(&name) }

// Client is the name that the peer gave itself.
func (c *Conn) Client() string {
	if p := c.client.Load(); p != nil {
		return *p
	}
	return ""
}

// Find returns the connection of a peer, or nil.
func (h *Hub) Find(p broker.Peer) *Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.find(p)
}

func (h *Hub) find(p broker.Peer) *Conn {
	if s := int(p.Slot()); s < len(h.conns) && h.conns[s] != nil && h.conns[s].peer == p {
		return h.conns[s]
	}
	return nil
}

// Unread is how many bytes wait for the peer to read them.
func (c *Conn) Unread() int {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	return c.waiting()
}

func (c *Conn) waiting() int { return c.out.size() + int(c.held.Load()) }

// SetHeld corrects what the owner said it holds back, when some of it has been
// written since: so many bytes, in so much memory. Of the owner only.
func (c *Conn) SetHeld(n, memory int) { c.sent(0, 0, n, memory) }

// sent notes what the owner has written, and what of it is held back.
func (c *Conn) sent(answers, n, unsent, memory int) {
	c.written += uint64(n)
	if unsent == 0 {
		c.since.Store(0)
	} else if c.since.Load() == 0 || int64(unsent) < c.held.Load() {
		c.since.Store(c.hub.clock())
	}
	c.held.Store(int64(unsent))
	if len(c.outcomes) > 0 {
		c.begun.Store(c.written - uint64(unsent))
		c.told.Store(c.taken)
		c.hub.wrote(c, c.written-uint64(unsent))
	}
	if c.spent.Load() && (n == 0 || unsent < n) { // who took nothing of an output may be lost
		c.hub.credit(c)
	}
	c.pin(int64(memory))
	if unsent == 0 {
		c.batches = c.batches[:0]
		return
	}
	if answers > 0 {
		c.batches = append(c.batches, batch{c.written, answers})
	}
	done := c.written - uint64(unsent)
	for len(c.batches) > 0 && c.batches[0].end <= done {
		c.batches = c.batches[1:]
	}
}

// credit lets a worker that had used up its credit be handed jobs again, once no more
// than half of that waits for it.
func (h *Hub) credit(c *Conn) {
	h.lock()
	if most := h.cfg.MaxOutbound / 2; c.waiting() <= most/2 && h.knows(c) {
		c.spent.Store(false)
		func() {
			defer h.guard()
			h.apply(h.core.Credit(h.clock(), c.peer, int64(most-c.waiting())))
		}()
	}
	h.unlock(nil)
}

// undelivered counts the answers of output held back, which did not get out.
func (c *Conn) undelivered() int {
	n := 0
	for _, b := range c.batches {
		n += b.answers
	}
	c.batches = nil
	return n
}

// Writing notes that the first now of n bytes, the last that were taken, are about to
// be written: the peer may have read them before the owner tells of it.
func (c *Conn) Writing(n, now int) {
	c.held.Store(int64(n))
	c.since.CompareAndSwap(0, c.hub.clock())
	if len(c.outcomes) > 0 {
		c.begun.Store(c.taken - uint64(n-now))
		c.told.Store(c.taken)
	}
}

// Named tells whether answers of this worker carry ids. Of whoever steps it only.
func (c *Conn) Named() bool { return c.named }

// CloseAll closes every connection behind its output.
func (h *Hub) CloseAll() {
	h.lock()
	for _, c := range append([]*Conn(nil), h.conns...) {
		if c != nil && c.state == open {
			h.dismiss(c, nil)
		}
	}
	h.unlock(nil)
}

// Owed sums up what waits for submitters to read it, in bytes.
func (h *Hub) Owed() (total int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		if c != nil && c.port == wire.SubmitPort {
			total += c.waiting()
		}
	}
	return total
}

// Backlog sums up what waits for peers to read it, over all connections, and
// the most that waits for one.
func (h *Hub) Backlog() (total, most int) {
	h.Each(func(c *Conn) {
		w := c.waiting()
		total += w
		most = max(most, w)
	})
	return total, most
}
