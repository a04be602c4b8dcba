package fleet

import (
	"cmp"
	"container/list"
	"maps"
	"slices"
	"time"

	"gloom/broker"
)

const (
	// tickInterval is how often a machine does its periodic work.
	tickInterval = int64(100 * time.Millisecond)
	// heartbeatTicks is the number of ticks between two heartbeats. A broker is lost if it misses
	// three heartbeats, if it misses two and NATS knows no listener on its subject, or if it does not
	// ack our heartbeat for unackedAfter.
	heartbeatTicks = 5
	probeAfter     = 2 * heartbeatTicks * tickInterval
	lostAfter      = 3 * heartbeatTicks * tickInterval
	unackedAfter   = 13 * tickInterval
	// wantsTicks is the number of ticks after which all wants are sent again.
	wantsTicks = 20
	// collectTime is how long offers are collected when several homes have made some.
	collectTime = int64(time.Millisecond)
	// minGrantTime and maxGrantTime bound the time for which unfilled places stay with the home to
	// which they were granted.
	minGrantTime = int64(20 * time.Millisecond)
	maxGrantTime = int64(500 * time.Millisecond)
	// offerLifetime is how long an offer is valid. unfilledTime is how long a home keeps places
	// that it does not fill.
	offerLifetime = int64(2500 * time.Millisecond)
	unfilledTime  = int64(2 * time.Second)

	// maxPeers bounds the other brokers of a fleet; maxTypes the types that one of them wants,
	// and the types with known offers and loans; maxSets the sets of types.
	maxPeers = 256
	maxTypes = 10_000
	maxSets  = 1024
	// lostPeerLifetime is how long a lost broker is remembered.
	lostPeerLifetime = int64(10 * time.Minute)
	// maxPlaces bounds the places in one grant.
	maxPlaces = 4096
)

// MaxNameBytes bounds the name of a broker, in bytes.
const MaxNameBytes = 128

// Config describes a machine.
type Config struct {
	// Name identifies the broker in the fleet. Epoch is larger at each start of a broker with this
	// name.
	Name  string
	Epoch uint64
	// MaxMessage bounds the item bytes of one message.
	MaxMessage int
	// MaxInFlight bounds the bytes in flight to one broker, so that they delay neither its
	// connection nor heartbeats; 0 is 4 MiB.
	MaxInFlight int
	// MaxHeld bounds the bytes that all streams hold together. Above it, the stream that
	// holds the most is restarted, and the jobs lent over it are lost. 0 is 512 MiB.
	MaxHeld int64
}

// Message goes to one broker, or to all if To is "". WantReply asks the driver to call OnNoListener
// if no broker listens.
type Message struct {
	To        string
	Data      []byte
	WantReply bool
}

// Event is something that the operator of the broker should know.
type Event struct {
	Kind   EventKind
	Name   string // of a broker
	Reason string // why the broker was lost
}

// EventKind says what happened.
type EventKind uint8

// BrokerJoined: jobs can be lent to and borrowed from a broker from now on. BrokerLost: a broker
// was lost. BrokerLeft: a draining broker left, and no job was lent to it. NameTaken: another
// broker had our name first. NameFree: that broker has left. OtherVersion: a broker uses another
// version of the messages.
const (
	BrokerJoined EventKind = iota + 1
	BrokerLost
	BrokerLeft
	NameTaken
	NameFree
	OtherVersion
)

// maxEvents bounds the events that have not been taken yet.
const maxEvents = 2 * maxPeers

// Machine is one broker's part in a fleet. It is not safe for concurrent use and is driven
// together with the core: Effect gets the core's effects for its peers, and Step is called
// after each command.
type Machine struct {
	cfg      Config
	core     *broker.Broker
	apply    func([]broker.Effect)
	now      int64
	outgoing []Message

	// ticks counts ticks, and nextTick is when the next one is due. answerAt is when the
	// collected offers are answered, or broker.Never.
	ticks              int64
	nextTick, answerAt int64
	heartbeatAt        int64 // when it last sent a heartbeat
	connectedAt        int64 // when NATS was last connected
	sendHeartbeatEarly bool  // the next heartbeat is sent early
	joinAt             int64 // when it sends its first heartbeat
	namesakeHeardAt    int64 // when another broker of its name was last heard; 0 if never
	nameTaken          bool  // another broker has its name, so it takes no part
	mustCheckHeld      bool  // the streams may hold more than is allowed

	peers       map[string]*peer
	peersByName []*peer // sorted by name
	nextPeer    int     // the broker that is offered jobs first
	// otherVersions holds the brokers that use another message version, by name.
	otherVersions map[string]*otherVersion
	// lostPeers holds the brokers that were lost within lostPeerLifetime, by name.
	lostPeers   map[string]lostPeer
	lastSession uint64 // number of the latest session

	lend   lendSide
	borrow borrowSide
	stats  Stats
	events []Event
	// scratch is memory in which items are written, buffers memory for messages.
	scratch writer
	buffers bufferPool
}

// Stats holds counts since the start, except for Lent and Borrowed.
type Stats struct {
	// Lent jobs are at other brokers now; Borrowed jobs belong to other brokers and run here
	// now.
	Lent, Borrowed int
	// TotalLent and TotalBorrowed count all jobs lent and borrowed. ReturnedJobs counts lent jobs that
	// came back without a run, LostJobs counts jobs at brokers that were lost, and LateResults counts
	// results that came too late.
	TotalLent, TotalBorrowed, ReturnedJobs, LostJobs, LateResults uint64
	// UnreadableMessages counts messages that could not be read, and MissedMessages counts missed
	// messages.
	UnreadableMessages, MissedMessages uint64
	RoundTrips                         broker.Durations // of heartbeats
	// Batches counts messages to one broker by their number of items: bucket i those with up
	// to 2^i. Items is the total number of items.
	Batches [8]uint64
	Items   uint64
}

// New returns a machine without peers. apply must handle the effects that commands of the machine
// have, and pass those for the machine's own peers to Effect.
func New(cfg Config, core *broker.Broker, now int64, apply func([]broker.Effect)) *Machine {
	core.TrackIdle()
	cfg.MaxInFlight, cfg.MaxHeld = cmp.Or(cfg.MaxInFlight, 4<<20), cmp.Or(cfg.MaxHeld, 512<<20)
	m := &Machine{
		cfg: cfg, core: core, apply: apply, now: now, nextTick: now, answerAt: broker.Never,
		joinAt: now + (heartbeatTicks+1)*tickInterval, peers: map[string]*peer{}, otherVersions: map[string]*otherVersion{}, lostPeers: map[string]lostPeer{},
	}
	m.lend = lendSide{types: map[string]*lentType{}, borrowers: map[broker.Peer]*borrower{}, byLastUse: list.New(), wantsVersion: 1}
	m.borrow = borrowSide{types: map[string]*borrowedType{}, runs: map[uint64]*borrowedRun{}, reservedPlaces: map[uint32]int{}, lenders: map[broker.Peer]*peer{}, wantsByKey: map[wantKey]*ownWant{}}
	return m
}

// NextTick returns the time at which Tick will have something to do.
func (m *Machine) NextTick() int64 {
	if m.borrow.typesToCheck > 0 {
		return m.now
	}
	return min(m.nextTick, m.answerAt)
}

// Tick does what is due.
func (m *Machine) Tick(now int64) {
	m.now = max(m.now, now)
	if m.now >= m.nextTick {
		m.nextTick = m.now + tickInterval
		m.ticks++
		m.runTick()
	}
	m.Step(now)
}

// Step reacts to the changes that the last commands made.
func (m *Machine) Step(now int64) {
	m.now = max(m.now, now)
	m.core.EachIdleChange(m.onWorkersChanged)
	if m.mustCheckHeld {
		m.mustCheckHeld = false
		m.shedPeers()
	}
	if len(m.peersByName) > 0 {
		m.replaceOverdue()
		m.resumePaused()
		if m.lend.setsChanged {
			m.lend.setsChanged = false
			m.offerWaiting()
		}
	}
	m.answerOffers()
}

// runTick does the work of one tick.
func (m *Machine) runTick() {
	maps.DeleteFunc(m.otherVersions, func(_ string, other *otherVersion) bool { return m.now-other.heardAt >= lostAfter })
	maps.DeleteFunc(m.lostPeers, func(_ string, lost lostPeer) bool { return m.now-lost.lostAt >= lostPeerLifetime })
	switch {
	case m.namesakeHeardAt != 0 && m.now-m.namesakeHeardAt < lostAfter:
		m.yieldName()
		return
	case m.nameTaken:
		m.nameTaken, m.joinAt = false, m.now
		m.addEvent(NameFree, m.cfg.Name, "")
	case m.now < m.joinAt:
		return
	}
	for _, p := range slices.Clone(m.peersByName) {
		switch {
		case m.now-p.heardAt >= lostAfter:
			m.losePeer(p, "its heartbeats are missing")
		case p.hearsUs && p.unackedSince != 0 && m.now-p.unackedSince >= unackedAfter:
			m.losePeer(p, "it does not hear this broker")
		case p.hearsUs && m.mayBeGone(p):
			m.sendAck(p, false, true)
		default:
			m.requestAgain(p)
		}
	}
	if m.ticks%heartbeatTicks == 0 || m.sendHeartbeatEarly && m.now >= m.heartbeatAt+2*tickInterval {
		m.sendHeartbeat()
	}
	m.sendWants(m.ticks%wantsTicks == 0)
	m.offerWaiting()
	m.removeIdle()
}

// yieldName makes this broker leave the fleet because another one has its name.
func (m *Machine) yieldName() {
	if m.nameTaken {
		return
	}
	m.nameTaken = true
	m.addEvent(NameTaken, m.cfg.Name, "")
	for _, p := range slices.Clone(m.peersByName) {
		m.removePeer(p, "another broker has this broker's name")
	}
}

// Receive handles a message.
func (m *Machine) Receive(now int64, data []byte) {
	m.now = max(m.now, now)
	r := &reader{unread: data}
	theirVersion, kind := r.readUint(), r.readUint()
	name, epoch := r.readString(), r.readUint()
	switch {
	case r.err != nil || len(name) > MaxNameBytes:
		m.stats.UnreadableMessages++
		return
	case theirVersion != version:
		m.receiveOtherVersion(name, epoch, theirVersion)
		return
	}
	if name == m.cfg.Name {
		m.receiveOwnName(epoch)
		return
	}
	if m.nameTaken || m.now < m.joinAt {
		return
	}
	switch kind {
	case msgHeartbeat:
		m.receiveHeartbeat(name, epoch, r)
	case msgWants:
		m.receiveWants(m.findPeer(name, epoch), r)
	case msgData:
		m.receiveData(m.findPeer(name, epoch), r)
	case msgAck:
		m.receiveAck(m.findPeer(name, epoch), r)
	}
	if r.err != nil {
		m.stats.UnreadableMessages++
	}
	m.Step(now)
}

// receiveOtherVersion records a broker that uses another version of these messages. Only the sender of
// such a message can be read.
func (m *Machine) receiveOtherVersion(name string, epoch, theirVersion uint64) {
	other := m.otherVersions[name]
	if other == nil {
		if len(m.otherVersions) == maxPeers {
			return
		}
		other = &otherVersion{}
		m.otherVersions[name] = other
		m.addEvent(OtherVersion, name, "")
	}
	*other = otherVersion{epoch, theirVersion, m.now}
}

// receiveOwnName handles a message with this broker's name, which is its own or another broker's.
// Of two brokers with one name, the later broker leaves the fleet; if both came at once, the broker
// with the larger epoch leaves.
func (m *Machine) receiveOwnName(epoch uint64) {
	if epoch == m.cfg.Epoch || !m.nameTaken && m.now >= m.joinAt+2*heartbeatTicks*tickInterval && epoch > m.cfg.Epoch {
		return
	}
	if m.nameTaken || m.now < m.joinAt || epoch < m.cfg.Epoch {
		m.namesakeHeardAt = m.now
	}
}

// newItem returns memory for writing an item; sendItem appends the item to the stream for p.
func (m *Machine) newItem() writer { return m.scratch[:0] }

func (m *Machine) sendItem(p *peer, item writer) {
	m.recycle(item)
	p.stream.add(item, &m.buffers)
	m.mustCheckHeld = m.mustCheckHeld || m.isCongested(p)
}

// recycle takes back what newItem returned.
func (m *Machine) recycle(item writer) {
	if cap(item) <= maxBatchBytes {
		m.scratch = item
	}
}

// newMessage begins a message of roughly n bytes.
func (m *Machine) newMessage(kind uint64, n int) writer {
	msg := writer(m.buffers.get(n + headerBytes))
	msg.putUint(version)
	msg.putUint(kind)
	msg.putString(m.cfg.Name)
	msg.putUint(m.cfg.Epoch)
	return msg
}

func (m *Machine) addEvent(kind EventKind, name, reason string) {
	if len(m.events) < maxEvents {
		m.events = append(m.events, Event{kind, name, reason})
	}
}

// Events returns what has happened since the last call.
func (m *Machine) Events() []Event {
	events := m.events
	m.events = nil
	return events
}

// Messages returns the messages to be sent since the last call. sent are the messages that the last
// call returned; they must not be used any more.
func (m *Machine) Messages(sentMessages []Message) []Message {
	for _, msg := range sentMessages {
		m.buffers.put(msg.Data)
	}
	clear(sentMessages)
	m.sendDemand()
	for _, p := range m.peersByName {
		m.sendProgress(p)
		m.flush(p)
	}
	out := m.outgoing
	m.outgoing = sentMessages[:0]
	return out
}

// OnConnected records that NATS is connected. From now on, maxMessage limits the
// item bytes of a message.
func (m *Machine) OnConnected(now int64, maxMessage int) {
	m.now = max(m.now, now)
	m.cfg.MaxMessage, m.connectedAt = maxMessage, m.now
	if !m.nameTaken && m.now >= m.joinAt {
		m.sendHeartbeat()
	}
}

// Leave sends a last heartbeat, which tells the others whether this broker drains.
func (m *Machine) Leave(now int64) {
	m.now = max(m.now, now)
	if !m.nameTaken && m.now >= m.joinAt {
		m.sendHeartbeat()
	}
}

// HasPending reports whether Messages or Events would return something.
func (m *Machine) HasPending() bool {
	return len(m.outgoing)+len(m.events) > 0 || slices.ContainsFunc(m.peersByName, func(p *peer) bool {
		return p.stream.canSend(m.cfg.MaxInFlight) || p.stream.ackDue(m.cfg.MaxInFlight) || len(p.progress.runs) > 0 && m.roomForProgress(p)
	})
}
