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

// groupTable holds the counts of groups on pages, indexed by group number. A page is allocated once
// a group on it is counted.
type groupTable []*[groupsPerPage]groupJobs

const groupsPerPage = 64

// add adds the jobs of one holding in a group. If another group had the same number before and
// is gone, its counts are replaced.
func (t *groupTable) add(counts groupJobs) {
	page := int(counts.group.number / groupsPerPage)
	if page >= len(*t) {
		*t = append(*t, make(groupTable, page+1-len(*t))...)
	}
	if (*t)[page] == nil {
		(*t)[page] = new([groupsPerPage]groupJobs)
	}
	sum := &(*t)[page][counts.group.number%groupsPerPage]
	if sum.group != counts.group {
		*sum = counts
		return
	}
	sum.waiting, sum.running, sum.held = sum.waiting+counts.waiting, sum.running+counts.running, sum.held+counts.held
	sum.shutBy = counts.shutBy
}

func (t *groupTable) eachCounted(yield func(*groupJobs) bool) {
	for i := 0; t != nil && i < len(*t); i++ {
		for j := 0; (*t)[i] != nil && j < groupsPerPage; j++ {
			if counts := &(*t)[i][j]; counts.group != nil && !yield(counts) {
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
	counts := groupJobs{running: uint32(h.runs.n)}
	if !h.isDead {
		counts.waiting = uint32(h.queuedJobs + h.delayedJobs)
		if h.queue.shutGroup() != nil {
			counts.held = uint32(h.queuedJobs)
		}
	}
	if counts.waiting+counts.running == 0 {
		return 0
	}
	for _, g := range h.queue.groupSet.groups {
		counts.group, counts.shutBy = g, nil
		if g.shut {
			counts.shutBy, _ = b.shutCause(g)
		}
		if counts.shutBy != nil || !l.OnlyShut {
			table.add(counts)
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
	for counts := range l.found[string(typ)].eachCounted {
		info := GroupInfo{Name: counts.group.name, Waiting: int(counts.waiting), Running: int(counts.running), Held: int(counts.held)}
		if counts.shutBy != nil {
			info.Rule = counts.shutBy.Pattern
		}
		if full && busier(last, info) < 0 || l.OnlyShut && info.Waiting == 0 {
			continue
		}
		if infos = append(infos, info); len(infos) > 2*l.Limit+lookVisits {
			truncate()
		}
	}
	truncate()
	return infos
}

// GroupCount returns how many groups there are.
func (b *Broker) GroupCount() int { return b.countedGroups }
