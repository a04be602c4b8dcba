package hub

import "time"

// A kept outcome is forgotten when the last byte of its frame has been taken by
// the system. The owner of the connection tells of that after it has written;
// the peer may have read the frame by then.

// outcome is a kept outcome on its way out.
type outcome struct {
	no  uint64 // broker.Effect.Outcome
	end uint64 // where its frame ends, in the outbox or in the stream
}

// taken notes that the outbox of c is taken.
func (h *Hub) taken(c *Conn) {
	for _, o := range c.out.outcomes {
		o.end += c.taken
		c.outcomes = append(c.outcomes, o)
		h.outcomes++
	}
	c.taken += uint64(c.out.size())
}

// wrote tells the core of the outcomes of c that end at byte done of the stream
// or before.
func (h *Hub) wrote(c *Conn, done uint64) {
	h.lock()
	now := h.clock()
	rest := c.outcomes[:0]
	for _, o := range c.outcomes {
		if o.end <= done {
			h.written(now, o.no)
			continue
		}
		rest = append(rest, o)
	}
	h.outcomes -= len(c.outcomes) - len(rest)
	c.outcomes = rest
	h.unlock(nil)
}

func (h *Hub) written(now int64, no uint64) {
	defer h.guard()
	h.apply(h.core.Written(now, no))
}

// justWritten is for how long a write may have lasted that the peer can have read
// before its owner told of it. One that lasts longer waits for the peer.
const justWritten = 100 * time.Millisecond

// settle takes the outcome that holds an id for written if its owner is just
// writing it: who submits under the id again has read the frame.
func (h *Hub) settle(now int64, id []byte) {
	no, peer := h.core.OutcomeOf(id)
	if no == 0 {
		return
	}
	if c := h.find(peer); c != nil && c.Stuck(now) < justWritten {
		for _, o := range c.outcomes {
			if o.no == no && (o.end > c.told.Load() || o.end <= c.begun.Load()) {
				h.written(now, no)
			}
		}
	}
}
