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
	// session is our number of the session, theirSession the peer's, which is 0 while it does not
	// hear us.
	session, theirSession uint64
	hearsUs               bool // it knows our number, so jobs can be lent
	heardAt               int64
	draining              bool
	// sentAt is the time by the peer's clock at which the peer sent its last heartbeat. The heartbeat
	// arrived at receivedAt; our heartbeats return sentAt. roundTrip is the last round trip.
	sentAt, receivedAt, roundTrip int64
	// unackedSince is the time when we sent the first of the heartbeats that the peer has not
	// acked; 0 if there is none.
	unackedSince int64

	stream    stream
	progress  pendingProgress
	wants     peerWants
	borrowers map[uint32]*borrower // the borrowers that stand for it, one for each type, by number
	lender    broker.Peer          // its number as a lender in our core
	loans     map[loanKey]uint64

	lentJobs, borrowedJobs int
}

// otherVersion is a broker that uses another version of the messages.
type otherVersion struct {
	epoch, version uint64
	heardAt        int64
}

// loanKey identifies a run that a home has lent.
type loanKey struct {
	borrower uint32
	loan     uint64
}

// findPeer returns the peer with this name and epoch, or nil.
func (m *Machine) findPeer(name string, epoch uint64) *peer {
	if p := m.peers[name]; p != nil && p.epoch == epoch {
		return p
	}
	return nil
}

func compareName(p *peer, name string) int { return strings.Compare(p.name, name) }

// addPeer adds a broker that is heard for the first time.
func (m *Machine) addPeer(name string, epoch uint64) *peer {
	if p := m.peers[name]; p != nil {
		if p.epoch == epoch {
			return p
		}
		m.removePeer(p, "it was restarted")
	}
	if len(m.peersByName) == maxPeers {
		return nil
	}
	m.lastSession++
	p := &peer{name: name, epoch: epoch, session: m.lastSession, wants: newWants(), borrowers: map[uint32]*borrower{}, loans: map[loanKey]uint64{}}
	m.peers[name] = p
	at, _ := slices.BinarySearchFunc(m.peersByName, name, compareName)
	m.peersByName = slices.Insert(m.peersByName, at, p)
	return p
}

// mayBeGone reports whether p has been silent for so long that the machine should ask NATS whether
// a broker still listens on p's subject. A broker whose connection broke gets time to reconnect,
// and so do all brokers after our own broker was disconnected from NATS.
func (m *Machine) mayBeGone(p *peer) bool { return m.now-max(p.heardAt, m.connectedAt) >= probeAfter }

// OnNoListener handles the report of NATS that nobody listens on the subject of the broker with
// this name.
func (m *Machine) OnNoListener(now int64, name string) {
	m.now = max(m.now, now)
	if p := m.peers[name]; p != nil && m.mayBeGone(p) {
		m.losePeer(p, "it left NATS")
		m.Step(now)
	}
}

// losePeer gives up a broker that is lost. The lost broker may still receive our messages. So the
// next heartbeat, which no longer lists that broker, is sent early.
func (m *Machine) losePeer(p *peer, why string) {
	m.removePeer(p, why)
	m.sendHeartbeatEarly = true
}

// removePeer gives up a broker.
func (m *Machine) removePeer(p *peer, why string) {
	m.endSession(p, why)
	delete(m.peers, p.name)
	at, _ := slices.BinarySearchFunc(m.peersByName, p.name, compareName)
	m.peersByName = slices.Delete(m.peersByName, at, at+1)
}

// endSession ends the session with p: the jobs lent to it are lost, and the jobs that it lent
// are no longer wanted.
func (m *Machine) endSession(p *peer, why string) {
	if p.hearsUs {
		m.reportLost(p, why)
	}
	p.hearsUs, p.theirSession = false, 0
	m.endLending(p)
	m.endBorrowing(p)
	p.stream = stream{}
}

// sendHeartbeat sends a heartbeat, which names the brokers that we hear.
func (m *Machine) sendHeartbeat() {
	m.heartbeatAt, m.sendHeartbeatEarly = m.now, false
	out := m.newMessage(msgHeartbeat, 64*len(m.peersByName))
	out.putInt(m.now)
	out.putBool(m.core.Draining())
	out.putListHead(len(m.peersByName))
	for _, p := range m.peersByName {
		out.putString(p.name)
		out.putUint(p.epoch)
		out.putUint(p.session)
		out.putUint(p.theirSession)
		out.putUint(p.stream.lastSent)
		out.putUint(p.stream.lastReceived)
		out.putInt(p.sentAt)
		out.putInt(m.now - p.receivedAt)
		p.stream.markAckSent()
		if p.unackedSince == 0 {
			p.unackedSince = m.now
		}
	}
	m.outgoing = append(m.outgoing, Message{Data: out})
}

// receiveHeartbeat handles a heartbeat.
func (m *Machine) receiveHeartbeat(name string, epoch uint64, r *reader) {
	clock, draining := r.readInt(), r.readBool()
	n := r.readListHead()
	p := m.addPeer(name, epoch)
	if p == nil || clock <= p.sentAt {
		return // a later one has already arrived
	}
	if m.now-p.heardAt >= unackedAfter/2 && p.lentJobs+p.borrowedJobs > 0 {
		m.sendHeartbeatEarly = true // p may not have heard us either, and may wait for our next heartbeat
	}
	p.heardAt, p.sentAt, p.receivedAt, p.draining = m.now, clock, m.now, draining
	hearsUs := false
	for range n {
		to, toEpoch := r.readString(), r.readUint()
		session, ourSession, sent, acked, sentTime, echoDelay := r.readUint(), r.readUint(), r.readUint(), r.readUint(), r.readInt(), r.readInt()
		if r.err != nil {
			return
		}
		if to != m.cfg.Name || toEpoch != m.cfg.Epoch {
			continue
		}
		hearsUs = true
		if p.theirSession != 0 && p.theirSession != session {
			m.endSession(p, "it has begun another session")
		}
		p.theirSession = session
		if ourSession == p.session {
			m.recordSessionUp(p)
			m.recordAck(p, acked)
			m.requestMissing(p, sent)
		} else if p.hearsUs {
			m.restartSession(p)
		}
		if p.unackedSince != 0 && sentTime >= p.unackedSince {
			p.unackedSince = 0
			if sentTime < m.heartbeatAt {
				p.unackedSince = m.heartbeatAt
			}
		}
		if sentTime != 0 {
			p.roundTrip = max(0, m.now-sentTime-echoDelay)
			m.stats.RoundTrips.Record(p.roundTrip)
		}
	}
	if !hearsUs && p.theirSession != 0 {
		m.endSession(p, "it does not hear this broker")
	}
}

// recordSessionUp records that p knows our number.
func (m *Machine) recordSessionUp(p *peer) {
	if !p.hearsUs {
		p.hearsUs, p.unackedSince = true, 0
		m.lend.wantsVersion++
		delete(m.lostPeers, p.name)
		m.addEvent(BrokerJoined, p.name, "")
	}
}

// restartSession begins a new session.
func (m *Machine) restartSession(p *peer) {
	m.endSession(p, "its messages are inconsistent")
	m.lastSession++
	p.session = m.lastSession
}

// flush puts the items for p into messages.
func (m *Machine) flush(p *peer) {
	p.stream.sendNext(m.cfg.MaxMessage, m.cfg.MaxInFlight, func(msg *message, items int) {
		if items > 0 {
			m.stats.Batches[bits.Len(uint(items-1))]++
			m.stats.Items += uint64(items)
		}
		m.sendData(p, msg)
	})
	if p.stream.ackDue(m.cfg.MaxInFlight) {
		m.sendAck(p, false, false)
	}
}

func (m *Machine) sendData(p *peer, msg *message) {
	out := m.newMessage(msgData, len(msg.data))
	out.putUint(p.session)
	out.putUint(p.theirSession)
	out.putUint(p.stream.lastReceived)
	out.putUint(msg.number)
	out.putBool(msg.continues)
	out.putBytes(msg.data)
	p.stream.markAckSent()
	m.outgoing = append(m.outgoing, Message{To: p.name, Data: out})
}

// sendAck acks the messages that have arrived from p. resend asks p for the messages that follow;
// wantReply makes NATS reply if no broker listens on p's subject.
func (m *Machine) sendAck(p *peer, resend, wantReply bool) {
	out := m.newMessage(msgAck, 0)
	out.putUint(p.session)
	out.putUint(p.theirSession)
	out.putUint(p.stream.lastReceived)
	out.putBool(resend)
	p.stream.markAckSent()
	m.outgoing = append(m.outgoing, Message{To: p.name, Data: out, WantReply: wantReply})
}

// inSession reads the session that a message belongs to, and reports whether this is the current
// session.
func (p *peer) inSession(r *reader) bool {
	theirSession, session := r.readUint(), r.readUint()
	return p != nil && theirSession == p.theirSession && session == p.session && r.err == nil
}

func (m *Machine) receiveData(p *peer, r *reader) {
	if !p.inSession(r) {
		return
	}
	m.recordSessionUp(p)
	got := r.readUint()
	msg := message{number: r.readUint(), continues: r.readBool(), data: r.readBytes()}
	if r.err != nil {
		return
	}
	m.recordAck(p, got)
	if msg.number != p.stream.lastReceived+1 {
		if msg.number > p.stream.lastReceived {
			m.requestMissing(p, msg.number)
		}
		return
	}
	items := &reader{unread: p.stream.receive(&msg)}
	m.mustCheckHeld = m.mustCheckHeld || len(p.stream.partial) > m.cfg.MaxInFlight
	for session := p.session; len(items.unread) > 0 && items.err == nil && p.session == session; {
		m.receiveItem(p, items)
	}
	if items.err != nil {
		r.err = items.err
		m.restartSession(p)
	}
}

// recordAck records that p has all messages up to a number.
func (m *Machine) recordAck(p *peer, number uint64) {
	wasCongested := m.isCongested(p)
	if p.stream.recordAck(number, &m.buffers); !m.isCongested(p) {
		m.lend.mayResume = true
		m.borrow.mustCheckOffers = m.borrow.mustCheckOffers || wasCongested
	}
}

// heldBytes returns how many bytes are held for p.
func (p *peer) heldBytes() int64 {
	return int64(p.stream.heldBytes + cap(p.stream.partial) + p.progress.bytes)
}

// Memory returns how many bytes all streams hold.
func (m *Machine) Memory() (n int64) {
	for _, p := range m.peersByName {
		n += p.heldBytes()
	}
	return n
}

// shedPeers restarts streams, always the one that holds the most bytes, until all together hold
// no more than Config.MaxHeld.
func (m *Machine) shedPeers() {
	for m.Memory() > m.cfg.MaxHeld {
		m.restartSession(slices.MaxFunc(m.peersByName, func(p, q *peer) int { return cmp.Compare(p.heldBytes(), q.heldBytes()) }))
	}
}

// peerLimit bounds the bytes that wait for one peer or are in flight to it: beyond it, nothing
// more is lent to the peer or borrowed from it. It is at most half of MaxHeld, divided among all
// peers.
func (m *Machine) peerLimit() int {
	return int(min(int64(2*m.cfg.MaxInFlight), m.cfg.MaxHeld/2/int64(max(1, len(m.peersByName)))))
}

// isCongested reports whether p has reached its limit.
func (m *Machine) isCongested(p *peer) bool { return p.stream.heldBytes >= m.peerLimit() }

// requestMissing asks for the messages up to a number that have not arrived.
func (m *Machine) requestMissing(p *peer, number uint64) {
	s := &p.stream
	if number > s.lastReceived && s.highestUsed <= s.lastReceived {
		m.stats.MissedMessages++
		m.sendAck(p, true, false)
	}
	s.highestUsed = max(s.highestUsed, number)
}

// requestAgain asks again, after a tick, for what is still missing.
func (m *Machine) requestAgain(p *peer) {
	s := &p.stream
	if s.highestUsed > s.lastReceived {
		s.missingTicks++
		m.sendAck(p, true, false)
	}
	// If heartbeats arrive but these messages do not, these messages will never arrive.
	if int64(s.missingTicks)*tickInterval > lostAfter {
		m.restartSession(p)
	}
}

func (m *Machine) receiveAck(p *peer, r *reader) {
	if !p.inSession(r) {
		return
	}
	got, resend := r.readUint(), r.readBool()
	if r.err != nil {
		return
	}
	m.recordAck(p, got)
	if resend {
		for i, n := 0, 0; i < len(p.stream.unackedMessages) && n < maxResend; i++ {
			n += len(p.stream.unackedMessages[i].data)
			m.sendData(p, &p.stream.unackedMessages[i])
		}
	}
}

// receiveItem reads and handles one item from p.
func (m *Machine) receiveItem(p *peer, r *reader) {
	switch kind := r.readUint(); kind {
	case itemOffer:
		m.receiveOffer(p, r)
	case itemLend:
		m.receiveJob(p, r)
	case itemCancel, itemFollow:
		m.receiveChange(p, kind, r)
	case itemGrant:
		m.receiveGrant(p, r)
	case itemResult, itemFail, itemReturn, itemProgress:
		m.receiveReport(p, kind, r)
	default:
		r.err = errItemKind
	}
}
