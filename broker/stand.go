package broker

// Where jobs that are ready stand: each in the queue of its flow, and the flow,
// by its best job, in the heap of its type. Two things may come in between.
//
// A gate (gate.go) is a group and a type, for the flows of that type with that
// group. While the group is shut, its gates are out of the heaps, and what stands
// behind them is not looked at. A flow of several groups stands at the gate of one
// that is shut, if one is.
//
// In a fair type groups take turns (turn.go), and flows stand in the turns of
// theirs; behind a gate in shares, one for each turn.

// What heaps hold beside flows.
const (
	refShare = 1 << 30
	refGate  = 2 << 30
	refTurn  = 3 << 30
	refKind  = 3 << 30
)

func (b *Broker) placeStanding(ref uint32, pos int32) {
	switch no := ref &^ refKind; ref & refKind {
	case refShare:
		b.shares.all[no].pos = pos
	case refGate:
		b.gates.all[no].pos = pos
	case refTurn:
		b.rotation.all[no].pos = pos
	default:
		b.flows[no].pos = pos
	}
}

// rank puts the flow where its best job puts it.
func (b *Broker) rank(f *flow) {
	if f.set != nil || f.turn != nil || f.kind.fair {
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
			b.raise(f.share, f.turn, f.gate)
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
	case f.turn != nil:
		return &f.turn.elems
	case f.gate != nil:
		return &f.gate.elems
	}
	return &f.kind.flows
}

// stand lets a flow stand whose best job is x.
func (b *Broker) stand(f *flow, x entry) {
	b.takeGate(f)
	if f.kind.fair {
		b.takeTurn(f)
		if f.gate != nil {
			b.takeShare(f)
		} else {
			b.comeBack(f.turn)
		}
	} else if f.turn != nil {
		b.leaveTurn(f)
	}
	f.stands().push(x)
	b.raise(f.share, f.turn, f.gate)
}

func (b *Broker) unrank(f *flow) {
	f.stands().remove(f.pos)
	f.pos = -1
	if f.turn != nil {
		f.turn.ready--
	}
	b.raise(f.share, f.turn, f.gate)
}

// holdBack moves a flow to the gate of a group that is shut. Its turn stays.
func (b *Broker) holdBack(f *flow) {
	had := f.place()
	b.unrank(f)
	b.rank(f)
	b.keepPlace(f, had)
}

// raise corrects where a share, a turn and a gate stand, each of which may be
// nil, when what stands in them has changed.
func (b *Broker) raise(s *share, t *turn, g *gate) {
	if s != nil {
		b.rankShare(s)
	}
	if t != nil {
		b.rankTurn(t)
	}
	if g != nil {
		b.rankGate(g)
	}
}

// lookFlows bounds how many things one command looks at that turn out to be held
// back, or that it lets stand again.
const lookFlows = 1024

// look counts a look; false says that this command has none left.
func (b *Broker) look() bool {
	b.unfinished = b.unfinished || b.looks == lookFlows
	if !b.unfinished {
		b.looks++
	}
	return !b.unfinished
}

// front returns the flow whose best job a type hands out next; nil when all are
// held back.
func (b *Broker) front(k *jobType) *flow {
	if k.flows.n > 0 && k.held.n == 0 {
		if ref := k.flows.top().ref; ref < refShare {
			if f := b.flows[ref]; f.set == nil && (f.sub == nil || !f.sub.gone) {
				return f
			}
		}
	}
	return b.search(k)
}

// search is front where things stand in between.
func (b *Broker) search(k *jobType) *flow {
	b.bringIn(k)
	for more := !b.unfinished; more && k.flows.n > 0; more = b.look() {
		ref := k.flows.top().ref
		if ref >= refTurn {
			t := b.rotation.all[ref&^refKind]
			if b.callAll(t) {
				continue
			}
			ref = t.elems.top().ref
		} else if ref >= refGate {
			if ref = b.behind(b.gates.all[ref&^refKind]); ref == 0 {
				continue
			}
		}
		if ref >= refShare {
			s := b.shares.all[ref&^refKind]
			if s.gate.group.shut {
				b.sendBack(s)
				continue
			}
			ref = s.flows.top().ref
		}
		f := b.flows[ref]
		if f.set != nil && len(b.revisions) > 0 {
			b.catchUp(f.set)
		}
		switch {
		case f.sub != nil && f.sub.gone:
			b.lose(f)
		case f.set != nil && f.set.shutGroup() != nil:
			b.holdBack(f)
		case f.turn != nil && b.late(f.turn):
		default:
			if k.fair {
				b.watch(k, f.set)
			}
			return f
		}
	}
	return nil
}

// restand lets the flows of a type that has become fair, or no longer is, stand anew.
func (b *Broker) restand(k *jobType) {
	if k.flowCount > 0 {
		b.restands = len(b.flows)
	}
}

// restandSome goes on with flows that do not stand as their types are since these have
// become fair, or no longer are. Until it is done both orders are mixed.
func (b *Broker) restandSome() {
	for n := 0; n < lookFlows && b.restands > 0; n++ {
		b.restands--
		if b.restandAt++; b.restandAt >= len(b.flows) {
			b.restandAt = 0
		}
		if f := b.flows[b.restandAt]; f != nil && f.pos >= 0 && (f.turn != nil) != f.kind.fair {
			b.unrank(f)
			b.rank(f)
			b.touch(f.kind)
		}
	}
}
