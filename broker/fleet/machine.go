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
	// pulse is the interval at which a machine does work that need not be done at once.
	pulse = int64(100 * time.Millisecond)
	// beatPulses is the number of pulses between two heartbeats. A broker is lost if it misses
	// three of them, if it misses two and NATS knows no listener on its subject, or if it does
	// not confirm a heartbeat of ours for deafAfter.
	beatPulses = 5
	askAfter   = 2 * beatPulses * pulse
	lostAfter  = 3 * beatPulses * pulse
	deafAfter  = 13 * pulse
	// wantPulses is the number of pulses after which all wants are sent again.
	wantPulses = 20
	// window is how long offers are collected when several homes have made some.
	window = int64(time.Millisecond)
	// fresh and mostFresh bound the time for which unfilled places stay with the home that
	// was given them: at least fresh, at most mostFresh.
	fresh     = int64(20 * time.Millisecond)
	mostFresh = int64(500 * time.Millisecond)
	// offerAge is how long an offer is valid, idlePlaces how long a home keeps places that
	// it does not fill.
	offerAge   = int64(2500 * time.Millisecond)
	idlePlaces = int64(2 * time.Second)

	// maxPeers bounds the other brokers of a fleet; maxTypes the types that one of them wants,
	// and the types with known offers and loans; maxSets the sets of types.
	maxPeers = 256
	maxTypes = 10_000
	maxSets  = 1024
	// goneFor is how long a lost broker is remembered.
	goneFor = int64(10 * time.Minute)
	// maxPlaces bounds the places in one take.
	maxPlaces = 4096
)

// MaxName bounds the name of a broker, in bytes.
const MaxName = 128

// Config describes a machine.
type Config struct {
	// Name identifies a broker of the fleet, Epoch one life of that name.
	Name  string
	Epoch uint64
	// Part bounds the bytes of items in one message.
	Part int
	// Flying bounds the bytes on their way to one broker, so that they delay neither its
	// connection nor heartbeats; 0 is 4 MiB.
	Flying int
	// Held bounds the bytes that all streams hold together. Above it, the stream that
	// holds most restarts, and the jobs lent over it are lost. 0 is 512 MiB.
	Held int64
}

// Message goes to one broker, or to all if To is "". If Asks is set, the machine wants
// to know if no broker listens (Unheard).
type Message struct {
	To   string
	Data []byte
	Asks bool
}

// News is an event that the operator of the broker should know of.
type News struct {
	What What
	Name string // of a broker
	Why  string // why it was lost
}

// What is the kind of a piece of news.
type What uint8

// Met: jobs can be lent to and borrowed from a broker from now on. Lost: a broker was lost.
// Left: it left while it drained, and no job was lent to it. Alone: another broker had our name
// first. NotAlone: that one has gone. Foreign: a broker uses another version.
const (
	Met What = iota + 1
	Lost
	Left
	Alone
	NotAlone
	Foreign
)

// maxNews bounds the news that have not been taken yet.
const maxNews = 2 * maxPeers

// Machine is one broker's part in a fleet. It is not safe for concurrent use and is driven
// together with the core: Effect gets the core's effects for its peers, and Step is called
// after each command.
type Machine struct {
	cfg   Config
	core  *broker.Broker
	apply func([]broker.Effect)
	now   int64
	out   []Message

	// pulses counts pulses, and next is when the next one is due. due is when the
	// collected offers are to be answered, or broker.Never.
	pulses    int64
	next, due int64
	beatAt    int64 // when it last sent a heartbeat
	cameAt    int64 // when NATS was last connected
	early     bool  // the next heartbeat does not wait for its time
	joinAt    int64 // when it sends its first heartbeat
	rival     int64 // when another broker of its name was last heard; 0 never
	alone     bool  // another broker has its name, so it takes no part
	full      bool  // the streams may hold more than is allowed

	peers map[string]*peer
	order []*peer // by name
	turn  int     // the broker that is offered jobs first
	// foreign are brokers that use another version, by name.
	foreign map[string]*foreign
	// gone are brokers that were lost within goneFor, by name.
	gone map[string]gone
	incs uint64 // number of the latest session

	home  home
	guest guest
	stats Stats
	news  []News
	// scratch is memory in which items are written, spare memory for messages.
	scratch pack
	spare   spares
}

// Stats has counts since the start, except for Lent and Borrowed.
type Stats struct {
	// Lent jobs are at other brokers now; Borrowed jobs belong to other brokers and run here
	// now.
	Lent, Borrowed int
	// Lends and Borrows count all jobs lent and borrowed; Returned counts lent jobs that
	// came back without a run, Lost those at brokers that were lost, Late results that came
	// too late.
	Lends, Borrows, Returned, Lost, Late uint64
	// Garbage counts messages that could not be read, Gaps messages missed.
	Garbage, Gaps uint64
	// Trips counts round trips of heartbeats in powers of two of a microsecond like
	// broker.TypeStats, TripSum adds them up in nanoseconds.
	Trips   [broker.StatBuckets]uint64
	TripSum uint64
	// Batches counts messages to one broker by their number of items: bucket i those with up
	// to 2^i. Items adds these up.
	Batches [8]uint64
	Items   uint64
}

// New returns a machine without peers. apply carries out commands on the core; it returns
// effects for the machine's own peers to Effect.
func New(cfg Config, core *broker.Broker, now int64, apply func([]broker.Effect)) *Machine {
	core.Watch()
	cfg.Flying, cfg.Held = cmp.Or(cfg.Flying, 4<<20), cmp.Or(cfg.Held, 512<<20)
	m := &Machine{
		cfg: cfg, core: core, apply: apply, now: now, next: now, due: broker.Never,
		joinAt: now + (beatPulses+1)*pulse, peers: map[string]*peer{}, foreign: map[string]*foreign{}, gone: map[string]gone{},
	}
	m.home = home{types: map[string]*lending{}, lines: map[broker.Peer]*line{}, all: list.New(), heard: 1}
	m.guest = guest{types: map[string]*asking{}, runs: map[uint64]*guestRun{}, pledged: map[uint32]int{}, lenders: map[broker.Peer]*peer{}, wants: map[wantKey]*ownWant{}}
	return m
}

// Next returns when Tick has something to do.
func (m *Machine) Next() int64 {
	if m.guest.round > 0 {
		return m.now
	}
	return min(m.next, m.due)
}

// Tick does what is due.
func (m *Machine) Tick(now int64) {
	m.now = max(m.now, now)
	if m.now >= m.next {
		m.next = m.now + pulse
		m.pulses++
		m.beat()
	}
	m.Step(now)
}

// Step reacts to the changes that the last commands made.
func (m *Machine) Step(now int64) {
	m.now = max(m.now, now)
	m.core.Moved(m.moved)
	if m.full {
		m.full = false
		m.shed()
	}
	if len(m.order) > 0 {
		m.unstall()
		m.relieve()
		if m.home.stirred {
			m.home.stirred = false
			m.offerAgain()
		}
	}
	m.giveOut()
}

// beat is one pulse.
func (m *Machine) beat() {
	maps.DeleteFunc(m.foreign, func(_ string, x *foreign) bool { return m.now-x.heard >= lostAfter })
	maps.DeleteFunc(m.gone, func(_ string, x gone) bool { return m.now-x.at >= goneFor })
	switch {
	case m.rival != 0 && m.now-m.rival < lostAfter:
		m.standAlone()
		return
	case m.alone:
		m.alone, m.joinAt = false, m.now
		m.tell(NotAlone, m.cfg.Name, "")
	case m.now < m.joinAt:
		return
	}
	for _, p := range slices.Clone(m.order) {
		switch {
		case m.now-p.heard >= lostAfter:
			m.lose(p, "its heartbeats are missing")
		case p.up && p.unheard != 0 && m.now-p.unheard >= deafAfter:
			m.lose(p, "it does not hear this broker")
		case p.up && m.maybeGone(p):
			m.sayAck(p, false, true)
		default:
			m.askAgain(p)
		}
	}
	if m.pulses%beatPulses == 0 || m.early && m.now >= m.beatAt+2*pulse {
		m.sayBeat()
	}
	m.sayWants(m.pulses%wantPulses == 0)
	m.offerAgain()
	m.withdraw()
}

// standAlone leaves the fleet to another broker of the same name.
func (m *Machine) standAlone() {
	if m.alone {
		return
	}
	m.alone = true
	m.tell(Alone, m.cfg.Name, "")
	for _, p := range slices.Clone(m.order) {
		m.forget(p, "another broker has this broker's name")
	}
}

// Receive handles a message.
func (m *Machine) Receive(now int64, data []byte) {
	m.now = max(m.now, now)
	s := &scan{rest: data}
	v, kind := s.uint(), s.uint()
	name, epoch := s.str(), s.uint()
	switch {
	case s.err != nil || len(name) > MaxName:
		m.stats.Garbage++
		return
	case v != version:
		m.foreigner(name, epoch, v)
		return
	}
	if name == m.cfg.Name {
		m.namesake(epoch)
		return
	}
	if m.alone || m.now < m.joinAt {
		return
	}
	switch kind {
	case msgBeat:
		m.heard(name, epoch, s)
	case msgWants:
		m.heardWants(m.known(name, epoch), s)
	case msgData:
		m.heardData(m.known(name, epoch), s)
	case msgAck:
		m.heardAck(m.known(name, epoch), s)
	}
	if s.err != nil {
		m.stats.Garbage++
	}
	m.Step(now)
}

// foreigner records a broker that uses another version of these messages. Only the sender of
// such a message can be read.
func (m *Machine) foreigner(name string, epoch, version uint64) {
	x := m.foreign[name]
	if x == nil {
		if len(m.foreign) == maxPeers {
			return
		}
		x = &foreign{}
		m.foreign[name] = x
		m.tell(Foreign, name, "")
	}
	*x = foreign{epoch, version, m.now}
}

// namesake handles a message with this broker's name, which is its own or another broker's. Of
// two brokers with one name, the one that came later leaves the fleet; if both came at once,
// the one with the larger epoch does.
func (m *Machine) namesake(epoch uint64) {
	if epoch == m.cfg.Epoch || !m.alone && m.now >= m.joinAt+2*beatPulses*pulse && epoch > m.cfg.Epoch {
		return
	}
	if m.alone || m.now < m.joinAt || epoch < m.cfg.Epoch {
		m.rival = m.now
	}
}

// blank returns memory for writing an item; put appends the item to the stream for p.
func (m *Machine) blank() pack { return m.scratch[:0] }

func (m *Machine) put(p *peer, item pack) {
	m.reuse(item)
	p.stream.put(item, &m.spare)
	m.full = m.full || m.crowded(p)
}

// reuse takes back what blank returned.
func (m *Machine) reuse(item pack) {
	if cap(item) <= maxPart {
		m.scratch = item
	}
}

// start begins a message of roughly n bytes.
func (m *Machine) start(kind uint64, n int) pack {
	p := pack(m.spare.blank(n + headRoom))
	p.uint(version)
	p.uint(kind)
	p.str(m.cfg.Name)
	p.uint(m.cfg.Epoch)
	return p
}

func (m *Machine) tell(what What, name, why string) {
	if len(m.news) < maxNews {
		m.news = append(m.news, News{what, name, why})
	}
}

// News returns what has happened since the last call.
func (m *Machine) News() []News {
	news := m.news
	m.news = nil
	return news
}

// Take returns the messages to be sent since the last call. sent are the messages that the last
// call returned; they must not be used any more.
func (m *Machine) Take(sent []Message) []Message {
	for _, x := range sent {
		m.spare.spent(x.Data)
	}
	clear(sent)
	m.tellDemand()
	for _, p := range m.order {
		m.sayProgress(p)
		m.flush(p)
	}
	out := m.out
	m.out = sent[:0]
	return out
}

// Connected reports that NATS is connected. part is how many bytes of items a message may have
// from now on.
func (m *Machine) Connected(now int64, part int) {
	m.now = max(m.now, now)
	m.cfg.Part, m.cameAt = part, m.now
	if !m.alone && m.now >= m.joinAt {
		m.sayBeat()
	}
}

// Leave sends a last heartbeat, which tells the others whether this broker drains.
func (m *Machine) Leave(now int64) {
	m.now = max(m.now, now)
	if !m.alone && m.now >= m.joinAt {
		m.sayBeat()
	}
}

// Pending reports whether Take or News would return something.
func (m *Machine) Pending() bool {
	return len(m.out)+len(m.news) > 0 || slices.ContainsFunc(m.order, func(p *peer) bool {
		return p.stream.ready(m.cfg.Flying) || p.stream.due(m.cfg.Flying) || len(p.samples.runs) > 0 && m.calm(p)
	})
}
