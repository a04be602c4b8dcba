package broker

import "slices"

// submitter is a connection that hands in jobs.
type submitter struct {
	id    Peer
	flows []*flow
	// byKey finds flows of crowded types once there are many.
	byKey map[flowKey]*flow
	last  *flow // the flow used last
	idle  *flow // the one empty flow it may keep
	// unused counts those of its flows that are in Broker.unused.
	unused int
	jobs   int
	bytes  int64
	owner  uint64 // see SetOwner
	// gone: it is in Broker.leaving, as long as it has flows.
	gone bool
	// lends: it is a broker (Borrow).
	lends bool
}

// manyFlows is from when on the flows of a type, or of a submitter, are many. One of a
// few flows is found by going through them, of the type if these are few, else of the
// submitter; only where both are many there is a map.
const manyFlows = 8

// find returns the flow of sub, nil for detached jobs, in whose list it stands.
func (s *submitter) find(sub *submitter, key flowKey) *flow {
	if f := s.last; f != nil && f.kind == key.kind && f.set == key.set && f.origin == key.origin && f.keep == key.keep {
		return f
	}
	var found *flow
	switch {
	case !key.kind.crowded:
		found = key.kind.first
		for found != nil && (found.sub != sub || found.key() != key) {
			found = found.next
		}
	case s.byKey != nil:
		found = s.byKey[key]
	default:
		if i := slices.IndexFunc(s.flows, func(f *flow) bool { return f.key() == key }); i >= 0 {
			found = s.flows[i]
		}
	}
	if found != nil {
		s.last = found
	}
	return found
}

func (b *Broker) addFlow(s *submitter, f *flow) {
	f.at = len(s.flows)
	s.flows = append(s.flows, f)
	s.last = f
	k := f.kind
	if f.next = k.first; f.next != nil {
		f.next.prev = f
	}
	k.first = f
	k.listed++
	if k.listed > manyFlows && !k.crowded {
		k.crowded = true
		for g := k.first; g != nil; g = g.next {
			b.lister(g).enter(g)
		}
	} else {
		s.enter(f)
	}
	if s.byKey == nil && len(s.flows) > manyFlows {
		s.byKey = map[flowKey]*flow{}
		for _, g := range s.flows {
			s.enter(g)
		}
	}
}

// enter enters a flow in the map where it belongs there.
func (s *submitter) enter(f *flow) {
	if s.byKey != nil && f.kind.crowded {
		s.byKey[f.key()] = f
	}
}

// lister is in whose list a flow stands that is found.
func (b *Broker) lister(f *flow) *submitter {
	if f.sub == nil {
		return &b.nobody
	}
	return f.sub
}

func (s *submitter) forget(f *flow) {
	n := len(s.flows) - 1
	moved := s.flows[n]
	s.flows[f.at] = moved
	moved.at = f.at
	s.flows[n] = nil
	s.flows = s.flows[:n]
	k := f.kind
	if k.crowded {
		delete(s.byKey, f.key())
	}
	if n == 0 {
		s.byKey = nil
	}
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		k.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	}
	f.next, f.prev = nil, nil
	if k.listed--; k.listed == 0 {
		k.crowded = false
	}
	if s.last == f {
		s.last = nil
	}
	if s.idle == f {
		s.idle = nil
	}
}

// worker is a connection that does jobs.
type worker struct {
	id Peer
	// kind is the type that it serves, pool the set of several; both are nil
	// before its first join.
	kind *jobType
	pool *pool
	// room is how many jobs may be out on it at a time.
	room int
	// credit is how many bytes of jobs it may be handed, above 0, before Credit.
	credit int64
	// out lists what is out on it, oldest first, overdue runs among them.
	out     list
	overdue int
	named   bool // it ever joined with prefetch: its answers carry ids
	notices bool // it wants cancel frames
	headers bool // it wants headers
	left    bool
	borrows bool         // it is a broker (AddBorrower)
	name    string       // of that broker
	idle    link[worker] // in line
	line    uint64       // orders workers by when they stood in line
	since   int64
	// stalled links it in Broker.stalled while a run of it is overdue.
	stalled link[worker]
}

func (w *worker) free() bool {
	return (w.kind != nil || w.pool != nil) && !w.left && w.overdue == 0 && w.out.n < w.room && w.credit > 0
}

// place is the line in which a worker stands that has room, and how much groups
// hold of what is done there.
func (w *worker) place() (l *ring[worker], held int) {
	if w.pool != nil {
		return &w.pool.idle, w.pool.typesHeld
	}
	return &w.kind.idle, w.kind.held.n
}

// lineUp and stepOut let a worker stand in line, or no more.
func (b *Broker) lineUp(w *worker) {
	b.lines++
	w.line = b.lines
	l, held := w.place()
	switch {
	case w.borrows:
		w.line |= behind
		l.push(&w.idle, w)
	case w.kind != nil && w.kind.borrowers > 0:
		at := &l.root
		for l.n > 0 && at.prev != &l.root && at.prev.of.borrows {
			at = at.prev
		}
		l.insert(&w.idle, w, at)
	default:
		l.push(&w.idle, w)
	}
	if l.n == 1 {
		if held > 0 {
			b.heldIdle++
		}
		if p := w.pool; p != nil {
			b.idlePools.push(&p.idling, p)
		} else {
			b.idleTypes.push(&w.kind.idling, w.kind)
		}
	}
	b.noteLine(w)
}

func (b *Broker) stepOut(w *worker) {
	if !w.idle.in() {
		return
	}
	l, held := w.place()
	if l.remove(&w.idle); l.n == 0 {
		if held > 0 {
			b.heldIdle--
		}
		if p := w.pool; p != nil {
			b.idlePools.remove(&p.idling)
		} else {
			b.idleTypes.remove(&w.kind.idling)
		}
	}
	b.noteLine(w)
}

// AddSubmitter and AddWorker let a new connection in.
func (b *Broker) AddSubmitter() Peer {
	p := b.newPeer()
	b.peers[p.Slot()].sub = &submitter{id: p}
	b.submitters++
	return p
}

// AddWorker lets a new worker in; it gets nothing before it joins.
func (b *Broker) AddWorker() Peer {
	p := b.newPeer()
	b.peers[p.Slot()].wrk = &worker{id: p, room: 1, credit: b.cfg.Credit, since: b.now}
	b.workers++
	return p
}

func (b *Broker) newPeer() Peer {
	b.gens++
	var slot uint32
	if n := len(b.freePeers); n > 0 {
		slot = b.freePeers[n-1]
		b.freePeers = b.freePeers[:n-1]
	} else {
		slot = uint32(len(b.peers))
		b.peers = append(b.peers, peer{})
	}
	p := makePeer(b.gens, slot)
	b.peers[slot] = peer{id: p}
	return p
}

func (b *Broker) submitter(p Peer) *submitter {
	if s := p.Slot(); int(s) < len(b.peers) && b.peers[s].id == p {
		return b.peers[s].sub
	}
	return nil
}

func (b *Broker) worker(p Peer) *worker {
	if s := p.Slot(); int(s) < len(b.peers) && b.peers[s].id == p {
		return b.peers[s].wrk
	}
	return nil
}

// Gone tells that a connection is lost. What a submitter had waiting ends at
// once, what it has running is unwanted from now on. A worker's jobs are
// handed to others, as far as their retries allow.
func (b *Broker) Gone(now int64, p Peer) []Effect { return b.gone(now, p, "") }

// Expelled tells that a worker was closed because it sent what cannot be read
// (reason). If one job was out on it, that job fails at once: the next worker
// would say the same. With several out, nobody knows which one it was, and
// they are handed on like those of a lost worker.
func (b *Broker) Expelled(now int64, p Peer, reason string) []Effect { return b.gone(now, p, reason) }

func (b *Broker) gone(now int64, p Peer, reason string) []Effect {
	b.begin(now)
	b.remove(p, reason)
	return b.end()
}

func (b *Broker) remove(p Peer, reason string) {
	if s := b.submitter(p); s != nil {
		b.dropSubmitter(s)
		if !s.lends {
			b.submitters--
		}
	} else if w := b.worker(p); w != nil {
		b.dropWorker(w, reason)
		if !w.borrows {
			b.workers--
		}
	} else {
		return
	}
	slot := p.Slot()
	b.peers[slot] = peer{}
	b.freePeers = append(b.freePeers, slot)
}

// lostFlows bounds how many flows of submitters that went one command takes
// leave of.
const lostFlows = 1024

// dropSubmitter ends what a lost submitter had: its ids are free from now on,
// and nothing of it is handed out.
func (b *Broker) dropSubmitter(s *submitter) {
	s.gone = true
	b.leaving = append(b.leaving, s)
	b.leave(lostFlows)
	b.tellWorkers(tickSweep)
}

// leave takes leave of up to n flows of lost submitters.
func (b *Broker) leave(n int) {
	for ; n > 0 && len(b.leaving) > 0; n-- {
		last := len(b.leaving) - 1
		if flows := b.leaving[last].flows; len(flows) > 0 {
			b.lose(flows[len(flows)-1])
		} else {
			b.leaving[last] = nil
			b.leaving = b.leaving[:last]
		}
	}
}

// unbind lets a kept flow be without its submitter if that has gone.
func (b *Broker) unbind(f *flow) {
	if f.keep && f.sub != nil && f.sub.gone {
		b.lose(f)
	}
}

// lose lets a flow be without its submitter: what waited is discarded, what runs
// is unwanted; kept jobs go on.
func (b *Broker) lose(f *flow) {
	f.sub.forget(f)
	f.sub = nil
	if f.keep {
		if f.held() == 0 {
			b.dropFlow(f)
		}
		return
	}
	k := f.kind
	waiting := f.ready.n + f.delayed.n
	for _, l := range [...]*Ledger{&k.Ledger, &b.total} {
		l.Queued -= uint64(f.ready.n)
		l.Delayed -= uint64(f.delayed.n)
		l.Discarded += uint64(waiting)
	}
	if f.pos >= 0 {
		b.unrank(f)
	}
	b.count(f.set, -waiting)
	k.bytes -= f.bytes - f.runBytes
	b.bytes -= f.bytes - f.runBytes
	f.bytes = f.runBytes
	f.dead = true
	if waiting > 0 {
		f.sweptAt = len(b.swept)
		b.swept = append(b.swept, f)
		b.unswept += waiting
	}
	if f.running.n > 0 {
		f.telling = true
		b.telling = append(b.telling, f)
	} else if waiting == 0 {
		b.dropFlow(f)
	}
}

// tellWorkers has up to n runs that vanished submitters left behind noticed by
// their workers. Those told go to the end of their flow's list.
func (b *Broker) tellWorkers(n int) {
	for ; n > 0 && len(b.telling) > 0; n-- {
		f := b.telling[len(b.telling)-1]
		r := f.running.head
		if !f.telling || r == 0 || b.jobs.get(r).flags&flagTold != 0 {
			f.telling = false
			b.telling[len(b.telling)-1] = nil
			b.telling = b.telling[:len(b.telling)-1]
			continue
		}
		j := b.jobs.get(r)
		b.notice(r, j)
		j.flags |= flagTold
		b.unlinkFrom(&f.running, j)
		b.link(&f.running, r, j)
	}
}

// notice tells the worker of a run that nobody waits for it any more.
func (b *Broker) notice(r uint32, j *job) {
	if j.flags&flagUnwanted != 0 {
		return
	}
	if w := b.peers[j.worker].wrk; w.notices {
		e := b.effect(OpCancel, w.id, b.id(j))
		if w.borrows {
			e.Run = outcomeNo(r, j)
		}
	}
}

// sweep frees up to n jobs that vanished submitters left behind.
func (b *Broker) sweep(n int) {
	for ; n > 0 && len(b.swept) > 0; n-- {
		f := b.swept[len(b.swept)-1]
		var r uint32
		if f.delayed.n > 0 {
			r = f.delayed.head
		} else {
			r = b.first(&f.ready)
		}
		b.sweepJob(f, r, b.jobs.get(r))
	}
}

// sweepJob frees one abandoned job of f.
func (b *Broker) sweepJob(f *flow, r uint32, j *job) {
	if j.state == stDelayed {
		b.unlinkFrom(&f.delayed, j)
	} else {
		b.pull(&f.ready, r, j)
	}
	b.unswept--
	b.free(r, j)
	if f.ready.n+f.delayed.n == 0 {
		n := len(b.swept) - 1
		last := b.swept[n]
		b.swept[f.sweptAt], last.sweptAt = last, f.sweptAt
		b.swept[n] = nil
		b.swept = b.swept[:n]
		b.emptied(f)
	}
}
