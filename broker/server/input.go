package server

import (
	"encoding/binary"

	"gloom/broker/container"
	"gloom/wire"
)

const (
	// bigFrame is the payload length from which a frame gets memory of its own, so that
	// its body can be kept without a copy. For smaller frames, copying into memory that is
	// used again costs less than the collector does.
	bigFrame = 128 << 10
	// growth is the ratio of a frame's memory to what has come of it.
	growth = 4
)

// input assembles the frames of a connection. A frame that a read brought whole is used
// where it lies. An unfinished frame is kept in memory that grows with what has come, not
// with what the header announces. A big frame has memory of its own; that of others is used
// again.
type input struct {
	pool *container.Buffers
	// frame is what has come of the unfinished frame, with its header; size is its whole
	// length, or 0 while the header, which lies in head, is incomplete.
	frame []byte
	head  [wire.HeaderLen]byte
	size  int
	// used: frame is whole, and its payload is in use until release.
	used bool
	// most is how much memory a frame gets at once. For more, want is set, and the caller
	// must grow the frame to so many bytes.
	most, want int
	// waiting, from at on, is what has come after that and waits for the connection's next
	// turn.
	waiting []byte
	at      int
	// aside is how many bytes work beside the loop holds for the connection.
	aside int
	// frames is how many have come whole.
	frames uint64
}

// next takes the next frame off data, if it is whole. It returns the payload, whether that
// lies in memory that nobody writes to again, and how many bytes of data it used: all of them
// if it returns no payload, unless want says that the frame must grow first.
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

// big tells whether the unfinished frame is a big one.
func (in *input) big() bool { return in.size > wire.HeaderLen+bigFrame }

// release frees a frame whose payload is not needed any more.
func (in *input) release() {
	if in.used {
		in.pool.Put(in.frame)
		in.frame, in.size, in.used = nil, 0, false
	}
}

// add appends from data until the frame has size bytes, and returns how many it took.
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

// spare is the room in a big frame, which a read may fill directly; filled notes how much
// was read.
func (in *input) spare() []byte {
	if !in.big() {
		return nil
	}
	return in.frame[len(in.frame):min(cap(in.frame), in.size)]
}

func (in *input) filled(n int) { in.frame = in.frame[:len(in.frame)+n] }

// all returns what waits, with data after it.
func (in *input) all(data []byte) []byte {
	if len(in.waiting) == 0 {
		return data
	}
	in.waiting = append(in.waiting, data...)
	return in.waiting[in.at:]
}

// leave keeps the part of all that was not used.
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

// held is how many bytes the unfinished input occupies. Memory that will be used again
// counts as far as it is needed here. Input behind a frame that is handled aside does not
// count: it is a read or two, and the frame itself must fit.
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

// drop throws everything away. Work aside goes on and is not counted any more.
func (in *input) drop() { *in = input{pool: in.pool, frames: in.frames} }

// announced is the payload length in the header that data begins with.
func announced(data []byte) int { return int(binary.BigEndian.Uint32(data)) }
