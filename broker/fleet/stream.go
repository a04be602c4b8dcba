package fleet

import "slices"

// stream carries items to one peer and from it, each once and in order, though
// messages may be lost: they are numbered, kept until the peer has them, and sent
// again from the first one that it misses.
type stream struct {
	open []batch // to be sent
	sent uint64  // number of the last message
	// kept are those that the peer has not said to have.
	kept  []part
	bytes int // in open and kept

	got    uint64 // number of the last message that came in its turn
	whole  []byte // parts of an item that is longer than a message
	unsaid int    // messages since it was said what has come
	seen   uint64 // the highest number that there is
	asked  int    // pulses for which something has been missing
}

// batch is items that travel together.
type batch struct {
	data  []byte
	items int
}

type part struct {
	no   uint64
	more bool // the item goes on in the next one
	data []byte
	// alone: data is all of its buffer.
	alone bool
}

const (
	// maxItems and maxPart bound what travels in one message.
	maxItems = 128
	maxPart  = 256 << 10
	// firstBatch is the room for the first items of a message, in bytes.
	firstBatch = 2 << 10
	// saySoon is after how many messages it is said what has come, if nothing is to
	// be sent that says so.
	saySoon = 32
	// maxKept bounds what a peer has not said to have, in bytes. With more it is lost.
	maxKept = 256 << 20
	// maxAgain bounds what is sent again at a time, in bytes.
	maxAgain = 8 << 20
	// maxSpare bounds the spare buffers, and largeSpare how large one of them is.
	maxSpare   = 16
	largeSpare = 64 << 10
)

// spares are buffers that are used again.
type spares [][]byte

// blank returns an empty buffer for about n bytes.
func (s *spares) blank(n int) []byte {
	if k := len(*s) - 1; k >= 0 {
		b := (*s)[k]
		if *s = (*s)[:k]; cap(b) >= n {
			return b
		}
	}
	return make([]byte, 0, max(firstBatch, n))
}

// spent takes in a buffer that nobody reads any more.
func (s *spares) spent(b []byte) {
	if len(*s) < maxSpare && cap(b) <= largeSpare && cap(b) >= firstBatch {
		*s = append(*s, b[:0])
	}
}

// put adds an item.
func (s *stream) put(item []byte, from *spares) {
	n := len(s.open)
	if n == 0 || s.open[n-1].items == maxItems || len(s.open[n-1].data)+len(item) > maxPart {
		s.open = append(s.open, batch{data: from.blank(len(item))})
		n++
	}
	b := &s.open[n-1]
	b.data = append(b.data, item...)
	b.items++
	s.bytes += len(item)
}

// cut numbers what is to be sent; messages hold size bytes at most.
func (s *stream) cut(size int, send func(*part)) {
	for i := range s.open {
		data := s.open[i].data
		for more := true; more; {
			p := part{data: data[:min(size, len(data))], alone: len(s.open[i].data) <= size}
			data = data[len(p.data):]
			more = len(data) > 0
			s.sent++
			p.no, p.more = s.sent, more
			s.kept = append(s.kept, p)
			send(&p)
		}
	}
	clear(s.open)
	s.open = s.open[:0]
}

// has notes that the peer has all up to a number.
func (s *stream) has(no uint64, to *spares) {
	n := 0
	for n < len(s.kept) && s.kept[n].no <= no {
		s.bytes -= len(s.kept[n].data)
		if s.kept[n].alone {
			to.spent(s.kept[n].data)
		}
		n++
	}
	s.kept = slices.Delete(s.kept, 0, n)
}

// take takes in a message and returns the items that are whole with it.
func (s *stream) take(p *part) []byte {
	s.got = p.no
	s.asked = 0
	s.unsaid++
	if p.more {
		s.whole = append(s.whole, p.data...)
		return nil
	}
	items := p.data
	if s.whole != nil {
		items = append(s.whole, items...)
		s.whole = nil
	}
	return items
}
