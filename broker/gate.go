package broker

import "unsafe"

// gate is where flows of a type stand that a group may hold back. It stands in the
// heap of its type while the group is open, else in that of what the group holds.
// When the group opens, its gates do not all come back: only as many as somebody
// asks for, the best first (admitBest, bringIn). For the next job shuts the group
// again, and each of ten thousand types would have been met for nothing.
type gate struct {
	no    uint32
	group *group
	kind  *jobType
	elems heap  // flows; in a fair type the shares that wait here
	jobs  heap  // those shares by their best job
	pos   int32 // in kind.flows, -1
	at    int32 // in group.held, -1
	flows int   // whose gate it is
	// link is in kind.open or kind.held.
	link link[gate]
}

const gateSize = int64(unsafe.Sizeof(gate{})) + 64

// takeGate gives a flow that is to stand its gate: of a group that is shut, if one
// is, else of one with limits; if there is none, it has no gate.
func (b *Broker) takeGate(f *flow) {
	var by *group
	if f.set != nil {
		by = f.set.shutGroup()
		for _, g := range f.set.groups {
			if by == nil && len(g.limits) > 0 {
				by = g
			}
		}
	}
	if f.gate != nil && f.gate.group != by {
		b.leaveGate(f)
	}
	if f.gate == nil && by != nil {
		f.gate = b.gateFor(f.kind, by)
		f.gate.flows++
	}
}

// leaveGate lets a flow that does not stand have no gate.
func (b *Broker) leaveGate(f *flow) {
	if f.share != nil {
		b.leaveShare(f)
	}
	g := f.gate
	f.gate = nil
	if g.flows--; g.flows == 0 {
		b.dropGate(g)
	}
}

// gateFor returns the gate of a group and a type, made if need be.
func (b *Broker) gateFor(k *jobType, by *group) *gate {
	if g := k.gates[by]; g != nil {
		return g
	}
	g := &gate{group: by, kind: k, pos: -1, at: -1}
	g.elems = heap{place: b.place.standing, held: &b.heapBytes}
	g.jobs = heap{place: b.placeWaiting, held: &b.heapBytes}
	g.no = b.gates.add(g)
	if k.gates == nil {
		k.gates = map[*group]*gate{}
	}
	k.gates[by] = g
	return g
}

// rankGate puts a gate where what stands there puts it.
func (b *Broker) rankGate(g *gate) {
	switch {
	case g.elems.n == 0:
		b.takeOutGate(g)
	case g.pos >= 0 && g.group.shut:
		b.holdGate(g)
	case g.pos >= 0:
		if x := g.standing(); !g.kind.flows.at(int(g.pos)).level(&x) {
			g.kind.flows.fix(g.pos, x)
		}
	case g.at >= 0:
		if x := g.heldKey(); !g.group.held.at(int(g.at)).level(&x) {
			g.group.held.fix(g.at, x)
			b.rankAjar(g.group)
		}
	case g.group.shut:
		b.holdGate(g)
	default:
		b.enter(g)
	}
}

func (b *Broker) dropGate(g *gate) {
	g.elems.release()
	g.jobs.release()
	if delete(g.kind.gates, g.group); len(g.kind.gates) == 0 {
		g.kind.gates = nil
	}
	b.gates.drop(g.no)
}

// takeOutGate takes a gate out of where it stands.
func (b *Broker) takeOutGate(g *gate) {
	switch {
	case g.pos >= 0:
		g.kind.flows.remove(g.pos)
		g.kind.open.remove(&g.link)
		g.pos = -1
	case g.at >= 0:
		g.group.held.remove(g.at)
		g.at = -1
		b.rankAjar(g.group)
		g.kind.held.remove(&g.link)
		if g.kind.held.n == 0 {
			b.countHeld(g.kind, -1)
		}
	}
}

// enter lets a gate stand in the heap of its type.
func (b *Broker) enter(g *gate) {
	b.takeOutGate(g)
	g.kind.open.push(&g.link, g)
	g.kind.flows.push(g.standing())
	b.touch(g.kind)
}

// holdGate lets a gate stand with what its group holds.
func (b *Broker) holdGate(g *gate) {
	b.takeOutGate(g)
	g.group.held.push(g.heldKey())
	b.rankAjar(g.group)
	if g.kind.held.push(&g.link, g); g.kind.held.n == 1 {
		b.countHeld(g.kind, +1)
	}
}

// standing is a gate's key in the heap of its type. Who may run again since the
// group opened has no earlier place in the rotation than that.
func (g *gate) standing() entry {
	x := *g.elems.top()
	if x.ref >= refShare {
		x.b = max(x.b, g.group.opened)
	}
	x.ref = g.no | refGate
	return x
}

// heldKey is a gate's key among those that its group holds: its best job.
func (g *gate) heldKey() entry {
	x := *g.elems.top()
	if x.ref >= refShare {
		x = *g.jobs.top()
	}
	x.ref = g.no
	return x
}

func (b *Broker) placeHeldGate(no uint32, pos int32) { b.gates.all[no].at = pos }

// rankAjar lets a group that is open and still holds gates stand among those, by
// the best job that it holds.
func (b *Broker) rankAjar(g *group) {
	if g.shut || g.held.n == 0 {
		if g.ajar >= 0 {
			b.ajar.remove(g.ajar)
			g.ajar = -1
		}
		return
	}
	x := *g.held.top()
	if x.ref = g.no; g.ajar < 0 {
		b.ajar.push(x)
	} else if !b.ajar.at(int(g.ajar)).level(&x) {
		b.ajar.fix(g.ajar, x)
	}
}

func (b *Broker) placeAjar(no uint32, pos int32) { b.groups.all[no].ajar = pos }

// behind returns the flow or share that is first at a gate which stands at the top
// of its type, or 0 when it was something else's turn.
func (b *Broker) behind(g *gate) uint32 {
	if g.group.shut {
		b.holdGate(g)
		return 0
	}
	ref := g.elems.top().ref
	if ref < refShare {
		return ref
	}
	s := b.shares.all[ref&^refKind]
	if x := s.waiting(); !g.elems.top().level(&x) {
		g.elems.fix(s.pos, x) // its turn has had others since
		b.rankGate(g)
	} else {
		b.call(s)
	}
	return 0
}

// admitBest lets the gate enter that has the best job of all that groups hold
// although they are open.
func (b *Broker) admitBest() {
	g := b.groups.all[b.ajar.top().ref]
	b.enter(b.gates.all[g.held.top().ref])
}

// bringIn lets the gates of a type enter whose groups are open.
func (b *Broker) bringIn(k *jobType) {
	if k.held.n == 0 || b.ajar.n == 0 {
		return
	}
	if k.held.n < b.ajar.n {
		for l := k.held.root.next; l != &k.held.root; {
			g := l.of
			if l = l.next; !g.group.shut {
				b.enter(g)
			}
		}
		return
	}
	for i := 0; i < b.ajar.n; {
		by := b.groups.all[b.ajar.at(i).ref]
		if g := k.gates[by]; g != nil && g.at >= 0 {
			b.enter(g)
			i = 0 // the heap may have changed
		} else {
			i++
		}
	}
}

// countHeld counts a type of which groups hold gates (n = +1), or no more (-1), and
// the idle workers for whom that matters.
func (b *Broker) countHeld(k *jobType, n int) {
	if k.idle.n > 0 {
		b.heldIdle += n
	}
	for r := k.pairs; r != 0; {
		x := b.pairs.get(r)
		b.countHeldTypes(b.pools[x.pool], n)
		r = x.kindNext
	}
}

// countHeldTypes counts the types of a pool of which groups hold gates.
func (b *Broker) countHeldTypes(p *pool, n int) {
	was := p.typesHeld > 0
	if p.typesHeld += n; was != (p.typesHeld > 0) && p.idle.n > 0 {
		b.heldIdle += n
	}
}
