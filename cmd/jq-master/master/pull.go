package master

import "gloom/cmd/jq-master/job"

// puller is a worker's request for jobs.
type puller struct {
	max      int
	expected int // jobs that are on their way to it
	jobs     []job.Handout
	runs     []*run
	recs     []*record
	ready    func() // called once, when there is something to take
	closed   bool
}

// demand returns how many more jobs a worker asks for.
func (w *worker) demand() (n int) {
	for _, p := range w.pullers {
		n += p.max - p.expected - len(p.jobs)
	}
	return n
}

// reserve returns the request that gets the next job. demand must be above 0.
func (w *worker) reserve() *puller {
	for _, p := range w.pullers {
		if p.max > p.expected+len(p.jobs) {
			p.expected++
			return p
		}
	}
	return nil
}

// pull begins a request for jobs.
func (c *machine) pull(w *worker, p *puller) {
	w.pullers = append(w.pullers, p)
	c.updateServing(w)
}

// deliver gives a job to a request, unless the request has ended.
func (p *puller) deliver(c *machine, h *job.Handout) bool {
	p.expected--
	if p.closed {
		return false
	}
	r := c.jobs.Get(h.ID)
	p.jobs, p.runs, p.recs = append(p.jobs, *h), append(p.runs, r.runInfo.run), append(p.recs, r)
	p.complete(c)
	return true
}

// notDelivered is called when a job on its way to a request will not arrive.
func (p *puller) notDelivered(c *machine) {
	p.expected--
	p.complete(c)
}

// complete completes a request with the jobs that it has got, unless more are on their way.
func (p *puller) complete(c *machine) {
	if ready := p.ready; ready != nil && len(p.jobs) > 0 && (p.expected == 0 || len(p.jobs) == p.max || c.away != nil) {
		p.ready = nil
		c.later(ready)
	}
}

// endPull ends a request and returns its jobs. Unless taken is set, they go back instead.
func (c *machine) endPull(w *worker, p *puller, taken bool) []job.Handout {
	if p.closed {
		return nil
	}
	p.closed = true
	for i, o := range w.pullers {
		if o == p {
			w.pullers = append(w.pullers[:i:i], w.pullers[i+1:]...)
			break
		}
	}
	w.seen = c.now
	c.updateServing(w)
	var jobs []job.Handout
	for i, r := range p.recs {
		switch u := p.runs[i]; {
		case r.running() != u: // it timed out before it was taken
		case taken:
			jobs = append(jobs, p.jobs[i])
		case r.op == idle:
			c.undoRun(r)
		default:
			r.wait(func() {
				if r.running() == u && r.op == idle {
					c.undoRun(r)
				}
			})
		}
	}
	return jobs
}

// closePulls ends the requests of a worker that leaves.
func (c *machine) closePulls(w *worker) {
	for _, p := range w.pullers {
		if ready := p.ready; ready != nil {
			p.ready = nil
			c.later(ready)
		}
	}
}
