package fleet

import (
	"slices"

	"gloom/broker"
	"gloom/wire"
)

// peerWants is the work that the idle workers of a broker would do.
type peerWants struct {
	types map[string]int // places at workers that serve only this type
	sets  map[uint32]*wantedSet
	// refusedTypes are types that a pattern matches but no worker may run.
	refusedTypes map[string]bool
}

// wantedSet is a set of types that workers of another broker serve, and their places.
type wantedSet struct {
	types      [][]byte
	servesType func(typ []byte) bool
	places     int
}

func newWants() peerWants {
	return peerWants{types: map[string]int{}, sets: map[uint32]*wantedSet{}, refusedTypes: map[string]bool{}}
}

func cloneAll(list [][]byte) (clones [][]byte) {
	for _, x := range list {
		clones = append(clones, slices.Clone(x))
	}
	return clones
}

// placeCount returns roughly for how many jobs of a type there is room.
func (p *peerWants) placeCount(typ []byte) int {
	if p.refusedTypes[string(typ)] {
		return 0
	}
	n := p.types[string(typ)]
	for _, s := range p.sets {
		if s.servesType(typ) {
			n += s.places
		}
	}
	return n
}

// refuse records that a type is not wanted until all wants are sent again.
func (p *peerWants) refuse(typ []byte) {
	if len(p.refusedTypes) < maxTypes {
		p.refusedTypes[string(typ)] = true
	}
}

// ownWant is work that workers here would do: one type or a set of types.
type ownWant struct {
	set           uint32
	types, except [][]byte
	places        int
	sentPlaces    int // the places that were last sent to the others
	changed       bool
}

// wantKey identifies an ownWant: by its set of workers or, if that is 0, by its type.
type wantKey struct {
	set uint32
	typ string
}

func (o *ownWant) key() wantKey {
	if o.set == 0 {
		return wantKey{typ: string(o.types[0])}
	}
	return wantKey{set: o.set}
}

// onWorkersChanged handles the core's report of a change: of a type, or of the free places at
// workers.
func (m *Machine) onWorkersChanged(change *broker.IdleChange) {
	borrow := &m.borrow
	if change.Set == 0 {
		m.updateOffer(change.Types[0])
	}
	borrow.mustCheckOffers = borrow.mustCheckOffers || change.Places > 0
	changedWant := ownWant{set: change.Set, types: change.Types, except: change.Except}
	w := borrow.wantsByKey[changedWant.key()]
	if w == nil {
		if change.Places == 0 {
			return
		}
		if change.Set == 0 && len(borrow.ownWants)-borrow.ownSets >= maxTypes || change.Set != 0 && borrow.ownSets >= maxSets {
			borrow.wantsOmitted = true
			return
		}
		if change.Set != 0 {
			borrow.ownSets++
		}
		w = &changedWant
		borrow.wantsByKey[w.key()] = w
		borrow.ownWants = append(borrow.ownWants, w)
	}
	w.places = change.Places
	if change.Places > 0 {
		w.types, w.except = change.Types, change.Except
	}
	if (w.places > 0) != (w.sentPlaces > 0) {
		if !w.changed {
			w.changed = true
			borrow.changedWants = append(borrow.changedWants, w)
		}
		if w.sentPlaces == 0 && m.ticks > borrow.wantsSentTick {
			m.sendWants(false)
		}
	}
}

// sendWants sends the changes of this broker's wants, or all of them, if there are other
// brokers.
func (m *Machine) sendWants(full bool) {
	borrow := &m.borrow
	if !full && len(borrow.changedWants) == 0 || len(m.peersByName) == 0 {
		return
	}
	list := borrow.changedWants
	if full {
		list = nil
		before := len(borrow.ownWants)
		borrow.ownWants = slices.DeleteFunc(borrow.ownWants, func(w *ownWant) bool {
			if w.places > 0 {
				list = append(list, w)
				return false
			}
			if delete(borrow.wantsByKey, w.key()); w.set != 0 {
				borrow.ownSets--
			}
			return true
		})
		if borrow.wantsOmitted && len(borrow.ownWants) < before {
			borrow.wantsOmitted = false
			m.core.ReportIdle()
		}
		if len(list) == 0 && !borrow.wantsSent {
			return
		}
	}
	borrow.wantsSent = len(list) > 0
	borrow.wantsSentTick = m.ticks
	var encoded writer
	n := 0
	send := func() {
		msg := m.newMessage(msgWants, len(encoded))
		msg.putBool(full)
		msg.putListHead(n)
		m.outgoing = append(m.outgoing, Message{Data: append(msg, encoded...)})
		encoded, n, full = encoded[:0], 0, false // the messages that follow add to this one
	}
	for _, w := range list {
		before := len(encoded)
		encoded.putUint(uint64(w.set))
		encoded.putList(w.types)
		encoded.putList(w.except)
		w.sentPlaces, w.changed = w.places, false
		if m.core.Draining() {
			w.sentPlaces = 0
		}
		encoded.putInt(int64(w.sentPlaces))
		if n > 0 && len(encoded) > m.cfg.MaxMessage/2 {
			// A long want gets a message of its own: if NATS rejects it, the others still
			// arrive.
			long := slices.Clone(encoded[before:])
			encoded = encoded[:before]
			send()
			encoded = append(encoded, long...)
		}
		n++
	}
	if n > 0 || full {
		send()
	}
	borrow.changedWants = borrow.changedWants[:0]
}

// receiveWants handles the wants of another broker.
func (m *Machine) receiveWants(p *peer, r *reader) {
	full := r.readBool()
	n := r.readListHead()
	if p == nil {
		return
	}
	m.lend.wantsVersion++
	if full {
		p.wants = newWants()
	}
	for range n {
		set, types, except, places := uint32(r.readUint()), r.readNames(wire.MaxTypes), r.readNames(wire.MaxTypes), int(min(r.readInt(), maxPlaces))
		switch {
		case r.err != nil:
			return
		case len(p.wants.types) >= 2*maxTypes || len(p.wants.sets) >= 2*maxSets:
			return
		case set == 0 && len(types) == 1 && places > 0:
			p.wants.types[string(types[0])] = places
			delete(p.wants.refusedTypes, string(types[0]))
			m.updateOffer(types[0])
		case set == 0 && len(types) == 1:
			delete(p.wants.types, string(types[0]))
		case places > 0:
			p.wants.sets[set] = &wantedSet{cloneAll(types), broker.TypeMatcher(types, except), places}
			clear(p.wants.refusedTypes)
			m.lend.setsChanged = true
		default:
			delete(p.wants.sets, set)
		}
	}
}
