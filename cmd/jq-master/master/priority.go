package master

import (
	"gloom/cmd/jq-master/job"
)

// reprioritize gives a waiting job another priority, and applies the constraints that then match
// it. The job keeps its age.
func (m *machine) reprioritize(id job.ID, priority int32, reply func(error)) {
	r := m.jobs.Get(id)
	switch {
	case r == nil:
		reply(unknownJob(id))
		return
	case m.awayErr != nil:
		reply(m.storeAway())
		return
	case r.op != opNone:
		r.addOnIdle(func() { m.reprioritize(id, priority, reply) })
		return
	case !r.State.Waits():
		reply(job.Refuse(job.WrongState, "", "the job's status is %v; only queued and retrying jobs can get another priority", r.State))
		return
	case r.Priority == priority:
		reply(nil)
		return
	}
	j := r.nextState()
	j.Priority = priority
	m.write(opPostpone, r, j, 0, 0, func() {
		r.priorityStale = true
		newSet := m.constraints.setFor(matchAll(m.constraints.enabled, &r.Attributes, nil))
		if newSet != r.constraints {
			m.constraints.remove(r)
			m.constraints.add(r, newSet)
		}
		m.regroup(r)
		reply(nil)
	})
}
