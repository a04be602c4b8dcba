package server

import (
	"runtime/debug"

	"gloom/wire"
)

// giantFrom is the payload length from which a frame is decoded, and its memory allocated,
// outside the event loop. At 16 MiB either takes milliseconds, for which all other connections
// would wait. Until it is done, the frame's own connection is not read. While other connections
// have more than a turn's work, every big frame is handled like this.
const giantFrom = 512 << 10

// goAside runs work beside the loop, then done on the loop, and then handles what has arrived in
// between. work holds the given number of bytes and must not touch anything of the loop's.
func (c *conn) goAside(bytes int, work, done func()) {
	c.reading, c.in.aside = aside, bytes
	back := func() {
		defer c.rescue()
		c.heard = c.srv.hub.Now()
		c.reading, c.in.aside = forTurn, 0
		done()
		c.loop.turn(c, 0)
		c.received(nil)
		c.loop.flush()
	}
	go func() {
		defer func() {
			if e := recover(); e != nil {
				stack := debug.Stack()
				back = func() { c.fault(e, stack) }
			}
			c.loop.poller.Call(func() {
				if c.state < closed {
					back()
				}
			})
		}()
		c.srv.giants <- struct{}{}
		defer func() { <-c.srv.giants }()
		if !c.over.Load() {
			work()
		}
	}()
}

func (c *conn) decodeAside(payload []byte) {
	b := c.srv.newBatch()
	m := b.next(c.peer)
	m.Kept, b.big = true, true
	var err *wire.Error
	c.goAside(len(payload), func() { err = decode(&b.dec, m, payload, c.peer) }, func() {
		if c.state < draining {
			c.command(b, m, payload, err)
			c.loop.sink.Step(b.cmd[:b.n])
		}
	})
}

func (c *conn) growAside() {
	frame, room := c.in.frame, c.in.want
	var to []byte
	c.goAside(room-cap(frame), func() { to = grown(frame, room) }, func() {
		if c.in.size > 0 {
			c.in.frame, c.in.want = to, 0
		}
	})
}
