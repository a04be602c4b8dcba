package server

import (
	"encoding/binary"

	"gloom/wire"
)

const (
	// bigFrame is the payload from which a frame is gathered in memory of its own,
	// so that its body can be kept without being copied. For smaller ones, copies
	// into memory that is used again cost less than the collector does.
	bigFrame = 128 << 10
	// growth is how many times what has come is allocated for a big frame.
	growth = 4
)

// gathered is a connection's big frame on its way, if there is one, and who sees to
// those that are large.
type gathered struct {
	buf  []byte // what has come of the payload
	size int    // of the whole payload; 0 for none
	want int    // buf is to grow to so many bytes before more is appended

	// most is the payload up to which the reader grows and decodes the frame. For
	// longer ones that is done beside the event loop: meanwhile it is busy, nothing is
	// read, and inHand bytes are held there.
	most   int
	busy   bool
	inHand int
	// slot, if not nil, runs what the reader, which may block, does for a frame.
	slot func(work func())
}

// begin starts to gather a big frame, if data begins one.
func (g *gathered) begin(data []byte) bool {
	n := announced(data)
	if n <= bigFrame {
		return false
	}
	g.buf, g.size, g.want = make([]byte, 0, min(n, growth*len(data))), n, 0
	return true
}

// add appends what there is of the frame and returns how much that was. Memory
// grows with what has come, by fours: a frame of 16 MiB is copied a third of once
// more. Where it would grow beyond most it is left to the caller, as want.
func (g *gathered) add(data []byte) int {
	n := min(len(data), g.size-len(g.buf))
	if need := len(g.buf) + n; need > cap(g.buf) {
		want := min(g.size, max(need, growth*cap(g.buf)))
		if want > g.most {
			g.want = want
			return 0
		}
		g.buf = grown(g.buf, want)
	}
	g.buf = append(g.buf, data[:n]...)
	return n
}

func (g *gathered) whole() bool { return g.size > 0 && len(g.buf) == g.size }

// take returns the whole payload, which is no longer g's.
func (g *gathered) take() []byte {
	payload := g.buf
	g.buf, g.size, g.want = nil, 0, 0
	return payload
}

// held is how much memory the frame has.
func (g *gathered) held() int { return cap(g.buf) + g.inHand }

// reset throws the frame away. What is done beside the loop goes on, and is not
// counted any more.
func (g *gathered) reset() { g.buf, g.size, g.want, g.inHand = nil, 0, 0, 0 }

// spare is room for more of the frame, into which a read may go.
func (g *gathered) spare() []byte { return g.buf[len(g.buf):min(cap(g.buf), g.size)] }

// filled tells that n bytes have been read into spare.
func (g *gathered) filled(n int) { g.buf = g.buf[:len(g.buf)+n] }

// grown is a copy of buf with room for most bytes.
func grown(buf []byte, most int) []byte {
	to := make([]byte, len(buf), most)
	copy(to, buf)
	return to
}

// announced is the length of the payload that data begins, or 0.
func announced(data []byte) int {
	if len(data) < wire.HeaderLen {
		return 0
	}
	return int(binary.BigEndian.Uint32(data))
}

// needed says how many bytes make a read worthwhile, header included: so many
// must be there before take can get anywhere.
func (s *session) needed(head []byte) int {
	n := announced(head)
	if n > bigFrame || n > s.srv.opt.MaxFrame {
		return wire.HeaderLen
	}
	return wire.HeaderLen + n
}
