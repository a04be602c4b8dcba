//go:build invariants

package broker

import "fmt"

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
	v := census{b: b, types: map[*jobType]*Ledger{}, bytes: map[*jobType]int64{}, subs: map[*submitter]*[2]int64{}, inSlab: map[uint32]uint32{}, ended: map[*holding]int{}, borrowed: map[*jobType]int{}}
	v.records()
	v.kinds()
	v.queues()
	v.holdings()
	v.peers()
	v.pools()
	v.groups()
	v.heap("timers", &b.timers, func(ref uint32) int32 {
		if ref&typeTimer != 0 {
			return b.types.all[ref&^typeTimer].timer
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
	ended        map[*holding]int
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
	f := b.holder(j)
	weight := int(j.idLen) + int(j.headLen) + cap(b.big[r]) + JobOverhead
	if j.flags&flagBig == 0 {
		weight += len(b.body(r, j))
	}
	if j.state != stEnded {
		weight += int(f.queue.set.weight())
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

func ptr[T any](x T) *T { return &x }

func one(is bool) int {
	if is {
		return 1
	}
	return 0
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
			unused := 0
			for i, h := range s.holdings {
				must(h.sub == s && !h.dead && h.at == i, "a submitter lists another's holding")
				unused += one(h.unused.in())
			}
			must(unused == s.unused, "a submitter counts %d unused holdings, has %d", s.unused, unused)
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
			r = j.next
		}
		must(w.stalled.in() == (over > 0), "a worker has %d overdue runs, stalled: %v", over, w.stalled.in())
		must(n == w.out.n && over == w.overdue, "worker counts %d out, %d overdue; has %d, %d", w.out.n, w.overdue, n, over)
	}
	for k, n := range joined {
		must(int(k.workers) == n && int(k.borrowers) == borrowers[k], "type %q counts %d workers, %d of them brokers; has %d, %d", k.name, k.workers, k.borrowers, n, borrowers[k])
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
	for _, k := range v.b.types.all {
		if k == nil {
			continue
		}
		must(k.dead.n <= v.b.cfg.DeadLetters, "type %q keeps %d letters", k.name, k.dead.n)
		n += k.dead.n
		of, last := 0, 0
		for _, x := range k.dead.blocks {
			must(len(x) > 0 && len(x) <= shelfBlock, "type %q has a block of %d letters", k.name, len(x))
			for _, l := range x {
				must(l.No > last && l.aged.in() && string(l.Type) == string(k.name), "a letter of type %q is out of place", k.name)
				last = l.No
				of++
				bytes += l.weight()
			}
		}
		must(of == k.dead.n, "type %q counts %d letters, has %d", k.name, k.dead.n, of)
	}
	must(n == d.byAge.n && bytes == d.bytes, "letters count %d, %d bytes; there are %d, %d", d.byAge.n, d.bytes, n, bytes)
	must(bytes <= max(0, v.b.cfg.DeadBytes), "letters hold %d bytes", bytes)
}
