package server

import (
	"math"
	"runtime"
	"runtime/debug"

	"gloom/wire"
)

// giantFrom is the payload from which a frame is decoded, and memory for it
// found, beside the event loop: at 16 MiB either takes milliseconds, for which
// all other connections would wait. Meanwhile its own connection is not read.
// Where others have more than a turn's work, that begins with any big frame.
const giantFrom = 512 << 10

// giantSlots bounds how many are seen to at a time. One processor is left to the loops.
func giantSlots() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)) }

// inSlot does what takes long, for a goroutine that may block.
func (s *Server) inSlot(work func()) {
	s.giants <- struct{}{}
	defer func() { <-s.giants }()
	work()
}

// offload has work done beside the loop; it holds so many bytes and must touch
// nothing that is the loop's. Then, on the loop, done follows, and what has come
// meanwhile.
func (p *plain) offload(bytes int, work, done func()) {
	p.big.busy, p.big.inHand = true, bytes
	// What it sends meanwhile is not read: its silence means nothing.
	p.heard.Store(math.MaxInt64 / 2)
	s, lp := p.srv, p.loop
	go func() {
		defer func() {
			if e := recover(); e != nil {
				stack := debug.Stack()
				lp.poller.do(func() { p.fault(e, stack) })
				return
			}
			lp.poller.do(func() { p.resumed(done) })
		}()
		s.inSlot(func() {
			if !p.over.Load() {
				work()
			}
		})
	}()
}

func (p *plain) resumed(done func()) {
	p.big.busy, p.big.inHand = false, 0
	if p.gone() {
		return
	}
	p.heard.Store(p.srv.hub.Now())
	p.finish(done)
	p.loop.turn(p)
	p.received(nil) // what has come meanwhile
	if p.closing && !p.gone() {
		p.loop.poller.again(p.fd) // to throw away what has not been read
	}
	p.loop.afterRead()
}

func (p *plain) finish(done func()) {
	defer func() {
		if e := recover(); e != nil {
			p.fault(e, debug.Stack())
		}
	}()
	done()
}

// decodeGiant decodes a giant frame.
func (p *plain) decodeGiant() {
	b := p.srv.batches.Get().(*batch)
	payload := p.big.take()
	c := b.next()
	c.Kept, b.big = true, true
	var err *wire.Error
	p.offload(len(payload), func() { err = p.decode(&b.dec, c, payload) }, func() {
		if !p.closing {
			p.settle(b, c, payload, err)
			p.step(b)
		}
		c.Req, b.n, b.big, b.now = wire.Request{}, 0, false, false
		p.srv.batches.Put(b)
	})
}

// growGiant finds more memory for a giant frame.
func (p *plain) growGiant() {
	buf, most := p.big.buf, p.big.want
	p.big.want = 0
	var to []byte
	p.offload(most-cap(buf), func() { to = grown(buf, most) }, func() {
		if p.big.size > 0 {
			p.big.buf = to
		}
	})
}
