package broker

import "unsafe"

// flow is what one submitter has in one type, with the same groups. Detached
// jobs belong to flows without a submitter.
type flow struct {
	// What every job touches comes first, see jobType.
	no uint32
	// pos is its place where it stands, -1 when nothing is ready: in its share, in
	// its turn, at its gate, or in kind.flows.
	pos     int32
	sub     *submitter // nil: detached, or kept without a connection
	kind    *jobType
	set     *groupSet // nil: no groups
	ready   queue
	running list
	delayed list
	// share, turn and gate are where it stands or, once it has stood, stood last.
	turn  *turn
	ended int // kept outcomes
	// bytes is the weight of its jobs, runBytes of those that run.
	bytes, runBytes int64
	at              int   // place in sub.flows
	next, prev      *flow // of its type, while it is found: jobType.first
	// dead: its submitter has gone. What waited is abandoned and will be
	// swept; what runs is unwanted.
	dead bool
	// keep: its jobs are kept. It outlives its submitter, sub is nil then; owner
	// is who may attach.
	keep bool
	// telling: stands in Broker.telling.
	telling bool
	owner   uint64
	origin  Peer // see flowKey
	share   *share
	gate    *gate
	sweptAt int        // place in Broker.swept
	unused  link[flow] // in Broker.unused
}

const (
	flowSize = int64(unsafe.Sizeof(flow{}))
	// spareFlows is how many unused flows are kept for the next ones.
	spareFlows = 16
	// unusedBytes is what empty flows may occupy, with their groups and turns, that
	// are kept where they are: making all of that costs more than a job. To forget a
	// type that has all of them takes 2 ms.
	unusedBytes = 8 << 20
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
	}
	b.laneBytes += int64(cap(f.ready.lanes)) * laneSize
	b.flows[no] = f
	f.no, f.sub, f.kind, f.pos = no, s, key.kind, -1
	f.keep, f.origin = key.keep, key.origin
	if f.set = key.set; f.set != nil {
		f.set.flows++
	}
	b.useFlow(f)
	return f
}

// useFlow and unuseFlow count the flows of a type that are not among the unused.
func (b *Broker) useFlow(f *flow) {
	f.kind.flowCount++
	b.wake(f.kind)
}

func (b *Broker) unuseFlow(f *flow) {
	f.kind.flowCount--
	b.rest(f.kind)
}

// dropFlow takes back an empty flow.
func (b *Broker) dropFlow(f *flow) {
	if f.unused.in() {
		b.outOfUnused(f)
	} else {
		b.unuseFlow(f)
	}
	if f.gate != nil {
		b.leaveGate(f)
	}
	if f.turn != nil {
		b.leaveTurn(f)
	}
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
	b.releaseQueue(&f.ready)
	b.laneBytes -= int64(cap(f.ready.lanes)) * laneSize
	if len(b.spareFlows) < spareFlows {
		b.spareFlows = append(b.spareFlows, f)
	}
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
	if f := of.find(s, key); f != nil {
		if f.unused.in() {
			b.reuse(f)
		}
		return f
	}
	f := b.newFlow(s, key)
	f.owner = of.owner
	b.addFlow(of, f)
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
// living submitter keeps its last one, which it will most likely need again. Those
// with groups or turns become unused.
func (b *Broker) emptied(f *flow) {
	if f.held() > 0 {
		return
	}
	switch {
	case f.dead || f.sub == nil && f.keep:
		b.dropFlow(f)
		return
	case f.set != nil || f.kind.fair:
		b.unuse(f)
		return
	case f.sub == nil:
		b.dropFlow(f)
		return
	}
	if e := f.sub.idle; e != nil && e != f && e.held() == 0 {
		b.dropFlow(e)
	}
	f.sub.idle = f
}

// unuse keeps an empty flow for the next job of its kind; of all these those go
// first that have been unused for longest. They do not keep their types in use.
func (b *Broker) unuse(f *flow) {
	b.releaseQueue(&f.ready)
	f.kind.unused++
	if f.sub != nil {
		f.sub.unused++
	}
	b.unused.push(&f.unused, f)
	b.unusedBytes += f.around()
	b.unuseFlow(f)
	for most := b.mostUnused(); b.unusedBytes > most; {
		b.dropFlow(b.unused.first())
	}
}

func (b *Broker) reuse(f *flow) {
	b.outOfUnused(f)
	b.useFlow(f)
}

func (b *Broker) outOfUnused(f *flow) {
	f.kind.unused--
	if f.sub != nil {
		f.sub.unused--
	}
	b.unused.remove(&f.unused)
	b.unusedBytes -= f.around()
}

// mostUnused bounds unusedBytes; with a small limit on bytes to little of that.
func (b *Broker) mostUnused() int64 {
	if most := b.cfg.MaxBytes; most > 0 {
		return min(unusedBytes, most/64)
	}
	return unusedBytes
}

// around is what a flow occupies, with groups, a gate and a turn of its own.
func (f *flow) around() int64 {
	n := flowSize + turnSize
	if f.set != nil {
		n += gateSize + shareSize + groupSetSize + int64(len(f.set.groups))*groupSize + 2*f.set.bytes
	}
	return n
}
