package server

import (
	"encoding/binary"

	"gloom/broker/container"
	"gloom/wire"
)

const (
	// bigFrame is the payload from which a frame is assembled in memory of its own,
	// so that its body can be kept without being copied. For smaller ones, copies
	// into memory that is used again cost less than the collector does.
	bigFrame = 128 << 10
	// growth is how many times what has come is allocated for a frame.
	growth = 4
)

// input assembles the frames of a connection. Those that lie whole in what a read
// brought are used where they lie. Of one that has begun, what has come is kept, in
// memory that grows with that, not with what the header announces: that of a big one
// is its own, that of others is used again.
type input struct {
	pool *container.Buffers
	// frame is the one that has begun, from its header on, as far as it has come, and
	// size its whole length; 0: the header, which lies in head, has not come whole.
	frame []byte
	head  [wire.HeaderLen]byte
	size  int
	// used: frame is whole, and its payload is in use until release.
	used bool
	// most is up to where memory for a frame is found at once. For more of it,
	// somebody has to call grown: want bytes.
	most, want int
	// waiting is what has come behind that and is to wait for the connection's turn,
	// from at on.
	waiting []byte
	at      int
	// aside is how many bytes are held beside the loop for it.
	aside int
	// frames have come whole.
	frames uint64
}

// next takes the next frame off data, if it is there: its payload, whether that lies in
// memory which nobody writes to again, and how many bytes of data were used. Without a
// payload that is all of them, unless want says that memory has to be found first.
func (in *input) next(data []byte, max int) (payload []byte, kept bool, used int, err *wire.Error) {
	if len(in.frame) == 0 && in.size == 0 {
		payload, used, err = wire.SplitFrame(data, max)
		if used > 0 || err != nil || len(data) == 0 {
			in.frames += uint64(min(used, 1))
			return payload, false, used, err
		}
		if in.frame = in.head[:0]; len(data) >= wire.HeaderLen {
			in.size = wire.HeaderLen + announced(data)
		}
	}
	if in.size == 0 {
		if used = in.add(data, wire.HeaderLen); len(in.frame) < wire.HeaderLen {
			return nil, false, used, nil
		}
		if _, _, err = wire.SplitFrame(in.frame, max); err != nil {
			return nil, false, used, err
		}
		in.size = wire.HeaderLen + announced(in.frame)
	}
	if used += in.add(data[used:], in.size); len(in.frame) < in.size {
		return nil, false, used, nil
	}
	in.frames++
	payload = in.frame[wire.HeaderLen:]
	if in.used = !in.big(); !in.used {
		in.frame, in.size = nil, 0
	}
	return payload, !in.used, used, nil
}

// big tells that the frame that has begun is a big one.
func (in *input) big() bool { return in.size > wire.HeaderLen+bigFrame }

// release lets go of a frame whose payload is not needed any more.
func (in *input) release() {
	if in.used {
		in.pool.Put(in.frame)
		in.frame, in.size, in.used = nil, 0, false
	}
}

// add appends what data has of the first size bytes of the frame, and returns how much
// that was.
func (in *input) add(data []byte, size int) int {
	n := min(len(data), size-len(in.frame))
	if need := len(in.frame) + n; need > cap(in.frame) {
		room := min(size, growth*need)
		if need <= in.most {
			room = min(room, in.most)
		}
		switch {
		case !in.big():
			old := in.frame
			in.frame = append(in.pool.Get(room), old...)
			in.pool.Put(old)
		case room > in.most:
			in.want = room
			return 0
		default:
			in.frame = grown(in.frame, room)
		}
	}
	in.frame = append(in.frame, data[:n]...)
	return n
}

// grown is a copy of buf with room for so many bytes.
func grown(buf []byte, room int) []byte {
	to := make([]byte, len(buf), room)
	copy(to, buf)
	return to
}

// spare is room for more of a big frame, into which a read may go; filled tells how much
// of it did.
func (in *input) spare() []byte {
	if !in.big() {
		return nil
	}
	return in.frame[len(in.frame):min(cap(in.frame), in.size)]
}

func (in *input) filled(n int) { in.frame = in.frame[:len(in.frame)+n] }

// all is what waits, and data behind it.
func (in *input) all(data []byte) []byte {
	if len(in.waiting) == 0 {
		return data
	}
	in.waiting = append(in.waiting, data...)
	return in.waiting[in.at:]
}

// leave keeps what of all was not used.
func (in *input) leave(all []byte, used int) {
	switch {
	case len(in.waiting) > 0:
		if in.at += used; in.at == len(in.waiting) {
			in.pool.Put(in.waiting)
			in.waiting, in.at = nil, 0
		}
	case used < len(all):
		in.waiting = append(in.pool.Get(len(all)-used), all[used:]...)
	}
}

// held is how many bytes are kept of what has not come whole. Memory that will be used
// again counts as far as it is needed here. What waits behind a frame that is seen to
// aside does not count at all: it is a read or two, and the frame must fit.
func (in *input) held() int {
	n := in.aside
	if in.big() {
		n += max(0, cap(in.frame)-wire.HeaderLen) // one of the largest size just fits
	} else {
		n += min(cap(in.frame), 2*len(in.frame))
	}
	if in.aside == 0 {
		n += min(cap(in.waiting), 2*(len(in.waiting)-in.at))
	}
	return n
}

// drop throws all away. What is done aside goes on, and is not counted any more.
func (in *input) drop() { *in = input{pool: in.pool, frames: in.frames} }

// announced is the length of the payload that data begins.
func announced(data []byte) int { return int(binary.BigEndian.Uint32(data)) }
