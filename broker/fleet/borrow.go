package fleet

import (
	"cmp"
	"slices"
	"time"

	"gloom/broker"
	"gloom/broker/wording"
	"gloom/wire"
)

// borrowSide is the part of a machine that borrows jobs.
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

	// reservedPlaces counts, for each set of workers, the places that were granted to homes and are
	// not filled yet. reservations are the offers with such places. expireAt is when expired
	// reservations are ended next.
	reservedPlaces map[uint32]int
	reservations   []*offer
	expireAt       int64
	// freeSupply is the result of countFreePlaces.
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
	bt := m.borrow.types[string(typ)]
	if bt == nil && len(m.borrow.types) < maxTypes {
		bt = &borrowedType{name: slices.Clone(typ)}
		m.borrow.types[string(bt.name)] = bt
	}
	m.apply(m.core.IntroduceType(m.now, typ)) // the core may have forgotten it
	return bt
}

func (bt *borrowedType) offerOf(p *peer) *offer {
	for _, o := range bt.offers {
		if o.peer == p {
			return o
		}
	}
	o := &offer{peer: p, typ: bt}
	bt.offers = append(bt.offers, o)
	return o
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

// countFreePlaces counts, up to limit, the places for a type that are reserved neither for
// this type nor for others that the same workers serve.
func (m *Machine) countFreePlaces(bt *borrowedType, limit int) (n int) {
	borrow := &m.borrow
	if bt.placeLimit > 0 {
		if m.now < bt.pauseUntil {
			return 0
		}
		limit = min(limit, bt.placeLimit)
	}
	if m.now >= borrow.expireAt {
		borrow.expireAt = m.now + minGrantTime/4
		borrow.reservations = slices.DeleteFunc(borrow.reservations, func(o *offer) bool {
			if o.mayStillFill(m.now) && len(o.reservations) > 0 {
				return false
			}
			m.endReservations(o)
			return true
		})
	}
	borrow.freeSupply = borrow.freeSupply[:0]
	supply := m.core.Supply(bt.name, func(set uint32) int { return limit + m.reservedFor(bt, set) }, func(s broker.Supply) bool {
		s.Places = max(0, s.Places-m.reservedFor(bt, s.Set))
		borrow.freeSupply = append(borrow.freeSupply, s)
		n += s.Places
		return n < limit
	})
	return min(n, limit, supply-bt.reservedPlaces)
}

// grantPlaces reserves n of the places that countFreePlaces found for a home.
func (m *Machine) grantPlaces(o *offer, n int) {
	m.revoke(o)
	o.grantedPlaces += n
	o.grantedAt = m.now
	for i := range m.borrow.freeSupply {
		s := &m.borrow.freeSupply[i]
		if places := min(n, s.Places); places > 0 {
			n -= places
			s.Places -= places
			m.reserve(o.typ, s.Set, places)
			o.reservations = append(o.reservations, broker.Supply{Set: s.Set, Places: places})
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
		supply := &o.reservations[n]
		m.reserve(o.typ, supply.Set, -1)
		if supply.Places--; supply.Places == 0 {
			o.reservations = o.reservations[:n]
		}
	}
}

// endReservations ends the reservations for a home, so that other homes may get those places. The
// home may still fill them until they are revoked.
func (m *Machine) endReservations(o *offer) {
	for _, supply := range o.reservations {
		m.reserve(o.typ, supply.Set, -supply.Places)
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

// receiveOffer handles a home's offer of jobs.
func (m *Machine) receiveOffer(p *peer, r *reader) {
	typ, priority, age, jobs := r.readName(), r.readInt(), r.readInt(), r.readInt()
	if r.err != nil {
		return
	}
	bt := m.borrowedType(typ)
	if bt == nil {
		return
	}
	o := bt.offerOf(p)
	o.jobs, o.priority, o.since, o.receivedAt = int(min(max(jobs, 0), maxPlaces)), priority, m.now-age, m.now
	if !m.core.IsServed(typ) {
		o.jobs = 0
		m.sendGrant(o, grantNoWorkers)
	}
	if o.jobs > 0 && !bt.isOpen {
		bt.isOpen = true
		m.borrow.openTypes = append(m.borrow.openTypes, bt)
	}
	m.borrow.mustCheckOffers = true
}

// maxCompared bounds how many types' offers are compared at a time. With thousands of types,
// all of them would take too long.
const maxCompared = 64

// answerOffers grants places to homes that have offered jobs. It looks at some of the types, and
// serves the type with the best offer first.
func (m *Machine) answerOffers() {
	borrow := &m.borrow
	if borrow.mustCheckOffers || m.now >= m.answerAt {
		borrow.mustCheckOffers, m.answerAt, borrow.typesToCheck = false, broker.Never, len(borrow.openTypes)
	}
	n := min(borrow.typesToCheck, maxCompared)
	if n == 0 {
		return
	}
	batch := slices.Clone(borrow.openTypes[:n])
	borrow.openTypes = append(borrow.openTypes[:0], borrow.openTypes[n:]...)
	borrow.typesToCheck -= n
	for _, bt := range batch {
		bt.best = m.bestOffer(bt)
	}
	slices.SortStableFunc(batch, func(x, y *borrowedType) int { return x.best.compare(y.best) })
	for _, bt := range batch {
		if bt.isOpen = m.answerType(bt); bt.isOpen {
			borrow.openTypes = append(borrow.openTypes, bt)
			if bt.answerAt != 0 {
				m.answerAt = min(m.answerAt, bt.answerAt)
			}
		}
	}
}

// bestOffer returns the best valid offer of a type, or nil.
func (m *Machine) bestOffer(bt *borrowedType) (best *offer) {
	for _, o := range bt.offers {
		if o.isValid(m.now) && (best == nil || o.compare(best) < 0) {
			best = o
		}
	}
	return best
}

// answerType grants the places for a type to the best offers and reports whether offers are left.
func (m *Machine) answerType(bt *borrowedType) bool {
	var openOffers []*offer
	wantedPlaces := 0
	crowded := false
	for _, o := range bt.offers {
		switch {
		case !o.isValid(m.now):
		case m.isCongested(o.peer): // the home already lends enough to fill the stream
			crowded = true
		default:
			openOffers = append(openOffers, o)
			wantedPlaces += o.jobs
		}
	}
	if len(openOffers) == 0 {
		bt.answerAt = 0
		return crowded
	}
	if m.now < bt.yieldUntil {
		bt.answerAt = bt.yieldUntil
		return true
	}
	free := m.countFreePlaces(bt, wantedPlaces)
	switch {
	case free <= 0:
		bt.answerAt = 0
		return true
	case len(openOffers) > 1 && bt.answerAt == 0:
		bt.answerAt = m.now + collectTime
		return true
	case bt.answerAt > m.now:
		return true
	}
	bt.answerAt = 0
	slices.SortStableFunc(openOffers, (*offer).compare)
	for _, o := range openOffers {
		n := min(free, o.jobs)
		if n == 0 {
			return true
		}
		m.grantPlaces(o, n)
		m.sendGrant(o, n)
		o.jobs -= n
		if o.jobs > 0 {
			return true
		}
		free -= n
	}
	return false
}

func (m *Machine) sendGrant(o *offer, n int) {
	item := m.newItem()
	item.putUint(itemGrant)
	item.putBytes(o.typ.name)
	item.putInt(int64(n))
	m.sendItem(o.peer, item)
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
	bt := m.borrowedType(job.Type)
	if bt != nil {
		m.recordFill(bt.offerOf(p))
		if p.lender == 0 {
			p.lender = m.core.AddLender()
			m.borrow.lenders[p.lender] = p
		}
		effects, number, why := m.core.Borrow(m.now, p.lender, &job)
		switch why {
		case broker.IDClash:
			pause = broker.ClashDelay
		case broker.LimitReached:
			pause, bt.placeLimit, bt.pauseUntil = broker.RefusalDelay, 1, m.now+tickInterval
		case broker.TooLarge:
			pause = broker.RefusalDelay
		}
		if run = number; run != 0 {
			bt.placeLimit *= 2
			if bt.placeLimit > maxPlaces {
				bt.placeLimit = 0
			}
			m.borrow.runs[run] = &borrowedRun{peer: p, typ: bt, loanKey: key}
			p.loans[key] = run
			p.borrowedJobs++
			m.stats.Borrowed++
			m.stats.TotalBorrowed++
		}
		m.apply(effects)
	}
	if run == 0 {
		item := m.newReport(itemReturn, key.borrower, false, job.ID)
		item.putInt(int64(pause))
		item.putBool(false)
		m.sendItem(p, item)
	}
}

// receiveChange handles a home's message about a run: the run is no longer wanted, or its progress
// is wanted or not.
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
		item := m.newItem()
		item.putUint(itemProgress)
		item.putUint(uint64(run.borrower))
		item.putBytes(e.ID)
		item.putBytes(e.Body)
		m.queueProgress(run, item)
		m.recycle(item)
		return
	}
	m.sendLastProgress(run)
	delete(m.borrow.runs, e.Run)
	delete(p.loans, run.loanKey)
	p.borrowedJobs--
	m.stats.Borrowed--
	keepPlace := m.keepsPlace(run.typ, p)
	var item writer
	switch e.Op {
	case broker.OpResult:
		item = m.newReport(itemResult, run.borrower, keepPlace, e.ID)
		item.putBytes(e.Body)
	case broker.OpReturn:
		item = m.newReport(itemReturn, run.borrower, keepPlace, e.ID)
		item.putInt(e.Delay)
		item.putBool(true)
	default:
		item = m.newReport(itemFail, run.borrower, keepPlace, e.ID)
		item.putUint(failureOf[e.Code])
		item.putInt(e.Delay)
		item.putString(wording.Reason(e.Reason))
	}
	m.sendItem(p, item)
}

// failureOf maps the code with which a run ended to how it failed.
var failureOf = map[broker.Code]uint64{broker.JobRetryLater: failLater, broker.JobNoRetry: failFinal, broker.JobExpelled: failExpelled, broker.JobLost: failLost, broker.Draining: failLost}

// newReport begins an item that reports how a run ended.
func (m *Machine) newReport(kind uint64, line uint32, keepPlace bool, id []byte) writer {
	item := m.newItem()
	item.putUint(kind)
	item.putUint(uint64(line))
	item.putBool(keepPlace)
	item.putBytes(id)
	return item
}

// keepsPlace reports whether the home may fill the place of a run that has ended. The home may fill
// the place if the place is free, the home is not congested, and no other home offers a better job,
// of this type or of the few other types that are checked.
func (m *Machine) keepsPlace(bt *borrowedType, p *peer) bool {
	if m.isCongested(p) {
		return false
	}
	borrow := &m.borrow
	ownOffer := bt.offerOf(p)
	offer := ownOffer
	if !ownOffer.isValid(m.now) {
		offer = nil
	}
	betterOffer := m.bestOffer(bt).compare(offer) < 0
	for range min(len(borrow.openTypes), maxCompared/4) {
		borrow.nextType = (borrow.nextType + 1) % len(borrow.openTypes)
		other := borrow.openTypes[borrow.nextType]
		betterOffer = betterOffer || other != bt && m.bestOffer(other).compare(offer) < 0 && m.countFreePlaces(other, 1) > 0
	}
	if betterOffer {
		borrow.mustCheckOffers = true
		return false
	}
	if m.countFreePlaces(bt, 1) <= 0 {
		return false
	}
	if offer != nil && borrow.freeSupply[len(borrow.freeSupply)-1].Set != 0 && borrow.yieldedTick != m.ticks {
		// More jobs of the type wait at that home, and homes offer jobs of other types only to brokers
		// that report idle workers. So report this worker as idle, and let the home wait for a moment.
		borrow.yieldedTick, borrow.wantsSentTick, bt.yieldUntil = m.ticks, m.ticks-1, m.now+collectTime+min(2*p.roundTrip, maxGrantTime)
		borrow.mustCheckOffers = true
		return false
	}
	m.grantPlaces(ownOffer, 1)
	return true
}

// forgetTypes forgets the types that have no offered or lent jobs.
func (m *Machine) forgetTypes() {
	if m.ticks%wantsTicks != 0 {
		return
	}
	inUse := map[*borrowedType]bool{}
	for _, run := range m.borrow.runs {
		inUse[run.typ] = true
	}
	for typ, bt := range m.borrow.types {
		bt.offers = slices.DeleteFunc(bt.offers, func(o *offer) bool {
			return !o.isValid(m.now) && !o.isListed && m.now-o.grantedAt >= 5*unfilledTime
		})
		if len(bt.offers) == 0 && !bt.isOpen && !inUse[bt] {
			delete(m.borrow.types, typ)
		}
	}
}

// endBorrowing gives up the jobs that p has lent.
func (m *Machine) endBorrowing(p *peer) {
	for _, run := range p.loans {
		delete(m.borrow.runs, run)
	}
	m.stats.LateResults += uint64(len(p.loans)) // their results are dropped
	p.loans, p.progress = map[loanKey]uint64{}, pendingProgress{}
	m.stats.Borrowed -= p.borrowedJobs
	p.borrowedJobs = 0
	for _, bt := range m.borrow.types {
		bt.offers = slices.DeleteFunc(bt.offers, func(o *offer) bool {
			if o.peer == p {
				m.endReservations(o)
			}
			return o.peer == p
		})
	}
	if p.lender != 0 {
		delete(m.borrow.lenders, p.lender)
		m.apply(m.core.RemovePeer(m.now, p.lender))
		p.lender = 0
	}
}

// HandleEffect handles an effect for one of the machine's peers, and returns false for other
// peers.
func (m *Machine) HandleEffect(e *broker.Effect) bool {
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
