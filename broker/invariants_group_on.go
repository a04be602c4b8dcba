//go:build invariants

package broker

import "slices"

// groups proves what is counted of groups, and which are shut.
func (v *census) groups() {
	b := v.b
	waiting, running, sets := map[*group]int{}, map[*group]int{}, map[*group]int{}
	flows := map[*groupSet]int{}
	for _, f := range b.flows {
		if f == nil || f.set == nil {
			continue
		}
		flows[f.set]++
		for _, g := range f.set.groups {
			running[g] += f.running.n
			if !f.dead {
				waiting[g] += f.ready.n + f.delayed.n
			}
		}
	}
	ids := uint32(0)
	for no, s := range b.sets.all {
		if s == nil {
			continue
		}
		ids++
		key := setKey(nil, s.names())
		must(b.setIndex.find(b.setIndex.hash(key), key) == s.no+1 && int(s.no) == no, "a set of groups is not found")
		must(s.flows == flows[s] && s.flows > 0, "a set of groups counts %d flows, has %d", s.flows, flows[s])
		for _, g := range s.groups {
			sets[g]++
		}
	}
	there := 0
	for no, g := range b.groups.all {
		if g == nil {
			continue
		}
		must(b.findGroup(g.name) == g && int(g.no) == no, "group %q is not found", g.name)
		must(g.waiting == waiting[g] && g.running == running[g] && g.sets == sets[g], "group %q counts %d and %d jobs, %d sets; has %d, %d, %d", g.name, g.waiting, g.running, g.sets, waiting[g], running[g], sets[g])
		must(g.there == (g.waiting+g.running > 0 || g.remembers() > b.now || g.timer >= 0 && g.remembers() > 0), "group %q: there %v", g.name, g.there)
		must(g.there || g.sets > 0, "group %q has nobody", g.name)
		must(!g.there || g.waiting+g.running > 0 || g.timer >= 0, "group %q stays for ever", g.name)
		if g.there {
			there++
		}
		by, until := b.closed(g)
		must(g.shut == (by != nil) || g.shut && g.timer >= 0, "group %q: shut %v, rule %v", g.name, g.shut, by)
		must(until == 0 || g.timer >= 0, "group %q is shut until %d, and has no timer", g.name, until)
		v.heap("held", &g.held, func(no uint32) int32 { return b.gates.all[no].at })
		must((g.ajar >= 0) == (!g.shut && g.held.n > 0), "group %q: shut %v, %d gates held, place %d", g.name, g.shut, g.held.n, g.ajar)
		must(g.ajar < 0 || g.held.top().level(b.ajar.at(int(g.ajar))), "group %q stands by another job than its best", g.name)
		for l := g.guarded.root.next; g.guarded.n > 0 && l != &g.guarded.root; l = l.next {
			must(l.of.watched != nil && slices.Contains(l.of.watched.groups, g), "group %q is guarded by a type that watches others", g.name)
		}
	}
	v.heap("ajar", &b.ajar, func(no uint32) int32 { return b.groups.all[no].ajar })
	must(there == b.groupsThere, "%d groups are there, counted %d", there, b.groupsThere)
}

// standing proves that gates, shares and turns are where they belong.
func (v *census) standing() {
	b := v.b
	held, waits := map[*jobType]int{}, map[*turn]int{}
	gates, shares, turns, ready := map[*gate]int{}, map[*share]int{}, map[*turn]int{}, map[*turn]int{}
	for _, f := range b.flows[1:] {
		if f != nil {
			gates[f.gate]++
			shares[f.share]++
			turns[f.turn]++
			ready[f.turn] += one(f.pos >= 0)
		}
	}
	for no, s := range b.shares.all {
		if s == nil {
			continue
		}
		v.heap("share", &s.flows, v.position)
		must(int(s.no) == no && s.gate.kind.shares[shareKey{s.turn, s.gate}] == s && s.of == shares[s] && s.of > 0, "a share of type %q counts %d flows, has %d, or is not known", s.gate.kind.name, s.of, shares[s])
		must((s.pos >= 0) == (s.flows.n > 0), "a share of type %q has %d flows and stands at %d", s.gate.kind.name, s.flows.n, s.pos)
		if s.pos < 0 {
			continue
		}
		h, x := s.stands()
		y := h.at(int(s.pos))
		must(y.ref == x.ref, "a share of type %q is out of place", s.gate.kind.name)
		must(x.level(y) || !s.called && x.a == y.a && y.b <= x.b, "a share of type %q stands too far behind", s.gate.kind.name)
		if !s.called {
			waits[s.turn]++
			must(s.gate.jobs.at(int(s.at)).level(s.flows.top()), "a share of type %q waits by another job than its best", s.gate.kind.name)
		}
	}
	for no, g := range b.gates.all {
		if g == nil {
			continue
		}
		v.heap("gate", &g.elems, v.position)
		v.heap("jobs", &g.jobs, func(no uint32) int32 { return b.shares.all[no].at })
		must(g.elems.n >= g.jobs.n && (b.restands > 0 || !g.kind.fair || g.elems.n == g.jobs.n), "a gate of type %q has %d shares of %d", g.kind.name, g.jobs.n, g.elems.n)
		must(int(g.no) == no && g.kind.gates[g.group] == g && g.flows == gates[g] && g.flows > 0, "a gate of type %q counts %d flows, has %d, or is not known", g.kind.name, g.flows, gates[g])
		must(g.elems.n == 0 && g.pos < 0 && g.at < 0 || (g.pos >= 0) != (g.at >= 0), "a gate of type %q stands at %d and %d", g.kind.name, g.pos, g.at)
		must(g.link.in() == (g.elems.n > 0), "a gate of type %q is out of place", g.kind.name)
		if g.pos >= 0 {
			x, y := g.standing(), g.kind.flows.at(int(g.pos))
			must(y.ref == x.ref && !x.before(y), "a gate of type %q stands too far behind", g.kind.name)
		}
		if g.at >= 0 {
			held[g.kind]++
			x, y := g.heldKey(), g.group.held.at(int(g.at))
			must(y.ref == x.ref && x.level(y), "a gate of type %q is held by another job than its best", g.kind.name)
		}
	}
	for no, t := range b.rotation.all {
		if t == nil {
			continue
		}
		v.heap("turn", &t.elems, v.position)
		must(int(t.no) == no && t.kind.turns[t.key] == t && t.flows == turns[t] && t.flows > 0 && t.ready == ready[t] && (t.pos >= 0) == (t.elems.n > 0), "a turn of type %q counts %d and %d flows, has %d and %d, or is not known", t.kind.name, t.flows, t.ready, turns[t], ready[t])
		must(t.waits.n == waits[t], "a turn of type %q counts %d shares that wait, has %d", t.kind.name, t.waits.n, waits[t])
		if t.pos >= 0 {
			y := t.kind.flows.at(int(t.pos))
			must(y.ref == t.no|refTurn && y.a == t.elems.top().a && y.b == t.place(), "a turn of type %q stands elsewhere than its place", t.kind.name)
		}
	}
	heldIdle := 0
	for _, k := range b.types {
		if k != nil {
			must(k.held.n == held[k], "type %q counts %d gates held, has %d", k.name, k.held.n, held[k])
			must(k.ripe < 0 || b.unfinished, "type %q is still ripe", k.name)
			heldIdle += one(k.held.n > 0 && k.idle.n > 0)
		}
	}
	for _, p := range b.pools {
		if p == nil {
			continue
		}
		n := 0
		for r := p.pairs; r != 0; r = b.pairs.get(r).poolNext {
			n += one(b.types[b.pairs.get(r).kind].held.n > 0)
		}
		must(n == p.typesHeld, "a pool counts %d types with gates held, has %d", p.typesHeld, n)
		heldIdle += one(n > 0 && p.idle.n > 0)
	}
	must(heldIdle == b.heldIdle, "%d types and pools have idle workers beside gates held, counted %d", heldIdle, b.heldIdle)
	must(b.unfinished || b.heldIdle == 0 || b.ajar.n == 0, "%d workers' types and pools are idle beside %d groups that are ajar", b.heldIdle, b.ajar.n)
	for _, f := range b.flows[1:] {
		if f == nil || f.pos < 0 {
			continue
		}
		must(f.share == nil || f.share.gate == f.gate && f.share.turn == f.turn && f.gate.kind == f.kind, "a flow stands in a share of another gate")
		must(b.restands > 0 || (f.turn != nil) == f.kind.fair, "type %q is fair: %v, and a flow has a turn: %v", f.kind.name, f.kind.fair, f.turn != nil)
	}
}
