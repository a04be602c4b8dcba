package master

import (
	"fmt"
	"time"
)

// These are limits on the pokes that clients can make the master remember.
const (
	maxPokes = 1 << 16 // names
	maxName  = 1 << 10 // bytes of a name; the column holds 16 characters
)

// pokes holds the targets that were poked: those of the next round, and those without a worker.
// It has no clock; time is an argument.
//
// Rounds are at least the interval apart: the first poke after a pause starts a round at once, and
// later pokes within the interval share the next round.
type pokes struct {
	interval time.Duration

	pending    nameSet
	remembered nameSet
	lastRound  time.Time // when the last round began
	hasBegun   bool      // at least one round has begun
}

// add adds targets to the next round and returns how long that round must wait; 0 means now. The
// bound on remembered targets applies only to targets without a worker: invented names must not
// delay real jobs.
func (p *pokes) add(now time.Time, targets []string, served func(string) bool) (time.Duration, error) {
	if len(p.pending.list)+len(p.remembered.list)+len(targets) > maxPokes {
		for _, t := range targets {
			if !p.pending.members[t] && !p.remembered.members[t] && !served(t) {
				return 0, fmt.Errorf("too many poked targets have no worker (limit %d)", maxPokes)
			}
		}
	}
	p.pending.add(targets...)
	if !p.hasBegun {
		return 0, nil
	}
	return max(0, p.interval-now.Sub(p.lastRound)), nil
}

// beginRound begins a round and returns its targets.
func (p *pokes) beginRound(now time.Time) []string {
	p.lastRound, p.hasBegun = now, true
	targets := p.pending.list
	p.pending = nameSet{}
	return targets
}

// nameSet is a set of names in the order in which they were added.
type nameSet struct {
	list    []string
	members map[string]bool
}

func (n *nameSet) add(list ...string) {
	if n.members == nil {
		n.members = make(map[string]bool)
	}
	for _, name := range list {
		if !n.members[name] {
			n.members[name] = true
			n.list = append(n.list, name)
		}
	}
}

// remove removes the names that are in a list, and returns them.
func (n *nameSet) remove(list []string) (removed []string) {
	removedSet := toSet(list)
	keptNames := n.list[:0:0]
	for _, name := range n.list {
		if removedSet[name] {
			removed = append(removed, name)
			delete(n.members, name)
		} else {
			keptNames = append(keptNames, name)
		}
	}
	n.list = keptNames
	return removed
}

func toSet(list []string) map[string]bool {
	m := make(map[string]bool, len(list))
	for _, name := range list {
		m[name] = true
	}
	return m
}

// intersect returns the names of a that are in b, in the order of a.
func intersect(a []string, b map[string]bool) (common []string) {
	for _, name := range a {
		if b[name] {
			common = append(common, name)
		}
	}
	return common
}
