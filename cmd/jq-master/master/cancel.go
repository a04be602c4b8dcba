package master

import (
	"gloom/cmd/jq-master/job"
)

// cancel ends a waiting job without an outcome. With force, it also ends a running job.
func (m *machine) cancel(id job.ID, force bool, reply func(error)) {
	r := m.jobs.Get(id)
	switch {
	case r == nil || r.State == job.Cancelled:
		reply(unknownJob(id))
	case m.awayErr != nil:
		reply(m.storeAway())
	case r.op != opNone && (force || r.State != job.Running):
		r.addOnIdle(func() { m.cancel(id, force, reply) })
	case r.State.Ended():
		reply(job.Refuse(job.NotCancelable, "", "the job has ended with status %v", r.State))
	case r.State == job.Running && !force:
		reply(job.Refuse(job.NotCancelable, "", "the job is running; ?force=true cancels it anyway"))
	default:
		m.cancelNow(r, reply)
	}
}

// cancelVisible is cancel for operators, to whom cancelled jobs are visible.
func (m *machine) cancelVisible(id job.ID, reply func(error)) {
	if r := m.jobs.Get(id); r != nil && r.State == job.Cancelled {
		reply(job.Refuse(job.WrongState, "", "the job is already cancelled"))
		return
	}
	m.cancel(id, false, func(err error) {
		if codeOf(err) == job.NotCancelable {
			err = job.Refuse(job.WrongState, "", "%s", err.(*job.Fault).Reason)
		}
		reply(err)
	})
}

func unknownJob(id job.ID) *job.Fault {
	return job.Refuse(job.UnknownJob, "", "there is no job %v", id)
}

func (m *machine) cancelNow(r *record, reply func(error)) {
	j := r.nextState()
	j.State, j.Finished, j.Deadline = job.Cancelled, m.wallTime, 0
	forget := m.wallTime + toMillis(m.KeepEnded)
	run := r.currentRun()
	if run != nil {
		addAttempt(j, &job.Attempt{Message: "cancelled while it ran", Cancelled: true})
	}
	m.write(opCancel, r, j, forget, 0, func() {
		m.ledger.Cancelled++
		if run != nil {
			run.worker.stopRun(r.ID, run.deadline)
			m.leaveRun(r, run, nil)
			m.addEnded(r, forget, 0)
			m.replyAll(run.replies, notAssigned)
		} else {
			m.addEnded(r, forget, 0)
			m.withdraw(r)
		}
		m.expire()
		reply(nil)
	})
}

// withdraw cancels a job at the broker, if the broker has it.
func (m *machine) withdraw(r *record) {
	if r.submitted {
		r.submitted = false
		id := r.ID
		m.tellBroker(func(b brokerLink) { b.cancel(id) })
	}
}

// revive puts a failed or cancelled job back into the queue, with all its retries. A job that waits
// for a retry may then run at once.
func (m *machine) revive(id job.ID, reply func(error)) {
	r := m.jobs.Get(id)
	switch {
	case r == nil:
		reply(unknownJob(id))
		return
	case r.op != opNone:
		r.addOnIdle(func() { m.revive(id, reply) })
		return
	case r.State != job.Failed && r.State != job.Cancelled && r.State != job.Retrying:
		reply(job.Refuse(job.WrongState, "", "the job's status is %v; only error, cancelled and retrying jobs can be retried", r.State))
		return
	}
	var err error
	ended := r.State.Ended()
	if ended {
		if err = m.checkRoom(1, 0); err == nil {
			err = m.takeKeyAgain(r)
		}
	} else if m.awayErr != nil {
		err = m.storeAway()
	}
	if err != nil {
		reply(err)
		return
	}
	j := r.nextState()
	j.Due = 0
	if ended {
		j.State, j.Retries, j.Finished = job.Queued, 0, 0
	}
	m.write(opRevive, r, j, 0, 0, func() {
		if ended {
			m.timers.remove(r)
			if r.runInfo != nil {
				r.runInfo.forgetAt = 0
			}
			m.constraints.add(r, m.constraints.setFor(matchAll(m.constraints.enabled, &r.Attributes, nil)))
			m.ledger.Revived++
			m.submitWaiting(r)
		} else {
			m.sendDelay(r)
		}
		reply(nil)
	})
}
