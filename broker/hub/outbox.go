package hub

import (
	"gloom/broker"
	"gloom/wire"
)

// outbox is what a connection is to be sent.
type outbox struct {
	buf     []byte
	refs    []Ref
	large   int // bytes of refs
	answers int
	// outcomes are the kept outcomes among it.
	outcomes []outcome
}

func (o *outbox) size() int { return len(o.buf) + o.large }

// refBody is the length from which a body that is kept is referred to instead
// of copied.
const refBody = 128 << 10

// apply appends each effect to its peer's output.
func (h *Hub) apply(fx []broker.Effect) {
	for i := range fx {
		e := &fx[i]
		c := h.find(e.Peer)
		if c == nil && h.fleet != nil && h.fleet.Effect(e) {
			continue
		}
		if c == nil || c.state != open {
			if e.Op == broker.OpResult {
				h.stats.Undelivered++
			}
			continue
		}
		reason := ""
		switch e.Op {
		case broker.OpProgress:
			if c.waiting() > h.cfg.MaxOutbound/2 {
				h.stats.Dropped++
				continue
			}
		case broker.OpClose:
			h.finish(c)
			h.late = append(h.late, c)
			continue
		case broker.OpRefuse, broker.OpEnd:
			h.stats.Errors[codes[e.Code]]++
			reason = Words(e.Reason)
		case broker.OpJob:
			if e.Spent {
				c.spent.Store(true)
			}
		}
		n := len(e.ID) + len(e.Type) + len(e.Headers) + len(reason)
		refer := e.Kept && len(e.Body) >= refBody
		if !refer {
			n += len(e.Body)
		}
		h.put(c, n, func(o *outbox) {
			o.effect(e, reason, refer)
			if e.Outcome != 0 {
				o.outcomes = append(o.outcomes, outcome{no: e.Outcome, end: uint64(o.size())})
			}
		})
	}
}

// effect encodes e, with its reason in words; its body is referred to or copied.
func (o *outbox) effect(e *broker.Effect, reason string, refer bool) {
	switch e.Op {
	case broker.OpOK:
		if e.State != 0 {
			o.buf = wire.AppendAttached(o.buf, e.ID, e.State.String())
		} else if e.ID != nil {
			o.buf = wire.AppendOKID(o.buf, e.ID)
		} else {
			o.buf = wire.AppendOK(o.buf)
		}
	case broker.OpJob:
		o.body(wire.AppendJobHead(o.buf, e.ID, e.Type, e.Headers, len(e.Body)), e.Body, refer)
	case broker.OpResult:
		o.answers++
		o.body(wire.AppendResultHead(o.buf, e.ID, len(e.Body)), e.Body, refer)
	case broker.OpProgress:
		o.body(wire.AppendProgressHead(o.buf, e.ID, len(e.Body)), e.Body, refer)
	case broker.OpCancel:
		o.buf = wire.AppendCancel(o.buf, e.ID)
	case broker.OpRefuse, broker.OpEnd:
		if cause := causes[e.Code]; cause != "" {
			o.buf = wire.AppendJobFailed(o.buf, reason, cause, e.Delay/1e6, e.ID)
			return
		}
		o.buf = wire.AppendError(o.buf, codes[e.Code], reason, e.ID)
	}
}

// body ends a frame, of which buf has all before it.
func (o *outbox) body(buf, body []byte, refer bool) {
	if refer {
		o.refs = append(o.refs, Ref{At: len(buf), Body: body})
		o.large += len(body)
	} else {
		buf = append(buf, body...)
	}
	o.buf = append(buf, wire.BodyEnd)
}

// frameSlack is more than a frame has beside id, type, reason and body.
const frameSlack = 64

// put appends one frame to c's output, whole: the only way in. What decides
// whether c gets the frame comes before it, so that no branch can leave c with
// a buffer that somebody else is given. n is about the frame's length, encode
// appends exactly one frame.
//
// It gives c up if more than it may have was waiting before: the frame that
// passes the limit still fits, or a big job would cost every worker its
// connection.
func (h *Hub) put(c *Conn, n int, encode func(o *outbox)) {
	if c.state != open {
		return
	}
	before, memory := c.waiting(), c.out.memory()
	h.grow(&c.out, n+frameSlack)
	encode(&c.out)
	h.stats.FramesOut++
	h.mark(c)
	if grown := c.out.memory() - memory; grown != 0 {
		h.queue(c, grown)
	}
	if before > h.cfg.MaxOutbound && c.state == open { // and did not just go for what all hold
		h.giveUp(c)
	}
}

// grow makes room for n bytes more in o. It grows by fours, from a size on that
// counts by halves, and what it outgrows is used again.
func (h *Hub) grow(o *outbox, n int) {
	b := o.buf
	need := len(b) + n
	switch {
	case need <= cap(b):
	case b == nil:
		o.buf = h.blank(max(need, minBlank))
	default:
		more := 3 * cap(b)
		if cap(b) >= largeBuf {
			more = cap(b) / 2
		}
		o.buf = append(h.blank(max(need, cap(b)+more)), b...)
		h.recycle(b[:0])
	}
}

// largeBuf is the buffer from which on output grows by halves, in bytes.
const largeBuf = 256 << 10

const (
	// maxKept is the largest buffer that is used again, maxFree what all spare
	// buffers together may hold, in bytes.
	maxKept = 4 << 20
	maxFree = 16 << 20
)

// recycle keeps a spare buffer, the large ones apart, so that a peer that is
// sent little does not hold what another needs.
func (h *Hub) recycle(b []byte) {
	if broker.Checking {
		for i := range b[:cap(b)] {
			b[:cap(b)][i] = 0xA5 // who still reads it, shows
		}
	}
	if h.spare+cap(b) > maxFree {
		return
	}
	h.spare += cap(b)
	k := class(cap(b))
	h.free[k] = append(h.free[k], b)
}

// Trim gives up half of the spare buffers. Called every few seconds it keeps what
// is used again, and nothing of what only a rush took.
func (h *Hub) Trim() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, list := range h.free {
		for half := len(list) / 2; len(list) > half; {
			n := len(list) - 1
			h.spare -= cap(list[n])
			list[n] = nil
			list = list[:n]
		}
		h.free[k] = list
	}
}

// blank returns an empty buffer for n bytes, spare or new. A spare one is no
// larger than four times that, or 64 KiB: all of it counts as what its peer has
// not read.
func (h *Hub) blank(n int) []byte {
	most := max(4*n, 64<<10)
	for k := class(n); k < min(class(n)+2, classes); k++ {
		f := h.free[k]
		if len(f) == 0 {
			continue
		}
		if spare := cap(f[len(f)-1]); spare >= n && spare <= most {
			b := f[len(f)-1]
			f[len(f)-1] = nil
			h.free[k] = f[:len(f)-1]
			h.spare -= cap(b)
			return b
		}
	}
	return make([]byte, 0, n)
}

// class sorts buffers by size: powers of four from 1 KiB on.
func class(n int) int {
	k := 0
	for ; n > 1<<10 && k < classes-1; k++ {
		n >>= 2
	}
	return k
}

const (
	classes  = 6
	minBlank = 1 << 10
)
