package fleet

import "slices"

// stream carries items to and from a peer, each exactly once and in order, although messages may
// be lost. Messages are numbered, kept until the peer has them, and sent again from the first
// one that it misses.
type stream struct {
	open []batch // to be sent
	sent uint64  // number of the last message
	// kept are the messages that the peer has not confirmed.
	kept   []part
	flying int // bytes in kept
	bytes  int // in open and kept

	got    uint64 // number of the last message that was received in order
	whole  []byte // parts of an item that is longer than a message
	unsaid int    // messages received since the last confirmation
	weight int    // their bytes
	seen   uint64 // the highest number that the peer has used, as far as known
	asked  int    // pulses for which something has been missing
}

// batch has the items of one or more messages.
type batch struct {
	data  []byte
	items int
	begun bool // some of it has been sent
}

type part struct {
	no   uint64
	more bool // the last item continues in the next one
	data []byte
	// alone: nothing else uses the buffer of data.
	alone bool
}

const (
	// maxItems and maxPart (in bytes) bound a batch.
	maxItems = 128
	maxPart  = 256 << 10
	// firstBatch is the initial room for the items of a message, in bytes.
	firstBatch = 2 << 10
	// saySoon is the number of messages after which their arrival is confirmed even if there
	// is nothing else to send.
	saySoon = 32
	// maxAgain bounds the bytes that are sent again at a time.
	maxAgain = 8 << 20
	// maxSpare bounds the number of spare buffers, and largeSpare the size of one.
	maxSpare   = 16
	largeSpare = 64 << 10
)

// spares are buffers for reuse.
type spares [][]byte

// blank returns an empty buffer for roughly n bytes.
func (s *spares) blank(n int) []byte {
	if k := len(*s) - 1; k >= 0 {
		b := (*s)[k]
		if *s = (*s)[:k]; cap(b) >= n {
			return b
		}
	}
	return make([]byte, 0, max(firstBatch, n))
}

// spent keeps a buffer for reuse. The caller must not use it any more.
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

// ready reports whether there is something to send and fewer than most bytes are on their way.
func (s *stream) ready(most int) bool { return len(s.open) > 0 && s.flying < most }

// cut makes and numbers messages of up to size bytes, until most bytes are on their way. It calls
// send with each message and the number of items that end in it.
func (s *stream) cut(size, most int, send func(x *part, items int)) {
	n := 0
	for n < len(s.open) && s.flying < most {
		b := &s.open[n]
		k := min(size, len(b.data))
		s.sent++
		p := part{no: s.sent, data: b.data[:k], more: k < len(b.data), alone: !b.begun && k == len(b.data)}
		s.kept = append(s.kept, p)
		s.flying += k
		if p.more {
			b.data, b.begun = b.data[k:], true
			send(&p, 0)
		} else {
			n++
			send(&p, b.items)
		}
	}
	s.open = slices.Delete(s.open, 0, n)
}

// due reports whether the peer should get a confirmation; most is its limit of bytes on their way.
func (s *stream) due(most int) bool { return s.unsaid >= saySoon || s.weight >= most/4 }

// said records that arrival has been confirmed to the peer.
func (s *stream) said() { s.unsaid, s.weight = 0, 0 }

// has records that the peer has all messages up to a number.
func (s *stream) has(no uint64, to *spares) {
	n := 0
	for n < len(s.kept) && s.kept[n].no <= no {
		s.bytes -= len(s.kept[n].data)
		s.flying -= len(s.kept[n].data)
		if s.kept[n].alone {
			to.spent(s.kept[n].data)
		}
		n++
	}
	s.kept = slices.Delete(s.kept, 0, n)
}

// take handles a message and returns the items that it completes.
func (s *stream) take(p *part) []byte {
	s.got = p.no
	s.asked = 0
	s.unsaid++
	s.weight += len(p.data)
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
