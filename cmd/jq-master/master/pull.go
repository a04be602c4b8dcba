package master

import (
	"slices"

	"gloom/cmd/jq-master/job"
)

// pullRequest is a worker's request for jobs.
type pullRequest struct {
	max          int
	maxBytes     int // of arguments, unless there is one job
	expectedJobs int // jobs that are being started for this request
	jobs         []job.Handout
	runs         []*run
	records      []*record
	ready        func() // is called once, when there are jobs to take or the request must end
	closed       bool   // it gets no more jobs
	closedAt     int64  // monotonic
}

// demand returns how many more jobs the worker's open requests can take.
func (w *worker) demand() (n int) {
	for _, p := range w.pullRequests {
		if !p.closed {
			n += p.max - p.expectedJobs - len(p.jobs)
		}
	}
	return n
}

// reserve returns the request that gets the next job. Call it only if demand is above 0.
func (w *worker) reserve() *pullRequest {
	for _, p := range w.pullRequests {
		if !p.closed && p.max > p.expectedJobs+len(p.jobs) {
			p.expectedJobs++
			return p
		}
	}
	return nil
}

// pull begins a request for jobs.
func (m *machine) pull(w *worker, p *pullRequest) {
	w.pullRequests = append(w.pullRequests, p)
	m.updateServing(w)
}

// deliver adds a job to a request and returns true; if the request has ended, it returns false.
func (p *pullRequest) deliver(m *machine, h *job.Handout) bool {
	p.expectedJobs--
	if p.closed {
		return false
	}
	r := m.jobs.Get(h.ID)
	p.jobs, p.runs, p.records = append(p.jobs, *h), append(p.runs, r.runInfo.run), append(p.records, r)
	p.wakeIfComplete(m)
	return true
}

// onNotDelivered is called when a job on its way to a request will not arrive.
func (p *pullRequest) onNotDelivered(m *machine) {
	p.expectedJobs--
	p.wakeIfComplete(m)
}

// wake ends the wait of a request.
func (p *pullRequest) wake() {
	if p.ready != nil {
		p.ready()
		p.ready = nil
	}
}

// wakeIfComplete ends the wait of a request that has jobs, unless it waits for more that are on
// their way.
func (p *pullRequest) wakeIfComplete(m *machine) {
	if len(p.jobs) > 0 && (p.expectedJobs == 0 || len(p.jobs) == p.max || m.awayErr != nil) {
		p.wake()
	}
}

// closePull makes a request get no more jobs, and returns how many bytes the arguments of its jobs have.
// Until endPull, the request still counts as open, and the jobs do not time out: their worker does not
// have them yet.
func (m *machine) closePull(w *worker, p *pullRequest) (bytes int) {
	p.closed, p.closedAt = true, m.now
	m.updateServing(w)
	for i, r := range p.records {
		n, run := len(p.jobs[i].Argument), p.runs[i]
		if i > 0 && bytes+n > p.maxBytes { // these jobs wait for the next request
			for k, rest := range p.records[i:] {
				run := p.runs[i+k]
				m.whenIdle(rest, run, func() { m.undoRun(rest) })
			}
			p.jobs, p.runs, p.records = p.jobs[:i], p.runs[:i], p.records[:i]
			break
		}
		bytes += n
		if r.currentRun() == run {
			run.unread = true
		}
	}
	return bytes
}

// endPull ends a closed request and returns its jobs. If taken is false, their runs are undone instead.
func (m *machine) endPull(w *worker, p *pullRequest, taken bool) []job.Handout {
	w.pullRequests = slices.DeleteFunc(w.pullRequests, func(o *pullRequest) bool { return o == p })
	w.lastSeen = m.now
	var jobs []job.Handout
	for i, r := range p.records {
		switch run := p.runs[i]; {
		case r.currentRun() != run: // the run ended before the request did
		case taken:
			run.unread = false
			run.deadline += m.now - p.closedAt
			m.timers.set(r, run.deadline)
			p.jobs[i].Deadline = m.wallAt(run.deadline - toMillis(m.TimeoutGrace))
			jobs = append(jobs, p.jobs[i])
		default:
			m.whenIdle(r, run, func() { m.undoRun(r) })
		}
	}
	return jobs
}

// wakePulls ends the waits of the requests of a worker that leaves.
func (m *machine) wakePulls(w *worker) {
	for _, p := range w.pullRequests {
		p.wake()
	}
}
