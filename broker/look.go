package broker

import (
	"bytes"
	"cmp"
	"slices"
)

// GroupInfo is what can be seen of a group.
type GroupInfo struct {
	Name []byte
	// Waiting jobs are delayed or queued; Held are queued and held back by a rule
	// of any of their groups.
	Waiting, Running, Held int
}

// GroupLook collects the busiest groups.
type GroupLook struct {
	// Limit is how many are wanted.
	Limit int
	// Held is how many jobs are held back by rules in all.
	Held      int
	found     []*group
	held      map[*group]int
	next      int // the group or flow to go on with
	collected bool
}

// LookGroups looks at one piece of all groups, then of all flows, and tells
// whether there is more.
func (b *Broker) LookGroups(l *GroupLook) (more bool) {
	for n := 0; n < lookVisits; n++ {
		switch {
		case !l.collected && l.next < len(b.groups.all):
			if g := b.groups.all[l.next]; g != nil && g.waiting+g.running > 0 {
				if l.found = append(l.found, g); len(l.found) > 2*l.Limit+lookVisits {
					l.sort()
				}
			}
		case !l.collected:
			l.sort()
			l.collected, l.next = true, -1
			l.held = make(map[*group]int, len(l.found))
			for _, g := range l.found {
				l.held[g] = 0
			}
		case l.next < len(b.flows):
			if f := b.flows[l.next]; f != nil && f.set != nil && !f.dead && f.ready.n > 0 && f.set.shutGroup() != nil {
				l.Held += f.ready.n
				for _, g := range f.set.groups {
					if _, wanted := l.held[g]; wanted {
						l.held[g] += f.ready.n
					}
				}
			}
		default:
			return false
		}
		l.next++
	}
	return true
}

// sort leaves the busiest groups, first ones first.
func (l *GroupLook) sort() {
	slices.SortFunc(l.found, func(x, y *group) int {
		return cmp.Or(cmp.Compare(y.waiting+y.running, x.waiting+x.running), bytes.Compare(x.name, y.name))
	})
	l.found = l.found[:min(len(l.found), l.Limit)]
}

// Infos returns the groups found, the busiest first. Those that have gone
// meanwhile are left out.
func (l *GroupLook) Infos() (infos []GroupInfo) {
	for _, g := range l.found {
		if g.waiting+g.running > 0 {
			infos = append(infos, GroupInfo{g.name, g.waiting, g.running, l.held[g]})
		}
	}
	return infos
}

// Groups returns the busiest groups in one piece.
func (b *Broker) Groups(limit int) []GroupInfo {
	l := GroupLook{Limit: limit}
	for b.LookGroups(&l) {
	}
	return l.Infos()
}

// GroupCount returns how many groups there are.
func (b *Broker) GroupCount() int { return b.groupsThere }
