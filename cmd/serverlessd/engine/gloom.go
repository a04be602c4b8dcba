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

// Jobs of a gloom handler are taken only while a worker is idle. The workers of a shared broker
// cannot be seen, so each job is submitted with a deadline that passes at once: an idle worker
// gets it in the same step. Otherwise the job expires and is given back, and the type rests for a
// while.

const (
	gloomDeadline = 5 * time.Millisecond
	gloomRest     = 50 * time.Millisecond // the first rest
	gloomRestMost = time.Second
	gloomWait     = time.Second // for a connection, and room in it
)

// crew is what is known of the Gloom workers of a jobtype.
type crew struct {
	width int           // how many jobs to try at a time
	rest  time.Duration // after the next refusal
	until time.Time     // resting
}

// gloomRoom returns how many jobs of a jobtype to take for Gloom workers now.
func (e *Engine) gloomRoom(jobtype string) int {
	if e.link.Health() != nil {
		return 0 // another daemon may have a broker
	}
	idle, known := e.link.Idle(jobtype)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch c := e.crews[jobtype]; {
	case c != nil && time.Now().Before(c.until):
		return 0
	case known:
		return idle
	case c == nil:
		return 1
	default:
		return c.width
	}
}

// noteCrew adapts to how many jobs were handed to workers, and how many were not.
func (e *Engine) noteCrew(jobtype string, handed, refused int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.crews[jobtype]
	if c == nil {
		c = &crew{rest: gloomRest}
		e.crews[jobtype] = c
	}
	if handed > 0 {
		c.rest, c.until = gloomRest, time.Time{}
	}
	if refused == 0 {
		c.width = min(c.width+handed, e.cfg.Batch)
		return
	}
	c.width = max(1, handed)
	c.until = time.Now().Add(c.rest)
	c.rest = min(2*c.rest, gloomRestMost)
}

// askWorkers submits all jobs of a batch to Gloom workers at the same time.
func (t *batch) askWorkers() {
	var all sync.WaitGroup
	ends := make([]*ending, len(t.runs))
	whys := make([]error, len(t.runs))
	for i, r := range t.runs {
		all.Go(func() { ends[i], whys[i] = t.askWorker(r) })
	}
	all.Wait()
	refused := 0
	for i, end := range ends {
		if end == nil {
			end = t.e.broken(t.runs[i], false, nil)
			// At our own broker another job was quicker: that says nothing about the workers.
			if t.e.link.Own() == nil || !errors.Is(whys[i], gloom.ErrExpired) {
				refused++
			}
		}
		t.b.put(end)
	}
	t.reported = len(t.runs)
	t.e.noteCrew(t.jobtype(), len(ends)-refused, refused)
	t.finish()
}

// askWorker returns how a job ended, or why no worker got it.
func (t *batch) askWorker(r *run) (*ending, error) {
	timeout := time.Duration(t.handler.Options.Timeout)
	if timeout == 0 {
		timeout = t.e.cfg.JobTimeout
	}
	ctx, cancel := context.WithTimeout(t.ctx, gloomWait)
	defer cancel()
	began := time.Now()
	t.e.events.started(r, began) // before a worker can have any effect
	p, err := t.e.jobs.Submitter().Submit(ctx, gloom.Job{
		ID: r.ID.String(), Type: t.jobtype(), Body: runner.GloomBody(r.Payload),
		Groups: []string{t.client, t.jobtype()}, Retries: gloom.NoRetries, Expires: gloomDeadline, Timeout: timeout,
	})
	var res gloom.Result
	if err == nil {
		res, err = p.Result(t.ctx)
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
