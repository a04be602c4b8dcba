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

// Jobs of a gloom handler are taken only while a worker will have them soon. The workers of a shared
// broker cannot be seen, and may be at another broker of its fleet, to which a job is lent after a
// while. So it is learned how many jobs they take at a time: for each job that ends there is room for
// another one, and beside these some more are tried from time to time. Each has a deadline, by which
// it expires at the broker and is given back.

const (
	// gloomPatience is the deadline of as many jobs as the workers take.
	gloomPatience = 250 * time.Millisecond
	// gloomTry is the first deadline of those that are tried, and the one at a broker of our own: an
	// idle worker there gets them at once. It doubles when one of them has expired, up to
	// gloomTryMost: until then a fleet makes its offers.
	gloomTry     = 5 * time.Millisecond
	gloomTryMost = 160 * time.Millisecond
	// gloomSlack is how long after its deadline a job that has not expired is taken to run.
	gloomSlack    = 250 * time.Millisecond
	gloomRest     = 50 * time.Millisecond // after a job that has expired, at first
	gloomRestMost = time.Second
	gloomWait     = time.Second // for a connection, and room in it
)

// crew is what is known of the Gloom workers of a jobtype.
type crew struct {
	takes int           // how many jobs they take at a time
	busy  int           // how many are at the broker
	tried int           // how many of these are tried
	more  int           // how many to try next
	try   time.Duration // their deadline
	rest  time.Duration // after the next one that expires
	until time.Time     // nothing is tried
}

// asked is a job at the broker; the engine's mutex guards it.
type asked struct {
	e       *Engine
	jobtype string
	within  time.Duration // its deadline
	tried   bool          // it is one more than the workers take
	over    bool
}

// crew returns that of a jobtype. It is called with the mutex held.
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

// ask notes that a job goes to the broker.
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
		if e.tries < max(1, e.cfg.Concurrency/8) { // those that wait for long hold slots that others need
			a.within = c.try
		}
		a.tried = true
		c.tried++
		e.tries++
	}
	return a
}

// runs notes that a job has not expired, so that a worker has it.
func (a *asked) runs() {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	if !a.over && a.tried {
		a.taken()
		a.e.nudge()
	}
}

// taken notes that the workers take one job more.
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

// ended notes how a job came back: why says that no worker had it.
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
	case why == nil, e.link.Own() != nil && errors.Is(why, gloom.ErrExpired): // of which another job was quicker
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
		if now := time.Now(); !now.Before(c.until) { // of several at a time, the first counts
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
	t.e.jobs.Note(t.jobtype(), err, goesBy(err))
	switch {
	case err != nil && t.ctx.Err() != nil && p != nil:
		_ = p.Cancel(t.e.life) // nobody waits for it any more
		return t.e.broken(r, true, context.Cause(t.ctx)), nil
	case goesBy(err):
		return nil, err
	}
	o := runner.GloomOutcome(res.Body, err)
	o.Wall = time.Since(began)
	return t.e.judge(r, &o), nil
}

// goesBy reports that no worker got the job, and that one may get it later. It is false if the
// broker would give the same answer about this job again.
func goesBy(err error) bool {
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
