package fleet

import (
	"cmp"
	"slices"
	"time"

	"gloom/broker"
	"gloom/wire"
)

// guest is what is borrowed, and what could be.
type guest struct {
	wants   map[wantKey]*ownWant
	own     []*ownWant // in the order in which they came
	changed []*ownWant
	saidAt  int64 // pulse in which wants were last said
	wanting bool  // the last time something was

	types   map[string]*asking
	open    []*asking // with offers
	stirred bool      // workers may have become idle
	lenders map[broker.Peer]*peer
	runs    map[uint64]guestRun // by the core's number
}

// asking is a type of which others have offered or lent jobs.
type asking struct {
	typ    []byte
	claims []*claim
	open   bool  // in guest.open
	due    int64 // when its offers are answered, if not at once; 0
}

// claim is what one home has offered of a type, and places that it was given.
type claim struct {
	peer     *peer
	jobs     int
	priority int64
	since    int64
	offered  int64
	places   int // given and not filled
	given    int64
}

type guestRun struct {
	peer *peer
	of   *asking
	loanKey
}

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
	c := &claim{peer: p}
	a.claims = append(a.claims, c)
	return c
}

// promised is how many places homes were given just now, and have not filled.
func (a *asking) promised(now int64) (n int) {
	for _, c := range a.claims {
		if now-c.given < fresh {
			n += c.places
		}
	}
	return n
}

// before: what c offers is better than what d does.
func (c *claim) before(d *claim) int {
	return cmp.Or(cmp.Compare(d.priority, c.priority), cmp.Compare(c.since, d.since))
}

// offers tells whether a claim has an offer that is still good.
func (c *claim) offers(now int64) bool { return c.jobs > 0 && now-c.offered < offerAge }

// offered takes in an offer.
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
	if c.jobs > 0 && !a.open {
		a.open = true
		m.guest.open = append(m.guest.open, a)
	}
	m.guest.stirred = true
}

// giveOut gives places to those who have offered jobs.
func (m *Machine) giveOut() {
	g := &m.guest
	if !g.stirred && m.now < m.due {
		return
	}
	g.stirred, m.due = false, broker.Never
	g.open = slices.DeleteFunc(g.open, func(a *asking) bool {
		a.open = m.answer(a)
		if a.open && a.due != 0 {
			m.due = min(m.due, a.due)
		}
		return !a.open
	})
}

// answer gives the places there are for a type to the best offers, and tells whether
// some are left.
func (m *Machine) answer(a *asking) bool {
	var live []*claim
	need := 0
	for _, c := range a.claims {
		if c.offers(m.now) {
			live = append(live, c)
			need += c.jobs
		}
	}
	if len(live) == 0 {
		a.due = 0
		return false
	}
	promised := a.promised(m.now)
	free := m.core.Supply(a.typ, need+promised) - promised
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
		m.give(a, c, n)
		c.jobs -= n
		free -= n
	}
	return false
}

// give gives a home n places.
func (m *Machine) give(a *asking, c *claim, n int) {
	if m.now-c.given >= fresh {
		c.places = 0
	}
	c.places += n
	c.given = m.now
	b := m.blank()
	b.uint(itemTake)
	b.bytes(a.typ)
	b.int(int64(n))
	m.put(c.peer, b)
}

// maxGroups bounds the groups of one job.
const maxGroups = 1 << 12

func repeated(names [][]byte) bool {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if seen[string(name)] {
			return true
		}
		seen[string(name)] = true
	}
	return false
}

// lentTo takes in a job that p lends.
func (m *Machine) lentTo(p *peer, s *scan) {
	key := loanKey{uint32(s.uint()), s.uint()}
	job := broker.Submission{Type: s.name(), ID: s.name(), Priority: s.int(), Age: time.Duration(s.int()), Progress: s.bool(), Headers: s.bytes(), Groups: s.names(maxGroups), Body: s.bytes()}
	if s.err == nil && (len(job.Headers) > wire.MaxHeaders || repeated(job.Groups)) {
		s.err = errItem
	}
	if s.err != nil {
		return
	}
	job.Kept = pins(job.Body)
	var run uint64
	a := m.asking(job.Type)
	if a != nil {
		c := a.claim(p)
		c.places = max(0, c.places-1)
		if p.lender == 0 {
			p.lender = m.core.AddLender()
			m.guest.lenders[p.lender] = p
		}
		var fx []broker.Effect
		if fx, run = m.core.Borrow(m.now, p.lender, &job); run != 0 {
			m.guest.runs[run] = guestRun{p, a, key}
			p.loans[key] = run
			p.borrowed++
			m.stats.Borrowed++
			m.stats.Borrows++
		}
		m.apply(fx)
	}
	if run == 0 {
		b := m.end(itemReturn, key.line, false, job.ID)
		b.int(0)
		m.put(p, b)
	}
}

// unwanted takes in that nobody waits for a run.
func (m *Machine) unwanted(p *peer, s *scan) {
	key := loanKey{uint32(s.uint()), s.uint()}
	if run := p.loans[key]; run != 0 && s.err == nil {
		m.apply(m.core.Unwant(m.now, p.lender, run))
	}
}

// toLender has the core's word to a lender sent.
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
		m.put(p, b)
		return
	}
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
	default:
		b = m.end(itemFail, run.line, keep, e.ID)
		b.uint(map[broker.Code]uint64{broker.JobLater: failLater, broker.JobFinal: failFinal, broker.JobLost: failLost, broker.Draining: failLost}[e.Code])
		b.int(e.Delay)
		b.str(e.Reason)
	}
	m.put(p, b)
}

// end begins an item that tells how a run ended.
func (m *Machine) end(kind uint64, line uint32, keep bool, id []byte) pack {
	b := m.blank()
	b.uint(kind)
	b.uint(uint64(line))
	b.bool(keep)
	b.bytes(id)
	return b
}

// keeps tells whether a home may fill the place of a run that ended: if it is free
// and nobody else offers what is better.
func (m *Machine) keeps(a *asking, p *peer) bool {
	promised := a.promised(m.now)
	if m.core.Supply(a.typ, promised+1) <= promised {
		return false
	}
	c := a.claim(p)
	for _, d := range a.claims {
		if d != c && d.offers(m.now) && (!c.offers(m.now) || d.before(c) < 0) {
			m.guest.stirred = true
			return false
		}
	}
	if m.now-c.given >= fresh {
		c.places = 0
	}
	c.places++
	c.given = m.now
	return true
}

// forgetAsking forgets types of which nobody offers or lends anything.
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
			return !c.offers(m.now) && m.now-c.given >= 5*idlePlaces
		})
		if len(a.claims) == 0 && !a.open && !inUse[a] {
			delete(m.guest.types, typ)
		}
	}
}

// partGuest gives up what p has lent.
func (m *Machine) partGuest(p *peer) {
	for _, run := range p.loans {
		delete(m.guest.runs, run)
	}
	m.stats.Late += uint64(len(p.loans)) // what they end with is discarded
	p.loans = map[loanKey]uint64{}
	m.stats.Borrowed -= p.borrowed
	p.borrowed = 0
	for _, a := range m.guest.types {
		a.claims = slices.DeleteFunc(a.claims, func(c *claim) bool { return c.peer == p })
	}
	if p.lender != 0 {
		delete(m.guest.lenders, p.lender)
		m.apply(m.core.Gone(m.now, p.lender))
		p.lender = 0
	}
}

// Effect takes in what the core says to a peer of the machine's, and tells whether
// it is one.
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
