package load

// outstanding holds the jobs that one submitter waits for. A job takes a free slot, and a
// turn that counts how often the slot has been taken. Its number contains both, so every answer is
// judged exactly without a map: its turn must be the current one of its slot.
type outstanding struct {
	sub   uint32
	slots []slot
	free  []uint32
	count int // jobs submitted and not answered
	acked int // how many of the open jobs were acked
}

type slot struct {
	sent       int64
	generation uint32
	state      slotState
}

type slotState uint8

const (
	slotFree slotState = iota
	slotSent
	slotAcked
)

// open takes a place for a job sent (or meant to be sent) at the given time;
// false when MaxOutstanding are out.
func (b *outstanding) open(sent int64) (Number, bool) {
	var i uint32
	if k := len(b.free); k > 0 {
		i = b.free[k-1]
		b.free = b.free[:k-1]
	} else {
		if len(b.slots) == MaxOutstanding {
			return 0, false
		}
		i = uint32(len(b.slots))
		b.slots = append(b.slots, slot{})
	}
	s := &b.slots[i]
	s.generation = (s.generation + 1) & (1<<generationBits - 1)
	s.sent, s.state = sent, slotSent
	b.count++
	return makeNumber(b.sub, s.generation, i), true
}

// find returns the slot of the job with a number, or the fault if there is none.
func (b *outstanding) find(n Number) (*slot, Fault, bool) {
	if n.Submitter() != int(b.sub) {
		return nil, Swapped, false
	}
	i := n.slot()
	if int(i) >= len(b.slots) {
		return nil, Unknown, false
	}
	s := &b.slots[i]
	switch {
	case n.generation() == s.generation && s.state != slotFree:
		return s, 0, true
	case n.generation() <= s.generation:
		return nil, Doubled, false
	}
	return nil, Unknown, false
}

func (b *outstanding) ack(n Number) (Fault, bool) {
	s, fault, ok := b.find(n)
	switch {
	case !ok:
		return fault, false
	case s.state == slotAcked:
		return Doubled, false
	}
	s.state = slotAcked
	b.acked++
	return 0, true
}

// close ends a job. sent is the time at which it was sent; unacked reports that no ack has come.
func (b *outstanding) close(n Number) (sent int64, unacked bool, fault Fault, ok bool) {
	s, fault, ok := b.find(n)
	if !ok {
		return 0, false, fault, false
	}
	unacked = s.state == slotSent
	if !unacked {
		b.acked--
	}
	s.state = slotFree
	b.count--
	b.free = append(b.free, n.slot())
	return s.sent, unacked, 0, true
}

// forget drops all outstanding jobs, as when the submitter hangs up: after that, no
// answer is valid.
func (b *outstanding) forget() {
	for i := range b.slots {
		if s := &b.slots[i]; s.state != slotFree {
			s.state = slotFree
			b.free = append(b.free, uint32(i))
		}
	}
	b.count, b.acked = 0, 0
}
