package fleet

import "slices"

// stream carries items to and from a peer, each exactly once and in order, although messages may
// be lost. Messages are numbered, kept until the peer acks them, and sent again from the
// first one that is missing.
type stream struct {
	batches  []batch // to be sent
	lastSent uint64  // number of the last message
	// unackedMessages holds the messages that the peer has not acked, by number.
	unackedMessages []message
	inFlight        int // bytes in unacked
	heldBytes       int // bytes in batches and in unacked

	lastReceived  uint64 // number of the last message that was received in order
	partial       []byte // parts of an item that is longer than a message
	messagesToAck int    // messages received since we last sent an ack
	bytesToAck    int    // their bytes
	highestUsed   uint64 // the highest message number that the peer is known to have used
	missingTicks  int    // ticks for which something has been missing
}

// batch holds the items of one or more messages.
type batch struct {
	data    []byte
	items   int
	started bool // some of the batch has been sent
}

// message is a numbered message of a stream.
type message struct {
	number    uint64
	continues bool // the last item continues in the next one
	data      []byte
	// ownsBuffer reports that nothing else uses the buffer of data.
	ownsBuffer bool
}

const (
	// maxBatchItems and maxBatchBytes bound a batch.
	maxBatchItems = 128
	maxBatchBytes = 256 << 10
	// minMessageBuffer is the initial capacity of the buffer for the items of a message, in bytes.
	minMessageBuffer = 2 << 10
	// After ackEvery messages an ack is sent, even if there is nothing else to send.
	ackEvery = 32
	// maxResend bounds the bytes that are sent again at a time.
	maxResend = 8 << 20
	// maxSpareBuffers bounds the number of spare buffers, and maxSpareBytes the size of one, in
	// bytes.
	maxSpareBuffers = 16
	maxSpareBytes   = 64 << 10
)

// bufferPool holds buffers for reuse.
type bufferPool [][]byte

// get returns an empty buffer with room for at least n bytes.
func (p *bufferPool) get(n int) []byte {
	if last := len(*p) - 1; last >= 0 {
		b := (*p)[last]
		*p = (*p)[:last]
		if cap(b) >= n {
			return b
		}
	}
	return make([]byte, 0, max(minMessageBuffer, n))
}

// put keeps a buffer for reuse. The caller must not use it any more.
func (p *bufferPool) put(b []byte) {
	if len(*p) < maxSpareBuffers && cap(b) <= maxSpareBytes && cap(b) >= minMessageBuffer {
		*p = append(*p, b[:0])
	}
}

func (s *stream) add(item []byte, from *bufferPool) {
	n := len(s.batches)
	if n == 0 || s.batches[n-1].items == maxBatchItems || len(s.batches[n-1].data)+len(item) > maxBatchBytes {
		s.batches = append(s.batches, batch{data: from.get(len(item))})
		n++
	}
	b := &s.batches[n-1]
	b.data = append(b.data, item...)
	b.items++
	s.heldBytes += len(item)
}

// canSend reports whether there is something to send and fewer than maxInFlight bytes are in flight.
func (s *stream) canSend(maxInFlight int) bool { return len(s.batches) > 0 && s.inFlight < maxInFlight }

// sendNext makes and numbers messages of up to size bytes, until maxInFlight bytes are in flight. It
// calls send with each message and the number of items that end in it.
func (s *stream) sendNext(size, maxInFlight int, send func(msg *message, items int)) {
	n := 0
	for n < len(s.batches) && s.inFlight < maxInFlight {
		b := &s.batches[n]
		length := min(size, len(b.data))
		s.lastSent++
		msg := message{number: s.lastSent, data: b.data[:length], continues: length < len(b.data), ownsBuffer: !b.started && length == len(b.data)}
		s.unackedMessages = append(s.unackedMessages, msg)
		s.inFlight += length
		if msg.continues {
			b.data, b.started = b.data[length:], true
			send(&msg, 0)
		} else {
			n++
			send(&msg, b.items)
		}
	}
	s.batches = slices.Delete(s.batches, 0, n)
}

// ackDue reports whether the peer should get an ack now.
func (s *stream) ackDue(maxInFlight int) bool {
	return s.messagesToAck >= ackEvery || s.bytesToAck >= maxInFlight/4
}

// markAckSent records that the peer was sent an ack.
func (s *stream) markAckSent() { s.messagesToAck, s.bytesToAck = 0, 0 }

// recordAck records that the peer has all messages up to a number.
func (s *stream) recordAck(number uint64, to *bufferPool) {
	n := 0
	for n < len(s.unackedMessages) && s.unackedMessages[n].number <= number {
		s.heldBytes -= len(s.unackedMessages[n].data)
		s.inFlight -= len(s.unackedMessages[n].data)
		if s.unackedMessages[n].ownsBuffer {
			to.put(s.unackedMessages[n].data)
		}
		n++
	}
	s.unackedMessages = slices.Delete(s.unackedMessages, 0, n)
}

// receive handles a message and returns the items that it completes.
func (s *stream) receive(msg *message) []byte {
	s.lastReceived = msg.number
	s.missingTicks = 0
	s.messagesToAck++
	s.bytesToAck += len(msg.data)
	if msg.continues {
		s.partial = append(s.partial, msg.data...)
		return nil
	}
	items := msg.data
	if s.partial != nil {
		items = append(s.partial, items...)
		s.partial = nil
	}
	return items
}
