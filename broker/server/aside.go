package server

import (
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

// goAside has work done beside the loop; it holds so many bytes and must touch
// nothing that is the loop's. Then, on the loop, done follows, and what has come
// meanwhile.
func (c *conn) goAside(bytes int, work, done func()) {
	c.reading, c.in.aside = aside, bytes
	go func() {
		defer func() {
			e := recover()
			var stack []byte
			if e != nil {
				stack = debug.Stack()
			}
			c.loop.poller.Call(func() { c.back(done, e, stack) })
		}()
		c.srv.giants <- struct{}{}
		defer func() { <-c.srv.giants }()
		if !c.over.Load() {
			work()
		}
	}()
}

// back goes on with the connection; e is a fault of the work.
func (c *conn) back(done func(), e any, stack []byte) {
	defer c.rescue()
	switch {
	case c.state == closed:
		return
	case e != nil:
		c.fault(e, stack)
		return
	}
	c.heard = c.srv.hub.Now()
	c.reading, c.in.aside = forTurn, 0
	done()
	c.loop.turn(c, 0)
	c.received(nil)
	c.loop.flush()
}

// decodeAside decodes a frame.
func (c *conn) decodeAside(payload []byte) {
	b := c.srv.batches.Get().(*batch)
	m := b.next(c.peer)
	m.Kept, b.big = true, true
	var err *wire.Error
	c.goAside(len(payload), func() { err = decode(&b.dec, m, payload, c.peer) }, func() {
		if c.state < draining {
			c.command(b, m, payload, err)
			c.loop.sink.Step(b.cmd[:b.n])
		}
		b.done()
		c.srv.batches.Put(b)
	})
}

// growAside finds more memory for a frame.
func (c *conn) growAside() {
	frame, room := c.in.frame, c.in.want
	var to []byte
	c.goAside(room-cap(frame), func() { to = grown(frame, room) }, func() {
		if c.in.size > 0 {
			c.in.frame, c.in.want = to, 0
		}
	})
}
