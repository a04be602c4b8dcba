package fleet

import (
	"maps"
	"slices"
	"time"
)

// Info is what can be seen of a broker's part in a fleet.
type Info struct {
	Name  string
	Epoch uint64
	// Alone: another broker has this name.
	Alone bool
	Stats Stats
	Peers []PeerInfo
}

// PeerInfo is what is known of another broker.
type PeerInfo struct {
	Name  string
	Epoch uint64
	// State is joining, up or draining, or foreign: it speaks Version of the fleet's
	// messages, which is another one, and there is no lending with it.
	State          string
	Version        uint64
	RoundTrip      time.Duration // of the last heartbeat; 0 not known yet
	Heard          time.Duration // since the last message
	Lent, Borrowed int
	// Wants are the types that it has idle workers for, and patterns, with places; at
	// most infoWants.
	Wants []WantInfo
}

// WantInfo is what idle workers would do: names and patterns, canonical.
type WantInfo struct {
	Types  [][]byte
	Places int
}

// infoWants bounds the wants that are shown of a broker.
const infoWants = 100

// Info tells what there is.
func (m *Machine) Info() Info {
	x := Info{Name: m.cfg.Name, Epoch: m.cfg.Epoch, Alone: m.alone, Stats: m.stats}
	for _, p := range m.order {
		v := PeerInfo{
			Name: p.name, Epoch: p.epoch, State: "joining", RoundTrip: time.Duration(p.trip), Heard: time.Duration(m.now - p.heard),
			Lent: p.lent, Borrowed: p.borrowed,
		}
		if p.up {
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
	for _, name := range slices.Sorted(maps.Keys(m.foreign)) {
		f := m.foreign[name]
		x.Peers = append(x.Peers, PeerInfo{Name: name, Epoch: f.epoch, State: "foreign", Version: f.version, Heard: time.Duration(m.now - f.heard)})
	}
	return x
}

// Wanted is how many other brokers have idle workers for a type.
func (m *Machine) Wanted(typ []byte) (n int) {
	for _, p := range m.order {
		if p.up && !p.draining && p.wants.places(typ) > 0 {
			n++
		}
	}
	return n
}

// Foreign returns the names of brokers that speak another version.
func (m *Machine) Foreign() []string { return slices.Sorted(maps.Keys(m.foreign)) }

// Alone tells whether another broker has this one's name.
func (m *Machine) Alone() bool { return m.alone }
