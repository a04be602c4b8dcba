package broker

import "unsafe"

// turn is a group that takes turns in a fair type: the first of a job's groups or,
// without one, the submitter that it came from. It stands in the heap of its type
// by the priority of its best job and then by its place in the rotation. When its
// turn has come, its best job goes, wherever that stands.
type turn struct {
	no   uint32
	key  turnKey
	kind *jobType
	last uint64 // when it had a turn, or came
	// floor is when it could run again, if that was later: its place then.
	floor uint64
	// elems are its flows without a gate and the shares that it has called.
	elems heap
	pos   int32       // in kind.flows, -1
	waits ring[share] // those not called
	// flows counts those whose turn it is, ready those of them that stand.
	flows, ready int
	// set is what groups all its jobs have had; mixed: not all had the same. Then
	// the turn keeps its place as long as nobody finds it held back.
	set   *groupSet
	mixed bool
}

type turnKey struct {
	group  *group
	origin Peer
}

// share is the flows of a turn at a gate. It waits there, by its last turn, until
// the group is open and the turn calls it; then it stands in the turn, by its best
// job, until the group is found shut. So neither a group that opens nor a turn that
// passes moves what it has elsewhere.
type share struct {
	no     uint32
	turn   *turn
	gate   *gate
	flows  heap
	called bool
	pos    int32       // in gate.elems or turn.elems
	at     int32       // in gate.jobs, while it waits
	of     int         // flows whose share it is
	link   link[share] // in turn.waits
}

type shareKey struct {
	turn *turn
	gate *gate
}

const (
	turnSize  = int64(unsafe.Sizeof(turn{})) + 64
	shareSize = int64(unsafe.Sizeof(share{})) + 64
)

// takeTurn lets a flow of a fair type that is to stand have its turn. One that had
// nothing that stands comes to the end of the rotation.
func (b *Broker) takeTurn(f *flow) {
	if f.turn == nil {
		f.turn = b.turnFor(f)
		f.turn.flows++
	}
	t := f.turn
	if t.ready++; t.ready == 1 {
		b.turns++
		t.last, t.floor, t.set, t.mixed = b.turns, 0, f.set, false
	}
	t.mixed = t.mixed || t.set != f.set
}

// leaveTurn lets a flow that does not stand have no turn.
func (b *Broker) leaveTurn(f *flow) {
	if f.share != nil {
		b.leaveShare(f)
	}
	t := f.turn
	f.turn = nil
	if t.flows--; t.flows == 0 {
		t.elems.release()
		if delete(t.kind.turns, t.key); len(t.kind.turns) == 0 {
			t.kind.turns = nil
		}
		b.rotation.drop(t.no)
	}
}

// turnFor returns the turn of a flow, made if need be.
func (b *Broker) turnFor(f *flow) *turn {
	key := turnKey{origin: f.origin}
	if f.set != nil {
		key = turnKey{group: f.set.groups[0]}
	} else if f.sub != nil && f.origin == 0 {
		key.origin = f.sub.id
	}
	k := f.kind
	t := k.turns[key]
	if t == nil {
		t = &turn{key: key, kind: k, pos: -1}
		t.elems = heap{place: b.place.standing, held: &b.heapBytes}
		t.no = b.rotation.add(t)
		if k.turns == nil {
			k.turns = map[turnKey]*turn{}
		}
		k.turns[key] = t
	}
	return t
}

// place is where a turn stands in the rotation.
func (t *turn) place() uint64 { return max(t.last, t.floor) }

// rankTurn puts a turn where its best job and its place put it.
func (b *Broker) rankTurn(t *turn) {
	k := t.kind
	if k.pairs != 0 || k.ripe >= 0 {
		// Whoever leaves, the one whose turn is next may have an older job.
		b.touch(k)
	}
	switch {
	case t.elems.n > 0:
		x := entry{a: t.elems.top().a, b: t.place(), ref: t.no | refTurn, c: uint32(t.last)}
		if t.pos < 0 {
			k.flows.push(x)
			b.touch(k)
		} else if !k.flows.at(int(t.pos)).level(&x) {
			k.flows.fix(t.pos, x)
		}
		return
	case t.pos >= 0:
		k.flows.remove(t.pos)
		t.pos = -1
	}
}

// setTurn gives a turn its place in the rotation.
func (b *Broker) setTurn(t *turn, last, floor uint64) {
	t.last, t.floor = last, floor
	b.rankTurn(t)
}

// passTurn lets a turn that was used stand at the end.
func (b *Broker) passTurn(t *turn) {
	if t != nil && t.ready > 0 {
		b.turns++
		b.setTurn(t, b.turns, 0)
	}
}

// comeBack lets a turn of which nothing could run stand at the end: something can.
func (b *Broker) comeBack(t *turn) {
	if t.elems.n == 0 && !b.callAll(t) {
		b.turns++
		t.floor = b.turns
	}
}

// late corrects the place of a turn that could not run for a while, and of which
// nobody found that.
func (b *Broker) late(t *turn) bool {
	if t.mixed || t.set == nil {
		return false
	}
	at := t.place()
	for _, g := range t.set.groups {
		at = max(at, g.opened)
	}
	if at == t.place() {
		return false
	}
	b.setTurn(t, t.last, at)
	return true
}

// placeHad is the place in the rotation that a flow had by its turn.
type placeHad struct {
	key         turnKey
	last, floor uint64
}

func (f *flow) place() (had placeHad) {
	if t := f.turn; t != nil && f.pos >= 0 {
		had = placeHad{t.key, t.last, t.floor}
	}
	return had
}

// keepPlace restores the place in the rotation that a flow's turn had before
// something moved that was ready all the while.
func (b *Broker) keepPlace(f *flow, had placeHad) {
	if f.turn == nil || f.pos < 0 || f.turn.key != had.key {
		return
	}
	b.setTurn(f.turn, had.last, had.floor)
	if f.share != nil {
		b.raise(f.share, nil, f.gate)
	}
}

// takeShare gives a flow with a turn and a gate the share of the two.
func (b *Broker) takeShare(f *flow) {
	if f.share == nil {
		f.share = b.shareFor(f.turn, f.gate)
		f.share.of++
	}
}

// leaveShare lets a flow that does not stand have no share.
func (b *Broker) leaveShare(f *flow) {
	s := f.share
	f.share = nil
	if s.of--; s.of > 0 {
		return
	}
	k := s.gate.kind
	s.flows.release()
	if delete(k.shares, shareKey{s.turn, s.gate}); len(k.shares) == 0 {
		k.shares = nil
	}
	b.shares.drop(s.no)
}

// shareFor returns the share of a turn at a gate, made if need be.
func (b *Broker) shareFor(t *turn, g *gate) *share {
	k := g.kind
	key := shareKey{t, g}
	s := k.shares[key]
	if s == nil {
		s = &share{turn: t, gate: g, pos: -1}
		s.flows = heap{place: b.place.standing, held: &b.heapBytes}
		s.no = b.shares.add(s)
		if k.shares == nil {
			k.shares = map[shareKey]*share{}
		}
		k.shares[key] = s
	}
	return s
}

// rankShare puts a share where its best job puts it.
func (b *Broker) rankShare(s *share) {
	t, g := s.turn, s.gate
	switch h, x := s.stands(); {
	case s.flows.n == 0:
		s.leave()
	case s.pos >= 0:
		if !h.at(int(s.pos)).level(&x) {
			h.fix(s.pos, x)
		}
		if x = s.job(); !s.called && !g.jobs.at(int(s.at)).level(&x) {
			g.jobs.fix(s.at, x)
		}
	case g.group.shut:
		s.enter(false)
	default:
		b.comeBack(t)
		s.enter(true)
	}
}

// stands is the heap in which a share stands, and its key there.
func (s *share) stands() (*heap, entry) {
	if s.flows.n == 0 {
		return nil, entry{}
	}
	if !s.called {
		return &s.gate.elems, s.waiting()
	}
	x := *s.flows.top()
	x.ref = s.no | refShare
	return &s.turn.elems, x
}

// waiting is the key of a share at its gate: when the group opens, the turns that it
// held back come in the order of their last ones.
func (s *share) waiting() entry {
	return entry{a: s.flows.top().a, b: s.turn.last, ref: s.no | refShare, c: uint32(s.turn.last)}
}

// job is the key of its best job.
func (s *share) job() entry {
	x := *s.flows.top()
	x.ref = s.no
	return x
}

func (b *Broker) placeWaiting(no uint32, pos int32) { b.shares.all[no].at = pos }

func (s *share) enter(called bool) {
	if s.called = called; !called {
		s.turn.waits.push(&s.link, s)
		s.gate.jobs.push(s.job())
	}
	h, x := s.stands()
	h.push(x)
}

func (s *share) leave() {
	if s.called {
		s.turn.elems.remove(s.pos)
	} else {
		s.turn.waits.remove(&s.link)
		s.gate.elems.remove(s.pos)
		s.gate.jobs.remove(s.at)
	}
	s.pos = -1
}

// call takes a share, whose group is open, from its gate into its turn. A turn of
// which nothing could run stands where it could again.
func (b *Broker) call(s *share) {
	t, g := s.turn, s.gate
	if t.elems.n == 0 {
		t.floor = max(t.floor, g.group.opened)
	}
	s.leave()
	s.enter(true)
	b.rankTurn(t)
	b.rankGate(g)
}

// sendBack lets a called share wait at its gate.
func (b *Broker) sendBack(s *share) {
	s.leave()
	s.enter(false)
	b.rankTurn(s.turn)
	b.rankGate(s.gate)
}

// callAll calls the shares of a turn whose groups are open, and tells whether there
// were any. It goes by whichever are fewer, the shares or what may have some. Gates
// that it finds shut are held from now on: when they open, the type is looked at.
func (b *Broker) callAll(t *turn) (came bool) {
	k := t.kind
	if t.waits.n == 0 {
		return false
	}
	var open []*share
	var shut []*gate
	if t.waits.n <= k.open.n+b.ajar.n {
		for l := t.waits.root.next; l != &t.waits.root; l = l.next {
			if g := l.of.gate; !g.group.shut {
				open = append(open, l.of)
			} else if g.pos >= 0 {
				shut = append(shut, g)
			}
		}
	} else {
		find := func(g *gate) {
			if s := k.shares[shareKey{t, g}]; s != nil && s.pos >= 0 && !s.called && !g.group.shut {
				open = append(open, s)
			}
		}
		for l := k.open.root.next; k.open.n > 0 && l != &k.open.root; l = l.next {
			if find(l.of); l.of.group.shut {
				shut = append(shut, l.of)
			}
		}
		for i := range b.ajar.n {
			if g := k.gates[b.groups.all[b.ajar.at(i).ref]]; g != nil && g.at >= 0 {
				find(g)
			}
		}
	}
	for _, g := range shut {
		b.holdGate(g)
	}
	for _, s := range open {
		b.call(s)
	}
	return len(open) > 0
}

// guard lets a type be looked at again when a group shuts whose turn it is.
type guard struct {
	group *group
	link  link[jobType] // in group.guarded
}

// watch has a fair type looked at again when one of the groups of its next job
// shuts: the one whose turn is then next may have an older job.
func (b *Broker) watch(k *jobType, set *groupSet) {
	if k.watched == set || len(b.poolsByKey)+len(b.rules) == 0 {
		return
	}
	b.unwatch(k)
	if k.watched = set; set == nil {
		return
	}
	if n := len(set.groups); cap(k.guards) < n {
		k.guards = make([]guard, n)
	} else {
		k.guards = k.guards[:n]
	}
	for i, g := range set.groups {
		k.guards[i].group = g
		g.guarded.push(&k.guards[i].link, k)
	}
}

func (b *Broker) unwatch(k *jobType) {
	for i := range k.guards {
		x := &k.guards[i]
		x.group.guarded.remove(&x.link)
		x.group = nil
	}
	k.watched, k.guards = nil, k.guards[:0]
}

// alarm has the types looked at that guard a group which has shut, and says whether
// this command got through. Before that nothing is handed out.
func (b *Broker) alarm() bool {
	for len(b.shutting) > 0 {
		g := b.shutting[len(b.shutting)-1]
		for g.guarded.n > 0 {
			if !b.look() {
				return false
			}
			k := g.guarded.first()
			b.unwatch(k)
			b.touch(k)
		}
		g.shutting = false
		b.shutting = b.shutting[:len(b.shutting)-1]
	}
	return true
}
