package broker

import "unsafe"

// flow is what one submitter has in one type. Detached jobs belong to a flow
// without a submitter, one per type.
type flow struct {
	no   uint32
	sub  *submitter // nil: detached
	kind *jobType
	// keep: its jobs are kept. It outlives its submitter, sub is nil then; owner
	// is who may attach, origin whom the jobs came from (Submission.Keep).
	keep   bool
	owner  uint64
	origin Peer
	// dead: its submitter has gone. What waited is abandoned and will be
	// swept; what runs is unwanted.
	dead    bool
	ready   queue
	pos     int32 // in kind.flows, -1 when nothing is ready
	delayed list
	running list
	ended   int // kept outcomes
	// bytes is the weight of its jobs, runBytes of those that run.
	bytes, runBytes int64
	at              int // place in sub.flows
	sweptAt         int // place in Broker.swept
	// telling: stands in Broker.telling.
	telling bool
}

const (
	flowSize = int64(unsafe.Sizeof(flow{}))
	// spareFlows is how many unused flows are kept for the next ones.
	spareFlows = 16
)

// list is the head of a doubly linked list of jobs.
type list struct {
	head, tail uint32
	n          int
}

func (b *Broker) link(l *list, r uint32, j *job) {
	j.prev, j.next = l.tail, 0
	if l.tail != 0 {
		b.jobs.get(l.tail).next = r
	} else {
		l.head = r
	}
	l.tail = r
	l.n++
}

func (b *Broker) unlinkFrom(l *list, j *job) {
	if j.prev == 0 {
		l.head = j.next
	}
	if j.next == 0 {
		l.tail = j.prev
	}
	b.unlink(j)
	l.n--
}

// flowBytes is what all flows occupy, but for their heaps.
func (b *Broker) flowBytes() int64 {
	return int64(len(b.flows)-1-len(b.freeFlows))*flowSize + b.laneBytes
}

// held is the number of its jobs.
func (f *flow) held() int { return f.ready.n + f.delayed.n + f.running.n + f.ended }

func (b *Broker) newFlow(s *submitter, k *jobType) *flow {
	var no uint32
	if n := len(b.freeFlows); n > 0 {
		no = b.freeFlows[n-1]
		b.freeFlows = b.freeFlows[:n-1]
	} else {
		no = uint32(len(b.flows))
		b.flows = append(b.flows, nil)
	}
	var f *flow
	if n := len(b.spareFlows); n > 0 {
		f = b.spareFlows[n-1]
		b.spareFlows = b.spareFlows[:n-1]
	} else {
		f = &flow{}
		f.ready.spill = heap{place: b.placeSpill, held: &b.heapBytes}
		f.ready.ages = heap{place: b.placeAge, held: &b.heapBytes}
	}
	b.laneBytes += int64(cap(f.ready.lanes)) * laneSize
	b.flows[no] = f
	f.no, f.sub, f.kind, f.pos = no, s, k, -1
	k.flowCount++
	b.wake(k)
	return f
}

// dropFlow takes back an empty flow.
func (b *Broker) dropFlow(f *flow) {
	k := f.kind
	switch {
	case f.dead:
	case f.sub != nil:
		f.sub.forget(f)
	case f.keep:
	default:
		k.detached = nil
	}
	b.flows[f.no] = nil
	b.freeFlows = append(b.freeFlows, f.no)
	f.sub, f.kind, f.dead, f.telling = nil, nil, false, false
	f.keep, f.owner, f.origin = false, 0, 0
	b.laneBytes -= int64(cap(f.ready.lanes)) * laneSize
	f.ready.release()
	if len(b.spareFlows) < spareFlows {
		b.spareFlows = append(b.spareFlows, f)
	}
	k.flowCount--
	b.rest(k)
}

// flowKey tells the flows of one submitter apart.
type flowKey struct {
	kind *jobType
	// origin is whom kept jobs came from: this submitter or, after an attach,
	// another one. It is 0 for jobs that are not kept.
	origin Peer
}

func (f *flow) key() flowKey { return flowKey{f.kind, f.origin} }

// detachedFlow returns the flow of a type's detached jobs.
func (b *Broker) detachedFlow(k *jobType) *flow {
	if k.detached == nil {
		k.detached = b.newFlow(nil, k)
	}
	return k.detached
}

// flowFor returns the flow of a submitter for a job that it waits for.
func (b *Broker) flowFor(s *submitter, key flowKey) *flow {
	if f := s.find(key); f != nil {
		return f
	}
	f := b.newFlow(s, key.kind)
	f.keep, f.owner, f.origin = key.origin != 0, s.owner, key.origin
	s.add(f)
	return f
}

// emptied is called when a job has left its flow: an empty flow goes, but each
// living submitter keeps its last one, which it will most likely need again.
func (b *Broker) emptied(f *flow) {
	if f.held() > 0 {
		return
	}
	if f.dead || f.sub == nil {
		b.dropFlow(f)
		return
	}
	if e := f.sub.idle; e != nil && e != f && e.held() == 0 {
		b.dropFlow(e)
	}
	f.sub.idle = f
}

// rank puts the flow where its best job puts it among the flows of its type.
func (b *Broker) rank(f *flow) {
	h := &f.kind.flows
	switch {
	case f.ready.n == 0 && f.pos >= 0:
		h.remove(f.pos)
		f.pos = -1
	case f.ready.n > 0:
		x := b.best(&f.ready)
		x.ref = f.no
		if f.pos < 0 {
			h.push(x)
		} else if cur := h.at(int(f.pos)); !cur.level(&x) {
			h.fix(f.pos, x)
		}
	}
}
