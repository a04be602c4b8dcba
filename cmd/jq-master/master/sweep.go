package master

import (
	"slices"
	"strings"

	"gloom/cmd/jq-master/job"
)

// startSweep applies a constraint to all jobs, in slices, and calls told when that is done; k is nil if
// one was dropped. A sweep in progress starts over.
func (s *constraints) startSweep(k *constraint, told func()) {
	news := make([]*constraint, 0, len(s.news)+1)
	for _, n := range append(slices.Clip(s.news), k) {
		if n != nil && n.Enabled && !n.gone {
			news = append(news, n)
		}
	}
	s.news, s.sweep = news, 0
	s.tell(told, 0)
}

// tell calls told at the end of the current sweep or, if there is none, of a new one that starts at
// an index.
func (s *constraints) tell(told func(), from int) {
	if s.sweep < 0 {
		s.sweep = from
	}
	s.sweeps = append(s.sweeps, told)
}

// slice is a part of a sweep.
type slice struct {
	list []*constraint
	news []*constraint
	jobs []sweptJob
}

// sweptJob is a job that a sweep examines, with the constraints found.
type sweptJob struct {
	rec   *record
	job   *job.Job
	known *set
	found []membership
}

const (
	// maxSliceCost bounds the work of a slice: a millisecond or two, with the broker's part.
	// Longer slices would keep requests waiting.
	maxSliceCost = 2000
	// changeCost is the cost of changing a job's groups, in looks.
	changeCost = 10
)

// weight is the cost of matching a job, in looks, which depends on its argument.
func weight(j *job.Job) int { return 1 + len(j.Argument)/512 }

// nextSlice takes the next jobs of a sweep; it returns nil if there is no sweep.
func (c *machine) nextSlice(looks int) *slice {
	s := c.constraints
	if s.sweep < 0 {
		return nil
	}
	p := &slice{list: s.list, news: s.news}
	for ; s.sweep < len(c.bySeq) && looks > 0; s.sweep++ {
		looks--
		if r := c.bySeq[s.sweep].rec; r != nil && !r.State.Ended() {
			looks -= changeCost + len(p.news)*weight(r.Job)
			p.jobs = append(p.jobs, sweptJob{rec: r, job: r.Job, known: r.groups})
		}
	}
	return p
}

// match finds the constraints that apply to the jobs. It is called without the lock.
func (p *slice) match() {
	for i := range p.jobs {
		l := &p.jobs[i]
		l.found = match(p.news, &l.job.Attributes, l.known)
	}
}

// sweepSlice applies the current constraints to the jobs of a slice.
func (c *machine) sweepSlice(p *slice) {
	s := c.constraints
	if !same(p.list, s.list) {
		return // the sweep has started over
	}
	var last struct { // most jobs in a row move between the same two sets
		found   []membership
		was, is *set
	}
	for i := range p.jobs {
		r, found := p.jobs[i].rec, p.jobs[i].found
		if c.jobs.Get(r.ID) != r || r.State.Ended() {
			continue
		}
		if r.Priority != p.jobs[i].job.Priority { // it was changed meanwhile
			found = match(p.news, &r.Attributes, r.groups)
		}
		if r.groups != last.was || !slices.Equal(found, last.found) {
			last.found, last.was, last.is = found, r.groups, s.after(r.groups, found)
		}
		c.regroupBy(r, last.is)
	}
	if s.sweep < len(c.bySeq) {
		return
	}
	s.sweep, s.news = -1, nil
	line := c.env.broker
	for _, told := range s.sweeps {
		c.later(func() { line.flush(told) })
	}
	s.sweeps = nil
}

// after returns a set without its constraints that are gone, and with those found that it does not
// have.
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

// regroupBy puts a job under the constraints of a set and no others.
func (c *machine) regroupBy(r *record, g *set) {
	was := r.groups
	if was == g {
		return
	}
	c.constraints.remove(r)
	c.constraints.add(r, g)
	if slices.Equal(was.groups(), r.groups.groups()) {
		return
	}
	if r.waits() {
		c.regroup(r)
	} else {
		r.stale = true
	}
}

// limitGroups cuts groups to the number that the broker takes. A job that waits while constraints are
// added may come to have more; a new job with more is refused.
func (c *machine) limitGroups(groups []string) []string {
	return groups[:min(len(groups), c.maxGroups)]
}

// regroup sends the broker the groups of a waiting job, and its rank if that has changed.
func (c *machine) regroup(r *record) {
	if !r.submitted {
		return
	}
	id, groups := r.ID, c.limitGroups(r.groups.groups())
	if groups == nil {
		groups = []string{}
	}
	var rank *int64
	if r.priorityStale {
		rank = new(c.brokerPriority(r))
	}
	line := c.env.broker
	c.later(func() { line.change(id, groups, rank, nil) })
}
