package hub

import "sync/atomic"

// Sink stands for an owner of connections; only that owner writes to them. Connections with
// new output are in its dirty list.
type Sink struct {
	hub   *Hub
	owner Owner

	pending atomic.Bool // the owner knows of output and will take it

	// Guarded by the hub's lock.
	dirty  []*Conn
	listed bool // stands in hub.woken

	// Only the owner uses these: buffers that are written and go back to the hub, and how many
	// more bytes of them it may keep.
	spent [][]byte
	room  int
}

// maxSpent bounds what an owner keeps between two Takes, in bytes.
const maxSpent = 1 << 20

// Owner is what a sink asks of the owner of its connections.
type Owner struct {
	// Wake asks the owner to call Take soon. It is called without the lock, on any
	// goroutine, at most once between two Takes.
	Wake func()
	// Write, if it is set, takes and writes at once and is called before Wake. It returns
	// false if the owner is at work.
	Write func() bool
	// Bare: its connections are not sockets and get bodies and reasons without frames.
	Bare bool
}

// NewSink returns a sink without connections.
func (h *Hub) NewSink(o Owner) *Sink { return &Sink{hub: h, owner: o} }

// mark puts c on its owner's list.
func (h *Hub) mark(c *Conn) {
	if c.dirty {
		return
	}
	c.dirty = true
	s := c.sink
	s.dirty = append(s.dirty, c)
	if !s.listed && !s.pending.Load() {
		s.listed = true
		h.woken = append(h.woken, s)
	}
}

// wakeList returns the sinks to be woken, without self.
func (h *Hub) wakeList(self *Sink) []*Sink {
	list := h.woken[:0]
	for _, s := range h.woken {
		s.listed = false
		if s != self {
			s.pending.Store(true)
			list = append(list, s)
		}
	}
	h.woken = h.woken[:0]
	return list
}

// Output tells the owner of a connection what to do for it.
type Output struct {
	// Conn has output (Front), or is to be closed.
	Conn *Conn
	// Close: nothing more follows. The connection is to be closed when its output is
	// written.
	Close bool
	// Abort: the connection is to be closed at once. Nothing is written.
	Abort bool
	// Bare is what it got so far, if the sink is bare.
	Bare Bare
}

// Expect says that the owner will call Take without being woken. It returns
// false when a wake is under way already.
func (s *Sink) Expect() bool { return s.pending.CompareAndSwap(false, true) }

// Unexpect undoes an Expect if the owner could not arrange to be called.
func (s *Sink) Unexpect() { s.pending.Store(false) }

// Take moves the output of all connections of the sink to outs.
func (s *Sink) Take(outs []Output) []Output { return s.Round(nil, outs) }

func (s *Sink) take(now int64, outs []Output) []Output {
	h := s.hub
	s.pending.Store(false)
	for _, b := range s.spent {
		h.spare.Put(b)
	}
	for _, c := range s.dirty {
		c.dirty = false
		switch c.state {
		case lost:
			continue
		case cut:
			outs = append(outs, Output{Conn: c, Abort: true})
			continue
		}
		c.out.take(now)
		outs = append(outs, Output{Conn: c, Close: c.state == leaving, Bare: c.out.got})
	}
	s.dirty = s.dirty[:0]
	s.spent, s.room = s.spent[:0], maxSpent
	return outs
}
