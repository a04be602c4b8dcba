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
	// Rule is the pattern of a rule that lets no more of its jobs run for now; nil
	// where there is none.
	Rule []byte
}

// GroupLook collects the busiest groups, Limit of them.
type GroupLook struct {
	Limit int
	// Shut: only those with jobs that wait and a rule that lets no more run.
	Shut      bool
	found     []foundGroup
	held      map[*group]int // once all are found
	collected bool
	next      int // the group or flow to go on with
}

type foundGroup struct {
	group *group
	GroupInfo
}

// LookGroups looks at one piece of all groups, then of all flows, and tells
// whether there is more. After each piece l.Sort is to be called.
func (b *Broker) LookGroups(l *GroupLook) (more bool) {
	for n := 0; n < lookVisits; n++ {
		switch {
		case l.held == nil && l.next < len(b.groups.all):
			if g := b.groups.all[l.next]; g != nil && g.waiting+g.running > 0 {
				x := GroupInfo{Name: g.name, Waiting: g.waiting, Running: g.running}
				if by, _ := b.closed(g); by != nil {
					x.Rule = by.Pattern
				}
				if !l.Shut || x.Rule != nil && x.Waiting > 0 {
					l.found = append(l.found, foundGroup{g, x})
				}
			}
		case l.held == nil:
			l.collected = true
			return true
		case l.next < len(b.flows):
			if f := b.flows[l.next]; f != nil && b.heldBack(f) {
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

// heldBack: the ready jobs of the flow are held back by a rule of a group.
func (b *Broker) heldBack(f *flow) bool {
	return f.set != nil && !f.dead && f.ready.n > 0 && f.set.shutGroup() != nil
}

// Sort leaves the busiest groups of those found, first ones first. It takes its
// time, and needs the broker to stand still no more than Infos does.
func (l *GroupLook) Sort() {
	if l.held != nil || !l.collected && len(l.found) <= 2*l.Limit+lookVisits {
		return
	}
	slices.SortFunc(l.found, func(x, y foundGroup) int {
		return cmp.Or(cmp.Compare(y.Waiting+y.Running, x.Waiting+x.Running), bytes.Compare(x.Name, y.Name))
	})
	l.found = l.found[:min(len(l.found), l.Limit)]
	if l.collected {
		l.next, l.held = 0, make(map[*group]int, len(l.found))
		for i := range l.found {
			l.held[l.found[i].group] = 0
		}
	}
}

// Infos returns the groups found, the busiest first.
func (l *GroupLook) Infos() (infos []GroupInfo) {
	for _, x := range l.found {
		x.Held = l.held[x.group]
		infos = append(infos, x.GroupInfo)
	}
	return infos
}

// Groups returns the busiest groups in one piece.
func (b *Broker) Groups(limit int) []GroupInfo {
	l := GroupLook{Limit: limit}
	for b.LookGroups(&l) {
		l.Sort()
	}
	return l.Infos()
}

// GroupCount returns how many groups there are.
func (b *Broker) GroupCount() int { return b.groupsThere }
