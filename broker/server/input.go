package server

import (
	"encoding/binary"
	"fmt"
	"runtime/debug"

	"gloom/broker/container"
	"gloom/wire"
)

const (
	// minBigFrame is the payload length from which a frame gets memory of its own, so that its
	// body can be kept without a copy. For smaller frames, a copy into reused memory costs
	// less than collecting garbage.
	minBigFrame = 128 << 10
	// maxGrowth bounds the memory of an unfinished frame: it is at most this many times what has
	// arrived.
	maxGrowth = 4
)

// handleInput takes the data of a read and turns it into commands, unless the connection must
// wait.
func (c *conn) handleInput(data []byte) {
	defer c.recoverPanic()
	if c.state >= stateDraining {
		c.dropBytes(len(data))
		return
	}
	c.input.feed(data)
	if before := c.readState; before == readReady || before == readAtNextTurn {
		c.readState = readReady
		usedBytes := len(c.input.data)
		c.decodeFrames(c.loop.batch)
		if c.state < stateDraining {
			usedBytes -= len(c.input.data)
		}
		c.srv.bytesIn.Add(uint64(usedBytes))
		if c.readLimit = min(c.readLimit+c.readLimit/4, readBufSize); c.readState == readAtNextTurn {
			c.readLimit = max(usedBytes, minReadLimit)
			c.source.requestTurn()
		} else if c.readState == readReady && before != readReady {
			c.source.requestTurn() // so that bytes are read that arrived while the connection was not read
		}
	}
	if c.state >= stateDraining {
		c.dropBytes(0)
		return
	}
	if len(c.input.rest) > 0 {
		c.loop.runBatch() // the batch may have commands that point into rest
	}
	c.input.keepRest()
	c.hubConn.RecordUnfinished(c.input.heldBytes(), c.input.frames)
}

// decodeFrames turns the frames that have arrived into commands, until the turn is over (readAtNextTurn) or
// a frame takes a long time (offloaded). A full batch is carried out at once, the rest at the end of
// the loop's round.
func (c *conn) decodeFrames(b *batch) {
	for c.state < stateDraining && c.readState == readReady {
		payload, stable, err := c.input.nextPayload()
		switch {
		case err != nil && c.unauthenticated():
			c.refuseUntilHello(b)
		case err != nil:
			c.refuse(b, err)
		case c.input.growTo > 0:
			c.offloadGrow()
		case payload == nil:
			return
		case stable && len(payload) > c.input.maxOwnAlloc:
			c.loop.runBatch()
			c.offloadDecode(payload)
		default:
			c.addRequest(b, payload, stable)
		}
		if b.count == batchSize || b.mustStep || c.input.inUse {
			c.loop.runBatch()
			c.input.release()
			if c.readState == readReady && (b.turnFrames >= maxTurnFrames || c.srv.hub.Now() >= b.turnEnd) && len(c.input.data) > 0 {
				c.readState = readAtNextTurn
			}
		}
	}
}

// recoverPanic must be deferred wherever frames are handled.
func (c *conn) recoverPanic() {
	if e := recover(); e != nil {
		c.closeAfterPanic(e, debug.Stack())
	}
}

// closeAfterPanic closes the connection after a panic in decoding, which affects only this peer. (A
// panic in the core ends the process before it gets here.)
func (c *conn) closeAfterPanic(e any, stack []byte) {
	c.srv.log.Error().Str("peer", c.remote).Bytes("stack", stack).Msg(fmt.Sprintf("closed a connection because of a bug in the broker: %v", e))
	if b := c.loop.batch; b.count > 0 && b.commands[b.count-1].From == c.hubConn {
		b.count-- // this command caused the panic
	}
	c.loop.closeConn(c)
}

// input assembles the frames of a connection. A frame that is whole in the data of one read is
// used in place. The memory of an unfinished frame grows with the bytes that have arrived, not
// with the length that the header announces. A big frame has memory of its own; the memory of
// others is reused.
type input struct {
	pool *container.Buffers
	// maxPayload is the longest payload that a frame may have.
	maxPayload int
	// data holds the bytes that have arrived and not been used. It is valid from feed to keepRest.
	data []byte
	// frame holds what has arrived of the unfinished frame, with the header. size is the frame's
	// full length, or 0 while the header, which is in head, is incomplete.
	frame []byte
	head  [wire.HeaderLen]byte
	size  int
	// inUse reports that frame is whole, and that its payload is in use until release.
	inUse bool
	// maxOwnAlloc is the largest buffer, in bytes, that input allocates for a big frame by itself.
	// For a larger one it sets growTo, and the caller grows the frame to that many bytes.
	maxOwnAlloc, growTo int
	// rest is input that waits for the next turn, beginning at restAt.
	rest   []byte
	restAt int
	// offloadedBytes is how many bytes offloaded work holds for the connection.
	offloadedBytes int
	// frames is how many whole frames have arrived.
	frames uint64
}

// feed appends data to what earlier reads have left.
func (in *input) feed(data []byte) {
	if in.data = data; len(in.rest) > 0 {
		in.rest = append(in.rest, data...)
		in.data = in.rest[in.restAt:]
	}
}

// nextPayload returns the payload of the next whole frame, nil if there is none, and whether it is in
// memory that nobody writes to again. When it returns a nil payload, no data is left, unless
// growTo is set because the frame must grow first.
func (in *input) nextPayload() (payload []byte, stable bool, err *wire.Error) {
	if len(in.frame) == 0 && in.size == 0 {
		n := 0
		payload, n, err = wire.SplitFrame(in.data, in.maxPayload)
		if n > 0 || err != nil || len(in.data) == 0 {
			in.frames += uint64(min(n, 1))
			in.data = in.data[n:]
			return payload, false, err
		}
		if in.frame = in.head[:0]; len(in.data) >= wire.HeaderLen {
			in.size = wire.HeaderLen + payloadLength(in.data)
		}
	}
	if in.size == 0 {
		if in.fillFrame(wire.HeaderLen); len(in.frame) < wire.HeaderLen {
			return nil, false, nil
		}
		if _, _, err = wire.SplitFrame(in.frame, in.maxPayload); err != nil {
			return nil, false, err
		}
		in.size = wire.HeaderLen + payloadLength(in.frame)
	}
	if in.fillFrame(in.size); len(in.frame) < in.size {
		return nil, false, nil
	}
	in.frames++
	payload = in.frame[wire.HeaderLen:]
	if in.inUse = !in.isBig(); !in.inUse {
		in.frame, in.size = nil, 0
	}
	return payload, !in.inUse, nil
}

// isBig reports whether the unfinished frame is big.
func (in *input) isBig() bool { return in.size > wire.HeaderLen+minBigFrame }

// release frees a frame whose payload is no longer needed.
func (in *input) release() {
	if in.inUse {
		in.pool.Put(in.frame)
		in.frame, in.size, in.inUse = nil, 0, false
	}
}

// fillFrame moves data to the frame until it has size bytes.
func (in *input) fillFrame(size int) {
	n := min(len(in.data), size-len(in.frame))
	if need := len(in.frame) + n; need > cap(in.frame) {
		room := min(size, maxGrowth*need)
		if need <= in.maxOwnAlloc {
			room = min(room, in.maxOwnAlloc)
		}
		switch {
		case !in.isBig():
			oldFrame := in.frame
			in.frame = append(in.pool.Get(room), oldFrame...)
			in.pool.Put(oldFrame)
		case room > in.maxOwnAlloc:
			in.growTo = room
			return
		default:
			in.frame = withCapacity(in.frame, room)
		}
	}
	in.frame, in.data = append(in.frame, in.data[:n]...), in.data[n:]
}

// withCapacity returns a copy of buf with a capacity of at least room bytes.
func withCapacity(buf []byte, room int) []byte {
	newBuf := make([]byte, len(buf), room)
	copy(newBuf, buf)
	return newBuf
}

// freeSpace returns the free memory of an unfinished big frame, which a read may fill directly.
// addRead records how much was read.
func (in *input) freeSpace() []byte {
	if !in.isBig() {
		return nil
	}
	return in.frame[len(in.frame):min(cap(in.frame), in.size)]
}

func (in *input) addRead(n int) { in.frame = in.frame[:len(in.frame)+n] }

// keepRest keeps the data that is left for the next turn.
func (in *input) keepRest() {
	switch unread := len(in.data); {
	case len(in.rest) == 0:
		if unread > 0 {
			in.rest = append(in.pool.Get(unread), in.data...)
		}
	case unread == 0:
		in.pool.Put(in.rest)
		in.rest, in.restAt = nil, 0
	default:
		in.restAt = len(in.rest) - unread
	}
	in.data = nil
}

// heldBytes returns how many bytes of the unfinished input count towards MaxInbound. Memory that will be reused counts
// only as far as it is needed now. Input after an offloaded frame does not count: it is only
// the data of one or two reads, and a single frame of the largest size must fit.
func (in *input) heldBytes() int {
	n := in.offloadedBytes
	if in.isBig() {
		// The header does not count, so that a frame of the largest size just fits.
		n += max(0, cap(in.frame)-wire.HeaderLen)
	} else {
		n += min(cap(in.frame), 2*len(in.frame))
	}
	if in.offloadedBytes == 0 {
		n += min(cap(in.rest), 2*(len(in.rest)-in.restAt))
	}
	return n
}

// drop removes all input. Offloaded work continues, but its bytes no longer count.
func (in *input) drop() { *in = input{pool: in.pool, frames: in.frames} }

// payloadLength returns the payload length in the header that data begins with.
func payloadLength(data []byte) int { return int(binary.BigEndian.Uint32(data)) }
