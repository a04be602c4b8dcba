package hub

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"gloom/broker"
	"gloom/wire"
)

// unread is the memory of output that the peers of one port have not read. What
// their outboxes hold is guarded by the hub's lock, what their owners took is not.
type unread struct {
	queued int64
	taken  atomic.Int64
}

// memory is what an outbox holds, in bytes: its buffer, full or not, and bodies.
func (o *outbox) memory() int64 { return int64(cap(o.buf) + o.large) }

// excess is how much more than MaxUnread waits for peers to read it, and the port
// whose peers have most of it. Bodies on their way to workers are held by their
// jobs as well; only what goes beyond those is counted.
func (h *Hub) excess() (over int64, port wire.Port) {
	sum := func(p wire.Port) int64 { return h.unread[p].queued + h.unread[p].taken.Load() }
	s, w := sum(wire.SubmitPort), max(0, sum(wire.WorkerPort)-h.core.BigBytes())
	if w > s {
		port = wire.WorkerPort
	}
	return s + w - h.cfg.MaxUnread, port
}

// shed closes those who have most to read, for longest, until an eighth of
// MaxUnread is free again.
func (h *Hub) shed() {
	over, port := h.excess()
	if over <= 0 || h.cfg.MaxUnread == 0 {
		return
	}
	now := h.clock()
	var held []Holder
	weigh := func(c *Conn) {
		if c.port == port && !c.overflow {
			if n := c.out.memory() + c.pinned.Load(); n > 0 {
				held = append(held, Holder{c, n, c.Stuck(now)})
			}
		}
	}
	for c := range h.leaving {
		weigh(c)
	}
	for _, c := range h.conns {
		if c != nil && !c.closing {
			weigh(c)
		}
	}
	for _, v := range Worst(held, over+h.cfg.MaxUnread/8) {
		h.giveUp(v.Conn)
	}
}

// Holder is a connection that holds memory.
type Holder struct {
	Conn  *Conn
	Bytes int64
	Age   time.Duration // since when, without going on
}

// Worst returns those who hold most for longest, so many that they hold excess
// bytes together.
func Worst(all []Holder, excess int64) []Holder {
	weight := func(v Holder) float64 { return float64(v.Bytes) * (v.Age + time.Second).Seconds() }
	slices.SortFunc(all, func(a, b Holder) int { return cmp.Compare(weight(b), weight(a)) })
	for i := range all {
		if excess <= 0 {
			return all[:i]
		}
		excess -= all[i].Bytes
	}
	return all
}

// Stuck is for how long a peer has read nothing of what waits for it.
func (c *Conn) Stuck(now int64) time.Duration {
	if since := c.since.Load(); since != 0 {
		return time.Duration(now - since)
	}
	return 0
}

// Deaf returns up to limit connections that read nothing of so much as would keep
// their frames from being read.
func (h *Hub) Deaf(limit int) (found []*Conn) {
	now := h.Now()
	h.Each(func(c *Conn) {
		if len(found) < limit && c.held.Load() > little && c.Stuck(now) > 0 {
			found = append(found, c)
		}
	})
	return found
}

// little is what may wait for any peer without keeping its frames from being read.
const little = 64 << 10

// Clogged tells that so much waits for a peer that its frames should not be read:
// they would earn it more. That is MaxOutbound, or, with many such submitters, as
// much as MaxUnread leaves.
func (c *Conn) Clogged() bool {
	held, h := c.held.Load(), c.hub
	return held > int64(h.cfg.MaxOutbound) ||
		held > little && c.port == wire.SubmitPort && h.cfg.MaxUnread > 0 && held > h.cfg.MaxUnread-h.unread[c.port].taken.Load()
}

// pin notes how much memory the output has that the owner took and not written.
func (c *Conn) pin(n int64) { c.hub.unread[c.port].taken.Add(n - c.pinned.Swap(n)) }

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

// Memory is what the hub holds, in bytes.
type Memory struct {
	Unread int64 // output that peers have not read
	Spare  int64 // buffers for more
}

// Memory returns what the hub holds.
func (h *Hub) Memory() Memory {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := Memory{Spare: int64(h.spare)}
	for p := range h.unread {
		m.Unread += h.unread[p].queued + h.unread[p].taken.Load()
	}
	return m
}

// Each calls f with every open connection. It takes the lock for slices of them;
// f must be brief and must not come back to the hub.
func (h *Hub) Each(f func(c *Conn)) {
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
