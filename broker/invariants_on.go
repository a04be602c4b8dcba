//go:build invariants

package broker

import (
	"fmt"
	"slices"
)

// Checking tells whether invariants are swept after each command.
const Checking = true

// scribble spoils memory whose time is over, so that who still reads it shows.
func scribble(m []byte) {
	for i := range m {
		m[i] = 0xA5
	}
}

func must(ok bool, format string, args ...any) {
	if !ok {
		panic("broker: invariant broken: " + fmt.Sprintf(format, args...))
	}
}

// verify proves every invariant of the state, at the cost of a walk over all
// of it.
func (b *Broker) verify() {
	v := census{b: b, types: map[*jobType]*Ledger{}, bytes: map[*jobType]int64{}, subs: map[*submitter]*[2]int64{}, inSlab: map[uint32]uint32{}, ended: map[*flow]int{}, borrowed: map[*jobType]int{}}
	v.records()
	v.kinds()
	v.flows()
	v.peers()
	v.pools()
	v.groups()
	v.standing()
	v.heap("timers", &b.timers, func(ref uint32) int32 {
		if ref&typeTimer != 0 {
			return b.types[ref&^typeTimer].timer
		}
		if ref&groupTimer != 0 {
			return b.groups.all[ref&^groupTimer].timer
		}
		return b.timings.get(ref).pos
	})
	v.memory()
	v.letters()
}

type census struct {
	b            *Broker
	types        map[*jobType]*Ledger
	bytes        map[*jobType]int64
	subs         map[*submitter]*[2]int64
	held         uint32
	overdueRuns  int
	overdueBytes int64
	unswep       int
	stored       int64
	inSlab       map[uint32]uint32
	weight       int64
	timing       int
	// of kept outcomes
	ended        map[*flow]int
	outcomes     int
	outcomeBytes int64
	// of other brokers' jobs
	borrowed     map[*jobType]int
	borrowedRuns int
}

func (v *census) records() {
	b := v.b
	for n, c := range b.jobs.chunks {
		if c == nil {
			continue
		}
		live := 0
		for i := range c.rec {
			j := &c.rec[i]
			if j.state == stFree {
				continue
			}
			live++
			v.record(uint32(n)<<tableShift|uint32(i), j)
		}
		must(live == int(c.live), "chunk %d counts %d of %d live records", n, c.live, live)
	}
	must(b.overdueRuns == v.overdueRuns && b.overdueBytes == v.overdueBytes, "overdueRuns %d of %d bytes, counted %d of %d", b.overdueRuns, b.overdueBytes, v.overdueRuns, v.overdueBytes)
	for i, f := range b.swept {
		must(f.dead && f.sweptAt == i && f.ready.n+f.delayed.n > 0, "a flow to be swept is out of place")
	}
	must(b.outcomes == v.outcomes && b.outcomeBytes == v.outcomeBytes, "outcomes %d of %d bytes, counted %d of %d", b.outcomes, b.outcomeBytes, v.outcomes, v.outcomeBytes)
	must(b.borrowedRuns == v.borrowedRuns, "%d borrowed runs, counted %d", b.borrowedRuns, v.borrowedRuns)
	must(b.unswept == v.unswep, "unswept %d, counted %d", b.unswept, v.unswep)
	must(b.bytes == v.weight, "bytes %d, counted %d", b.bytes, v.weight)
	must(b.timings.live == v.timing, "timings %d, counted %d", b.timings.live, v.timing)
}

func (v *census) record(r uint32, j *job) {
	b := v.b
	v.stored += int64(b.slabs.length(j.slab, j.off) + entryHead)
	v.inSlab[j.slab] += b.slabs.length(j.slab, j.off) + entryHead
	if j.flags&flagHeld != 0 {
		v.held++
		id := b.id(j)
		must(b.index.find(b.index.hash(id), id) == r, "id %q does not lead to its record", id)
	}
	if j.timing != 0 {
		v.timing++
		must(b.timings.get(j.timing).job == r, "timing of job %d names another", r)
	}
	if j.state == stOverdue {
		v.overdueRuns++
		v.overdueBytes += int64(j.weight)
		must(j.flags&flagHeld == 0, "an overdue run holds its id")
		return
	}
	f := b.flows[j.flow]
	weight := int(j.idLen) + int(j.headLen) + cap(b.big[r]) + JobOverhead
	if j.flags&flagBig == 0 {
		weight += len(b.body(r, j))
	}
	if j.state != stEnded {
		weight += int(f.set.weight())
	}
	must(int(j.weight) == weight, "job %d weighs %d, says %d", r, weight, j.weight)
	if b.abandoned(j) {
		v.unswep++
		return
	}
	v.weight += int64(j.weight)
	v.bytes[f.kind] += int64(j.weight)
	if f.sub != nil && !f.dead {
		s := v.subs[f.sub]
		if s == nil {
			s = &[2]int64{}
			v.subs[f.sub] = s
		}
		s[0]++
		s[1] += int64(j.weight)
	}
	if j.flags&flagBorrowed != 0 {
		v.borrowed[f.kind]++
		v.borrowedRuns++
		must(j.state == stRunning && j.flags&flagHeld == 0 && (f.sub == nil || f.sub.lends), "borrowed job %d waits, or holds its id", r)
		must(b.borrowedBy(b.peers[j.worker].wrk, b.id(j)) == r, "borrowed job %d is not found", r)
		return
	}
	must(j.flags&flagHeld != 0, "job %d does not hold its id", r)
	l := v.types[f.kind]
	if l == nil {
		l = &Ledger{}
		v.types[f.kind] = l
	}
	switch j.state {
	case stDelayed:
		l.Delayed++
		must(b.timings.get(j.timing).pos >= 0, "a delayed job has no timer")
	case stQueued, stSpilled:
		l.Queued++
	case stRunning:
		l.Running++
		must(b.peers[j.worker].wrk != nil, "job %d runs on nobody", r)
	case stEnded:
		v.ended[f]++
		v.outcomes++
		v.outcomeBytes += int64(j.weight)
		must(f.keep && b.timings.get(j.timing).pos >= 0, "an outcome is not kept, or for ever")
	}
}

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
		if k.resting.in() && len(k.dead) == 0 {
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
		must(named == k.named && waiting == k.pools.n, "type %q: %d pairs with a name and %d in line, counted %d and %d", k.name, k.named, k.pools.n, named, waiting)
	}
	must(n == b.pairs.live, "%d pairs are listed of %d", n, b.pairs.live)
	for _, p := range b.pools {
		if p == nil {
			continue
		}
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
		key := setKey(s.names())
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
	held, shares, waits := map[*jobType]int{}, map[*gate]int{}, map[*turn]int{}
	for no, s := range b.shares.all {
		if s == nil {
			continue
		}
		v.heap("share", &s.flows, v.position)
		h, x := s.stands()
		y := h.at(int(s.pos))
		must(int(s.no) == no && s.gate.kind.shares[shareKey{s.turn, s.gate}] == s && y.ref == x.ref, "a share of type %q is out of place", s.gate.kind.name)
		must(x.level(y) || !s.called && x.a == y.a && y.b <= x.b, "a share of type %q stands too far behind", s.gate.kind.name)
		shares[s.gate]++
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
		must(g.elems.n >= g.jobs.n && (len(b.restandings) > 0 || !g.kind.fair || g.elems.n == g.jobs.n), "a gate of type %q has %d shares of %d", g.kind.name, g.jobs.n, g.elems.n)
		must(int(g.no) == no && g.kind.gates[g.group] == g && g.shares == shares[g] && g.elems.n+g.shares > 0, "a gate of type %q is empty or not known", g.kind.name)
		must(g.elems.n == 0 && g.pos < 0 && g.at < 0 || (g.pos >= 0) != (g.at >= 0), "a gate of type %q stands at %d and %d", g.kind.name, g.pos, g.at)
		must(g.link.in() == (g.pos >= 0), "a gate of type %q is out of place", g.kind.name)
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
		must(int(t.no) == no && t.kind.turns[t.key] == t && t.flows > 0 && (t.pos >= 0) == (t.elems.n > 0), "a turn of type %q is empty or not known", t.kind.name)
		must(t.waits.n == waits[t], "a turn of type %q counts %d shares that wait, has %d", t.kind.name, t.waits.n, waits[t])
		if t.pos >= 0 {
			y := t.kind.flows.at(int(t.pos))
			must(y.ref == t.no|refTurn && y.a == t.elems.top().a && y.b == t.place(), "a turn of type %q stands elsewhere than its place", t.kind.name)
		}
	}
	hungry := 0
	for _, k := range b.types {
		if k != nil {
			must(k.gatesHeld == held[k], "type %q counts %d gates held, has %d", k.name, k.gatesHeld, held[k])
			must(k.ripe < 0 || b.unfinished, "type %q is still ripe", k.name)
			hungry += one(k.gatesHeld > 0 && k.idle.n > 0)
		}
	}
	for _, p := range b.pools {
		if p == nil {
			continue
		}
		n := 0
		for r := p.pairs; r != 0; r = b.pairs.get(r).poolNext {
			n += one(b.types[b.pairs.get(r).kind].gatesHeld > 0)
		}
		must(n == p.typesHeld, "a pool counts %d types with gates held, has %d", p.typesHeld, n)
		hungry += one(n > 0 && p.idle.n > 0)
	}
	must(hungry == b.hungry, "%d types and pools are hungry, counted %d", hungry, b.hungry)
	must(b.unfinished || b.hungry == 0 || b.ajar.n == 0, "%d workers' types and pools are idle beside %d groups that are ajar", b.hungry, b.ajar.n)
	for _, f := range b.flows[1:] {
		if f == nil || f.pos < 0 {
			continue
		}
		must(f.share == nil || f.share.gate == f.gate && f.share.turn == f.turn && f.gate.kind == f.kind, "a flow stands in a share of another gate")
		must(len(b.restandings) > 0 || (f.turn != nil) == f.kind.fair, "type %q is fair: %v, and a flow has a turn: %v", f.kind.name, f.kind.fair, f.turn != nil)
	}
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
	for _, f := range b.flows[1:] {
		if f == nil {
			continue
		}
		lanes += int64(cap(f.ready.lanes)) * laneSize
		heaps += v.room(&f.ready.spill) + v.room(&f.ready.ages)
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
	must(b.laneBytes == lanes && b.heapBytes == heaps, "lanes and heaps take %d and %d bytes, counted %d and %d", lanes, heaps, b.laneBytes, b.heapBytes)
}

// room is what a heap occupies.
func (v *census) room(h *heap) (n int64) {
	for _, c := range h.chunks {
		n += int64(len(c)) * entrySize
	}
	return n
}

func ptr[T any](x T) *T { return &x }

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (v *census) queue(q *queue, no uint32) {
	b := v.b
	n := q.spill.n
	must(q.spill.n == q.ages.n, "spill %d, ages %d", q.spill.n, q.ages.n)
	for i, l := range q.lanes {
		must(i == 0 || q.lanes[i-1].prio < l.prio, "lanes out of order")
		prev, last := uint32(0), entry{}
		for r := l.head; r != 0; {
			j := b.jobs.get(r)
			must(j.state == stQueued && j.prio == l.prio && j.flow == no, "a lane holds what is not its")
			must(j.prev == prev && (prev == 0 || last.before(ptr(j.standing(r)))), "a lane is out of order")
			prev, last = r, j.standing(r)
			r = j.next
			n++
		}
		must(prev == l.tail && prev != 0, "a lane's tail is wrong")
	}
	must(n == q.n, "queue counts %d, has %d", q.n, n)
	v.heap("spill", &q.spill, func(ref uint32) int32 { return int32(b.jobs.get(ref).next) })
	v.heap("ages", &q.ages, func(ref uint32) int32 { return int32(b.jobs.get(ref).prev) })
}

func (v *census) list(l *list, st state, no uint32) {
	n, prev := 0, uint32(0)
	for r := l.head; r != 0; {
		j := v.b.jobs.get(r)
		must(j.state == st && j.flow == no && j.prev == prev, "a list of state %d holds what is not its", st)
		prev = r
		r = j.next
		n++
	}
	must(n == l.n && prev == l.tail, "a list counts %d, has %d", l.n, n)
}

func (v *census) heap(name string, h *heap, pos func(uint32) int32) {
	for i := range h.n {
		must(pos(h.at(i).ref) == int32(i), "%s: element %d thinks it is at %d", name, i, pos(h.at(i).ref))
		must(i == 0 || !h.at(i).before(h.at((i-1)/4)), "%s: out of order at %d", name, i)
	}
}

func (v *census) peers() {
	b := v.b
	joined, borrowers := map[*jobType]int{}, map[*jobType]int{}
	for i := range b.peers {
		if s := b.peers[i].sub; s != nil {
			have := v.subs[s]
			if have == nil {
				have = &[2]int64{}
			}
			must(int64(s.jobs) == have[0] && s.bytes == have[1], "submitter counts %d jobs, %d bytes; has %v", s.jobs, s.bytes, *have)
			for i, f := range s.flows {
				must(f.sub == s && !f.dead && f.at == i, "a submitter lists another's flow")
			}
		}
		w := b.peers[i].wrk
		if w == nil {
			continue
		}
		if w.kind != nil {
			joined[w.kind]++
			borrowers[w.kind] += one(w.borrows)
		}
		must(w.idle.in() == w.free(), "worker idle %v, free %v", w.idle.in(), w.free())
		n, over := 0, 0
		for r := w.out.head; r != 0; {
			j := b.jobs.get(r)
			must(j.worker == uint32(i), "a job is out on another worker")
			if j.state == stOverdue {
				over++
			} else {
				must(j.state == stRunning, "a job in state %d is out", j.state)
			}
			n++
			r = j.wnext
		}
		must(w.stalled.in() == (over > 0), "a worker has %d overdue runs, stalled: %v", over, w.stalled.in())
		must(n == w.out.n && over == w.overdue, "worker counts %d out, %d overdue; has %d, %d", w.out.n, w.overdue, n, over)
	}
	for k, n := range joined {
		must(k.workers == n && int(k.borrowers) == borrowers[k], "type %q counts %d workers, %d of them brokers; has %d, %d", k.name, k.workers, k.borrowers, n, borrowers[k])
	}
}

func (v *census) memory() {
	b := v.b
	must(b.slabs.live == v.stored, "slabs count %d live bytes, have %d", b.slabs.live, v.stored)
	for no := range b.slabs.all {
		s := &b.slabs.all[no]
		must(s.live == v.inSlab[uint32(no)], "slab %d counts %d live bytes, has %d", no, s.live, v.inSlab[uint32(no)])
		must(s.live <= s.used && int(s.used) <= len(s.mem), "slab %d: %d bytes of %d live, %d in all", no, s.live, s.used, len(s.mem))
	}
	n := uint32(0)
	at := 0
	b.index.each(func(g *segment) {
		used := uint32(0)
		for _, s := range g.slot {
			if s != 0 {
				must(b.index.segment(uint32(s>>32)) == g, "an id stands in another segment than its tag's")
				used++
			}
		}
		must(used == g.n, "index segment counts %d, has %d", g.n, used)
		n += used
		for range 1 << (b.index.bits - g.bits) {
			must(b.index.dir[at] == g, "the index's directory names a segment outside of its range")
			at++
		}
	})
	must(at == len(b.index.dir), "the index's directory has %d entries, its segments account for %d", len(b.index.dir), at)
	must(n == v.held, "index has %d ids, %d are held", n, v.held)
	big := int64(0)
	for r, body := range b.big {
		must(b.jobs.get(r).flags&flagBig != 0, "a big body belongs to nobody")
		big += int64(cap(body))
	}
	must(big == b.bigBytes, "big bodies %d, counted %d", b.bigBytes, big)
}

func (v *census) letters() {
	d := &v.b.dead
	n, bytes := 0, int64(0)
	for _, k := range v.b.types {
		if k == nil {
			continue
		}
		must(len(k.dead) <= v.b.cfg.DeadLetters, "type %q keeps %d letters", k.name, len(k.dead))
		for _, l := range k.dead {
			must(l.DeadLetter != nil && string(l.Type) == string(k.name), "type %q keeps another's letter", k.name)
			n++
			bytes += l.weight()
		}
	}
	must(n == d.count && bytes == d.bytes, "letters count %d, %d bytes; there are %d, %d", d.count, d.bytes, n, bytes)
	must(bytes <= max(0, v.b.cfg.DeadBytes), "letters hold %d bytes", bytes)
	for _, l := range d.byAge {
		if l.DeadLetter != nil {
			n--
		}
	}
	must(n == 0, "%d letters are not in the list by age", n)
	must(len(d.byAge) <= 2*d.count+65, "the list by age has %d places for %d letters", len(d.byAge), d.count)
	must(len(d.byAge) == 0 || d.byAge[0].DeadLetter != nil, "the oldest letter is gone")
}
