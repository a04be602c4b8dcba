package master

import (
	"gloom/cmd/jq-master/job"
)

// reprioritize gives a waiting job another priority, and applies the constraints that then match
// it. The job keeps its age.
func (c *machine) reprioritize(id job.ID, priority int32, reply func(error)) {
	tell := func(err error) { c.later(func() { reply(err) }) }
	r := c.jobs.Get(id)
	switch {
	case r == nil:
		tell(unknownJob(id))
		return
	case c.away != nil:
		tell(c.storeAway())
		return
	case r.op != idle:
		r.wait(func() { c.reprioritize(id, priority, reply) })
		return
	case !r.isWaiting():
		tell(job.Refuse(job.WrongState, "", "the job's status is %v; only queued and retrying jobs can get another priority", r.State))
		return
	case r.Priority == priority:
		tell(nil)
		return
	}
	j := r.nextState()
	j.Priority = priority
	c.write(postponing, r, j, 0, 0, func() {
		r.priorityStale = true
		found := c.constraints.setOf(match(c.constraints.list, &r.Attributes, nil))
		if found != r.groups {
			c.constraints.remove(r)
			c.constraints.add(r, found)
		}
		c.regroup(r)
		c.later(func() { reply(nil) })
	})
}
