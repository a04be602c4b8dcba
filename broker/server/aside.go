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
const giantFrom = 1 << 20

// asides bounds how many do so at a time. One processor is left to the loops.
func asides() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)) }

// aside has work done beside the loop; it holds so many bytes and must touch
// nothing that is the loop's. Then, on the loop, done follows, and what has come
// meanwhile.
func (p *plain) aside(bytes int, work, done func()) {
	p.busy, p.inHand = true, bytes
	// What it sends meanwhile is not read: its silence means nothing.
	p.heard.Store(math.MaxInt64 / 2)
	s, lp := p.srv, p.loop
	go func() {
		s.asides <- struct{}{}
		defer func() {
			<-s.asides
			if e := recover(); e != nil {
				stack := debug.Stack()
				lp.do(func() { p.fault(e, stack) })
				return
			}
			lp.do(func() { p.resume(done) })
		}()
		if !p.over.Load() {
			work()
		}
	}()
}

func (p *plain) resume(done func()) {
	p.busy, p.inHand = false, 0
	if p.gone() {
		return
	}
	p.heard.Store(p.srv.hub.Now())
	p.finish(done)
	rest := p.rest
	p.rest = nil
	p.received(rest)
	if !p.busy && !p.gone() {
		p.loop.again(p) // what came meanwhile has not been read
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

// decodeAside decodes a giant frame.
func (p *plain) decodeAside() {
	b := p.srv.batches.Get().(*batch)
	payload, named := p.giantFrame, p.named
	p.giantFrame = nil
	c, d := b.next()
	c.Kept = true
	var err *wire.Error
	p.aside(len(payload), func() { err = d.Decode(payload, p.port, named, &c.Req) }, func() {
		p.srv.released.Add(int64(len(payload)))
		if !p.closing {
			p.settle(b, c, payload, err)
			p.step(b)
		}
		c.Req, b.n = wire.Request{}, 0
		p.srv.batches.Put(b)
	})
}

// growAside finds more memory for a giant frame.
func (p *plain) growAside() {
	big, most := p.big, p.giantCap
	p.giantCap = 0
	var to []byte
	p.aside(most-cap(big), func() { to = grown(big, most) }, func() {
		if p.big != nil {
			p.move(to)
		}
	})
}
