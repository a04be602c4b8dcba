package hub

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"gloom/broker"
	"gloom/wire"
)

// Besides jobs, peers make the broker hold unread output (bounded by MaxUnread), unfinished frames
// (MaxInbound) and the memory of TLS (MaxTLS). This file enforces these bounds. If there is too
// much output or input, connections are closed until an eighth of the bound is free again: first
// those with the largest product of bytes held and time without progress. A TLS connection beyond
// the bound is refused.
//
// A peer that does not read is slowed, then closed. Above half of MaxOutbound, it gets no
// progress and no jobs and may not submit (isSlow, renewCredit). If more than its share waits for it,
// its frames are not read (Congested); if it then reads nothing for maxStuckTime, it is closed
// (Sweep). The frame after the one that exceeds MaxOutbound closes it at once (appendFrame).

// unfinishedFrames describes the unfinished frames of a connection. Only its owner writes it; any
// goroutine may read it.
type unfinishedFrames struct {
	bytes      atomic.Int64 // counted in Hub.inputBytes
	begunAt    atomic.Int64 // when the frame began, on the hub's clock
	progressAt atomic.Int64 // when the latest bytes of the frame came
	frame      uint64       // the number of the frame; only the owner uses it
}

// renewCredit gives a worker whose credit is used up new credit, if at most half of the old credit
// is still unread.
func (h *Hub) renewCredit(c *Conn) {
	h.Update(func(now int64) {
		if limit := h.cfg.MaxOutbound / 2; c.outbox.waitingBytes() <= limit/2 {
			c.creditSpent.Store(false)
			h.appendEffects(h.core.SetCredit(now, c.Peer, int64(limit-c.outbox.waitingBytes())))
		}
	})
}

// SetDoubtful says whether a peer is doubtful: it does not answer pings. A doubtful worker gets no jobs.
func (h *Hub) SetDoubtful(c *Conn, is bool) {
	if !is {
		c.creditSpent.Store(true)
		h.renewCredit(c)
		return
	}
	h.Update(func(now int64) {
		c.creditSpent.Store(false) // otherwise the next write renews the credit
		h.appendEffects(h.core.SetCredit(now, c.Peer, 0))
	})
}

// shedUnread closes connections if the unread output of all peers exceeds its bound, as it may
// after a step. It acts on the port with more unread output, and closes the connections with the
// most.
func (h *Hub) shedUnread() {
	// Large bodies count with their jobs, so for workers only the output beyond these bodies
	// counts.
	toSubmitters, toWorkers := h.unreadBytes[wire.SubmitPort].Load(), max(0, h.unreadBytes[wire.WorkerPort].Load()-h.core.BigBytes())
	excess, port := toSubmitters+toWorkers-h.cfg.MaxUnread, wire.SubmitPort
	if excess <= 0 || h.cfg.MaxUnread == 0 {
		return
	}
	if toWorkers > toSubmitters {
		port = wire.WorkerPort
	}
	for _, victim := range h.connsToClose(excess+h.cfg.MaxUnread/8, func(c *Conn) (bytes, since int64) {
		if c.Port != port {
			return 0, 0
		}
		return c.outbox.waitingMemory.Load(), c.outbox.waitingSince.Load()
	}) {
		h.abort(victim.conn)
	}
}

// RecordUnfinished records how many bytes of unfinished frames c holds; frame is the number of the
// first of these frames. Only the owner calls it.
func (c *Conn) RecordUnfinished(bytes int, frame uint64) {
	unfinished, h := &c.unfinished, c.hub
	n, oldBytes := int64(bytes), unfinished.bytes.Load()
	if n == 0 {
		if oldBytes != 0 {
			h.inputBytes.Add(-unfinished.bytes.Swap(0))
		}
		return
	}
	now := h.clock()
	if oldBytes == 0 || unfinished.frame != frame {
		unfinished.begunAt.Store(now)
		unfinished.frame = frame
	}
	unfinished.progressAt.Store(now)
	if n == oldBytes {
		return
	}
	oldBytes = unfinished.bytes.Swap(n)
	if total := h.inputBytes.Add(n - oldBytes); n > oldBytes && h.cfg.MaxInbound > 0 && total > h.cfg.MaxInbound {
		h.shedUnfinished()
	}
}

func (h *Hub) shedUnfinished() {
	h.Update(func(int64) {
		total, limit := h.inputBytes.Load(), h.cfg.MaxInbound
		if total <= limit {
			return
		}
		for _, victim := range h.connsToClose(total-limit+limit/8, func(c *Conn) (bytes, since int64) {
			return c.unfinished.bytes.Load(), c.unfinished.begunAt.Load()
		}) {
			h.closeUnfinished(victim.conn, fmt.Sprintf(
				"all connections together hold %d bytes of unfinished frames, at most %d are allowed (max-inbound), and this one holds %d", total, limit, victim.bytes))
		}
	})
}

// closeUnfinished closes c because of its unfinished frame, which no longer counts.
func (h *Hub) closeUnfinished(c *Conn, why string) {
	h.inputBytes.Add(-c.unfinished.bytes.Swap(0))
	h.closeWith(c, &wire.Error{Code: wire.Overloaded, Reason: why})
}

// ReserveTLS reserves n bytes for TLS or, if n is negative, gives back -n bytes. It returns
// false if there is no room.
func (h *Hub) ReserveTLS(n int64) bool {
	if total := h.tlsBytes.Add(n); n > 0 && h.cfg.MaxTLS > 0 && total > h.cfg.MaxTLS {
		h.tlsBytes.Add(-n)
		return false
	}
	return true
}

// connToClose is a connection to close, its bytes, and the product by which it was chosen.
type connToClose struct {
	conn   *Conn
	bytes  int64
	weight float64
}

// connsToClose returns the connections to close: those with the largest product of bytes held and time
// without progress, and as many as together hold excess bytes. holds returns how many bytes a
// connection holds and since when it has made no progress (0 means now).
func (h *Hub) connsToClose(excess int64, holds func(c *Conn) (bytes, since int64)) []connToClose {
	now := h.clock()
	var candidates []connToClose
	weigh := func(c *Conn) {
		if c.state == stateAborted {
			return
		}
		if n, since := holds(c); n > 0 {
			candidates = append(candidates, connToClose{c, n, float64(n) * (elapsed(now, since) + time.Second).Seconds()})
		}
	}
	for c := range h.closingConns {
		weigh(c)
	}
	for _, c := range h.conns {
		if c != nil && c.state == stateOpen {
			weigh(c)
		}
	}
	slices.SortFunc(candidates, func(a, b connToClose) int { return cmp.Compare(b.weight, a.weight) })
	for i := range candidates {
		if excess <= 0 {
			return candidates[:i]
		}
		excess -= candidates[i].bytes
	}
	return candidates
}

func elapsed(now, since int64) time.Duration {
	if since == 0 {
		return 0
	}
	return time.Duration(now - since)
}

// UnreadTime returns how long output has waited for a peer that read none of it.
func (c *Conn) UnreadTime(now int64) time.Duration { return elapsed(now, c.outbox.waitingSince.Load()) }

const (
	// maxUnfinishedTime is how long an unfinished frame may get no further bytes. maxStuckTime is
	// how long a congested connection may read nothing.
	maxUnfinishedTime = time.Minute
	maxStuckTime      = 5 * time.Second
)

// hasStalledFrame reports whether an unfinished frame of c has got no bytes for maxUnfinishedTime.
func (c *Conn) hasStalledFrame(now int64) bool {
	return c.unfinished.bytes.Load() > 0 && now-c.unfinished.progressAt.Load() > int64(maxUnfinishedTime)
}

// Sweep closes connections whose unfinished frames get no further bytes, and congested connections
// that read nothing. It makes the owners of other connections with much to read check these
// connections again: congestion depends on the unread output of all peers.
func (h *Hub) Sweep() {
	now := h.Now()
	var found []*Conn
	h.EachConn(func(c *Conn) {
		if c.hasStalledFrame(now) || c.UnreadBytes() > smallBacklog {
			found = append(found, c)
		}
	})
	for _, c := range found {
		h.Update(func(int64) {
			switch {
			case c.hasStalledFrame(now):
				h.closeUnfinished(c, fmt.Sprintf("no byte of an unfinished frame has arrived for %v", maxUnfinishedTime))
			case c.state != stateOpen:
			case c.Congested() && c.UnreadTime(now) > maxStuckTime:
				h.abort(c)
			default:
				h.markDirty(c)
			}
		})
	}
}

// SlowReaders returns up to limit connections for which much waits that they do not read.
func (h *Hub) SlowReaders(limit int) (conns []*Conn) {
	now := h.Now()
	h.EachConn(func(c *Conn) {
		if len(conns) < limit && c.UnreadBytes() > smallBacklog && c.UnreadTime(now) > 0 {
			conns = append(conns, c)
		}
	})
	return conns
}

// smallBacklog is the number of bytes that may wait for any peer before the peer can be congested.
const smallBacklog = 64 << 10

// Congested reports whether so much waits for a peer that its frames should not be read, because
// they would cause more output. The limit is MaxOutbound or, for submitters, what is left of
// MaxUnread.
func (c *Conn) Congested() bool {
	unreadBytes, h := int64(c.UnreadBytes()), c.hub
	return unreadBytes > int64(h.cfg.MaxOutbound) ||
		unreadBytes > smallBacklog && c.Port == wire.SubmitPort && h.cfg.MaxUnread > 0 && unreadBytes > h.cfg.MaxUnread-h.unreadBytes[c.Port].Load()
}

// Memory holds the sizes of the parts of the hub's memory, in bytes.
type Memory struct {
	Unread int64 // output that peers have not read
	Input  int64 // unfinished frames
	Spare  int64 // unused buffers
	TLS    int64 // what TLS itself takes for its connections, estimated from idle ones
	Fleet  int64 // frames that wait for other brokers or are on their way to them
}

// Total returns the sum of all parts.
func (m Memory) Total() int64 { return m.Unread + m.Input + m.Spare + m.TLS + m.Fleet }

// Memory returns how much memory the hub holds.
func (h *Hub) Memory() Memory {
	h.mu.Lock()
	fleet, spare := h.fleet, h.spareBuffers.HeldBytes
	h.mu.Unlock()
	m := Memory{Spare: int64(spare), Input: h.inputBytes.Load(), TLS: h.tlsBytes.Load()}
	for port := range h.unreadBytes {
		m.Unread += h.unreadBytes[port].Load()
	}
	if fleet != nil {
		m.Fleet = fleet.Memory()
	}
	return m
}

// maxSpareBytes bounds the bytes of all spare buffers together.
const maxSpareBytes = 16 << 20

// Trim frees half of the spare buffers.
func (h *Hub) Trim() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spareBuffers.Trim()
}

// EachConn calls f with every open connection, with the lock held. Between slices of the
// connections it releases the lock. f must be brief and must not call the hub.
func (h *Hub) EachConn(f func(c *Conn)) {
	const slice = 512
	for from, more := 0, true; more; from += slice {
		h.View(func(*broker.Broker, int64) {
			end := min(from+slice, len(h.conns))
			for i := from; i < end; i++ {
				if c := h.conns[i]; c != nil {
					f(c)
				}
			}
			more = end < len(h.conns)
		})
	}
}
