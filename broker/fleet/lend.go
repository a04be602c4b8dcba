package fleet

import (
	"cmp"
	"container/list"
	"maps"
	"slices"
	"time"

	"gloom/broker"
)

// lendSide is the part of a machine that lends jobs.
type lendSide struct {
	types            map[string]*lentType
	borrowers        map[broker.Peer]*borrower
	byLastUse        *list.List // list of *borrower, sorted by lastUsed
	lastNumber       uint32     // number of the borrower that was added last
	waitingTypes     []*lentType
	staleBorrowers   []*borrower // borrowers that got jobs since the demand was last sent to them
	overdueBorrowers []*borrower
	pausedBorrowers  []*borrower // borrowers with free places that get no jobs, because too much is in flight to their brokers
	mayResume        bool        // some of pausedBorrowers may get jobs again
	setsChanged      bool        // another broker wants sets of types that it did not want before
	wantsVersion     int         // counts changes of the wants of other brokers
	nextType         int         // index in waitingTypes from which to continue
}

// lentType is a type with jobs that wait or are lent.
type lentType struct {
	name        []byte
	borrowers   []*borrower
	hasWaiting  bool
	isListed    bool  // in lendSide.waitingTypes
	unwantedAt  int   // the wantsVersion at which no broker wanted it when last checked, 0 if not checked
	offeredTick int64 // tick of the last offer
}

// borrower is another broker as the borrower of one type's jobs. To our core it is a worker.
type borrower struct {
	number   uint32
	peer     *peer
	typ      *lentType
	corePeer broker.Peer
	room     int
	// allottedRoom is the part of room that the core knows of.
	allottedRoom int
	lentJobs     int
	// lastUsed is when it last got a job or granted places, or when its unfilled places were last
	// checked. listElement is its place in lendSide.byLastUse.
	lastUsed    int64
	listElement *list.Element
	demandSent  int // how many waiting jobs its broker knows of
	// isRetired reports that a run of the borrower has passed its timeout. A retired borrower gets
	// no more jobs; another borrower of the same broker and type gets them.
	isRetired, isDemandStale, isPaused bool
	isRemoved                          bool // it is no longer in the core
}

// updateOffer looks for waiting jobs of a type that other brokers may run.
func (m *Machine) updateOffer(typ []byte) {
	demand := m.core.Demand(typ)
	lt := m.lend.types[string(typ)]
	if demand.Jobs == 0 {
		if lt != nil {
			lt.hasWaiting = false
			m.lend.dropType(lt)
		}
		return
	}
	if lt == nil { // the core bounds the number of types
		lt = &lentType{name: slices.Clone(typ), offeredTick: -1}
		m.lend.types[string(lt.name)] = lt
	}
	lt.hasWaiting = true
	if !lt.isListed {
		lt.isListed = true
		m.lend.waitingTypes = append(m.lend.waitingTypes, lt)
	}
	m.offerJobs(lt, demand)
}

// offerJobs offers the waiting jobs of a type, once a tick, to as many of the brokers that
// want it as are needed.
func (m *Machine) offerJobs(lt *lentType, demand broker.Demand) {
	if lt.offeredTick == m.ticks || lt.unwantedAt == m.lend.wantsVersion {
		return
	}
	const maxBrokers = 4 // brokers that are offered the same jobs
	n := 0
	for i := range m.peersByName {
		p := m.peersByName[(m.nextPeer+i)%len(m.peersByName)]
		if !p.hearsUs || p.draining {
			continue
		}
		if room := p.wants.placeCount(lt.name); room > 0 {
			m.sendOffer(p, lt, demand)
			if n++; n == maxBrokers {
				break
			}
			demand.Jobs -= room
			if demand.Jobs <= 0 {
				break
			}
		}
	}
	if n == 0 {
		lt.unwantedAt = m.lend.wantsVersion
		return
	}
	lt.offeredTick = m.ticks
	m.nextPeer++
}

func (m *Machine) sendOffer(p *peer, lt *lentType, demand broker.Demand) {
	item := m.newItem()
	item.putUint(itemOffer)
	item.putBytes(lt.name)
	item.putInt(demand.Priority)
	item.putInt(m.now - demand.Since)
	item.putInt(int64(demand.Jobs))
	m.sendItem(p, item)
}

// offerWaiting offers the jobs that still wait.
func (m *Machine) offerWaiting() {
	lend := &m.lend
	lend.waitingTypes = slices.DeleteFunc(lend.waitingTypes, func(lt *lentType) bool {
		lt.isListed = lt.hasWaiting
		return !lt.hasWaiting
	})
	for range min(len(lend.waitingTypes), 1024) {
		lend.nextType = (lend.nextType + 1) % len(lend.waitingTypes)
		m.updateOffer(lend.waitingTypes[lend.nextType].name)
	}
}

// sendDemand tells borrowers how many jobs of the types that they borrow still wait.
func (m *Machine) sendDemand() {
	for _, br := range m.lend.staleBorrowers {
		br.isDemandStale = false
		if br.isRemoved {
			continue
		}
		demand := m.core.Demand(br.typ.name)
		if br.peer.hearsUs && (demand.Jobs > 0 || br.demandSent > 0) {
			br.demandSent = demand.Jobs
			m.sendOffer(br.peer, br.typ, demand)
		}
	}
	m.lend.staleBorrowers = m.lend.staleBorrowers[:0]
}

// dropType forgets a type without waiting or lent jobs.
func (s *lendSide) dropType(lt *lentType) {
	if len(lt.borrowers) == 0 && !lt.hasWaiting && s.types[string(lt.name)] == lt {
		delete(s.types, string(lt.name))
	}
}

// receiveGrant handles the places that a broker grants for jobs of a type. 0 revokes the unfilled
// places; grantNoWorkers means that the broker does not serve the type at all.
func (m *Machine) receiveGrant(p *peer, r *reader) {
	typ, n := r.readName(), int(min(r.readInt(), maxPlaces))
	lt := m.lend.types[string(typ)]
	switch {
	case r.err != nil:
		return
	case n == grantNoWorkers:
		p.wants.refuse(typ)
		return
	case lt == nil || n < 0:
		return
	}
	i := slices.IndexFunc(lt.borrowers, func(br *borrower) bool { return br.peer == p })
	var br *borrower
	if i >= 0 {
		br = lt.borrowers[i]
	} else if n > 0 {
		br = m.addBorrower(p, lt)
	}
	if br == nil {
		return
	}
	if n == 0 {
		out, _ := m.core.RunCount(br.corePeer)
		n = out - br.room
	}
	m.allot(br, min(br.room+n, maxPlaces))
}

// addBorrower adds a borrower of a type for broker p. It returns nil if the type's last job has
// ended since the offer and there is no room for an unused type.
func (m *Machine) addBorrower(p *peer, lt *lentType) *borrower {
	lend := &m.lend
	number, effects := m.core.AddBorrower(m.now, lt.name, p.name)
	m.apply(effects)
	if number == 0 {
		return nil
	}
	lend.lastNumber++
	br := &borrower{number: lend.lastNumber, peer: p, typ: lt, corePeer: number}
	lt.borrowers = append(lt.borrowers, br)
	p.borrowers[br.number] = br
	lend.borrowers[br.corePeer] = br
	br.listElement = lend.byLastUse.PushBack(br)
	return br
}

// markUsed records that a borrower is in use.
func (m *Machine) markUsed(br *borrower) {
	br.lastUsed = m.now
	m.lend.byLastUse.MoveToBack(br.listElement)
}

// allot sets how many jobs a borrower may have.
func (m *Machine) allot(br *borrower, room int) {
	br.room = room
	m.markUsed(br)
	m.fillBorrower(br)
}

// fillBorrower lets the core lend to a borrower, in growing steps, until its room is used or its broker
// is congested.
func (m *Machine) fillBorrower(br *borrower) {
	for step := 1; br.allottedRoom != br.room; step *= 2 {
		if br.allottedRoom < br.room && m.isCongested(br.peer) {
			m.pauseBorrower(br)
			return
		}
		br.allottedRoom = min(br.room, br.allottedRoom+step)
		m.apply(m.core.Allot(m.now, br.corePeer, br.allottedRoom))
	}
}

// pauseBorrower stops lending to a borrower until its broker is no longer congested.
func (m *Machine) pauseBorrower(br *borrower) {
	if !br.isPaused {
		br.isPaused = true
		m.lend.pausedBorrowers = append(m.lend.pausedBorrowers, br)
	}
}

// resumePaused lets paused borrowers get jobs again. Borrowers whose broker is still congested
// stay paused, and lose their free places in the core.
func (m *Machine) resumePaused() {
	lend := &m.lend
	if !lend.mayResume {
		return
	}
	lend.mayResume = false
	pausedBorrowers := lend.pausedBorrowers
	lend.pausedBorrowers = nil
	for _, br := range pausedBorrowers {
		br.isPaused = false
		if br.isRemoved {
			continue
		}
		if !m.isCongested(br.peer) {
			m.fillBorrower(br)
		} else {
			if out, _ := m.core.RunCount(br.corePeer); out < br.allottedRoom {
				br.allottedRoom = out
				m.apply(m.core.Allot(m.now, br.corePeer, out))
			}
			m.pauseBorrower(br)
		}
	}
}

// removeBorrower removes a borrower from the core.
func (m *Machine) removeBorrower(br *borrower) {
	m.forgetBorrower(br)
	m.apply(m.core.RemovePeer(m.now, br.corePeer))
}

// forgetBorrower forgets a borrower. The lists staleBorrowers, overdueBorrowers and pausedBorrowers
// may still contain it; their readers skip it.
func (m *Machine) forgetBorrower(br *borrower) {
	lend := &m.lend
	br.isRemoved = true
	delete(lend.borrowers, br.corePeer)
	delete(br.peer.borrowers, br.number)
	lend.byLastUse.Remove(br.listElement)
	br.typ.borrowers = slices.DeleteFunc(br.typ.borrowers, func(o *borrower) bool { return o == br })
	lend.dropType(br.typ)
}

// sendToBorrower sends an effect of the core to a borrower.
func (m *Machine) sendToBorrower(br *borrower, e *broker.Effect) {
	p := br.peer
	item := m.newItem()
	switch e.Op {
	case broker.OpJob:
		loan := m.core.Loan(e.Run)
		item.putUint(itemLend)
		item.putUint(uint64(br.number))
		item.putUint(e.Run)
		item.putBytes(e.Type)
		item.putBytes(e.ID)
		item.putInt(loan.Priority)
		item.putInt(loan.Age)
		item.putBool(loan.WantsProgress)
		item.putBytes(e.Headers)
		item.putBytes(e.Body)
		m.markUsed(br)
		br.lentJobs++
		p.lentJobs++
		m.stats.Lent++
		m.stats.TotalLent++
		if !br.isDemandStale {
			br.isDemandStale = true
			m.lend.staleBorrowers = append(m.lend.staleBorrowers, br)
		}
	case broker.OpCancel, broker.OpOverdue:
		item.putUint(itemCancel)
		item.putUint(uint64(br.number))
		item.putUint(e.Run)
		item.putBool(e.Op == broker.OpOverdue)
		if e.Op == broker.OpOverdue && !br.isRetired {
			m.lend.overdueBorrowers = append(m.lend.overdueBorrowers, br)
		}
	case broker.OpFollow:
		item.putUint(itemFollow)
		item.putUint(uint64(br.number))
		item.putUint(e.Run)
		item.putBool(m.core.Loan(e.Run).WantsProgress)
	case broker.OpClose:
		p.lentJobs -= br.lentJobs
		m.stats.Lent -= br.lentJobs
		m.stats.LostJobs += uint64(br.lentJobs)
		m.forgetBorrower(br)
		return
	default:
		return
	}
	m.sendItem(p, item)
	if m.isCongested(p) {
		m.pauseBorrower(br)
		m.lend.mayResume = true
	}
}

// replaceOverdue retires borrowers with overdue runs, and moves their free places to new borrowers.
func (m *Machine) replaceOverdue() {
	for _, br := range m.lend.overdueBorrowers {
		out, overdueRuns := m.core.RunCount(br.corePeer)
		if overdueRuns == 0 || br.isRetired || br.isRemoved {
			continue
		}
		br.isRetired = true
		br.typ.borrowers = slices.DeleteFunc(br.typ.borrowers, func(o *borrower) bool { return o == br })
		free := br.room - out
		m.allot(br, 0)
		if free > 0 {
			m.allot(m.addBorrower(br.peer, br.typ), free) // addBorrower does not return nil, because the old borrower keeps the type in use
		}
	}
	m.lend.overdueBorrowers = m.lend.overdueBorrowers[:0]
}

// receiveReport handles a borrower's report about a run.
func (m *Machine) receiveReport(p *peer, kind uint64, r *reader) {
	number := uint32(r.readUint())
	keepPlace := kind == itemProgress || r.readBool()
	id := r.readBytes()
	br := p.borrowers[number]
	started := true
	var handle func(w broker.Peer) []broker.Effect
	switch kind {
	case itemProgress:
		body := r.readBytes()
		handle = func(w broker.Peer) []broker.Effect { return m.core.Progress(m.now, w, id, body, false) }
	case itemResult:
		body := r.readBytes()
		handle = func(w broker.Peer) []broker.Effect { return m.core.Respond(m.now, w, id, body, mayKeepBody(body)) }
	case itemReturn:
		req := &broker.ReleaseRequest{ID: id, Delay: time.Duration(r.readInt())}
		started = r.readBool()
		req.NotStarted = !started
		handle = func(w broker.Peer) []broker.Effect { return m.core.Release(m.now, w, req) }
	case itemFail:
		failure, delay, reason := r.readUint(), r.readInt(), r.readString()
		f := &broker.Failure{ID: id, Reason: reason, NoRetry: failure == failFinal || failure == failExpelled, WorkerLost: failure == failLost, WorkerExpelled: failure == failExpelled, Delay: -1}
		if failure == failLater || failure == failLost {
			f.Delay = delay
		}
		handle = func(w broker.Peer) []broker.Effect { return m.core.Fail(m.now, w, f) }
	}
	switch {
	case r.err != nil:
		return
	case br == nil:
		if kind != itemProgress {
			m.stats.LateResults++
		}
		return
	case kind == itemProgress:
		m.apply(handle(br.corePeer))
		return
	case br.lentJobs == 0:
		return // the borrower has no job of ours
	case !started:
		m.stats.ReturnedJobs++
	}
	br.lentJobs--
	p.lentJobs--
	m.stats.Lent--
	if keepPlace && br.isRetired {
		if i := slices.IndexFunc(br.typ.borrowers, func(o *borrower) bool { return o.peer == p }); i >= 0 {
			m.allot(br.typ.borrowers[i], min(br.typ.borrowers[i].room+1, maxPlaces))
		}
	} else if !keepPlace && !br.isRetired {
		m.allot(br, max(0, br.room-1))
	}
	m.apply(handle(br.corePeer))
	if br.isRetired {
		if out, _ := m.core.RunCount(br.corePeer); out == 0 {
			m.removeBorrower(br)
		}
	}
}

// mayKeepBody reports whether a body may stay in the buffer of its message: only if the body makes up
// most of the message.
func mayKeepBody(body []byte) bool { return cap(body) < 2*len(body) }

// maxIdleChecks bounds how many borrowers are checked in one tick.
const maxIdleChecks = 1024

// removeIdle gives up places that have been unfilled for a long time, and removes borrowers
// without places.
func (m *Machine) removeIdle() {
	for range maxIdleChecks {
		first := m.lend.byLastUse.Front()
		if first == nil || m.now-first.Value.(*borrower).lastUsed < unfilledTime {
			break
		}
		br := first.Value.(*borrower)
		switch out, _ := m.core.RunCount(br.corePeer); {
		case out == 0 && br.lentJobs == 0:
			m.removeBorrower(br)
		case out < br.room:
			m.allot(br, out)
		default:
			m.markUsed(br)
		}
	}
	m.forgetTypes()
}

// endLending gives up the jobs lent to p.
func (m *Machine) endLending(p *peer) {
	borrowers := slices.SortedFunc(maps.Values(p.borrowers), func(x, y *borrower) int { return cmp.Compare(x.number, y.number) })
	for _, br := range borrowers {
		m.allot(br, 0) // otherwise p would get the jobs that the others give up
	}
	m.stats.LostJobs += uint64(p.lentJobs)
	m.stats.Lent -= p.lentJobs
	p.lentJobs = 0
	p.wants = newWants()
	for _, br := range borrowers {
		if !br.isRemoved {
			m.removeBorrower(br)
		}
	}
}
