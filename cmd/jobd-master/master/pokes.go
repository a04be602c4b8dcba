package master

import (
	"fmt"
	"time"
)

// What clients can make us remember.
const (
	maxPokes = 1 << 16 // names
	maxName  = 1 << 10 // bytes of one; the column holds 16 characters
)

// pokes is which targets have been poked: those of the round to come, and
// those that nobody served. It knows no clock; time is an argument.
//
// Rounds keep a distance: the first poke after a pause makes one at once,
// those that come within the interval share the next.
type pokes struct {
	interval time.Duration

	asked      names
	remembered names
	last       time.Time // of the last round
	begun      bool      // there was one
}

// ask adds targets to the next round and tells how long it has to wait; 0 is
// now. The bound is for those that nobody serves: names that somebody made up must not
// keep others' jobs waiting.
func (p *pokes) ask(now time.Time, targets []string, served func(string) bool) (time.Duration, error) {
	if len(p.asked.list)+len(p.remembered.list)+len(targets) > maxPokes {
		for _, t := range targets {
			if !p.asked.has[t] && !p.remembered.has[t] && !served(t) {
				return 0, fmt.Errorf("too many targets are poked and not served (limit %d)", maxPokes)
			}
		}
	}
	p.asked.add(targets...)
	if !p.begun {
		return 0, nil
	}
	return max(0, p.interval-now.Sub(p.last)), nil
}

// round begins a round and returns its targets.
func (p *pokes) round(now time.Time) []string {
	p.last, p.begun = now, true
	targets := p.asked.list
	p.asked = names{}
	return targets
}

// names is a set of names in the order of their arrival.
type names struct {
	list []string
	has  map[string]bool
}

func (n *names) add(list ...string) {
	if n.has == nil {
		n.has = make(map[string]bool)
	}
	for _, name := range list {
		if !n.has[name] {
			n.has[name] = true
			n.list = append(n.list, name)
		}
	}
}

// take removes those of the names that are in the list, and returns them.
func (n *names) take(list []string) (taken []string) {
	wanted := set(list)
	kept := n.list[:0:0]
	for _, name := range n.list {
		if wanted[name] {
			taken = append(taken, name)
			delete(n.has, name)
		} else {
			kept = append(kept, name)
		}
	}
	n.list = kept
	return taken
}

func set(list []string) map[string]bool {
	m := make(map[string]bool, len(list))
	for _, name := range list {
		m[name] = true
	}
	return m
}

// intersect returns the names of a that are in b, in the order of a.
func intersect(a []string, b map[string]bool) (both []string) {
	for _, name := range a {
		if b[name] {
			both = append(both, name)
		}
	}
	return both
}
