package fleet

import (
	"cmp"
	"slices"
	"time"

	"gloom/broker"
	"gloom/broker/wording"
	"gloom/wire"
)

// borrowSide is the part of a machine that borrows.
type borrowSide struct {
	wantsByKey    map[wantKey]*ownWant
	ownWants      []*ownWant // in the order in which they were added
	ownSets       int        // how many of ownWants are for sets of types
	wantsOmitted  bool       // some wants are left out, because of maxTypes or maxSets
	changedWants  []*ownWant
	wantsSentTick int64 // tick in which all wants were last sent
	wantsSent     bool  // whether the last message of wants contained any wants

	types           map[string]*borrowedType
	openTypes       []*borrowedType // types with offers
	mustCheckOffers bool            // workers may have become idle
	typesToCheck    int             // how many of openTypes are still to be checked for that reason
	nextType        int             // index in openTypes from which to continue
	yieldedTick     int64           // tick in which a type last yielded
	lenders         map[broker.Peer]*peer
	runs            map[uint64]*borrowedRun // by the number that the core gives the run

	// reservedPlaces counts, for each set of workers, the places that were granted to homes and are not
	// filled yet. reservations are the offers with such places; at expireAt, reservations that
	// have expired are ended.
	reservedPlaces map[uint32]int
	reservations   []*offer
	expireAt       int64
	// freeSupply is the result of freePlaces.
	freeSupply []broker.Supply
}

// borrowedType is a type whose jobs other brokers have offered or lent.
type borrowedType struct {
	name       []byte
	offers     []*offer
	isOpen     bool   // in borrowSide.openTypes
	best       *offer // its best offer, as found by answerOffers
	answerAt   int64  // when its offers are answered, 0 for at once
	yieldUntil int64  // its offers are not answered before this time
	// reservedPlaces counts the places granted to homes; ownReservedPlaces counts those of workers that
	// serve this type alone.
	reservedPlaces, ownReservedPlaces int
	// While a limit on bytes or jobs is reached, placeLimit bounds the places, and none are granted
	// until pauseUntil. Otherwise placeLimit is 0.
	placeLimit int
	pauseUntil int64
}

// offer is one home's offer of jobs of a type, and the places that were granted to the home.
type offer struct {
	peer          *peer
	typ           *borrowedType
	jobs          int
	priority      int64
	since         int64
	receivedAt    int64
	grantedPlaces int // granted and not filled
	grantedAt     int64
	// reservations holds these places, by set of workers, until they expire.
	reservations []broker.Supply
	isListed     bool // in borrowSide.reservations
}

// borrowedRun is a run of another broker's job at a worker of this broker.
type borrowedRun struct {
	peer *peer
	typ  *borrowedType
	loanKey
	// progress is the latest progress, as an item, until it is put into the stream. index is
	// its index in pendingProgress.
	progress writer
	index    int
}

// pendingProgress are the runs of a lender whose progress waits for room in the stream; bytes is
// the size of that progress. Only the latest progress of each run waits, so a worker that reports
// endlessly makes neither the stream nor memory grow.
type pendingProgress struct {
	runs  []*borrowedRun
	bytes int
}

// replace replaces the item of the run; nil removes it.
func (s *pendingProgress) replace(run *borrowedRun, item []byte) {
	switch last := len(s.runs) - 1; {
	case item != nil && len(run.progress) == 0:
		run.index = len(s.runs)
		s.runs = append(s.runs, run)
	case item == nil && len(run.progress) > 0:
		s.runs[run.index] = s.runs[last]
		s.runs[run.index].index = run.index
		s.runs[last] = nil
		s.runs = s.runs[:last]
	}
	s.bytes -= cap(run.progress)
	if item == nil || cap(run.progress) > 4*len(item) {
		run.progress = nil
	}
	run.progress = append(run.progress[:0], item...)
	s.bytes += cap(run.progress)
}

// queueProgress keeps an item of progress until it is sent. If too much progress of other runs is
// waiting, it drops the item.
func (m *Machine) queueProgress(run *borrowedRun, item []byte) {
	s := &run.peer.progress
	if s.bytes-cap(run.progress) == 0 || s.bytes-cap(run.progress)+len(item) <= m.peerLimit()/2 {
		s.replace(run, item)
	}
}

// sendProgress puts progress of runs into the stream while the stream is short.
func (m *Machine) sendProgress(p *peer) {
	for len(p.progress.runs) > 0 && m.roomForProgress(p) {
		m.sendLastProgress(p.progress.runs[0])
	}
}

// sendLastProgress puts the last progress of a run into the stream if the stream is short, and
// forgets it.
func (m *Machine) sendLastProgress(run *borrowedRun) {
	if len(run.progress) > 0 {
		if m.roomForProgress(run.peer) {
			m.sendItem(run.peer, run.progress)
		}
		run.peer.progress.replace(run, nil)
	}
}

// roomForProgress reports whether p may be sent progress: few bytes wait for p or are in flight to
// it.
func (m *Machine) roomForProgress(p *peer) bool { return p.stream.heldBytes < m.peerLimit()/8 }

func (m *Machine) borrowedType(typ []byte) *borrowedType {
	a := m.borrow.types[string(typ)]
	if a == nil && len(m.borrow.types) < maxTypes {
		a = &borrowedType{name: slices.Clone(typ)}
		m.borrow.types[string(a.name)] = a
	}
	m.apply(m.core.IntroduceType(m.now, typ)) // the core may have forgotten it
	return a
}

func (bt *borrowedType) offerOf(p *peer) *offer {
	for _, c := range bt.offers {
		if c.peer == p {
			return c
		}
	}
	c := &offer{peer: p, typ: bt}
	bt.offers = append(bt.offers, c)
	return c
}

// reservedFor returns how many places of a set of workers are reserved.
func (m *Machine) reservedFor(bt *borrowedType, set uint32) int {
	if set == 0 {
		return bt.ownReservedPlaces
	}
	return m.borrow.reservedPlaces[set]
}

// reserve adds n to the reserved places of a set.
func (m *Machine) reserve(bt *borrowedType, set uint32, n int) {
	bt.reservedPlaces += n
	if set == 0 {
		bt.ownReservedPlaces += n
	} else if m.borrow.reservedPlaces[set] += n; m.borrow.reservedPlaces[set] == 0 {
		delete(m.borrow.reservedPlaces, set)
	}
}

// freePlaces counts, up to limit, the places for a type that are reserved neither for
// this type nor for others that the same workers serve.
func (m *Machine) freePlaces(bt *borrowedType, limit int) (n int) {
	g := &m.borrow
	if bt.placeLimit > 0 {
		if m.now < bt.pauseUntil {
			return 0
		}
		limit = min(limit, bt.placeLimit)
	}
	if m.now >= g.expireAt {
		g.expireAt = m.now + minGrantTime/4
		g.reservations = slices.DeleteFunc(g.reservations, func(c *offer) bool {
			if c.mayStillFill(m.now) && len(c.reservations) > 0 {
				return false
			}
			m.endReservations(c)
			return true
		})
	}
	g.freeSupply = g.freeSupply[:0]
	allowed := m.core.Supply(bt.name, func(set uint32) int { return limit + m.reservedFor(bt, set) }, func(s broker.Supply) bool {
		s.Places = max(0, s.Places-m.reservedFor(bt, s.Set))
		g.freeSupply = append(g.freeSupply, s)
		n += s.Places
		return n < limit
	})
	return min(n, limit, allowed-bt.reservedPlaces)
}

// grantPlaces reserves n of the places that freePlaces found for a home.
func (m *Machine) grantPlaces(o *offer, n int) {
	m.revoke(o)
	o.grantedPlaces += n
	o.grantedAt = m.now
	for i := range m.borrow.freeSupply {
		s := &m.borrow.freeSupply[i]
		if x := min(n, s.Places); x > 0 {
			n -= x
			s.Places -= x
			m.reserve(o.typ, s.Set, x)
			o.reservations = append(o.reservations, broker.Supply{Set: s.Set, Places: x})
		}
	}
	if !o.isListed {
		o.isListed = true
		m.borrow.reservations = append(m.borrow.reservations, o)
	}
}

// recordFill records that a home has filled a place.
func (m *Machine) recordFill(o *offer) {
	o.grantedPlaces = max(0, o.grantedPlaces-1)
	if n := len(o.reservations) - 1; n >= 0 {
		x := &o.reservations[n]
		m.reserve(o.typ, x.Set, -1)
		if x.Places--; x.Places == 0 {
			o.reservations = o.reservations[:n]
		}
	}
}

// endReservations ends the reservations for a home, so that other homes may get those places. The
// home may still fill them until they are revoked.
func (m *Machine) endReservations(o *offer) {
	for _, x := range o.reservations {
		m.reserve(o.typ, x.Set, -x.Places)
	}
	o.reservations, o.isListed = o.reservations[:0], false
}

// revoke withdraws the unfilled places of a home whose reservations have ended.
func (m *Machine) revoke(o *offer) {
	if o.grantedPlaces > 0 && len(o.reservations) == 0 {
		o.grantedPlaces = 0
		m.sendGrant(o, 0)
	}
}

// mayStillFill reports whether a home may be about to fill the places that it was granted.
func (o *offer) mayStillFill(now int64) bool {
	return now-o.grantedAt < min(minGrantTime+4*o.peer.roundTrip, maxGrantTime)
}

// compare is negative if o is better than other. Any offer is better than nil.
func (o *offer) compare(other *offer) int {
	switch {
	case o == nil && other == nil:
		return 0
	case o == nil:
		return 1
	case other == nil:
		return -1
	}
	return cmp.Or(cmp.Compare(other.priority, o.priority), cmp.Compare(o.since, other.since))
}

// isValid reports whether an offer has jobs and is not too old.
func (o *offer) isValid(now int64) bool { return o.jobs > 0 && now-o.receivedAt < offerLifetime }

// receiveOffer handles an offer.
func (m *Machine) receiveOffer(p *peer, r *reader) {
	typ, priority, age, jobs := r.readName(), r.readInt(), r.readInt(), r.readInt()
	if r.err != nil {
		return
	}
	a := m.borrowedType(typ)
	if a == nil {
		return
	}
	c := a.offerOf(p)
	c.jobs, c.priority, c.since, c.receivedAt = int(min(max(jobs, 0), maxPlaces)), priority, m.now-age, m.now
	if !m.core.IsServed(typ) {
		c.jobs = 0
		m.sendGrant(c, grantNoWorkers)
	}
	if c.jobs > 0 && !a.isOpen {
		a.isOpen = true
		m.borrow.openTypes = append(m.borrow.openTypes, a)
	}
	m.borrow.mustCheckOffers = true
}

// maxCompared bounds how many types' offers are compared at a time. With thousands of types,
// all of them would take too long.
const maxCompared = 64

// answerOffers grants places to homes that have offered jobs. It looks at some of the types, and
// serves the type with the best offer first.
func (m *Machine) answerOffers() {
	g := &m.borrow
	if g.mustCheckOffers || m.now >= m.answerAt {
		g.mustCheckOffers, m.answerAt, g.typesToCheck = false, broker.Never, len(g.openTypes)
	}
	n := min(g.typesToCheck, maxCompared)
	if n == 0 {
		return
	}
	batch := slices.Clone(g.openTypes[:n])
	g.openTypes = append(g.openTypes[:0], g.openTypes[n:]...)
	g.typesToCheck -= n
	for _, a := range batch {
		a.best = m.bestOffer(a)
	}
	slices.SortStableFunc(batch, func(a, b *borrowedType) int { return a.best.compare(b.best) })
	for _, a := range batch {
		if a.isOpen = m.answerType(a); a.isOpen {
			g.openTypes = append(g.openTypes, a)
			if a.answerAt != 0 {
				m.answerAt = min(m.answerAt, a.answerAt)
			}
		}
	}
}

// bestOffer returns the best valid offer of a type, or nil.
func (m *Machine) bestOffer(bt *borrowedType) (best *offer) {
	for _, c := range bt.offers {
		if c.isValid(m.now) && (best == nil || c.compare(best) < 0) {
			best = c
		}
	}
	return best
}

// answerType grants the places for a type to the best offers and reports whether offers are left.
func (m *Machine) answerType(bt *borrowedType) bool {
	var live []*offer
	need := 0
	crowded := false
	for _, c := range bt.offers {
		switch {
		case !c.isValid(m.now):
		case m.isCongested(c.peer): // the home already lends enough to fill the stream
			crowded = true
		default:
			live = append(live, c)
			need += c.jobs
		}
	}
	if len(live) == 0 {
		bt.answerAt = 0
		return crowded
	}
	if m.now < bt.yieldUntil {
		bt.answerAt = bt.yieldUntil
		return true
	}
	free := m.freePlaces(bt, need)
	switch {
	case free <= 0:
		bt.answerAt = 0
		return true
	case len(live) > 1 && bt.answerAt == 0:
		bt.answerAt = m.now + collectTime
		return true
	case bt.answerAt > m.now:
		return true
	}
	bt.answerAt = 0
	slices.SortStableFunc(live, (*offer).compare)
	for _, c := range live {
		n := min(free, c.jobs)
		if n == 0 {
			return true
		}
		m.grantPlaces(c, n)
		m.sendGrant(c, n)
		if c.jobs -= n; c.jobs > 0 {
			return true
		}
		free -= n
	}
	return false
}

func (m *Machine) sendGrant(o *offer, n int) {
	b := m.newItem()
	b.putUint(itemGrant)
	b.putBytes(o.typ.name)
	b.putInt(int64(n))
	m.sendItem(o.peer, b)
}

// receiveJob handles a job that p lends.
func (m *Machine) receiveJob(p *peer, r *reader) {
	key := loanKey{uint32(r.readUint()), r.readUint()}
	job := broker.Submission{Type: r.readName(), ID: r.readName(), Priority: r.readInt(), Age: time.Duration(r.readInt()), Progress: r.readBool(), Headers: r.readBytes(), Body: r.readBytes()}
	if r.err == nil && len(job.Headers) > wire.MaxHeaders {
		r.err = errItemKind
	}
	if r.err != nil {
		return
	}
	job.StableBody = mayKeepBody(job.Body)
	var run uint64
	var pause time.Duration
	a := m.borrowedType(job.Type)
	if a != nil {
		m.recordFill(a.offerOf(p))
		if p.lender == 0 {
			p.lender = m.core.AddLender()
			m.borrow.lenders[p.lender] = p
		}
		fx, number, why := m.core.Borrow(m.now, p.lender, &job)
		switch why {
		case broker.IDClash:
			pause = broker.ClashDelay
		case broker.LimitReached:
			a.placeLimit, a.pauseUntil = 1, m.now+tickInterval
		}
		if run = number; run != 0 {
			if a.placeLimit *= 2; a.placeLimit > maxPlaces {
				a.placeLimit = 0
			}
			m.borrow.runs[run] = &borrowedRun{peer: p, typ: a, loanKey: key}
			p.loans[key] = run
			p.borrowed++
			m.stats.Borrowed++
			m.stats.Borrows++
		}
		m.apply(fx)
	}
	if run == 0 {
		b := m.newReport(itemReturn, key.borrower, false, job.ID)
		b.putInt(int64(pause))
		b.putBool(false)
		m.sendItem(p, b)
	}
}

// receiveChange handles the message that a run is no longer wanted, or that says whether its
// progress is wanted.
func (m *Machine) receiveChange(p *peer, kind uint64, r *reader) {
	key := loanKey{uint32(r.readUint()), r.readUint()}
	flag := r.readBool()
	run := p.loans[key]
	switch {
	case run == 0 || r.err != nil:
	case kind == itemFollow:
		m.core.SetWantsProgress(p.lender, run, flag)
	default:
		m.apply(m.core.MarkUnwanted(m.now, p.lender, run, flag))
	}
}

// sendToLender sends an effect of the core to a lender.
func (m *Machine) sendToLender(p *peer, e *broker.Effect) {
	run, known := m.borrow.runs[e.Run]
	if !known {
		return
	}
	if e.Op == broker.OpProgress {
		b := m.newItem()
		b.putUint(itemProgress)
		b.putUint(uint64(run.borrower))
		b.putBytes(e.ID)
		b.putBytes(e.Body)
		m.queueProgress(run, b)
		m.recycle(b)
		return
	}
	m.sendLastProgress(run)
	delete(m.borrow.runs, e.Run)
	delete(p.loans, run.loanKey)
	p.borrowed--
	m.stats.Borrowed--
	keepPlace := m.keepsPlace(run.typ, p)
	var b writer
	switch e.Op {
	case broker.OpResult:
		b = m.newReport(itemResult, run.borrower, keepPlace, e.ID)
		b.putBytes(e.Body)
	case broker.OpReturn:
		b = m.newReport(itemReturn, run.borrower, keepPlace, e.ID)
		b.putInt(e.Delay)
		b.putBool(true)
	default:
		b = m.newReport(itemFail, run.borrower, keepPlace, e.ID)
		b.putUint(failureOf[e.Code])
		b.putInt(e.Delay)
		b.putString(wording.Reason(e.Reason))
	}
	m.sendItem(p, b)
}

// failureOf maps the code with which a run ended to how it failed.
var failureOf = map[broker.Code]uint64{broker.JobRetryLater: failLater, broker.JobNoRetry: failFinal, broker.JobExpelled: failExpelled, broker.JobLost: failLost, broker.Draining: failLost}

// newReport starts an item that reports how a run ended.
func (m *Machine) newReport(kind uint64, line uint32, keepPlace bool, id []byte) writer {
	b := m.newItem()
	b.putUint(kind)
	b.putUint(uint64(line))
	b.putBool(keepPlace)
	b.putBytes(id)
	return b
}

// keepsPlace reports whether the home may fill the place of a run that has ended. It may if the
// place is free, that home is not congested, and no other home offers a better job, of this type
// or of the few others that are checked.
func (m *Machine) keepsPlace(bt *borrowedType, p *peer) bool {
	if m.isCongested(p) {
		return false
	}
	g := &m.borrow
	c := bt.offerOf(p)
	offer := c
	if !c.isValid(m.now) {
		offer = nil
	}
	betterOffer := m.bestOffer(bt).compare(offer) < 0
	for range min(len(g.openTypes), maxCompared/4) {
		g.nextType = (g.nextType + 1) % len(g.openTypes)
		o := g.openTypes[g.nextType]
		betterOffer = betterOffer || o != bt && m.bestOffer(o).compare(offer) < 0 && m.freePlaces(o, 1) > 0
	}
	if betterOffer {
		g.mustCheckOffers = true
		return false
	}
	if m.freePlaces(bt, 1) <= 0 {
		return false
	}
	if offer != nil && g.freeSupply[len(g.freeSupply)-1].Set != 0 && g.yieldedTick != m.ticks {
		// More jobs of the type wait at that home, and homes offer jobs of other types only to
		// brokers that report idle workers: so report this worker as idle, and let the home wait
		// for a moment.
		g.yieldedTick, g.wantsSentTick, bt.yieldUntil = m.ticks, m.ticks-1, m.now+collectTime+min(2*p.roundTrip, maxGrantTime)
		g.mustCheckOffers = true
		return false
	}
	m.grantPlaces(c, 1)
	return true
}

// forgetTypes forgets the types that have no offered or lent jobs.
func (m *Machine) forgetTypes() {
	if m.ticks%wantsTicks != 0 {
		return
	}
	inUse := map[*borrowedType]bool{}
	for _, r := range m.borrow.runs {
		inUse[r.typ] = true
	}
	for typ, a := range m.borrow.types {
		a.offers = slices.DeleteFunc(a.offers, func(c *offer) bool {
			return !c.isValid(m.now) && !c.isListed && m.now-c.grantedAt >= 5*unfilledTime
		})
		if len(a.offers) == 0 && !a.isOpen && !inUse[a] {
			delete(m.borrow.types, typ)
		}
	}
}

// endBorrowing gives up the jobs that p has lent.
func (m *Machine) endBorrowing(p *peer) {
	for _, run := range p.loans {
		delete(m.borrow.runs, run)
	}
	m.stats.LateResults += uint64(len(p.loans)) // their results are discarded
	p.loans, p.progress = map[loanKey]uint64{}, pendingProgress{}
	m.stats.Borrowed -= p.borrowed
	p.borrowed = 0
	for _, a := range m.borrow.types {
		a.offers = slices.DeleteFunc(a.offers, func(c *offer) bool {
			if c.peer == p {
				m.endReservations(c)
			}
			return c.peer == p
		})
	}
	if p.lender != 0 {
		delete(m.borrow.lenders, p.lender)
		m.apply(m.core.RemovePeer(m.now, p.lender))
		p.lender = 0
	}
}

// Effect handles an effect for one of the machine's peers, and returns false for other
// peers.
func (m *Machine) Effect(e *broker.Effect) bool {
	if br := m.lend.borrowers[e.Peer]; br != nil {
		m.sendToBorrower(br, e)
		return true
	}
	p := m.borrow.lenders[e.Peer]
	if p != nil {
		m.sendToLender(p, e)
	}
	return p != nil
}
