package fleet

import (
	"cmp"
	"slices"
	"time"

	"gloom/broker"
	"gloom/broker/wording"
	"gloom/wire"
)

// guest is the part of a machine that borrows.
type guest struct {
	wants   map[wantKey]*ownWant
	own     []*ownWant // in the order in which they were added
	sets    int        // how many of own are for sets of types
	over    bool       // there are more wants than are allowed
	changed []*ownWant
	saidAt  int64 // pulse in which wants were last sent
	wanting bool  // whether the last wants had anything

	types   map[string]*asking
	open    []*asking // types with offers
	stirred bool      // workers may have become idle
	round   int       // how many of open are still to be checked for that reason
	turn    int       // index in open from which to continue
	yielded int64     // pulse in which a type last yielded
	lenders map[broker.Peer]*peer
	runs    map[uint64]*guestRun // by the core's number

	// pledged counts, for each set of workers, the places that homes were given and have not
	// filled. pledges are the claims with such places; they are checked for lapsed ones at
	// lapses.
	pledged map[uint32]int
	pledges []*claim
	lapses  int64
	// supply is the result of supplyOf.
	supply []broker.Supply
}

// asking is a type whose jobs other brokers have offered or lent.
type asking struct {
	typ    []byte
	claims []*claim
	open   bool   // in guest.open
	top    *claim // its best offer, for giveOut
	due    int64  // when its offers are answered, 0 for at once
	yields int64  // until then its offers are not answered
	// pledged are the places given to homes; own counts those of workers of this type
	// alone.
	pledged, own int
	// While a limit on bytes or jobs is reached, most bounds the places, and there are none
	// until rest. Otherwise it is 0.
	most int
	rest int64
}

// claim is one home's offer of jobs of a type, and the places that the home was given.
type claim struct {
	peer     *peer
	of       *asking
	jobs     int
	priority int64
	since    int64
	offered  int64
	places   int // given and not filled
	given    int64
	// pledges are these places by sets of workers, until they lapse.
	pledges []broker.Supply
	listed  bool // in guest.pledges
}

type guestRun struct {
	peer *peer
	of   *asking
	loanKey
	// sample is the last progress, as an item, while it is not in the stream yet. at is its
	// index in samples.
	sample pack
	at     int
}

// samples are the runs of a lender whose progress waits for room in the stream; bytes is the
// size of that progress. Only the last progress of each run waits, so a worker that reports
// endlessly makes neither the stream nor memory grow.
type samples struct {
	runs  []*guestRun
	bytes int
}

// set replaces the item of the run; nil removes it.
func (s *samples) set(run *guestRun, item []byte) {
	switch last := len(s.runs) - 1; {
	case item != nil && len(run.sample) == 0:
		run.at = len(s.runs)
		s.runs = append(s.runs, run)
	case item == nil && len(run.sample) > 0:
		s.runs[run.at] = s.runs[last]
		s.runs[run.at].at = run.at
		s.runs[last] = nil
		s.runs = s.runs[:last]
	}
	s.bytes -= cap(run.sample)
	if item == nil || cap(run.sample) > 4*len(item) {
		run.sample = nil
	}
	run.sample = append(run.sample[:0], item...)
	s.bytes += cap(run.sample)
}

// sample keeps an item of progress. If too much progress of other runs waits, it drops
// the item.
func (m *Machine) sample(run *guestRun, item []byte) {
	s := &run.peer.samples
	if s.bytes-cap(run.sample) == 0 || s.bytes-cap(run.sample)+len(item) <= m.share()/2 {
		s.set(run, item)
	}
}

// sayProgress puts progress of runs into the stream while the stream is short.
func (m *Machine) sayProgress(p *peer) {
	for len(p.samples.runs) > 0 && m.calm(p) {
		m.sayLast(p.samples.runs[0])
	}
}

// sayLast puts the last progress of a run into the stream if the stream is short, and
// forgets it.
func (m *Machine) sayLast(run *guestRun) {
	if len(run.sample) > 0 {
		if m.calm(run.peer) {
			m.put(run.peer, run.sample)
		}
		run.peer.samples.set(run, nil)
	}
}

// calm reports whether there is room for progress: little waits for p and little is on its
// way to it.
func (m *Machine) calm(p *peer) bool { return p.stream.bytes < m.share()/8 }

func (m *Machine) asking(typ []byte) *asking {
	a := m.guest.types[string(typ)]
	if a == nil && len(m.guest.types) < maxTypes {
		a = &asking{typ: slices.Clone(typ)}
		m.guest.types[string(a.typ)] = a
	}
	m.apply(m.core.Meet(m.now, typ)) // the core may have forgotten it
	return a
}

func (a *asking) claim(p *peer) *claim {
	for _, c := range a.claims {
		if c.peer == p {
			return c
		}
	}
	c := &claim{peer: p, of: a}
	a.claims = append(a.claims, c)
	return c
}

// pledgedBy returns how many places of a set of workers are pledged.
func (m *Machine) pledgedBy(a *asking, set uint32) int {
	if set == 0 {
		return a.own
	}
	return m.guest.pledged[set]
}

// pledge adds n to the pledged places of a set.
func (m *Machine) pledge(a *asking, set uint32, n int) {
	a.pledged += n
	if set == 0 {
		a.own += n
	} else if m.guest.pledged[set] += n; m.guest.pledged[set] == 0 {
		delete(m.guest.pledged, set)
	}
}

// supplyOf counts, up to most, the places for a type that are not pledged, neither for
// this type nor for others that the same workers serve.
func (m *Machine) supplyOf(a *asking, most int) (n int) {
	g := &m.guest
	if a.most > 0 {
		if m.now < a.rest {
			return 0
		}
		most = min(most, a.most)
	}
	if m.now >= g.lapses {
		g.lapses = m.now + fresh/4
		g.pledges = slices.DeleteFunc(g.pledges, func(c *claim) bool {
			if c.fresh(m.now) && len(c.pledges) > 0 {
				return false
			}
			m.lapse(c)
			return true
		})
	}
	g.supply = g.supply[:0]
	limit := m.core.Supply(a.typ, func(set uint32) int { return most + m.pledgedBy(a, set) }, func(s broker.Supply) bool {
		s.Places = max(0, s.Places-m.pledgedBy(a, s.Set))
		g.supply = append(g.supply, s)
		n += s.Places
		return n < most
	})
	return min(n, most, limit-a.pledged)
}

// promise pledges to a home n of the places that supplyOf found.
func (m *Machine) promise(c *claim, n int) {
	m.void(c)
	c.places += n
	c.given = m.now
	for i := range m.guest.supply {
		s := &m.guest.supply[i]
		if x := min(n, s.Places); x > 0 {
			n -= x
			s.Places -= x
			m.pledge(c.of, s.Set, x)
			c.pledges = append(c.pledges, broker.Supply{Set: s.Set, Places: x})
		}
	}
	if !c.listed {
		c.listed = true
		m.guest.pledges = append(m.guest.pledges, c)
	}
}

// filled records that a home has filled a place.
func (m *Machine) filled(c *claim) {
	c.places = max(0, c.places-1)
	if n := len(c.pledges) - 1; n >= 0 {
		x := &c.pledges[n]
		m.pledge(c.of, x.Set, -1)
		if x.Places--; x.Places == 0 {
			c.pledges = c.pledges[:n]
		}
	}
}

// lapse ends the pledges to a home, so that other homes may get those places. The home may
// still fill them until they are void.
func (m *Machine) lapse(c *claim) {
	for _, x := range c.pledges {
		m.pledge(c.of, x.Set, -x.Places)
	}
	c.pledges, c.listed = c.pledges[:0], false
}

// void withdraws the places of a home that have lapsed and are still not filled.
func (m *Machine) void(c *claim) {
	if c.places > 0 && len(c.pledges) == 0 {
		c.places = 0
		m.sayTake(c, 0)
	}
}

// fresh reports whether a home may be about to fill the places that it was given.
func (c *claim) fresh(now int64) bool {
	return now-c.given < min(fresh+4*c.peer.trip, mostFresh)
}

// before compares offers: it is negative if c's is better than d's. A nil claim offers nothing.
func (c *claim) before(d *claim) int {
	switch {
	case c == nil && d == nil:
		return 0
	case c == nil:
		return 1
	case d == nil:
		return -1
	}
	return cmp.Or(cmp.Compare(d.priority, c.priority), cmp.Compare(c.since, d.since))
}

// offers reports whether a claim has an offer that is still valid.
func (c *claim) offers(now int64) bool { return c.jobs > 0 && now-c.offered < offerAge }

// offered handles an offer.
func (m *Machine) offered(p *peer, s *scan) {
	typ, priority, age, jobs := s.name(), s.int(), s.int(), s.int()
	if s.err != nil {
		return
	}
	a := m.asking(typ)
	if a == nil {
		return
	}
	c := a.claim(p)
	c.jobs, c.priority, c.since, c.offered = int(min(max(jobs, 0), maxPlaces)), priority, m.now-age, m.now
	if !m.core.Served(typ) {
		c.jobs = 0
		m.sayTake(c, noneHere)
	}
	if c.jobs > 0 && !a.open {
		a.open = true
		m.guest.open = append(m.guest.open, a)
	}
	m.guest.stirred = true
}

// someOpen bounds how many types' offers are compared at a time. With thousands of types,
// all of them would take too long.
const someOpen = 64

// giveOut gives places to homes that have offered jobs, the best of some types first.
func (m *Machine) giveOut() {
	g := &m.guest
	if g.stirred || m.now >= m.due {
		g.stirred, m.due, g.round = false, broker.Never, len(g.open)
	}
	n := min(g.round, someOpen)
	if n == 0 {
		return
	}
	some := slices.Clone(g.open[:n])
	g.open = append(g.open[:0], g.open[n:]...)
	g.round -= n
	for _, a := range some {
		a.top = m.best(a)
	}
	slices.SortStableFunc(some, func(a, b *asking) int { return a.top.before(b.top) })
	for _, a := range some {
		if a.open = m.answer(a); a.open {
			g.open = append(g.open, a)
			if a.due != 0 {
				m.due = min(m.due, a.due)
			}
		}
	}
}

// best returns the best valid offer of a type, or nil.
func (m *Machine) best(a *asking) (best *claim) {
	for _, c := range a.claims {
		if c.offers(m.now) && (best == nil || c.before(best) < 0) {
			best = c
		}
	}
	return best
}

// answer gives the places for a type to the best offers and reports whether offers are left.
func (m *Machine) answer(a *asking) bool {
	var live []*claim
	need := 0
	crowded := false
	for _, c := range a.claims {
		switch {
		case !c.offers(m.now):
		case m.crowded(c.peer): // it already lends enough to fill its stream
			crowded = true
		default:
			live = append(live, c)
			need += c.jobs
		}
	}
	if len(live) == 0 {
		a.due = 0
		return crowded
	}
	if m.now < a.yields {
		a.due = a.yields
		return true
	}
	free := m.supplyOf(a, need)
	switch {
	case free <= 0:
		a.due = 0
		return true
	case len(live) > 1 && a.due == 0:
		a.due = m.now + window
		return true
	case a.due > m.now:
		return true
	}
	a.due = 0
	slices.SortStableFunc(live, (*claim).before)
	for _, c := range live {
		n := min(free, c.jobs)
		if n == 0 {
			return true
		}
		m.promise(c, n)
		m.sayTake(c, n)
		if c.jobs -= n; c.jobs > 0 {
			return true
		}
		free -= n
	}
	return false
}

func (m *Machine) sayTake(c *claim, n int) {
	b := m.blank()
	b.uint(itemTake)
	b.bytes(c.of.typ)
	b.int(int64(n))
	m.put(c.peer, b)
}

// lentTo handles a job that p lends.
func (m *Machine) lentTo(p *peer, s *scan) {
	key := loanKey{uint32(s.uint()), s.uint()}
	job := broker.Submission{Type: s.name(), ID: s.name(), Priority: s.int(), Age: time.Duration(s.int()), Progress: s.bool(), Headers: s.bytes(), Body: s.bytes()}
	if s.err == nil && len(job.Headers) > wire.MaxHeaders {
		s.err = errItem
	}
	if s.err != nil {
		return
	}
	job.Kept = pins(job.Body)
	var run uint64
	var pause time.Duration
	a := m.asking(job.Type)
	if a != nil {
		m.filled(a.claim(p))
		if p.lender == 0 {
			p.lender = m.core.AddLender()
			m.guest.lenders[p.lender] = p
		}
		fx, no, why := m.core.Borrow(m.now, p.lender, &job)
		switch why {
		case broker.Clash:
			pause = broker.ClashPause
		case broker.TooMuch:
			a.most, a.rest = 1, m.now+pulse
		}
		if run = no; run != 0 {
			if a.most *= 2; a.most > maxPlaces {
				a.most = 0
			}
			m.guest.runs[run] = &guestRun{peer: p, of: a, loanKey: key}
			p.loans[key] = run
			p.borrowed++
			m.stats.Borrowed++
			m.stats.Borrows++
		}
		m.apply(fx)
	}
	if run == 0 {
		b := m.end(itemReturn, key.line, false, job.ID)
		b.int(int64(pause))
		b.bool(false)
		m.put(p, b)
	}
}

// changed handles the message that a run is no longer wanted, or whether its progress
// is wanted.
func (m *Machine) changed(p *peer, kind uint64, s *scan) {
	key := loanKey{uint32(s.uint()), s.uint()}
	is := s.bool()
	run := p.loans[key]
	switch {
	case run == 0 || s.err != nil:
	case kind == itemFollow:
		m.core.Follow(p.lender, run, is)
	default:
		m.apply(m.core.Unwant(m.now, p.lender, run, is))
	}
}

// toLender sends a lender an effect of the core.
func (m *Machine) toLender(p *peer, e *broker.Effect) {
	run, known := m.guest.runs[e.Run]
	if !known {
		return
	}
	if e.Op == broker.OpProgress {
		b := m.blank()
		b.uint(itemProgress)
		b.uint(uint64(run.line))
		b.bytes(e.ID)
		b.bytes(e.Body)
		m.sample(run, b)
		m.reuse(b)
		return
	}
	m.sayLast(run)
	delete(m.guest.runs, e.Run)
	delete(p.loans, run.loanKey)
	p.borrowed--
	m.stats.Borrowed--
	keep := m.keeps(run.of, p)
	var b pack
	switch e.Op {
	case broker.OpResult:
		b = m.end(itemResult, run.line, keep, e.ID)
		b.bytes(e.Body)
	case broker.OpReturn:
		b = m.end(itemReturn, run.line, keep, e.ID)
		b.int(e.Delay)
		b.bool(true)
	default:
		b = m.end(itemFail, run.line, keep, e.ID)
		b.uint(hows[e.Code])
		b.int(e.Delay)
		b.str(wording.Of(e.Reason))
	}
	m.put(p, b)
}

// hows maps the code with which a run ended to how it failed.
var hows = map[broker.Code]uint64{broker.JobLater: failLater, broker.JobFinal: failFinal, broker.JobExpelled: failExpelled, broker.JobLost: failLost, broker.Draining: failLost}

// end starts an item that reports how a run ended.
func (m *Machine) end(kind uint64, line uint32, keep bool, id []byte) pack {
	b := m.blank()
	b.uint(kind)
	b.uint(uint64(line))
	b.bool(keep)
	b.bytes(id)
	return b
}

// keeps reports whether the home may fill the place of a run that has ended. It may if the
// place is free, little is on its way to that home, and no other home offers a better job of
// this type or of some others.
func (m *Machine) keeps(a *asking, p *peer) bool {
	if m.crowded(p) {
		return false
	}
	g := &m.guest
	c := a.claim(p)
	has := c
	if !c.offers(m.now) {
		has = nil
	}
	better := m.best(a).before(has) < 0
	for range min(len(g.open), someOpen/4) {
		g.turn = (g.turn + 1) % len(g.open)
		o := g.open[g.turn]
		better = better || o != a && m.best(o).before(has) < 0 && m.supplyOf(o, 1) > 0
	}
	if better {
		g.stirred = true
		return false
	}
	if m.supplyOf(a, 1) <= 0 {
		return false
	}
	if has != nil && g.supply[len(g.supply)-1].Set != 0 && g.yielded != m.pulses {
		// More jobs of the type wait at that home, and homes offer the other types only to
		// brokers that report idle workers.
		g.yielded, g.saidAt, a.yields = m.pulses, m.pulses-1, m.now+window+min(2*p.trip, mostFresh)
		g.stirred = true
		return false
	}
	m.promise(c, 1)
	return true
}

// forgetAsking forgets the types that have no offered or lent jobs.
func (m *Machine) forgetAsking() {
	if m.pulses%wantPulses != 0 {
		return
	}
	inUse := map[*asking]bool{}
	for _, r := range m.guest.runs {
		inUse[r.of] = true
	}
	for typ, a := range m.guest.types {
		a.claims = slices.DeleteFunc(a.claims, func(c *claim) bool {
			return !c.offers(m.now) && !c.listed && m.now-c.given >= 5*idlePlaces
		})
		if len(a.claims) == 0 && !a.open && !inUse[a] {
			delete(m.guest.types, typ)
		}
	}
}

// partGuest gives up the jobs that p has lent.
func (m *Machine) partGuest(p *peer) {
	for _, run := range p.loans {
		delete(m.guest.runs, run)
	}
	m.stats.Late += uint64(len(p.loans)) // their results are discarded
	p.loans, p.samples = map[loanKey]uint64{}, samples{}
	m.stats.Borrowed -= p.borrowed
	p.borrowed = 0
	for _, a := range m.guest.types {
		a.claims = slices.DeleteFunc(a.claims, func(c *claim) bool {
			if c.peer == p {
				m.lapse(c)
			}
			return c.peer == p
		})
	}
	if p.lender != 0 {
		delete(m.guest.lenders, p.lender)
		m.apply(m.core.Gone(m.now, p.lender))
		p.lender = 0
	}
}

// Effect handles an effect for one of the machine's peers, and returns false for other
// peers.
func (m *Machine) Effect(e *broker.Effect) bool {
	if ln := m.home.lines[e.Peer]; ln != nil {
		m.toBorrower(ln, e)
		return true
	}
	p := m.guest.lenders[e.Peer]
	if p != nil {
		m.toLender(p, e)
	}
	return p != nil
}
