//go:build invariants

package broker

func (v *census) kinds() {
	b := v.b
	sum := b.forgotten
	spare, dead := 0, 0
	for _, k := range b.types {
		if k == nil {
			continue
		}
		sum.Add(&k.Ledger)
		l := v.types[k]
		if l == nil {
			l = &Ledger{}
		}
		must(k.Imbalance() == 0, "type %q is out of balance: %+v", k.name, k.Ledger)
		must(k.Delayed == l.Delayed && k.Queued == l.Queued && k.Running == l.Running,
			"type %q counts %+v, has %+v", k.name, k.Ledger, *l)
		must(int(k.borrowed) == v.borrowed[k], "type %q counts %d borrowed runs, has %d", k.name, k.borrowed, v.borrowed[k])
		must(k.bytes == v.bytes[k], "type %q counts %d bytes, has %d", k.name, k.bytes, v.bytes[k])
		v.heap("flows", &k.flows, v.position)
		must(k.flows.n == 0 || k.idle.n == 0 || v.blocked(k), "type %q has %d flows ready and %d workers idle", k.name, k.flows.n, k.idle.n)
		must(k.resting.in() == !k.inUse(), "type %q: resting %v, in use %v", k.name, k.resting.in(), k.inUse())
		if k.resting.in() && k.dead.n == 0 {
			spare++
		} else if k.resting.in() {
			dead++
		}
		n := 0
		for l := k.idle.root.next; k.idle.n > 0 && l != &k.idle.root; l = l.next {
			must(l.of.kind == k && l.of.free(), "a worker stands in line that may not")
			must(n == 0 || l.prev.of.line < l.of.line, "a worker stands in line before one that was there first")
			n++
		}
		must(k.idling.in() == (k.idle.n > 0), "type %q has %d idle workers, listed %v", k.name, k.idle.n, k.idling.in())
		must(n == k.idle.n, "type %q counts %d idle workers, has %d", k.name, k.idle.n, n)
	}
	must(sum == b.total, "types add up to %+v, total is %+v", sum, b.total)
	must(spare == b.unusedTypes() && dead == b.deadTypes.n, "spare types %d and %d, counted %d and %d", b.unusedTypes(), b.deadTypes.n, spare, dead)
	must(b.cfg.MaxTypes <= 0 || len(b.typesByName)-spare <= b.cfg.MaxTypes, "%d types and %d spare ones, limit %d", len(b.typesByName), spare, b.cfg.MaxTypes)
	must(spare <= b.cfg.IdleTypes, "%d spare types, limit %d", spare, b.cfg.IdleTypes)
}

// pools proves what is said of pairs: each stands in one heap, by a key that is
// not too bad, and no job that may run waits beside an idle worker.
func (v *census) pools() {
	b := v.b
	n := 0
	workers := map[*pool]int{}
	for i := range b.peers {
		if w := b.peers[i].wrk; w != nil && w.pool != nil {
			must(w.kind == nil, "a worker serves a type and a pool")
			workers[w.pool]++
		}
	}
	for _, k := range b.types {
		if k == nil {
			continue
		}
		v.heap("pools", &k.pools, func(ref uint32) int32 { return b.pairs.get(ref).pos })
		named, waiting := 0, 0
		for r, prev := k.pairs, uint32(0); r != 0; {
			x := b.pairs.get(r)
			p := b.pools[x.pool]
			must(b.types[x.kind] == k && x.kindPrev == prev, "type %q lists another's pair", k.name)
			must(p.set.serves(k.name) && x.named == p.set.names[string(k.name)], "type %q is paired with a pool that does not serve it", k.name)
			if x.named {
				named++
			}
			if !x.ready {
				waiting++
				must(k.pools.at(int(x.pos)).ref == r, "a pair is out of place")
				must(p.idle.n == 0 || k.pools.at(int(x.pos)).a <= p.idle.first().line, "a pool has been idle for longer than type %q knows", k.name)
			} else {
				must(p.ready.at(int(x.pos)).ref == r, "a pair is out of place")
				must(p.idle.n == 0 || p.touched, "type %q stands ready for an idle pool", k.name)
				best, ready := v.best(k)
				must(v.blocked(k) || !ready || !best.before(p.ready.at(int(x.pos))), "a job of type %q is better than a pool knows", k.name)
			}
			must(v.blocked(k) || k.flows.n == 0 || p.idle.n == 0, "a job of type %q waits beside an idle pool", k.name)
			n++
			prev, r = r, x.kindNext
		}
		must(named == int(k.named) && waiting == k.pools.n, "type %q: %d pairs with a name and %d in line, counted %d and %d", k.name, k.named, k.pools.n, named, waiting)
	}
	must(n == b.pairs.live, "%d pairs are listed of %d", n, b.pairs.live)
	for _, p := range b.pools {
		if p == nil {
			continue
		}
		must(p.idling.in() == (p.idle.n > 0), "a pool has %d idle workers, listed %v", p.idle.n, p.idling.in())
		must(b.poolsByKey[p.key] == p && p.workers == workers[p] && p.workers > 0, "a pool counts %d workers, has %d", p.workers, workers[p])
		v.heap("ready", &p.ready, func(ref uint32) int32 { return b.pairs.get(ref).pos })
		count := 0
		for r, prev := p.pairs, uint32(0); r != 0; {
			x := b.pairs.get(r)
			must(b.pools[x.pool] == p && x.poolPrev == prev, "a pool lists another's pair")
			count++
			prev, r = r, x.poolNext
		}
		must(count == p.n, "a pool counts %d pairs, has %d", p.n, count)
		if len(b.unjudged) == 0 {
			for _, k := range b.types {
				if k != nil && p.set.serves(k.name) {
					count--
				}
			}
			must(count == 0, "a pool has %d pairs more than types to serve", count)
		}
	}
}

// position is where something thinks that it stands.
func (v *census) position(ref uint32) int32 {
	switch {
	case ref >= refTurn:
		return v.b.rotation.all[ref&^refKind].pos
	case ref >= refGate:
		return v.b.gates.all[ref&^refKind].pos
	case ref >= refShare:
		return v.b.shares.all[ref&^refKind].pos
	}
	return v.b.flows[ref].pos
}

// best is the key of the job that a type hands out next; known is false where that
// is for those to find out who look at the turns.
func (v *census) best(k *jobType) (best entry, known bool) {
	b := v.b
	type first struct{ job, place entry }
	turns := map[*turn]first{}
	var place entry
	consider := func(x, at entry) {
		if !known || at.before(&place) {
			best, place, known = x, at, true
		}
	}
	for _, f := range b.flows[1:] {
		if f == nil || f.kind != k || f.pos < 0 || f.set != nil && f.set.shutGroup() != nil {
			continue
		}
		x, ajar := b.best(&f.ready), f.gate != nil && f.gate.at >= 0
		t := f.turn
		if t == nil && !ajar {
			consider(x, x)
		}
		if t == nil {
			continue
		}
		if t.mixed || ajar {
			return entry{}, false
		}
		at := entry{a: x.a, b: t.place(), c: uint32(t.last)}
		if f.set != nil {
			for _, g := range f.set.groups {
				at.b = max(at.b, g.opened)
			}
		}
		y, ok := turns[t]
		if !ok || x.before(&y.job) {
			y.job = x
		}
		if !ok || at.before(&y.place) {
			y.place = at
		}
		turns[t] = y
	}
	for _, y := range turns {
		consider(y.job, y.place)
	}
	return best, known
}

// blocked: jobs of the type may wait although workers are idle.
func (v *census) blocked(k *jobType) bool {
	return k.paused || k.limits.Concurrency > 0 && k.active() >= k.limits.Concurrency ||
		k.limits.Rate > 0 && k.timer >= 0 || v.b.expelling || k.touched || v.b.unfinished
}

func (v *census) flows() {
	b := v.b
	lanes, heaps := int64(0), v.room(&b.timers)
	for _, p := range b.pools {
		if p != nil {
			heaps += v.room(&p.ready)
		}
	}
	heaps += v.room(&b.ripe) + v.room(&b.ajar)
	for _, g := range b.groups.all {
		if g != nil {
			heaps += v.room(&g.held)
		}
	}
	for _, g := range b.gates.all {
		if g != nil {
			heaps += v.room(&g.elems) + v.room(&g.jobs)
		}
	}
	for _, s := range b.shares.all {
		if s != nil {
			heaps += v.room(&s.flows)
		}
	}
	for _, t := range b.rotation.all {
		if t != nil {
			heaps += v.room(&t.elems)
		}
	}
	for _, k := range b.types {
		if k != nil {
			heaps += v.room(&k.flows) + v.room(&k.pools)
		}
	}
	unused, unusedBytes := map[*jobType]int{}, int64(0)
	for _, f := range b.flows[1:] {
		if f == nil {
			continue
		}
		if f.unused.in() {
			must(f.held() == 0 && !f.dead, "an unused flow of type %q has jobs", f.kind.name)
			must(b.types[f.kind.no] == f.kind, "an unused flow is of type %q, which is forgotten", f.kind.name)
			unused[f.kind]++
			unusedBytes += f.around()
		}
		lanes += int64(cap(f.ready.lanes)) * laneSize
		if out := f.ready.out; out != nil {
			lanes += outOfOrderSize
			heaps += v.room(&out.spill) + v.room(&out.ages)
		}
		if f.ready.n > 0 && !f.dead {
			must(f.pos >= 0, "a flow with ready jobs is not ranked")
			x, y := b.best(&f.ready), f.stands().at(int(f.pos))
			must(x.level(y) && y.ref == f.no, "a flow is ranked by another job than its best")
		} else {
			must(f.pos < 0, "a flow without ready jobs is ranked")
		}
		must(f.ended == v.ended[f] && (!f.keep || f.origin != 0) && (!f.keep || !f.dead), "a flow counts %d outcomes, has %d; keeps %v", f.ended, v.ended[f], f.keep)
		v.queue(&f.ready, f.no)
		v.list(&f.delayed, stDelayed, f.no)
		v.list(&f.running, stRunning, f.no)
		run := int64(0)
		for r := f.running.head; r != 0; r = b.jobs.get(r).next {
			run += int64(b.jobs.get(r).weight)
		}
		must(f.runBytes == run, "a flow counts %d bytes that run, has %d", f.runBytes, run)
	}
	listed := len(b.nobody.flows)
	for i := range b.peers {
		if s := b.peers[i].sub; s != nil {
			listed += len(s.flows)
		}
	}
	for _, s := range b.leaving {
		listed += len(s.flows)
	}
	for _, k := range b.types {
		must(k == nil || k.unused == unused[k], "a type counts other flows as unused than it has")
		if k == nil {
			continue
		}
		n, prev := 0, (*flow)(nil)
		for f := k.first; f != nil; f, prev = f.next, f {
			n++
			s := b.lister(f)
			must(f.kind == k && f.prev == prev && s.flows[f.at] == f, "a flow of type %q is found that is none", k.name)
			must(s.byKey == nil || (s.byKey[f.key()] == f) == k.crowded, "a flow of type %q, crowded: %v, is in a map or not", k.name, k.crowded)
			last := s.last
			s.last = nil
			must(s.find(f.sub, f.key()) == f, "a flow of type %q is not found", k.name)
			s.last = last
		}
		must(n == int(k.listed) && (n <= manyFlows || k.crowded), "type %q counts %d flows that are found, has %d; crowded: %v", k.name, k.listed, n, k.crowded)
		listed -= n
	}
	must(listed == 0, "%d flows are listed but not found", listed)
	must(b.unusedBytes == unusedBytes && unusedBytes <= b.mostUnused(), "unused flows take %d bytes, counted %d, limit %d", unusedBytes, b.unusedBytes, b.mostUnused())
	must(b.laneBytes == lanes && b.heapBytes == heaps, "lanes and heaps take %d and %d bytes, counted %d and %d", lanes, heaps, b.laneBytes, b.heapBytes)
}

// room is what a heap occupies.
func (v *census) room(h *heap) (n int64) {
	for _, c := range h.chunks {
		n += int64(len(c)) * entrySize
	}
	return n
}
