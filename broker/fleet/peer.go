package fleet

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	"gloom/broker"
)

// peer is another broker whose heartbeats arrive. The two brokers have a session with two
// numbers, one from each side. A side ends the session by taking a new number, or by no longer
// listing the other's number in its heartbeats. Then the other side ends it, too, and gives up
// all lent and borrowed jobs.
type peer struct {
	name  string
	epoch uint64
	// inc is our number of the session, theirs the peer's; 0 while it does not hear us.
	inc, theirs uint64
	up          bool // it knows our number, so jobs can be lent
	heard       int64
	draining    bool
	// said is the time by its clock at which it sent its last heartbeat, which arrived at
	// saidAt; we return it in ours. trip is the last round trip.
	said, saidAt, trip int64
	// unheard is when we first sent a heartbeat that it has not confirmed, 0 for never.
	unheard int64

	stream  stream
	samples samples
	wants   wants
	lines   map[uint32]*line // lines over which we lend to it, by number
	lender  broker.Peer      // its number as a lender in our core
	loans   map[loanKey]uint64

	lent, borrowed int
}

// foreign is a broker that uses another version.
type foreign struct {
	epoch, version uint64
	heard          int64
}

// loanKey identifies a run that a home has lent.
type loanKey struct {
	line uint32
	loan uint64
}

// known returns the peer with this name and epoch, or nil.
func (m *Machine) known(name string, epoch uint64) *peer {
	if p := m.peers[name]; p != nil && p.epoch == epoch {
		return p
	}
	return nil
}

func byName(p *peer, name string) int { return strings.Compare(p.name, name) }

// meet adds a broker that is heard for the first time.
func (m *Machine) meet(name string, epoch uint64) *peer {
	if p := m.peers[name]; p != nil {
		if p.epoch == epoch {
			return p
		}
		m.forget(p, "it was restarted")
	}
	if len(m.order) == maxPeers {
		return nil
	}
	m.incs++
	p := &peer{name: name, epoch: epoch, inc: m.incs, wants: newWants(), lines: map[uint32]*line{}, loans: map[loanKey]uint64{}}
	m.peers[name] = p
	at, _ := slices.BinarySearchFunc(m.order, name, byName)
	m.order = slices.Insert(m.order, at, p)
	return p
}

// maybeGone reports whether to ask NATS if any broker listens on a silent broker's subject. A
// broker whose connection broke gets time to connect again, and so do all brokers after this
// one was disconnected from NATS.
func (m *Machine) maybeGone(p *peer) bool { return m.now-max(p.heard, m.cameAt) >= askAfter }

// Unheard reports that no broker listens on the subject of a broker.
func (m *Machine) Unheard(now int64, name string) {
	m.now = max(m.now, now)
	if p := m.peers[name]; p != nil && m.maybeGone(p) {
		m.lose(p, "it left NATS")
		m.Step(now)
	}
}

// lose gives up a broker that is lost. It may still receive our messages, so the next heartbeat, which no longer lists it, is sent early.
func (m *Machine) lose(p *peer, why string) {
	m.forget(p, why)
	m.early = true
}

// forget gives up a broker.
func (m *Machine) forget(p *peer, why string) {
	m.part(p, why)
	delete(m.peers, p.name)
	at, _ := slices.BinarySearchFunc(m.order, p.name, byName)
	m.order = slices.Delete(m.order, at, at+1)
}

// part ends the session with p: the jobs lent to it are lost, and the jobs that it lent
// are no longer wanted.
func (m *Machine) part(p *peer, why string) {
	if p.up {
		m.tellLost(p, why)
	}
	p.up, p.theirs = false, 0
	m.partHome(p)
	m.partGuest(p)
	p.stream = stream{}
}

// sayBeat sends a heartbeat, which names the brokers that we hear.
func (m *Machine) sayBeat() {
	m.beatAt, m.early = m.now, false
	b := m.start(msgBeat, 64*len(m.order))
	b.int(m.now)
	b.bool(m.core.Draining())
	b.head(len(m.order))
	for _, p := range m.order {
		b.str(p.name)
		b.uint(p.epoch)
		b.uint(p.inc)
		b.uint(p.theirs)
		b.uint(p.stream.sent)
		b.uint(p.stream.got)
		b.int(p.said)
		b.int(m.now - p.saidAt)
		p.stream.said()
		if p.unheard == 0 {
			p.unheard = m.now
		}
	}
	m.out = append(m.out, Message{Data: b})
}

// heard handles a heartbeat.
func (m *Machine) heard(name string, epoch uint64, s *scan) {
	clock, draining := s.int(), s.bool()
	n := s.head()
	p := m.meet(name, epoch)
	if p == nil || clock <= p.said {
		return // a later one has already arrived
	}
	if m.now-p.heard >= deafAfter/2 && p.lent+p.borrowed > 0 {
		m.early = true // it may not have heard us either, and waits for our next heartbeat
	}
	p.heard, p.said, p.saidAt, p.draining = m.now, clock, m.now, draining
	hears := false
	for range n {
		to, of := s.str(), s.uint()
		inc, yours, sent, got, said, ago := s.uint(), s.uint(), s.uint(), s.uint(), s.int(), s.int()
		if s.err != nil {
			return
		}
		if to != m.cfg.Name || of != m.cfg.Epoch {
			continue
		}
		hears = true
		if p.theirs != 0 && p.theirs != inc {
			m.part(p, "it has begun another session")
		}
		p.theirs = inc
		if yours == p.inc {
			m.meets(p)
			m.has(p, got)
			m.missing(p, sent)
		} else if p.up {
			m.renew(p)
		}
		if p.unheard != 0 && said >= p.unheard {
			p.unheard = 0
			if said < m.beatAt {
				p.unheard = m.beatAt
			}
		}
		if said != 0 {
			p.trip = max(0, m.now-said-ago)
			m.stats.Trips[min(bits.Len64(uint64(p.trip/1000)), broker.StatBuckets-1)]++
			m.stats.TripSum += uint64(p.trip)
		}
	}
	if !hears && p.theirs != 0 {
		m.part(p, "it does not hear this broker")
	}
}

// meets records that p knows our number.
func (m *Machine) meets(p *peer) {
	if !p.up {
		p.up, p.unheard = true, 0
		m.home.heard++
		delete(m.gone, p.name)
		m.tell(Met, p.name, "")
	}
}

// renew begins a new session.
func (m *Machine) renew(p *peer) {
	m.part(p, "its messages are inconsistent")
	m.incs++
	p.inc = m.incs
}

// flush puts the items for p into messages.
func (m *Machine) flush(p *peer) {
	p.stream.cut(m.cfg.Part, m.cfg.Flying, func(x *part, items int) {
		if items > 0 {
			m.stats.Batches[bits.Len(uint(items-1))]++
			m.stats.Items += uint64(items)
		}
		m.sendPart(p, x)
	})
	if p.stream.due(m.cfg.Flying) {
		m.sayAck(p, false, false)
	}
}

func (m *Machine) sendPart(p *peer, x *part) {
	b := m.start(msgData, len(x.data))
	b.uint(p.inc)
	b.uint(p.theirs)
	b.uint(p.stream.got)
	b.uint(x.no)
	b.bool(x.more)
	b.bytes(x.data)
	p.stream.said()
	m.out = append(m.out, Message{To: p.name, Data: b})
}

// sayAck confirms what has arrived from p. again asks p for the messages that follow; asks makes
// NATS reply if no broker listens on p's subject.
func (m *Machine) sayAck(p *peer, again, asks bool) {
	b := m.start(msgAck, 0)
	b.uint(p.inc)
	b.uint(p.theirs)
	b.uint(p.stream.got)
	b.bool(again)
	p.stream.said()
	m.out = append(m.out, Message{To: p.name, Data: b, Asks: asks})
}

// session reads the session that a message belongs to, and reports whether it is the current
// one.
func (p *peer) session(s *scan) bool {
	theirs, inc := s.uint(), s.uint()
	return p != nil && theirs == p.theirs && inc == p.inc && s.err == nil
}

func (m *Machine) heardData(p *peer, s *scan) {
	if !p.session(s) {
		return
	}
	m.meets(p)
	got := s.uint()
	x := part{no: s.uint(), more: s.bool(), data: s.bytes()}
	if s.err != nil {
		return
	}
	m.has(p, got)
	if x.no != p.stream.got+1 {
		if x.no > p.stream.got {
			m.missing(p, x.no)
		}
		return
	}
	items := &scan{rest: p.stream.take(&x)}
	m.full = m.full || len(p.stream.whole) > m.cfg.Flying
	for inc := p.inc; len(items.rest) > 0 && items.err == nil && p.inc == inc; {
		m.item(p, items)
	}
	if items.err != nil {
		s.err = items.err
		m.renew(p)
	}
}

// has records that p has all messages up to a number.
func (m *Machine) has(p *peer, no uint64) {
	was := m.crowded(p)
	if p.stream.has(no, &m.spare); !m.crowded(p) {
		m.home.relieved = true
		m.guest.stirred = m.guest.stirred || was
	}
}

// held returns how many bytes are held for p.
func (p *peer) held() int64 {
	return int64(p.stream.bytes + cap(p.stream.whole) + p.samples.bytes)
}

// Memory returns how many bytes all streams hold.
func (m *Machine) Memory() (n int64) {
	for _, p := range m.order {
		n += p.held()
	}
	return n
}

// shed restarts the streams that hold most until all together hold no more than Config.Held.
func (m *Machine) shed() {
	for m.Memory() > m.cfg.Held {
		m.renew(slices.MaxFunc(m.order, func(p, q *peer) int { return cmp.Compare(p.held(), q.held()) }))
	}
}

// share returns the limit of what waits for one peer and is on its way to it: beyond it, no more
// is lent to the peer or borrowed from it. It is at most a peer's share of half of what all
// streams may hold.
func (m *Machine) share() int {
	return int(min(int64(2*m.cfg.Flying), m.cfg.Held/2/int64(max(1, len(m.order)))))
}

// crowded reports whether p has used up its share.
func (m *Machine) crowded(p *peer) bool { return p.stream.bytes >= m.share() }

// missing asks for the messages up to a number that have not arrived.
func (m *Machine) missing(p *peer, no uint64) {
	s := &p.stream
	if no > s.got && s.seen <= s.got {
		m.stats.Gaps++
		m.sayAck(p, true, false)
	}
	s.seen = max(s.seen, no)
}

// askAgain asks again, after a pulse, for what is still missing.
func (m *Machine) askAgain(p *peer) {
	s := &p.stream
	if s.seen > s.got {
		s.asked++
		m.sayAck(p, true, false)
	}
	// If heartbeats arrive and the messages do not, the messages never will.
	if int64(s.asked)*pulse > lostAfter {
		m.renew(p)
	}
}

func (m *Machine) heardAck(p *peer, s *scan) {
	if !p.session(s) {
		return
	}
	got, again := s.uint(), s.bool()
	if s.err != nil {
		return
	}
	m.has(p, got)
	if again {
		for i, n := 0, 0; i < len(p.stream.kept) && n < maxAgain; i++ {
			n += len(p.stream.kept[i].data)
			m.sendPart(p, &p.stream.kept[i])
		}
	}
}

// item handles one item from p.
func (m *Machine) item(p *peer, s *scan) {
	switch kind := s.uint(); kind {
	case itemOffer:
		m.offered(p, s)
	case itemLend:
		m.lentTo(p, s)
	case itemUnwant, itemFollow:
		m.changed(p, kind, s)
	case itemTake:
		m.taken(p, s)
	case itemResult, itemFail, itemReturn, itemProgress:
		m.ran(p, kind, s)
	default:
		s.err = errItem
	}
}
