package broker

import (
	"bytes"
	"cmp"
	"slices"
)

// GroupInfo describes a group.
type GroupInfo struct {
	Name []byte
	// Waiting jobs are delayed or queued. Held jobs are queued, and a rule of this or of
	// another of their groups holds them back.
	Waiting, Running, Held int
	// Rule is the pattern of a rule that lets no more of its jobs run now, nil if there is
	// none.
	Rule []byte
}

// GroupLook finds, for each of Types, the groups that have the most jobs of this type: up to Limit
// groups, 1 or more. An empty name, or nil Types, stands for the jobs of all types.
type GroupLook struct {
	Limit int
	Types [][]byte
	// OnlyShut selects only groups that have waiting jobs and a rule that lets no more run.
	OnlyShut bool

	next  int                    // the number of the holding to continue with
	found map[string]*groupTable // the counts of jobs in groups, by type
}

// groupJobs counts the jobs of a group.
type groupJobs struct {
	group                  *group
	shutBy                 *rule // a rule that lets no more of them run, or nil
	waiting, running, held uint32
}

// groupTable holds the counts of groups by the number of the group, on pages. A page is allocated
// once a group on it is counted.
type groupTable []*[groupPage]groupJobs

const groupPage = 64

// add adds the jobs of one holding in a group. If another group had the same number before and
// is gone, its counts are replaced.
func (t *groupTable) add(x groupJobs) {
	page := int(x.group.number / groupPage)
	if page >= len(*t) {
		*t = append(*t, make(groupTable, page+1-len(*t))...)
	}
	if (*t)[page] == nil {
		(*t)[page] = new([groupPage]groupJobs)
	}
	y := &(*t)[page][x.group.number%groupPage]
	if y.group != x.group {
		*y = x
		return
	}
	y.waiting, y.running, y.held = y.waiting+x.waiting, y.running+x.running, y.held+x.held
	y.shutBy = x.shutBy
}

func (t *groupTable) eachCounted(yield func(*groupJobs) bool) {
	for i := 0; t != nil && i < len(*t); i++ {
		for j := 0; (*t)[i] != nil && j < groupPage; j++ {
			if x := &(*t)[i][j]; x.group != nil && !yield(x) {
				return
			}
		}
	}
}

// LookGroups looks at one piece of the list of holdings and reports whether there is more.
func (b *Broker) LookGroups(l *GroupLook) (more bool) {
	if l.found == nil {
		l.found = map[string]*groupTable{}
		if l.Types == nil {
			l.found[""] = new(groupTable)
		}
		for _, name := range l.Types {
			if len(name) == 0 || b.typesByName[string(name)] != nil {
				l.found[string(name)] = new(groupTable)
			}
		}
	}
	last, ofAllTypes := len(b.holdings.All()), l.found[""]
	for n := 0; n < lookVisits && l.next < last && len(l.found) > 0; n++ {
		if h := b.holdings.All()[l.next]; h != nil && h.queue.groupSet != nil {
			if ofAllTypes != nil {
				n += l.countHolding(b, ofAllTypes, h)
			}
			if table := l.found[string(h.jobType.name)]; table != nil {
				n += l.countHolding(b, table, h)
			}
		}
		l.next++
	}
	return l.next < last && len(l.found) > 0
}

// countHolding adds the jobs of a holding to the counts of their groups, and returns how many groups
// it visited.
func (l *GroupLook) countHolding(b *Broker, table *groupTable, h *holding) int {
	x := groupJobs{running: uint32(h.runs.n)}
	if !h.isDead {
		x.waiting = uint32(h.queuedJobs + h.delayedJobs)
		if h.queue.shutGroup() != nil {
			x.held = uint32(h.queuedJobs)
		}
	}
	if x.waiting+x.running == 0 {
		return 0
	}
	for _, g := range h.queue.groupSet.groups {
		if x.group, x.shutBy = g, nil; g.shut {
			x.shutBy, _ = b.shutCause(g)
		}
		if x.shutBy != nil || !l.OnlyShut {
			table.add(x)
		}
	}
	return len(h.queue.groupSet.groups)
}

// Infos returns the groups found among the jobs of one of Types (nil: all jobs), the busiest
// first. It may take long, but the caller need not hold the lock.
func (l *GroupLook) Infos(typ []byte) (infos []GroupInfo) {
	busier := func(x, y GroupInfo) int {
		return cmp.Or(cmp.Compare(y.Waiting+y.Running, x.Waiting+x.Running), bytes.Compare(x.Name, y.Name))
	}
	// Once the list is full, a group that is less busy than the last one is skipped.
	full, last := false, GroupInfo{}
	truncate := func() {
		slices.SortFunc(infos, busier)
		if full = len(infos) >= l.Limit; full {
			infos = infos[:l.Limit]
			last = infos[l.Limit-1]
		}
	}
	for x := range l.found[string(typ)].eachCounted {
		i := GroupInfo{Name: x.group.name, Waiting: int(x.waiting), Running: int(x.running), Held: int(x.held)}
		if x.shutBy != nil {
			i.Rule = x.shutBy.Pattern
		}
		if full && busier(last, i) < 0 || l.OnlyShut && i.Waiting == 0 {
			continue
		}
		if infos = append(infos, i); len(infos) > 2*l.Limit+lookVisits {
			truncate()
		}
	}
	truncate()
	return infos
}

// GroupCount returns how many groups there are.
func (b *Broker) GroupCount() int { return b.countedGroups }
