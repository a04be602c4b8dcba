package broker

import (
	"bytes"
	"cmp"
	"slices"
)

// GroupInfo describes a group.
type GroupInfo struct {
	Name []byte
	// Waiting jobs are delayed or queued. Held jobs are queued and held back by a rule of
	// any of their groups.
	Waiting, Running, Held int
	// Rule is the pattern of a rule that lets no more of its jobs run now, nil if there is
	// none.
	Rule []byte
}

// GroupLook collects the busiest groups, Limit of them (1 or more), among the jobs of each
// of Types. An empty type, and no types at all, stand for all jobs.
type GroupLook struct {
	Limit int
	Types [][]byte
	// Shut selects groups with waiting jobs and a rule that lets no more run.
	Shut bool

	next int // the holding to go on from
	// found is what holdings have in groups, by type; met is what those of the last piece
	// have.
	found map[string]map[*group]groupJobs
	met   []metJobs
}

// groupJobs is what holdings have in a group.
type groupJobs struct {
	by                     *rule // it lets no more run
	waiting, running, held uint32
}

type metJobs struct {
	of    map[*group]groupJobs // in GroupLook.found
	group *group
	groupJobs
}

// LookGroups looks at one piece of all holdings and tells whether there is more. The caller
// calls l.Sum after each piece.
func (b *Broker) LookGroups(l *GroupLook) (more bool) {
	if l.found == nil {
		l.found = map[string]map[*group]groupJobs{}
		if l.Types == nil {
			l.found[""] = map[*group]groupJobs{}
		}
		for _, name := range l.Types {
			if len(name) == 0 || b.typesByName[string(name)] != nil {
				l.found[string(name)] = map[*group]groupJobs{}
			}
		}
	}
	last := len(b.holdings.All())
	for n := 0; n < lookVisits && l.next < last && len(l.found) > 0; n++ {
		if h := b.holdings.All()[l.next]; h != nil && h.queue.set != nil {
			n += l.meet(b, l.found[""], h)
			n += l.meet(b, l.found[string(h.kind.name)], h)
		}
		l.next++
	}
	return l.next < last && len(l.found) > 0
}

// meet notes what a holding has in groups, if that is requested (of is not nil), and returns
// how many groups it visited.
func (l *GroupLook) meet(b *Broker, of map[*group]groupJobs, h *holding) int {
	x := groupJobs{running: uint32(h.runs.n)}
	if !h.dead {
		x.waiting = uint32(h.queued + h.delayed)
		if h.queue.heldBy() != nil {
			x.held = uint32(h.queued)
		}
	}
	if of == nil || x.waiting+x.running == 0 {
		return 0
	}
	for _, g := range h.queue.set.groups {
		if x.by = nil; g.shut {
			x.by, _ = b.closed(g)
		}
		if x.by != nil || !l.Shut {
			l.met = append(l.met, metJobs{of, g, x})
		}
	}
	return len(h.queue.set.groups)
}

// Sum adds up what the last piece met. It may take long; like Infos it does not need the
// broker's lock.
func (l *GroupLook) Sum() {
	for _, m := range l.met {
		x := m.of[m.group]
		m.of[m.group] = groupJobs{m.by, x.waiting + m.waiting, x.running + m.running, x.held + m.held}
	}
	l.met = l.met[:0]
}

// Infos returns the groups found among the jobs of one of Types (nil: all jobs), the busiest
// first.
func (l *GroupLook) Infos(typ []byte) (infos []GroupInfo) {
	busier := func(x, y GroupInfo) int {
		return cmp.Or(cmp.Compare(y.Waiting+y.Running, x.Waiting+x.Running), bytes.Compare(x.Name, y.Name))
	}
	full, last := false, GroupInfo{} // if it is full, no group behind the last one is wanted
	cut := func() {
		slices.SortFunc(infos, busier)
		if full = len(infos) >= l.Limit; full {
			infos = infos[:l.Limit]
			last = infos[l.Limit-1]
		}
	}
	for g, x := range l.found[string(typ)] {
		i := GroupInfo{Name: g.name, Waiting: int(x.waiting), Running: int(x.running), Held: int(x.held)}
		if x.by != nil {
			i.Rule = x.by.Pattern
		}
		if full && busier(last, i) < 0 || l.Shut && i.Waiting == 0 {
			continue
		}
		if infos = append(infos, i); len(infos) > 2*l.Limit+lookVisits {
			cut()
		}
	}
	cut()
	return infos
}

// GroupCount returns how many groups there are.
func (b *Broker) GroupCount() int { return b.groupsThere }
