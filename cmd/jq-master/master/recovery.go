package master

import (
	"cmp"
	"slices"

	"gloom/cmd/jq-master/job"
)

// load adds a stored job, which the broker does not know yet.
func (c *machine) load(j *job.Job, forget, drop int64) {
	c.setRight(j)
	r := c.adopt(j)
	c.claimed(r)
	if !j.State.Ended() {
		c.constraints.enter(r, c.constraints.setOf(match(c.constraints.list, &j.Attributes, nil)))
	}
	c.ledger.Enqueued++
	switch j.State {
	case job.Running:
		c.ledger.Running++
		w := c.workers[j.Worker]
		if w == nil { // its worker is not registered any more; the run will time out
			w = &worker{Worker: job.Worker{ID: j.Worker, MaxJobs: 1, Names: []string{"*"}, Leaving: true}, seen: c.now, runs: make(map[*record]struct{})}
			c.workers[j.Worker] = w
		}
		u := &run{w: w, before: job.Queued, sent: true, deadline: c.now + missedBeats*ms(c.Heartbeat)}
		whole := ms(j.Timeout.Duration() + c.TimeoutGrace) // it is never longer, even if a clock was set
		u.deadline = max(u.deadline, min(c.monoAt(j.Deadline), c.now+whole))
		if j.Retries > 0 {
			u.before = job.Retrying
		}
		r.history().run = u
		w.runs[r] = struct{}{}
		c.timers.set(r, u.deadline)
	case job.Done:
		c.ledger.Done++
	case job.Failed:
		c.ledger.Failed++
	case job.Cancelled:
		c.ledger.Cancelled++
	default:
		c.ledger.Waiting++
	}
	if j.State.Ended() {
		if forget = min(forget, c.wall+ms(c.KeepEnded)); drop != 0 {
			drop = c.wall + ms(c.ResultTTL)
		}
		c.over(r, max(forget, drop), drop)
	}
}

// setRight corrects the times of a job that was stored while the store's clock was ahead: it waits,
// and holds its key, no longer from now on than it was to do from its submission.
func (c *machine) setRight(j *job.Job) {
	if j.Due > j.Enqueued {
		j.Due = min(j.Due, c.wall+j.Due-j.Enqueued)
	}
	if u := j.Unique; u != nil && u.Until > j.Enqueued {
		u.Until = min(u.Until, c.wall+u.Until-j.Enqueued)
	} else if u == nil && j.State == job.Retrying {
		j.Due = min(j.Due, c.wall+ms(c.BackoffCap))
	}
}

// loadKey adds a stored idempotency key.
func (c *machine) loadKey(until int64, size int) {
	c.keys.push(keyEntry{until, int64(size)})
	c.keyBytes += int64(size)
}

// loadWorker adds a stored worker.
func (c *machine) loadWorker(s *job.Worker) {
	c.workers[s.ID] = &worker{Worker: *s, seen: c.now, runs: make(map[*record]struct{})}
}

// loaded is called when everything stored has been read.
func (c *machine) loaded() {
	slices.SortFunc(c.order, func(a, b place) int { return cmp.Compare(a.seq, b.seq) })
	c.loading = false
	c.todo = nil // nobody waits for a reply yet
	c.unlink()
	c.finishReplacing()
}

// unlink is called when there is no broker, or an empty one: linkSlice then submits all jobs to it.
func (c *machine) unlink() {
	c.linked, c.settled, c.brought, c.left, c.linkedTo, c.relinkT0, c.late = false, false, false, 0, 0, c.wall, nil
	for _, p := range c.order {
		if r := p.rec; r != nil {
			r.inLine = false
			if u := r.running(); u != nil {
				u.handle = nil
			}
		}
	}
	for _, w := range c.workers {
		w.joined, w.orphans = false, false
	}
	for _, k := range c.constraints.byID {
		c.emptied(k)
	}
}

// linkSlice submits some jobs to the broker, first running ones and then the oldest, and reports
// whether there are more. Workers get jobs when the broker has all of them. Without the lease it
// submits nothing, because it would overwrite rules of the master that has taken over.
func (c *machine) linkSlice(looks int) (more bool) {
	if c.brought || !c.out.store.Holds() {
		return false
	}
	if c.linkedTo == 0 {
		for _, k := range c.constraints.list {
			c.set(k)
		}
		for _, w := range c.byAge() { // first: a full or stopping broker may not take all jobs
			for _, r := range w.ranked() {
				if !w.gone && r.past.run.handle == nil && !r.inLine {
					w.orphans = true
					c.submit(r, 0)
				}
			}
		}
	}
	for ; looks > 0 && c.linkedTo < len(c.order); looks-- {
		r := c.order[c.linkedTo].rec
		c.linkedTo++
		if r != nil && !r.inLine && r.waits() {
			c.submit(r, longAt(c.relinkT0-r.Enqueued))
		}
	}
	if c.linkedTo < len(c.order) {
		return true
	}
	c.brought = true
	// The broker must have everything, rules too, before the first worker joins.
	line := c.out.line
	c.later(func() {
		line.settled(func() {
			c.out.enter(func() {
				c.settled = c.out.line == line
				c.serveAll()
				c.link()
			})
		})
	})
	return false
}

// link lets workers get waiting jobs when the broker has handed out all running jobs again, so that
// they count in their groups. It does not wait long for a run that the broker refuses, or holds
// back because a group is full.
func (c *machine) link() {
	if !c.settled || c.linked {
		return
	}
	left := 0
	for _, w := range c.workers {
		for r := range w.runs {
			if u := r.past.run; u.own && u.handle == nil {
				left++
			}
		}
	}
	if left != c.left {
		c.left, c.leftAt = left, c.now
	}
	if left == 0 || c.now-c.leftAt >= 2*ms(crossing) {
		c.linked = true
		c.serveAll()
	}
}

// drain stops accepting jobs and handing them out.
func (c *machine) drain() {
	c.draining = true
	c.serveAll()
	for _, w := range c.workers {
		c.closePulls(w)
	}
	for _, p := range c.order {
		if r := p.rec; r != nil && r.past != nil && len(r.past.pollers) > 0 {
			for _, p := range r.past.pollers {
				c.later(func() { p.reply(nil, errDraining) })
			}
			c.waiters -= len(r.past.pollers)
			r.past.pollers = nil
		}
	}
}

// storeChanged is called when the store has gone away, with the reason, or is back.
func (c *machine) storeChanged(away error) {
	if c.away != nil && away == nil {
		c.judge = max(c.judge, c.now+ms(c.StoreWait)) // reports that workers have sent meanwhile are read first
	}
	c.away = away
	if away != nil { // jobs on their way to requests may take long
		for _, w := range c.workers {
			for _, p := range w.pullers {
				p.offer(c)
			}
		}
	}
	c.serveAll()
}

// misplaced is called with a job that the broker has refused, or has ended without the master.
func (c *machine) misplaced(id job.ID, bid uint32) {
	if r := c.brings(id, bid); r != nil {
		c.lateAgain(r, nil)
	}
}

// brings returns the job of a submission, nil if the broker does not have the job or has a later
// submission of it.
func (c *machine) brings(id job.ID, bid uint32) *record {
	if r := c.jobs.Get(id); r != nil && r.inLine && r.bid == bid {
		return r
	}
	return nil
}

// lateAgain is called when the broker does not have a job; why is the outcome of the job there, or
// nil. A running job is submitted when its run is over.
func (c *machine) lateAgain(r *record, why *job.Outcome) {
	r.inLine = false
	c.late = append(c.late, lateJob{r.ID, c.now + ms(crossing), why, r.bid})
}

// tooLong is called when a job's argument makes its frame too long for the broker.
func (c *machine) tooLong(id job.ID) {
	r := c.jobs.Get(id)
	if r == nil || !r.inLine {
		return
	}
	r.long, r.inLine = true, false
	if r.waits() {
		c.place(r)
	}
}

// unchanged is called when the broker has not changed a job's groups, because the job is just
// being handed out or given back.
func (c *machine) unchanged(id job.ID) {
	if r := c.jobs.Get(id); r != nil && r.inLine && r.waits() {
		c.late = append(c.late, lateJob{id: id, at: c.now + ms(crossing)})
	} else if r != nil {
		r.stale = true
	}
}

// lateJob is a job that the broker is to get, or whose groups it is to get, once more.
type lateJob struct {
	id  job.ID
	at  int64
	why *job.Outcome // the attempt ends in this way instead, unless one of the master's workers had it
	bid uint32       // or it was submitted since
}

func (c *machine) placeLate() {
	c.late = slices.DeleteFunc(c.late, func(l lateJob) bool {
		if c.now < l.at {
			return false
		}
		r := c.jobs.Get(l.id)
		switch {
		case r == nil || r.State.Ended():
		case r.inLine && r.waits():
			c.regroup(r)
		case r.inLine:
			r.stale = true
		case l.why != nil && r.op != idle:
			return false
		case l.why != nil && r.waits() && !r.taken && r.bid == l.bid:
			c.attempted(r, l.why)
		case r.waits() || r.past.run.handle == nil:
			c.place(r)
		}
		return true
	})
}

// answered is called when a socket worker has ended a job, or was lost with it. A run that was
// lost, or that failed while the master stood still, may have been at one of the master's workers,
// with a hand-out that has not been read yet: then it does not count.
func (c *machine) answered(id job.ID, bid uint32, o *job.Outcome, lost bool) {
	r := c.brings(id, bid)
	switch {
	case r == nil || r.State.Ended(): // the master itself has ended it
	case c.ours(r): // it still runs, or a socket worker for all types had it, without its argument
		c.lateAgain(r, nil)
	case r.op != idle:
		r.wait(func() { c.answered(id, bid, o, lost) })
	case !o.Success && (lost || c.now < c.judge):
		c.lateAgain(r, o)
	default:
		r.inLine = false
		c.attempted(r, o)
	}
}

// attempted writes an attempt by a socket worker, and how it has ended.
func (c *machine) attempted(r *record, o *job.Outcome) {
	if c.socket == nil {
		c.socket = &worker{Worker: job.Worker{Name: "socket", Leaving: true}, runs: make(map[*record]struct{}), gone: true}
	}
	j := r.after()
	j.State, j.Worker, j.Started, j.Finished = job.Running, job.ID{}, c.wall, 0
	j.Attempt++
	j.Deadline = c.wall + ms(c.TimeoutGrace)
	u := &run{w: c.socket, before: r.State, deadline: never, sent: true}
	r.history().run = u
	c.become(r, j)
	c.ledger.HandedOut++
	c.ledger.Waiting--
	c.ledger.Running++
	c.write(starting, r, func(done func(error)) { c.out.store.Start(j, done) }, func() { c.end(r, o, true) })
}
