package hub

import "time"

// A kept outcome is forgotten once the system has taken the last byte of its frame. The
// connection's owner reports that after it has written; by then the peer may have read the
// frame.

// maxWriteOutcomes limits the outcomes that are written before other connections get their turn.
// The core forgets all of them in one step.
const maxWriteOutcomes = 512

// outcomesWritten tells the core which of c's outcomes are written: those whose frames end at
// position done of the stream or before it.
func (h *Hub) outcomesWritten(c *Conn, done uint64) {
	h.Update(func(now int64) {
		o, n := &c.outbox, 0
		for ; n < len(o.marks) && o.marks[n].end <= done; n++ {
			if m := o.marks[n]; m.outcome != 0 {
				h.outcomes--
				h.appendEffects(h.core.OutcomeWritten(now, m.outcome))
			}
		}
		if n == len(o.marks) {
			o.marks = o.marks[:0]
		}
		o.marks = o.marks[min(n, len(o.marks)):] // the rest is not copied to the front, which would double the cost
		o.setWriteLimit()
	})
}

// setWriteLimit sets the position at which the next write of the owner must end.
func (o *outbox) setWriteLimit() {
	o.writeLimit = o.takenEnd
	if len(o.marks) > maxWriteOutcomes {
		o.writeLimit = min(o.takenEnd, o.marks[maxWriteOutcomes-1].end)
	}
}

// maxQuickWrite is longer than any write that does not wait for the peer. During such a write, the
// peer may read the frame before the owner reports the write.
const maxQuickWrite = 100 * time.Millisecond

// settleReusedID treats the outcome with this id as written if its frame is being written: a
// submitter that reuses the id has read the frame.
func (h *Hub) settleReusedID(now int64, id []byte) {
	outcome, peer := h.core.OutcomeOf(id)
	if outcome == 0 {
		return
	}
	if c := h.connOf(peer); c != nil && c.UnreadTime(now) < maxQuickWrite {
		for _, m := range c.outbox.marks {
			if m.end > c.outbox.maybeReadEnd.Load() {
				break
			} else if m.outcome == outcome {
				h.appendEffects(h.core.OutcomeWritten(now, outcome))
			}
		}
	}
}
