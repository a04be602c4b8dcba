package master

import (
	"slices"

	"gloom/cmd/jq-master/job"
)

// poller is a request that waits for the end of a job.
type poller struct {
	peek  bool
	reply func(st *Status, err error) // called once; it must not block
}

// status returns a job as pushers see it. Unless peek is set, it fetches the result.
func (m *machine) status(id job.ID, peek bool) (*Status, error) {
	r := m.jobs.Get(id)
	if r == nil || r.State == job.Cancelled {
		return nil, unknownJob(id)
	}
	st := &Status{Job: r.Job}
	if r.State == job.Done && r.runInfo.dropAt != 0 && !r.runInfo.fetching {
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
		p.reply(st, err)
	case m.draining:
		p.reply(nil, errDraining)
	case m.waiters >= m.MaxWaiters:
		p.reply(nil, overloaded("%d requests wait, and no more are allowed (max-waiters)", m.MaxWaiters))
	default:
		m.waiters++
		h := r.ensureRunInfo()
		h.pollers = append(h.pollers, p)
	}
}

// endPoll replies to a poll with the job's current status, unless it has had its reply.
func (m *machine) endPoll(id job.ID, p *poller) {
	r := m.jobs.Get(id)
	if r == nil || r.runInfo == nil {
		return
	}
	if i := slices.Index(r.runInfo.pollers, p); i >= 0 {
		r.runInfo.pollers = slices.Delete(r.runInfo.pollers, i, i+1)
		m.waiters--
		p.reply(&Status{Job: r.Job}, nil)
	}
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
			p.reply(nil, err)
		}
		return
	}
	fetching := 0
	for _, p := range pollers {
		if !p.peek {
			fetching++
		}
	}
	has := r.State == job.Done && r.runInfo.dropAt != 0
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
		p.reply(st, nil)
	}
}
