package broker

import (
	"math"
	"slices"
	"unsafe"
)

// Where jobs that are ready stand: each in the queue of its flow, and the flow,
// by its best job, in the heap of its type. Two things may come in between.
//
// A gate is a group and a type, for the flows of that type with that group. It
// stands in the type's heap for all of them. When the group is shut, the gate is
// taken out once it is met at the top, and comes back when the group opens: so
// what is held back is not looked at again. A flow of several groups stands at
// the gate of one that is shut, if one is.
//
// In a fair type flows stand in shares: one for each group that takes turns,
// in the type's heap or at a gate, by the priority of its best job and then by
// when the group had its last turn, or came.

// gate is where flows stand that a group may hold back.
type gate struct {
	no    uint32
	group *group
	kind  *jobType
	elems heap  // flows, or shares
	pos   int32 // in kind.flows, -1
	link  link[gate]
}

// turn is a group that takes turns in a fair type: the first of a job's groups
// or, without one, the submitter that it came from.
type turn struct {
	key  turnKey
	last uint64 // its place in the rotation: when it had a turn, or came
	// floor is when it could run again, if that was later: its place then.
	floor uint64
	// shares are where it stands: one in the type's heap, one at each gate.
	shares []*share
}

type turnKey struct {
	group  *group
	origin Peer
}

// share is the flows of one turn in one place.
type share struct {
	no    uint32
	turn  *turn
	kind  *jobType
	gate  *gate // nil: in the type's heap
	flows heap
	pos   int32
}

const (
	gateSize  = int64(unsafe.Sizeof(gate{})) + 64
	shareSize = int64(unsafe.Sizeof(share{})+unsafe.Sizeof(turn{})) + 64
)

// What a heap of a type or a gate holds beside flows.
const (
	refShare = 1 << 30
	refGate  = 1 << 31
)

func (b *Broker) placeStanding(ref uint32, pos int32) {
	switch {
	case ref < refShare:
		b.flows[ref].pos = pos
	case ref < refGate:
		b.shares.all[ref&^refShare].pos = pos
	default:
		b.gates.all[ref&^refGate].pos = pos
	}
}

// rank puts the flow where its best job puts it.
func (b *Broker) rank(f *flow) {
	if f.set != nil || f.share != nil || f.kind.fair {
		b.rankAmong(f)
		return
	}
	h := &f.kind.flows
	switch {
	case f.ready.n > 0:
		x := b.best(&f.ready)
		x.ref = f.no
		if f.pos < 0 {
			h.push(x)
		} else if !h.at(int(f.pos)).level(&x) {
			h.fix(f.pos, x)
		}
	case f.pos >= 0:
		h.remove(f.pos)
		f.pos = -1
	}
}

// rankAmong is rank where things stand in between.
func (b *Broker) rankAmong(f *flow) {
	switch {
	case f.ready.n > 0:
		x := b.best(&f.ready)
		x.ref = f.no
		if f.pos < 0 {
			b.stand(f, x)
		} else if h := f.stands(); !h.at(int(f.pos)).level(&x) {
			h.fix(f.pos, x)
			b.raise(f.share, f.gate)
		}
	case f.pos >= 0:
		b.unrank(f)
	}
}

// stands is the heap in which a flow stands.
func (f *flow) stands() *heap {
	switch {
	case f.share != nil:
		return &f.share.flows
	case f.gate != nil:
		return &f.gate.elems
	}
	return &f.kind.flows
}

// stand lets a flow stand whose best job is x.
func (b *Broker) stand(f *flow, x entry) {
	f.gate = b.gateFor(f)
	if f.kind.fair {
		f.share = b.shareFor(f)
	}
	f.stands().push(x)
	b.raise(f.share, f.gate)
}

func (b *Broker) unrank(f *flow) {
	f.stands().remove(f.pos)
	s, g := f.share, f.gate
	f.pos, f.share, f.gate = -1, nil, nil
	b.raise(s, g)
}

// holdBack moves a flow to the gate of a group that is shut. Its turn stays.
func (b *Broker) holdBack(f *flow) {
	had := f.turn()
	b.unrank(f)
	b.rank(f)
	b.keepTurn(f, had)
}

// turn is the turn of a flow, if it has one.
func (f *flow) turn() turn {
	if f.share == nil {
		return turn{}
	}
	return *f.share.turn
}

// keepTurn restores the place in the rotation that a flow's turn had before
// something moved that was ready all the while.
func (b *Broker) keepTurn(f *flow, had turn) {
	if f.share != nil && f.share.turn.key == had.key {
		b.setTurn(f.share.turn, had.last, had.floor)
	}
}

// raise corrects the places of a share and a gate, either of which may be nil,
// when what stands in them has changed.
func (b *Broker) raise(s *share, g *gate) {
	if s != nil {
		b.rankShare(s)
	}
	if g != nil {
		b.rankGate(g)
	}
}

func (b *Broker) rankShare(s *share) {
	if s.kind.pairs != 0 {
		// Whoever leaves, the one whose turn is next may have an older job.
		b.touch(s.kind)
	}
	h := &s.kind.flows
	if s.gate != nil {
		h = &s.gate.elems
	}
	if s.flows.n == 0 {
		h.remove(s.pos)
		b.dropShare(s)
		return
	}
	x := entry{a: s.flows.top().a, b: s.turn.last, ref: s.no | refShare, c: uint32(s.turn.last)}
	if s.gate == nil {
		x.b = max(x.b, s.turn.floor)
	}
	if s.pos < 0 {
		h.push(x)
	} else if !h.at(int(s.pos)).level(&x) {
		h.fix(s.pos, x)
	}
}

func (b *Broker) rankGate(g *gate) {
	switch {
	case g.elems.n == 0:
		b.dropGate(g)
	case g.pos >= 0:
		if x := g.standing(); !g.kind.flows.at(int(g.pos)).level(&x) {
			g.kind.flows.fix(g.pos, x)
		}
	case !g.link.in():
		if g.group.shut {
			g.group.held.push(&g.link, g)
		} else {
			b.enter(g)
		}
	}
}

// enter lets a gate stand in the heap of its type.
func (b *Broker) enter(g *gate) {
	g.group.gates.push(&g.link, g)
	g.kind.flows.push(g.standing())
	b.touch(g.kind)
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

// gateFor returns the gate at which a flow is to stand, made if need be: of a
// group that is shut, if one is, else of one with limits; nil for none.
func (b *Broker) gateFor(f *flow) *gate {
	if f.set == nil {
		return nil
	}
	by := f.set.shutGroup()
	for _, g := range f.set.groups {
		if by == nil && len(g.limits) > 0 {
			by = g
		}
	}
	if by == nil {
		return nil
	}
	k := f.kind
	if g := k.gates[by]; g != nil {
		return g
	}
	g := &gate{group: by, kind: k, pos: -1}
	g.elems = heap{place: b.placeStanding, held: &b.heapBytes}
	g.no = b.gates.add(g)
	if k.gates == nil {
		k.gates = map[*group]*gate{}
	}
	k.gates[by] = g
	by.fair += one(k.fair)
	return g
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (b *Broker) dropGate(g *gate) {
	if g.pos >= 0 {
		g.kind.flows.remove(g.pos)
		g.group.gates.remove(&g.link)
	} else if g.link.in() {
		g.group.held.remove(&g.link)
	}
	g.elems.release()
	g.group.fair -= one(g.kind.fair)
	if delete(g.kind.gates, g.group); len(g.kind.gates) == 0 {
		g.kind.gates = nil
	}
	b.gates.drop(g.no)
}

// shareFor returns the share in which a flow of a fair type is to stand, made if
// need be.
func (b *Broker) shareFor(f *flow) *share {
	key := turnKey{origin: f.origin}
	if f.set != nil {
		key = turnKey{group: f.set.groups[0]}
	} else if f.sub != nil && f.origin == 0 {
		key.origin = f.sub.id
	}
	k := f.kind
	t := k.turns[key]
	if t == nil {
		b.turns++
		t = &turn{key: key, last: b.turns}
		if k.turns == nil {
			k.turns = map[turnKey]*turn{}
		}
		k.turns[key] = t
	}
	for _, s := range t.shares {
		if s.gate == f.gate {
			return s
		}
	}
	s := &share{turn: t, kind: k, gate: f.gate, pos: -1}
	if s.open() && len(t.shares) > 0 {
		// Who could not run before stands at the end, who could where it stands.
		floor := uint64(math.MaxUint64)
		for _, o := range t.shares {
			if o.gate == nil {
				floor = 0
			} else if o.open() {
				floor = min(floor, o.gate.group.opened)
			}
		}
		if floor == math.MaxUint64 {
			b.turns++
			floor = b.turns
		}
		if floor > t.floor {
			b.setTurn(t, t.last, floor)
		}
	}
	s.flows = heap{place: b.placeStanding, held: &b.heapBytes}
	s.no = b.shares.add(s)
	t.shares = append(t.shares, s)
	return s
}

// first is the best flow of a turn, wherever it stands.
func (t *turn) first() (x entry) {
	for _, s := range t.shares {
		if y := s.flows.top(); s.open() && (x.ref == 0 || y.before(&x)) {
			x = *y
		}
	}
	return x
}

// open: no group is known to hold the share back.
func (s *share) open() bool { return s.gate == nil || !s.gate.group.shut }

func (b *Broker) dropShare(s *share) {
	s.flows.release()
	b.shares.drop(s.no)
	t := s.turn
	t.shares = slices.DeleteFunc(t.shares, func(o *share) bool { return o == s })
	if k := s.kind; len(t.shares) == 0 {
		if delete(k.turns, t.key); len(k.turns) == 0 {
			k.turns = nil
		}
	}
}

// setTurn gives a turn its place in the rotation.
func (b *Broker) setTurn(t *turn, last, floor uint64) {
	t.last, t.floor = last, floor
	for _, s := range t.shares {
		b.raise(s, s.gate)
	}
}

// lookFlows bounds how many flows and gates one command finds held back.
const lookFlows = 4096

// front returns the flow whose best job a type hands out next; nil when all are
// held back.
func (b *Broker) front(k *jobType) *flow {
	if ref := k.flows.top().ref; ref < refShare {
		if f := b.flows[ref]; f.set == nil && (f.sub == nil || !f.sub.gone) {
			return f
		}
	}
	return b.search(k)
}

// search is front where things stand in between.
func (b *Broker) search(k *jobType) *flow {
	for ; k.flows.n > 0 && b.looks < lookFlows; b.looks++ {
		top := *k.flows.top()
		if top.ref >= refGate {
			g := b.gates.all[top.ref&^refGate]
			if g.group.shut {
				k.flows.remove(0)
				g.pos = -1
				g.group.gates.remove(&g.link)
				g.group.held.push(&g.link, g)
				continue
			}
			if x := g.standing(); !x.level(&top) {
				k.flows.fix(0, x)
				continue
			}
			top = *g.elems.top()
		}
		if top.ref >= refShare {
			top = b.shares.all[top.ref&^refShare].turn.first()
		}
		f := b.flows[top.ref]
		if f.sub != nil && f.sub.gone {
			b.lose(f)
			continue
		}
		if f.set == nil || f.set.shutGroup() == nil {
			return f
		}
		b.holdBack(f)
	}
	b.unfinished = b.unfinished || k.flows.n > 0
	return nil
}

// SetFair says whether groups take turns in a type.
func (b *Broker) SetFair(now int64, name []byte, fair bool) ([]Effect, error) {
	b.begin(now)
	k, err := b.configure(name)
	if err != nil {
		return b.end(), err
	}
	if k.fair != fair {
		for _, g := range k.gates {
			g.group.fair += one(fair) - one(k.fair)
		}
		k.fair = fair
		b.restandings = append(b.restandings, restanding{kind: k, next: 1})
	}
	b.touch(k)
	return b.end(), nil
}

// restanding is a type that has become fair, or no longer is, and the flow to go
// on with. Until it is done both orders are mixed.
type restanding struct {
	kind *jobType
	next int
}

func (b *Broker) restandSome() {
	for n := 0; n < lookFlows && len(b.restandings) > 0; n++ {
		v := &b.restandings[0]
		if v.next >= len(b.flows) {
			b.restandings = b.restandings[1:]
			continue
		}
		if f := b.flows[v.next]; f != nil && f.kind == v.kind && f.pos >= 0 && (f.share != nil) != f.kind.fair {
			b.unrank(f)
			b.rank(f)
			b.touch(f.kind)
		}
		v.next++
	}
}
