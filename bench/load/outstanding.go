package load

// outstanding holds the jobs that one submitter waits for. A job takes a free slot. The generation
// of a slot counts how often the slot has been taken. The job's number contains the slot and its
// generation. So every answer can be judged exactly without a map: the generation in the answer
// must be the slot's present generation.
type outstanding struct {
	submitter  uint32
	slots      []slot
	free       []uint32
	count      int // jobs submitted and not answered
	ackedCount int // how many of the open jobs were acked
}

type slot struct {
	sentAt     int64
	generation uint32
	state      slotState
}

type slotState uint8

const (
	slotFree slotState = iota
	slotSent
	slotAcked
)

// open takes a slot for a job that was sent, or was to be sent, at the given time. It returns false if
// MaxOutstanding jobs are outstanding.
func (o *outstanding) open(sendTime int64) (Number, bool) {
	var i uint32
	if k := len(o.free); k > 0 {
		i = o.free[k-1]
		o.free = o.free[:k-1]
	} else {
		if len(o.slots) == MaxOutstanding {
			return 0, false
		}
		i = uint32(len(o.slots))
		o.slots = append(o.slots, slot{})
	}
	s := &o.slots[i]
	s.generation = (s.generation + 1) & (1<<generationBits - 1)
	s.sentAt, s.state = sendTime, slotSent
	o.count++
	return makeNumber(o.submitter, s.generation, i), true
}

// find returns the slot of the job with a number, or the fault if there is none.
func (o *outstanding) find(n Number) (*slot, Fault, bool) {
	if n.Submitter() != int(o.submitter) {
		return nil, Swapped, false
	}
	i := n.slot()
	if int(i) >= len(o.slots) {
		return nil, Unknown, false
	}
	s := &o.slots[i]
	switch {
	case n.generation() == s.generation && s.state != slotFree:
		return s, 0, true
	case n.generation() <= s.generation:
		return nil, Doubled, false
	}
	return nil, Unknown, false
}

func (o *outstanding) ack(n Number) (Fault, bool) {
	s, fault, ok := o.find(n)
	switch {
	case !ok:
		return fault, false
	case s.state == slotAcked:
		return Doubled, false
	}
	s.state = slotAcked
	o.ackedCount++
	return 0, true
}

// close ends a job. sendTime is the time at which the job was sent. isUnacked reports that no ack for it
// has come.
func (o *outstanding) close(n Number) (sendTime int64, isUnacked bool, fault Fault, ok bool) {
	s, fault, ok := o.find(n)
	if !ok {
		return 0, false, fault, false
	}
	isUnacked = s.state == slotSent
	if !isUnacked {
		o.ackedCount--
	}
	s.state = slotFree
	o.count--
	o.free = append(o.free, n.slot())
	return s.sentAt, isUnacked, 0, true
}

// forget drops all outstanding jobs because the submitter hangs up. No answer is valid after that.
func (o *outstanding) forget() {
	for i := range o.slots {
		if s := &o.slots[i]; s.state != slotFree {
			s.state = slotFree
			o.free = append(o.free, uint32(i))
		}
	}
	o.count, o.ackedCount = 0, 0
}
