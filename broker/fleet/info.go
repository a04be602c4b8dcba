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
	// NameTaken means that another broker has this broker's name, so this broker works alone.
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
	// Wants are up to maxInfoWants types and patterns for which it has idle workers, with the
	// number of places.
	Wants []WantInfo
}

// WantInfo is work that idle workers would do: canonical names and patterns of types.
type WantInfo struct {
	Types  [][]byte
	Places int
}

// maxInfoWants bounds the wants shown for a broker.
const maxInfoWants = 100

// Info describes this broker's part in the fleet.
func (m *Machine) Info() Info {
	info := Info{Name: m.cfg.Name, Epoch: m.cfg.Epoch, NameTaken: m.nameTaken, Stats: m.stats}
	for _, p := range m.peersByName {
		peerInfo := PeerInfo{
			Name: p.name, Epoch: p.epoch, State: "joining", RoundTrip: time.Duration(p.roundTrip), SinceHeartbeat: time.Duration(m.now - p.heardAt),
			Lent: p.lentJobs, Borrowed: p.borrowedJobs,
		}
		if p.hearsUs {
			peerInfo.State = "up"
		}
		if p.draining {
			peerInfo.State = "draining"
		}
		for typ, n := range p.wants.types {
			if len(peerInfo.Wants) < maxInfoWants {
				peerInfo.Wants = append(peerInfo.Wants, WantInfo{[][]byte{[]byte(typ)}, n})
			}
		}
		for _, s := range p.wants.sets {
			if len(peerInfo.Wants) < maxInfoWants {
				peerInfo.Wants = append(peerInfo.Wants, WantInfo{s.types, s.places})
			}
		}
		info.Peers = append(info.Peers, peerInfo)
	}
	for _, name := range slices.Sorted(maps.Keys(m.otherVersions)) {
		other := m.otherVersions[name]
		info.Peers = append(info.Peers, PeerInfo{Name: name, Epoch: other.epoch, State: "foreign", Version: other.version, SinceHeartbeat: time.Duration(m.now - other.heardAt)})
	}
	return info
}

// lostPeer records when a broker was lost, and the types that its workers wanted.
type lostPeer struct {
	lostAt int64
	wants  peerWants
}

// reportLost reports that a broker that was up has gone.
func (m *Machine) reportLost(p *peer, why string) {
	if p.draining && p.lentJobs == 0 {
		m.addEvent(BrokerLeft, p.name, why)
		return
	}
	m.addEvent(BrokerLost, p.name, why)
	if len(m.lostPeers) >= maxPeers {
		return
	}
	for _, br := range p.borrowers {
		p.wants.types[string(br.typ.name)] += br.lentJobs // a type whose workers are not idle
	}
	m.lostPeers[p.name] = lostPeer{m.now, p.wants}
}

// LostBrokers returns the names of brokers that were lost in the last ten minutes and have not
// returned; if typ is not nil, it returns only brokers that had workers for this type.
func (m *Machine) LostBrokers(typ []byte) (names []string) {
	for name, lost := range m.lostPeers {
		if typ == nil || lost.wants.placeCount(typ) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// UpBrokers returns the number of other brokers to which jobs may be lent.
func (m *Machine) UpBrokers() (n int) {
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
		if p.hearsUs && !p.draining && p.wants.placeCount(typ) > 0 {
			names = append(names, p.name)
		}
	}
	return names
}

// OtherVersions returns the names of brokers that use another version.
func (m *Machine) OtherVersions() []string { return slices.Sorted(maps.Keys(m.otherVersions)) }

// NameTaken reports whether another broker has this broker's name.
func (m *Machine) NameTaken() bool { return m.nameTaken }
