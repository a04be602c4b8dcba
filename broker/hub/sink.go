package hub

import "sync/atomic"

// Sink is an owner of connections: it alone writes to them. Connections with
// new output stand in its dirty list.
type Sink struct {
	hub   *Hub
	owner Owner

	pending atomic.Bool // the owner knows and will take

	// Guarded by the hub's lock.
	dirty  []*Conn
	listed bool // stands in hub.woken

	// Of the owner only.
	spent [][]byte
}

// Owner is what a sink asks of the owner of its connections.
type Owner struct {
	// Wake asks for a Take soon. It is called without the lock, from any
	// goroutine, at most once between two Takes.
	Wake func()
	// Write, if there is one, takes and writes here and now, and is called before
	// Wake; false: the owner is at work.
	Write func() bool
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

// wakeList returns the sinks to be woken; self is left to itself.
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

// Output is what one connection has to write.
type Output struct {
	Conn *Conn
	// Buf is to be written, with each of Refs inserted where it belongs. Both
	// go back with Done.
	Buf  []byte
	Refs []Ref
	// Close: nothing follows; the connection is to be closed behind it.
	Close bool
	// Abort: it is to be closed at once, nothing is written.
	Abort   bool
	answers int
}

// Ref is a body that stands behind the first At bytes of its buffer.
type Ref struct {
	At   int
	Body []byte
}

// Parts returns the output as a list of pieces, in order.
func (o *Output) Parts(to [][]byte) [][]byte {
	at := 0
	for _, r := range o.Refs {
		to = append(to, o.Buf[at:r.At], r.Body)
		at = r.At
	}
	return append(to, o.Buf[at:])
}

// Len is the output's length in bytes.
func (o *Output) Len() int {
	n := len(o.Buf)
	for _, r := range o.Refs {
		n += len(r.Body)
	}
	return n
}

// Expect says that the owner will call Take without being woken. It returns
// false when a wake is under way already.
func (s *Sink) Expect() bool { return s.pending.CompareAndSwap(false, true) }

// Unexpect takes an Expect back, when the owner could not arrange to be called.
func (s *Sink) Unexpect() { s.pending.Store(false) }

// Take moves the output of all connections of the sink to outs.
func (s *Sink) Take(outs []Output) []Output { return s.Round(nil, outs) }

func (s *Sink) take(outs []Output) []Output {
	h := s.hub
	s.pending.Store(false)
	for _, b := range s.spent {
		h.recycle(b)
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
		outs = append(outs, Output{
			Conn: c, Buf: c.out.buf, Refs: c.out.refs,
			Close: c.state == leaving, answers: c.out.answers,
		})
		h.taken(c)
		c.held.Add(int64(c.out.size()))
		n := c.out.memory()
		h.unread[c.port].queued -= n
		c.pin(c.pinned.Load() + n)
		c.out = outbox{}
	}
	s.dirty = s.dirty[:0]
	s.spent = s.spent[:0]
	return outs
}

// Done gives an output's buffer back, once it is written; unsent is how many
// bytes the connection still holds back, memory what they lie in.
func (s *Sink) Done(o *Output, unsent, memory int) {
	if cap(o.Buf) > 0 && cap(o.Buf) <= maxKept {
		s.spent = append(s.spent, o.Buf[:0])
	}
	o.Conn.sent(o.answers, o.Len(), unsent, memory)
	o.Buf, o.Refs = nil, nil
}

// discard throws away what nobody will take any more. It counts the answers
// among it.
func (h *Hub) discard(c *Conn) {
	h.unread[c.port].queued -= c.out.memory()
	h.stats.Undelivered += uint64(c.out.answers)
	if cap(c.out.buf) > 0 && cap(c.out.buf) <= maxKept {
		h.recycle(c.out.buf[:0])
	}
	c.out = outbox{}
	c.pin(0)
}
