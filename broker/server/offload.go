package server

import (
	"runtime/debug"

	"gloom/wire"
)

// minOffload is the payload length from which a frame is decoded, and its memory allocated,
// outside the event loop. For 16 MiB, either takes milliseconds, during which all other
// connections would wait. Until the work is done, the frame's own connection is not read. While
// other connections have more than a turn's work, all big frames are handled like this, even
// shorter ones.
const minOffload = 512 << 10

// offload runs work outside the loop, then done on the loop, and then handles the input that has
// arrived meanwhile. bytes is the memory that work holds. work must not touch the loop's data.
func (c *conn) offload(bytes int, work, done func()) {
	c.readState, c.input.offloadedBytes = readAfterOffload, bytes
	resume := func() {
		defer c.recoverPanic()
		c.recordHeard()
		c.readState, c.input.offloadedBytes = readAtNextTurn, 0
		done()
		c.loop.beginTurn(c, 0)
		c.handleInput(nil)
		c.loop.flush()
	}
	go func() {
		defer func() {
			if e := recover(); e != nil {
				stack := debug.Stack()
				resume = func() { c.closeAfterPanic(e, stack) }
			}
			c.loop.poller.Call(func() {
				if c.state < stateClosed {
					resume()
				}
			})
		}()
		c.srv.offloadSlots <- struct{}{}
		defer func() { <-c.srv.offloadSlots }()
		if !c.isClosed.Load() {
			work()
		}
	}()
}

func (c *conn) offloadDecode(payload []byte) {
	b := c.srv.newBatch()
	cmd := b.next(c.hubConn)
	cmd.StableBody, b.hasBigFrame = true, true
	var err *wire.Error
	c.offload(len(payload), func() { err = decodeCommand(&b.decoder, cmd, payload, c.hubConn) }, func() {
		if c.state < stateDraining {
			c.completeCommand(b, cmd, payload, err)
			c.loop.sink.Step(b.commands[:b.count], nil)
		}
	})
}

func (c *conn) offloadGrow() {
	frame, room := c.input.frame, c.input.growTo
	var to []byte
	c.offload(room-cap(frame), func() { to = withCapacity(frame, room) }, func() {
		if c.input.size > 0 {
			c.input.frame, c.input.growTo = to, 0
		}
	})
}
