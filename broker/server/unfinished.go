package server

import (
	"fmt"
	"sync/atomic"
	"time"

	"gloom/broker/hub"
	"gloom/wire"
)

const (
	// frameTime is how long a frame that has begun may stand still.
	frameTime = time.Minute
	// largeDrop is what of an unfinished frame is collected at once, in bytes.
	largeDrop = 1 << 20
)

// unfinished is what a connection holds of frames that have not come whole. Its reader
// writes it, anybody reads it.
type unfinished struct {
	bytes  atomic.Int64 // counted in Server.inbound
	begun  atomic.Int64 // when the frame began, on the hub's clock
	moved  atomic.Int64 // when the last of it came
	frames int          // that had come when it began; of the reader only
}

// count notes that the connection holds so many bytes of unfinished frames beside the
// big one. With too many from all connections, who holds most for
// longest goes.
func (s *session) count(left int) {
	h := &s.unfinished
	n, old := int64(left+s.big.held()), h.bytes.Load()
	if n == 0 && old == 0 {
		return
	}
	if n == 0 {
		s.srv.inbound.Add(-h.bytes.Swap(0))
		return
	}
	now := s.srv.hub.Now()
	if old == 0 || h.frames != s.frames {
		h.begun.Store(now)
		h.frames = s.frames
	}
	h.moved.Store(now)
	if n == old {
		return
	}
	old = h.bytes.Swap(n)
	if total := s.srv.inbound.Add(n - old); n > old && total > s.srv.opt.MaxInbound {
		s.srv.shed()
	}
}

// drop throws the unfinished frame away. A large one is not left to the collector's
// own pace: who hoards them may come again faster.
func (s *session) drop() {
	if cap(s.big.buf) >= largeDrop {
		notify(s.srv.dropped)
	}
	s.big.reset()
	s.count(0)
}

// shed closes those who hold most of unfinished frames, for longest, until an
// eighth of the bound is free again.
func (s *Server) shed() {
	s.shedding.Lock()
	defer s.shedding.Unlock()
	total, most := s.inbound.Load(), s.opt.MaxInbound
	if total <= most {
		return
	}
	now := s.hub.Now()
	var held []hub.Holder
	s.hub.Each(func(c *hub.Conn) {
		h := &c.Owner.(owner).base().unfinished
		if n := h.bytes.Load(); n > 0 {
			held = append(held, hub.Holder{Conn: c, Bytes: n, Age: time.Duration(now - h.begun.Load())})
		}
	})
	for _, v := range hub.Worst(held, total-most+most/8) {
		v.Conn.Owner.(owner).base().dismiss(&wire.Error{Code: wire.Overloaded, Reason: fmt.Sprintf(
			"%d bytes of unfinished frames have come from all connections, at most %d may (max-inbound), and this one holds %d", total, most, v.Bytes)})
	}
}

// dismiss closes a connection for the unfinished frame that it holds, which is not
// counted any more.
func (s *session) dismiss(why *wire.Error) {
	s.srv.inbound.Add(-s.unfinished.bytes.Swap(0))
	s.srv.hub.Dismiss(s.conn, why)
}

// owner is what stands behind a connection of the hub: a plain or TLS one.
type owner interface{ base() *session }

func (s *session) base() *session { return s }

const (
	// sweepEvery is how often connections are looked at for what stands still.
	sweepEvery = 3 * time.Second
	// stuckTime is how long a connection whose frames are not read, since it has
	// too much to read itself, may go on not reading.
	stuckTime = 5 * time.Second
)

// sweep closes who goes on neither with a frame that it began nor, having far too
// much to read, with reading.
func (s *Server) sweep() {
	now := s.hub.Now()
	var stalled, stuck, ready []*session
	s.hub.Each(func(c *hub.Conn) {
		p := c.Owner.(owner).base()
		if p.unfinished.bytes.Load() > 0 && now-p.unfinished.moved.Load() > int64(frameTime) {
			stalled = append(stalled, p)
		}
		if p.paused.Load() {
			if c.Stuck(now) > stuckTime {
				stuck = append(stuck, p)
			} else if !c.Clogged() {
				ready = append(ready, p)
			}
		}
	})
	for _, p := range stalled {
		p.dismiss(&wire.Error{Code: wire.Overloaded, Reason: fmt.Sprintf("a frame began and has not gone on for %v", frameTime)})
	}
	for _, p := range stuck {
		s.log.Warn().Str("peer", p.conn.Remote).Msg("closed a connection that does not read")
		p.shut()
	}
	for _, p := range ready {
		p.unpause()
	}
}
