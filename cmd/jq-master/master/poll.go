package master

import (
	"gloom/cmd/jq-master/job"
)

// poller is a request that waits for the end of a job.
type poller struct {
	peek  bool
	reply func(st *Status, err error) // called once
}

// status returns a job as pushers see it. Unless peek is set, it fetches the result.
func (m *machine) status(id job.ID, peek bool) (*Status, error) {
	r := m.jobs.Get(id)
	if r == nil || r.State == job.Cancelled {
		return nil, unknownJob(id)
	}
	st := &Status{Job: r.Job}
	if r.State == job.Done && r.runInfo.drop != 0 && !r.runInfo.fetching {
		st.Result = r.Result
		if !peek {
			r.runInfo.fetching = true
			st.Fetch = func(written bool) { m.env.run(func() { m.onFetched(r, written) }) }
		}
	}
	return st, nil
}

// onFetched is called after a response with the result; written says whether all of it was sent.
func (m *machine) onFetched(r *record, written bool) {
	if m.jobs.Get(r.ID) != r || r.runInfo == nil || !r.runInfo.fetching {
		return
	}
	if !written {
		r.runInfo.fetching = false
		return
	}
	m.metrics.fetched++
	m.dropResult(r)
}

// poll replies when a job has ended, at once if it already has.
func (m *machine) poll(id job.ID, p *poller) {
	r := m.jobs.Get(id)
	switch {
	case r == nil || r.State == job.Cancelled || r.State.Ended():
		st, err := m.status(id, p.peek)
		m.runAfterStep(func() { p.reply(st, err) })
	case m.draining:
		m.runAfterStep(func() { p.reply(nil, errDraining) })
	case m.waiters >= m.MaxWaiters:
		m.runAfterStep(func() {
			p.reply(nil, overloaded("%d requests wait, and no more are allowed (max-waiters)", m.MaxWaiters))
		})
	default:
		m.waiters++
		h := r.ensureRunInfo()
		h.pollers = append(h.pollers, p)
	}
}

// endPoll ends a poll before the job has ended, and returns the job's current status. If ended is
// true, the poll's reply is already on its way.
func (m *machine) endPoll(id job.ID, p *poller) (st *Status, ended bool) {
	r := m.jobs.Get(id)
	if r == nil || r.runInfo == nil {
		return nil, true
	}
	for i, o := range r.runInfo.pollers {
		if o == p {
			r.runInfo.pollers = append(r.runInfo.pollers[:i:i], r.runInfo.pollers[i+1:]...)
			m.waiters--
			return &Status{Job: r.Job}, false
		}
	}
	return nil, true
}

// wakePollers answers all requests that wait for a job. All of them get the result. It counts as
// fetched once a request without peek has received all of it.
func (m *machine) wakePollers(r *record) {
	pollers := r.runInfo.pollers
	if len(pollers) == 0 {
		return
	}
	r.runInfo.pollers = nil
	m.waiters -= len(pollers)
	if r.State == job.Cancelled {
		err := unknownJob(r.ID)
		for _, p := range pollers {
			m.runAfterStep(func() { p.reply(nil, err) })
		}
		return
	}
	fetching := 0
	for _, p := range pollers {
		if !p.peek {
			fetching++
		}
	}
	has := r.State == job.Done && r.runInfo.drop != 0
	written := false
	for _, p := range pollers {
		st := &Status{Job: r.Job}
		if has {
			st.Result = r.Result
			if !p.peek {
				r.runInfo.fetching = true
				st.Fetch = func(ok bool) {
					m.env.run(func() {
						written = written || ok
						if fetching--; fetching == 0 {
							m.onFetched(r, written)
						}
					})
				}
			}
		}
		m.runAfterStep(func() { p.reply(st, nil) })
	}
}
