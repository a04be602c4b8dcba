package fleet

import (
	"maps"
	"slices"
	"time"
)

// Info describes a broker's part in a fleet.
type Info struct {
	Name  string
	Epoch uint64
	// NameTaken means that another broker has this name, so this one works alone.
	NameTaken bool
	Stats     Stats
	Peers     []PeerInfo
}

// PeerInfo describes another broker.
type PeerInfo struct {
	Name  string
	Epoch uint64
	// State is joining, up, draining or foreign. A foreign broker uses another Version of
	// the fleet's messages; there is no lending with it.
	State          string
	Version        uint64
	RoundTrip      time.Duration // the round trip of the last heartbeat, 0 if not known yet
	SinceHeartbeat time.Duration // time since its last heartbeat
	Lent, Borrowed int
	// Wants are up to infoWants types and patterns that it has idle workers for, with
	// the number of places.
	Wants []WantInfo
}

// WantInfo is work that idle workers would do: canonical names and patterns of types.
type WantInfo struct {
	Types  [][]byte
	Places int
}

// infoWants bounds the wants shown for a broker.
const infoWants = 100

// Info describes this broker's part in the fleet.
func (m *Machine) Info() Info {
	x := Info{Name: m.cfg.Name, Epoch: m.cfg.Epoch, NameTaken: m.nameTaken, Stats: m.stats}
	for _, p := range m.peersByName {
		v := PeerInfo{
			Name: p.name, Epoch: p.epoch, State: "joining", RoundTrip: time.Duration(p.roundTrip), SinceHeartbeat: time.Duration(m.now - p.heardAt),
			Lent: p.lent, Borrowed: p.borrowed,
		}
		if p.hearsUs {
			v.State = "up"
		}
		if p.draining {
			v.State = "draining"
		}
		for typ, n := range p.wants.types {
			if len(v.Wants) < infoWants {
				v.Wants = append(v.Wants, WantInfo{[][]byte{[]byte(typ)}, n})
			}
		}
		for _, s := range p.wants.sets {
			if len(v.Wants) < infoWants {
				v.Wants = append(v.Wants, WantInfo{s.types, s.places})
			}
		}
		x.Peers = append(x.Peers, v)
	}
	for _, name := range slices.Sorted(maps.Keys(m.otherVersions)) {
		f := m.otherVersions[name]
		x.Peers = append(x.Peers, PeerInfo{Name: name, Epoch: f.epoch, State: "foreign", Version: f.version, SinceHeartbeat: time.Duration(m.now - f.heardAt)})
	}
	return x
}

// lostPeer records when a broker was lost, and the types that its workers wanted.
type lostPeer struct {
	lostAt int64
	wants  peerWants
}

// reportLost reports that a broker that was up has gone.
func (m *Machine) reportLost(p *peer, why string) {
	if p.draining && p.lent == 0 {
		m.addEvent(BrokerLeft, p.name, why)
		return
	}
	m.addEvent(BrokerLost, p.name, why)
	if len(m.lostPeers) >= maxPeers {
		return
	}
	for _, br := range p.borrowers {
		p.wants.types[string(br.typ.name)] += br.lent // a type whose workers are not idle
	}
	m.lostPeers[p.name] = lostPeer{m.now, p.wants}
}

// LostBrokers returns the names of brokers that were lost in the last ten minutes and have not
// returned; if typ is not nil, only those that had workers for it.
func (m *Machine) LostBrokers(typ []byte) (names []string) {
	for name, x := range m.lostPeers {
		if typ == nil || x.wants.places(typ) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// CountUp returns the number of other brokers to which jobs may be lent.
func (m *Machine) CountUp() (n int) {
	for _, p := range m.peersByName {
		if p.hearsUs && !p.draining {
			n++
		}
	}
	return n
}

// BrokersWanting returns the names of other brokers that have idle workers for a type.
func (m *Machine) BrokersWanting(typ []byte) (names []string) {
	for _, p := range m.peersByName {
		if p.hearsUs && !p.draining && p.wants.places(typ) > 0 {
			names = append(names, p.name)
		}
	}
	return names
}

// OtherVersions returns the names of brokers that use another version.
func (m *Machine) OtherVersions() []string { return slices.Sorted(maps.Keys(m.otherVersions)) }

// NameTaken reports whether another broker has this one's name.
func (m *Machine) NameTaken() bool { return m.nameTaken }
