package broker

import (
	"bytes"
	"cmp"
	"slices"
)

// GroupInfo is what can be seen of a group.
type GroupInfo struct {
	Name []byte
	// Waiting jobs are delayed or queued. Held jobs are queued and held back by a rule of
	// any of their groups.
	Waiting, Running, Held int
	// Rule is the pattern of a rule that lets no more of its jobs run now, nil if there is
	// none.
	Rule []byte
}

// GroupLook collects the busiest groups, Limit of them (1 or more), among all jobs or, with
// Types, among the jobs of each of these types.
type GroupLook struct {
	Limit int
	// Shut selects groups with waiting jobs and a rule that lets no more run. It must not be
	// used with Types.
	Shut  bool
	Types [][]byte

	next int // the group or holding to go on with
	// Among all jobs the groups are found first, then what is held back of them.
	top  ranking
	held map[*group]int // nil until all are found
	// Of types it collects what their holdings have in groups: met in the last piece, jobs
	// before that.
	met  []metJobs
	jobs map[*jobType]tally
}

// LookGroups looks at one piece of all groups, then of all holdings, and tells whether there
// is more. The caller calls l.Sort after each piece.
func (b *Broker) LookGroups(l *GroupLook) (more bool) {
	if l.Types != nil && l.jobs == nil {
		l.jobs = map[*jobType]tally{}
		for _, name := range l.Types {
			if k := b.typesByName[string(name)]; k != nil {
				l.jobs[k] = nil
			}
		}
		if len(l.jobs) == 0 {
			return false
		}
	}
	for n := 0; n < lookVisits; n++ {
		switch {
		case l.Types == nil && l.held == nil && l.next < len(b.groups.All()):
			if g := b.groups.All()[l.next]; g != nil && g.waiting+g.running > 0 {
				x := foundGroup{g, GroupInfo{Name: g.name, Waiting: g.waiting, Running: g.running}}
				if by, _ := b.closed(g); by != nil {
					x.Rule = by.Pattern
				}
				if !l.Shut || x.Rule != nil && x.Waiting > 0 {
					l.top.add(x)
				}
			}
		case l.Types == nil && l.held == nil:
			l.top.whole = true
			return true
		case l.next < len(b.holdings.All()):
			if h := b.holdings.All()[l.next]; h != nil && h.queue.set != nil {
				n += l.meet(b, h)
			}
		default:
			return false
		}
		l.next++
	}
	return true
}

// meet notes what a holding has in groups and returns how many it visited.
func (l *GroupLook) meet(b *Broker, h *holding) int {
	x := groupJobs{running: uint32(h.runs.n)}
	if !h.dead {
		x.waiting = uint32(h.queued + h.delayed)
		if h.queue.heldBy() != nil {
			x.held = uint32(h.queued)
		}
	}
	groups := h.queue.set.groups
	if l.Types == nil {
		for _, g := range groups {
			if _, wanted := l.held[g]; x.held > 0 && wanted {
				l.held[g] += int(x.held)
			}
		}
		return 0
	}
	if _, wanted := l.jobs[h.kind]; !wanted || x.waiting+x.running == 0 {
		return 0
	}
	for _, g := range groups {
		x.group, x.no, x.by = g, g.no, nil
		if g.shut {
			x.by, _ = b.closed(g)
		}
		l.met = append(l.met, metJobs{h.kind, x})
	}
	return len(groups)
}

// Sort adds up what was found and leaves the busiest groups. It takes its time; like Infos
// it does not need the broker's lock.
func (l *GroupLook) Sort() {
	for _, m := range l.met {
		l.jobs[m.kind] = l.jobs[m.kind].add(m.groupJobs)
	}
	l.met = l.met[:0]
	if l.Types != nil || l.held != nil {
		return
	}
	if l.top.cut(l.Limit); l.top.whole {
		l.next, l.held = 0, make(map[*group]int, len(l.top.found))
		for i := range l.top.found {
			l.held[l.top.found[i].group] = 0
		}
	}
}

// Infos returns the groups found among the jobs of a type (nil: all jobs), the busiest
// first.
func (l *GroupLook) Infos(typ []byte) (infos []GroupInfo) {
	top := l.top
	for k, jobs := range l.jobs {
		if !bytes.Equal(k.name, typ) {
			continue
		}
		l.jobs[k] = jobs.sum()
		for _, x := range l.jobs[k] {
			i := GroupInfo{Name: x.group.name, Waiting: int(x.waiting), Running: int(x.running), Held: int(x.held)}
			if x.by != nil {
				i.Rule = x.by.Pattern
			}
			top.add(foundGroup{x.group, i})
			top.cut(l.Limit)
		}
		top.whole = true
		top.cut(l.Limit)
	}
	for _, x := range top.found {
		x.Held += l.held[x.group]
		infos = append(infos, x.GroupInfo)
	}
	return infos
}

// ranking is the busiest groups of those found so far. whole: all have been found.
type ranking struct {
	found []foundGroup
	whole bool
	last  *foundGroup // no group behind it is among them
}

type foundGroup struct {
	group *group
	GroupInfo
}

func (x *foundGroup) compare(y *foundGroup) int {
	return cmp.Or(cmp.Compare(y.Waiting+y.Running, x.Waiting+x.Running), bytes.Compare(x.Name, y.Name))
}

func (r *ranking) add(x foundGroup) {
	if r.last == nil || x.compare(r.last) < 0 {
		r.found = append(r.found, x)
	}
}

// cut leaves the busiest ones, the busiest first, when all have been found or too many are
// there.
func (r *ranking) cut(most int) {
	if !r.whole && len(r.found) <= 2*most+lookVisits {
		return
	}
	slices.SortFunc(r.found, func(x, y foundGroup) int { return x.compare(&y) })
	if len(r.found) > most {
		last := r.found[most-1]
		r.found, r.last = r.found[:most], &last
	}
}

// groupJobs is what holdings of a type have in a group.
type groupJobs struct {
	group                      *group
	by                         *rule // it lets no more run
	no, waiting, running, held uint32
}

type metJobs struct {
	kind *jobType
	groupJobs
}

// tally is what groups have. A group may be there several times.
type tally []groupJobs

// add adds one more. If there is no room it sums up first and doubles the room if that is
// not enough.
func (t tally) add(x groupJobs) tally {
	if len(t) == cap(t) {
		if t = t.sum(); len(t) > cap(t)/2 {
			t = slices.Grow(t, cap(t))
		}
	}
	return append(t, x)
}

// sum merges the entries of each group.
func (t tally) sum() tally {
	slices.SortFunc(t, func(x, y groupJobs) int { return cmp.Compare(x.no, y.no) })
	sum := t[:0]
next:
	for _, x := range t {
		// A group that came while another went may have got its number.
		for i := len(sum) - 1; i >= 0 && sum[i].no == x.no; i-- {
			if y := &sum[i]; y.group == x.group {
				y.waiting, y.running, y.held, y.by = y.waiting+x.waiting, y.running+x.running, y.held+x.held, x.by
				continue next
			}
		}
		sum = append(sum, x)
	}
	return sum
}

// GroupCount returns how many groups there are.
func (b *Broker) GroupCount() int { return b.groupsThere }
