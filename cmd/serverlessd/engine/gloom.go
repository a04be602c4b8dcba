package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	gloom "gloom/clients/go"
	"gloom/cmd/serverlessd/runner"
)

// Jobs of a gloom handler are taken only if a worker will have them soon. The engine cannot see the
// workers of a shared broker. They may even be at another broker of its fleet, which borrows the job
// after a while. So the engine learns how many jobs they take at a time: each job that ends leaves
// room for another one, and from time to time some more are tried. Each job has a deadline, at
// which it expires at the broker and is given back.

const (
	// gloomPatience is the deadline of the jobs that workers are known to have room for.
	gloomPatience = 250 * time.Millisecond
	// gloomTry is the first deadline of jobs that are tried, and the deadline at a broker of our
	// own, where an idle worker gets a job at once. It doubles when a tried job expires, up to
	// gloomTryMost: by then a fleet has made its offers.
	gloomTry     = 5 * time.Millisecond
	gloomTryMost = 160 * time.Millisecond
	// A job that has not expired gloomSlack after its deadline is assumed to run.
	gloomSlack    = 250 * time.Millisecond
	gloomRest     = 50 * time.Millisecond // pause after a job that has expired, at first
	gloomRestMost = time.Second
	gloomWait     = time.Second // for a connection and room in it
)

// crew is what the engine knows of the Gloom workers of a jobtype.
type crew struct {
	takes int           // how many jobs they take at a time
	busy  int           // how many are at the broker
	tried int           // how many of these are tried
	more  int           // how many to try next
	try   time.Duration // deadline of those
	rest  time.Duration // pause after the next one that expires
	until time.Time     // before this, no job is tried
}

// asked is a job at the broker; the engine's mutex guards it.
type asked struct {
	e       *Engine
	jobtype string
	within  time.Duration // its deadline
	tried   bool          // it is one more than the workers take
	over    bool
}

// crew returns the crew of a jobtype. The caller holds the mutex.
func (e *Engine) crew(jobtype string) *crew {
	c := e.crews[jobtype]
	if c == nil {
		c = &crew{more: 1, try: gloomTry, rest: gloomRest}
		e.crews[jobtype] = c
	}
	return c
}

// gloomRoom returns how many jobs of a jobtype to take for Gloom workers now.
func (e *Engine) gloomRoom(jobtype string) int {
	if e.link.Health() != nil {
		return 0 // another daemon may have a broker
	}
	idle, known := e.link.Idle(jobtype)
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.crew(jobtype)
	rests := time.Now().Before(c.until)
	switch {
	case known && rests:
		return 0
	case known:
		return idle
	case rests || c.tried > 0:
		return max(0, c.takes-c.busy)
	}
	return max(0, c.takes-c.busy) + c.more
}

// ask records that a job goes to the broker.
func (e *Engine) ask(jobtype string) *asked {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := &asked{e: e, jobtype: jobtype, within: gloomTry}
	c := e.crew(jobtype)
	c.busy++
	switch {
	case e.link.Own() != nil:
	case c.busy <= c.takes:
		a.within = gloomPatience
	default:
		if e.tries < max(1, e.cfg.Concurrency/8) { // jobs that wait long hold slots that others need
			a.within = c.try
		}
		a.tried = true
		c.tried++
		e.tries++
	}
	return a
}

// runs records that a job has not expired, which means that a worker has it.
func (a *asked) runs() {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	if !a.over && a.tried {
		a.taken()
		a.e.nudge()
	}
}

// taken records that the workers take one more job.
func (a *asked) taken() {
	c := a.e.crew(a.jobtype)
	a.settle(c)
	c.takes++
	c.rest = gloomRest
	if c.tried == 0 {
		c.more = min(2*c.more, a.e.cfg.Batch)
	}
}

func (a *asked) settle(c *crew) {
	if a.tried {
		a.tried = false
		c.tried--
		a.e.tries--
	}
}

// ended records that a job came back. If no worker had it, why is the reason, otherwise nil.
func (a *asked) ended(why error) {
	e := a.e
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.crew(a.jobtype)
	a.over = true
	c.busy--
	switch {
	case why == nil && a.tried:
		a.taken()
	case why == nil && 2*c.busy <= c.takes: // before all of its batch have ended
		e.nudge()
	case why == nil, e.link.Own() != nil && errors.Is(why, gloom.ErrExpired): // another job was faster
	case !a.tried && c.takes > 1: // a worker has left
		c.takes--
	default:
		if !a.tried {
			c.takes = 0
		}
		if a.settle(c); errors.Is(why, gloom.ErrExpired) {
			c.try = min(2*c.try, gloomTryMost)
		}
		c.more = 1
		if now := time.Now(); !now.Before(c.until) { // of several that expire together, only the first counts
			c.until = now.Add(c.rest)
			c.rest = min(2*c.rest, gloomRestMost)
		}
	}
}

// askWorkers submits all jobs of a batch to Gloom workers at the same time.
func (t *batch) askWorkers() {
	var all sync.WaitGroup
	for _, r := range t.runs {
		a := t.e.ask(t.jobtype())
		all.Go(func() {
			end, why := t.askWorker(r, a)
			if end == nil {
				end = t.e.broken(r, false, nil)
			}
			t.b.put(end)
			a.ended(why)
		})
	}
	all.Wait()
	t.reported = len(t.runs)
	t.finish()
}

// askWorker returns how a job ended, or why no worker got it.
func (t *batch) askWorker(r *run, a *asked) (*ending, error) {
	timeout := time.Duration(t.handler.Options.Timeout)
	if timeout == 0 {
		timeout = t.e.cfg.JobTimeout
	}
	ctx, cancel := context.WithTimeout(t.ctx, gloomWait)
	defer cancel()
	began := time.Now()
	t.e.started(r, began) // before a worker can have any effect
	p, err := t.e.jobs.Submitter().Submit(ctx, gloom.Job{
		ID: r.ID.String(), Type: t.jobtype(), Body: runner.GloomBody(r.Payload),
		Groups: []string{t.client, t.jobtype()}, Retries: gloom.NoRetries, Expires: a.within, Timeout: timeout,
	})
	var res gloom.Result
	if err == nil {
		runs := time.AfterFunc(a.within+gloomSlack, a.runs)
		res, err = p.Result(t.ctx)
		runs.Stop()
	}
	t.e.jobs.Note(t.jobtype(), err, untaken(err))
	switch {
	case err != nil && t.ctx.Err() != nil && p != nil:
		_ = p.Cancel(t.e.life) // nobody waits for it any more
		return t.e.broken(r, true, context.Cause(t.ctx)), nil
	case untaken(err):
		return nil, err
	}
	o := runner.GloomOutcome(res.Body, err)
	o.Wall = time.Since(began)
	return t.e.judge(r, &o), nil
}

// untaken reports whether no worker got the job, but one may get it later. It is false if the broker
// would give the same answer about this job again.
func untaken(err error) bool {
	var lost *gloom.LostError
	var refused *gloom.RefusedError
	var ended *gloom.JobError
	switch {
	case err == nil:
		return false
	case errors.As(err, &lost):
		return !lost.Sent
	case errors.As(err, &refused): // an earlier run may hold the id
		return refused.ID == "" || slices.Contains([]gloom.Code{gloom.ErrIDExists, gloom.ErrOverloaded, gloom.ErrDraining}, refused.Code)
	case errors.As(err, &ended):
		return ended.Code == gloom.ErrExpired
	}
	return true // there is no connection, or no room in it
}
