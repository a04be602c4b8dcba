package master

import (
	"slices"
	"strings"

	"gloom/cmd/jq-master/job"
)

// startSweep starts a sweep that applies the constraint k to all jobs, in slices, and calls onDone
// at the end; k is nil if a constraint was dropped. A sweep in progress starts over.
func (s *constraints) startSweep(k *constraint, onDone func()) {
	news := make([]*constraint, 0, len(s.sweeping)+1)
	for _, n := range append(slices.Clip(s.sweeping), k) {
		if n != nil && n.Enabled && !n.removed {
			news = append(news, n)
		}
	}
	s.sweeping, s.sweepIndex = news, 0
	s.callAtEnd(onDone, 0)
}

// callAtEnd arranges that onDone is called at the end of the current sweep. If there is none, it
// starts a sweep at from, which is an index in machine.bySeq.
func (s *constraints) callAtEnd(onDone func(), from int) {
	if s.sweepIndex < 0 {
		s.sweepIndex = from
	}
	s.onSweepEnd = append(s.onSweepEnd, onDone)
}

// sweepSlice is one slice of a sweep.
type sweepSlice struct {
	list     []*constraint
	sweeping []*constraint
	jobs     []sweptJob
}

// sweptJob is a job that a sweep examines, and the constraints that were found to apply to it.
type sweptJob struct {
	rec         *record
	job         *job.Job
	set         *constraintSet
	memberships []membership
}

const (
	// maxSliceCost bounds the work of a slice. The unit is the cost of examining one record; a
	// slice takes a millisecond or two, including the broker's work. Longer slices would keep
	// requests waiting.
	maxSliceCost = 2000
	// changeCost is the cost of changing a job's groups, in the same unit.
	changeCost = 10
)

// matchCost is the cost of matching a job with one constraint, in the same unit. It depends on the
// job's argument.
func matchCost(j *job.Job) int { return 1 + len(j.Argument)/512 }

// nextSlice returns the next slice of the sweep, or nil if there is no sweep.
func (m *machine) nextSlice(budget int) *sweepSlice {
	s := m.constraints
	if s.sweepIndex < 0 {
		return nil
	}
	p := &sweepSlice{list: s.enabled, sweeping: s.sweeping}
	for ; s.sweepIndex < len(m.bySeq) && budget > 0; s.sweepIndex++ {
		budget--
		if r := m.bySeq[s.sweepIndex].rec; r != nil && !r.State.Ended() {
			budget -= changeCost + len(p.sweeping)*matchCost(r.Job)
			p.jobs = append(p.jobs, sweptJob{rec: r, job: r.Job, set: r.constraints})
		}
	}
	return p
}

// match finds the constraints that apply to the jobs. It is called without the lock.
func (p *sweepSlice) match() {
	for i := range p.jobs {
		l := &p.jobs[i]
		l.memberships = matchAll(p.sweeping, &l.job.Attributes, l.set)
	}
}

// sweepSlice applies the current constraints to the jobs of a slice.
func (m *machine) sweepSlice(p *sweepSlice) {
	s := m.constraints
	if !isSameSlice(p.list, s.enabled) {
		return // the sweep has started over
	}
	var last struct { // most jobs in a row move between the same two sets
		found          []membership
		oldSet, newSet *constraintSet
	}
	for i := range p.jobs {
		r, found := p.jobs[i].rec, p.jobs[i].memberships
		if m.jobs.Get(r.ID) != r || r.State.Ended() {
			continue
		}
		if r.Priority != p.jobs[i].job.Priority { // the priority was changed after the match
			found = matchAll(p.sweeping, &r.Attributes, r.constraints)
		}
		if r.constraints != last.oldSet || !slices.Equal(found, last.found) {
			last.found, last.oldSet, last.newSet = found, r.constraints, s.updatedSet(r.constraints, found)
		}
		m.regroupBy(r, last.newSet)
	}
	if s.sweepIndex < len(m.bySeq) {
		return
	}
	s.sweepIndex, s.sweeping = -1, nil
	for _, onDone := range s.onSweepEnd { // onDone is also called if the connection is lost: then all jobs are submitted again, with their new groups
		m.tellBroker(func(b brokerLink) { b.flush(func(bool) { onDone() }) })
	}
	s.onSweepEnd = nil
}

// updatedSet returns the set that replaces old. The new set has the constraints of old that still
// exist, and the constraints in added.
func (s *constraints) updatedSet(old *constraintSet, added []membership) *constraintSet {
	var members []membership
	if old != nil {
		members = slices.DeleteFunc(slices.Clone(old.members), func(m membership) bool { return m.constraint.removed })
	}
	for _, m := range added {
		if !old.contains(m.constraint) {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b membership) int { return strings.Compare(a.constraint.ID, b.constraint.ID) })
	return s.setFor(members)
}

// regroupBy makes g the set of a job.
func (m *machine) regroupBy(r *record, g *constraintSet) {
	oldSet := r.constraints
	if oldSet == g {
		return
	}
	m.constraints.remove(r)
	m.constraints.add(r, g)
	if slices.Equal(oldSet.groups(), r.constraints.groups()) {
		return
	}
	if r.State.Waits() {
		m.regroup(r)
	} else {
		r.stale = true
	}
}

// limitGroups cuts groups to the number that the broker accepts. A new job with more groups is
// refused, but a waiting job may get more when constraints are added.
func (m *machine) limitGroups(groups []string) []string {
	return groups[:min(len(groups), m.maxGroups)]
}

// regroup sends the broker the groups of a waiting job, and its priority if that has changed.
func (m *machine) regroup(r *record) {
	if !r.submitted {
		return
	}
	id, groups := r.ID, m.limitGroups(r.constraints.groups())
	if groups == nil {
		groups = []string{}
	}
	var priority *int64
	if r.priorityStale {
		priority = new(m.brokerPriority(r))
	}
	m.tellBroker(func(b brokerLink) { b.change(id, groups, priority, nil) })
}
