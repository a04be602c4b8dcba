package master

import (
	"gloom/cmd/jq-master/job"
)

// reprioritize gives a waiting job another priority, and applies the constraints that then match
// it. The job keeps its age.
func (c *machine) reprioritize(id job.ID, priority int32, reply func(error)) {
	tell := func(err error) { c.runAfterStep(func() { reply(err) }) }
	r := c.jobs.Get(id)
	switch {
	case r == nil:
		tell(unknownJob(id))
		return
	case c.awayErr != nil:
		tell(c.storeAway())
		return
	case r.op != opNone:
		r.addOnIdle(func() { c.reprioritize(id, priority, reply) })
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
	c.write(opPostpone, r, j, 0, 0, func() {
		r.priorityStale = true
		found := c.constraints.setFor(matchAll(c.constraints.enabled, &r.Attributes, nil))
		if found != r.groups {
			c.constraints.remove(r)
			c.constraints.add(r, found)
		}
		c.regroup(r)
		c.runAfterStep(func() { reply(nil) })
	})
}
