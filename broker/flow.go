package broker

import "unsafe"

// flow is what one submitter has in one type, with the same groups. Detached
// jobs belong to flows without a submitter.
type flow struct {
	no   uint32
	sub  *submitter // nil: detached, or kept without a connection
	kind *jobType
	set  *groupSet // nil: no groups
	// keep: its jobs are kept. It outlives its submitter, sub is nil then; owner
	// is who may attach.
	keep   bool
	owner  uint64
	origin Peer // see flowKey
	// dead: its submitter has gone. What waited is abandoned and will be
	// swept; what runs is unwanted.
	dead  bool
	ready queue
	// pos is its place where it stands, -1 when nothing is ready: in its share, in
	// its turn, at its gate, or in kind.flows.
	pos     int32
	share   *share
	turn    *turn
	gate    *gate
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

// lost: nobody waits for its jobs any more.
func (f *flow) lost() bool { return f.dead || f.sub != nil && f.sub.gone && !f.keep }

// held is the number of its jobs.
func (f *flow) held() int { return f.ready.n + f.delayed.n + f.running.n + f.ended }

func (b *Broker) newFlow(s *submitter, key flowKey) *flow {
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
	f.no, f.sub, f.kind, f.pos = no, s, key.kind, -1
	f.keep, f.origin = key.keep, key.origin
	if f.set = key.set; f.set != nil {
		f.set.flows++
	}
	f.kind.flowCount++
	b.wake(f.kind)
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
		b.nobody.forget(f)
	}
	if s := f.set; s != nil {
		if s.flows--; s.flows == 0 {
			b.dropSet(s)
		}
		f.set = nil
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
	set  *groupSet
	keep bool
	// origin is whom the jobs came from: of kept ones this submitter or, after an
	// attach, another one; of detached ones in a fair type their submitter, whose
	// turn they have; else 0.
	origin Peer
}

func (f *flow) key() flowKey { return flowKey{f.kind, f.set, f.keep, f.origin} }

// flowFor returns the flow of a submitter, or of nobody for detached jobs.
func (b *Broker) flowFor(s *submitter, key flowKey) *flow {
	of := s
	if s == nil {
		of = &b.nobody
	}
	if f := of.find(key); f != nil {
		return f
	}
	f := b.newFlow(s, key)
	f.owner = of.owner
	of.add(f)
	return f
}

// regrouped returns the flow for a job of f whose groups become those of set.
func (b *Broker) regrouped(f *flow, set *groupSet) *flow {
	key := f.key()
	key.set = set
	if f.keep && f.sub == nil {
		g := b.newFlow(nil, key)
		g.owner = f.owner
		return g
	}
	return b.flowFor(f.sub, key)
}

// emptied is called when a job has left its flow: an empty flow goes, but each
// living submitter keeps its last one, which it will most likely need again.
func (b *Broker) emptied(f *flow) {
	if f.held() > 0 {
		return
	}
	if f.dead || f.sub == nil || f.set != nil {
		b.dropFlow(f)
		return
	}
	if e := f.sub.idle; e != nil && e != f && e.held() == 0 {
		b.dropFlow(e)
	}
	f.sub.idle = f
}
