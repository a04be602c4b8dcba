package master

import (
	"slices"
	"strings"

	"gloom/cmd/jq-master/job"
)

// spread has all jobs told of a constraint (nil: that one is gone), in slices, and
// calls told when they were. A sweep that goes on begins anew.
func (s *constraints) spread(k *constraint, told func()) {
	news := make([]*constraint, 0, len(s.news)+1)
	for _, n := range append(slices.Clip(s.news), k) {
		if n != nil && n.Enabled && !n.gone {
			news = append(news, n)
		}
	}
	s.news, s.sweep = news, 0
	s.tell(told, 0)
}

// tell calls told at the end of the sweep that goes on, or else of one from an index
// on.
func (s *constraints) tell(told func(), from int) {
	if s.sweep < 0 {
		s.sweep = from
	}
	s.sweeps = append(s.sweeps, told)
}

// slice is a part of a sweep.
type slice struct {
	list  []*constraint
	news  []*constraint
	looks []looked
}

// looked is a job that a sweep looks at, with what it has found.
type looked struct {
	rec   *record
	job   *job.Job
	known *set
	found []membership
}

const (
	// sliceLooks is how much a slice does: a millisecond or two, until the broker
	// has it. Longer ones would keep requests waiting.
	sliceLooks = 2000
	// sliceCost is how many looks it is worth to change a job's groups.
	sliceCost = 10
)

// weight is how many looks a job costs that is matched, by its argument.
func weight(j *job.Job) int { return 1 + len(j.Argument)/512 }

// nextSlice takes the next jobs of a sweep; nil when there is none.
func (c *machine) nextSlice(looks int) *slice {
	s := c.constraints
	if s.sweep < 0 {
		return nil
	}
	p := &slice{list: s.list, news: s.news}
	for ; s.sweep < len(c.order) && looks > 0; s.sweep++ {
		looks--
		if r := c.order[s.sweep].rec; r != nil && !r.State.Ended() {
			looks -= sliceCost + len(p.news)*weight(r.Job)
			p.looks = append(p.looks, looked{rec: r, job: r.Job, known: r.groups})
		}
	}
	return p
}

// match is done without the lock.
func (p *slice) match() {
	for i := range p.looks {
		l := &p.looks[i]
		l.found = match(p.news, &l.job.Attributes, l.known)
	}
}

// sweepSlice puts the jobs of a slice under the constraints of now.
func (c *machine) sweepSlice(p *slice) {
	s := c.constraints
	if !same(p.list, s.list) {
		return // the sweep has begun anew
	}
	var last struct { // most jobs in a row go from one set to one other
		found   []membership
		was, is *set
	}
	for i := range p.looks {
		r, found := p.looks[i].rec, p.looks[i].found
		if c.jobs.Get(r.ID) != r || r.State.Ended() {
			continue
		}
		if r.Priority != p.looks[i].job.Priority { // it was changed meanwhile
			found = match(p.news, &r.Attributes, r.groups)
		}
		if r.groups != last.was || !slices.Equal(found, last.found) {
			last.found, last.was, last.is = found, r.groups, s.after(r.groups, found)
		}
		c.regroupBy(r, last.is)
	}
	if s.sweep < len(c.order) {
		return
	}
	s.sweep, s.news = -1, nil
	line := c.out.line
	for _, told := range s.sweeps {
		c.later(func() { line.settled(told) })
	}
	s.sweeps = nil
}

// after is the set of jobs that leave the constraints of a set that are gone, and
// come under those found that it did not know.
func (s *constraints) after(was *set, found []membership) *set {
	var members []membership
	if was != nil {
		members = slices.DeleteFunc(slices.Clone(was.members), func(m membership) bool { return m.of.gone })
	}
	for _, m := range found {
		if !was.has(m.of) {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b membership) int { return strings.Compare(a.of.ID, b.of.ID) })
	return s.setOf(members)
}

// regroupBy has a job come under the constraints of a set alone.
func (c *machine) regroupBy(r *record, g *set) {
	was := r.groups
	if was == g {
		return
	}
	c.constraints.leave(r)
	c.constraints.enter(r, g)
	if slices.Equal(was.groups(), r.groups.groups()) {
		return
	}
	if r.waits() {
		c.regroup(r)
	} else {
		r.stale = true
	}
}

// fit leaves out groups beyond what the broker takes. It is for jobs that wait while
// constraints are added; new ones are refused.
func (c *machine) fit(groups []string) []string {
	return groups[:min(len(groups), c.maxGroups)]
}

// regroup tells the broker the groups of a job that waits, and its rank where that has changed.
func (c *machine) regroup(r *record) {
	if !r.inLine {
		return
	}
	id, groups := r.ID, c.fit(r.groups.groups())
	if groups == nil {
		groups = []string{}
	}
	var rank *int64
	if r.ranked {
		rank = new(c.rank(r))
	}
	line := c.out.line
	c.later(func() { line.change(id, groups, rank, nil) })
}
