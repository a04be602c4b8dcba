package hub

import (
	"slices"
	"time"
)

// A kept outcome is forgotten once the system has taken the last byte of its frame. The
// connection's owner reports that after it has written; the peer may have read the frame
// before.

// wrote tells the core of c's outcomes whose frames end at byte done of the stream or before.
func (h *Hub) wrote(c *Conn, done uint64) {
	h.act(func(now int64) {
		c.out.marks = slices.DeleteFunc(c.out.marks, func(m mark) bool {
			out := m.outcome != 0 && m.end <= done
			if out {
				h.outcomes--
				h.apply(h.core.Written(now, m.outcome))
			}
			return out
		})
	})
}

// justWritten is how long a write may take during which the peer can have read the frame
// before its owner reports it. A longer write waits for the peer.
const justWritten = 100 * time.Millisecond

// settle treats the outcome of an id as written if its frame is just being written: a
// submitter that uses the id again has read the frame.
func (h *Hub) settle(now int64, id []byte) {
	no, peer := h.core.OutcomeOf(id)
	if no == 0 {
		return
	}
	if c := h.find(peer); c != nil && c.Stuck(now) < justWritten {
		for _, m := range c.out.marks {
			if m.outcome == no && m.end <= c.out.begun.Load() {
				h.apply(h.core.Written(now, no))
			}
		}
	}
}
