package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	gloom "gloom/clients/go"
	"gloom/cmd/serverlessd/runner"
)

// Jobs of a gloom handler are taken only while a worker is idle. Those of a shared
// broker cannot be seen, so each job is submitted with a deadline that is over at
// once: a worker that is idle gets it in the same step, otherwise it expires and
// is given back, and the type rests for a while.

const (
	gloomDeadline = 5 * time.Millisecond
	gloomRest     = 50 * time.Millisecond // at first
	gloomRestMost = time.Second
)

// crew is what is known of the Gloom workers of a jobtype.
type crew struct {
	width int           // how many jobs to try at a time
	rest  time.Duration // after the next refusal
	until time.Time     // resting
}

// gloomRoom is how many jobs of a jobtype to take for Gloom workers now.
func (e *Engine) gloomRoom(jobtype string) int {
	if n, known := e.link.Idle(jobtype); known {
		return n
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.crews[jobtype]
	switch {
	case c == nil:
		return 1
	case time.Now().Before(c.until):
		return 0
	}
	return c.width
}

// noteCrew learns from jobs that were handed to workers, and from those that were
// not.
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

// askWorkers brings a batch to Gloom workers, all its jobs at the same time.
func (t *batch) askWorkers() {
	if !t.claim() {
		return // a stop has given it back
	}
	var all sync.WaitGroup
	ends := make([]*ending, len(t.runs))
	for i, r := range t.runs {
		all.Go(func() { ends[i] = t.askWorker(r) })
	}
	all.Wait()
	refused := 0
	for i, end := range ends {
		if end == nil {
			refused++
			end = t.e.broken(t.runs[i], false, nil)
		}
		t.b.put(end)
	}
	t.reported = len(t.runs)
	t.e.noteCrew(t.jobtype(), len(ends)-refused, refused)
	t.finish()
}

// askWorker returns how a job ended; nil when no worker had it.
func (t *batch) askWorker(r *run) *ending {
	timeout := time.Duration(t.handler.Options.Timeout)
	if timeout == 0 {
		timeout = t.e.cfg.JobTimeout
	}
	p, err := t.e.jobs.Submit(t.ctx, gloom.Job{
		ID: r.ID.String(), Type: t.jobtype(), Body: runner.GloomBody(r.Payload),
		Groups: []string{t.client, t.jobtype()}, Retries: gloom.NoRetries, Expires: gloomDeadline, Timeout: timeout,
	})
	if err != nil {
		return nil
	}
	began := time.Now()
	res, err := p.Result(t.ctx)
	var lost *gloom.LostError
	switch {
	case errors.Is(err, gloom.ErrExpired), errors.As(err, &lost) && !lost.Sent:
		return nil
	case t.ctx.Err() != nil:
		_ = p.Cancel(t.e.life) // nobody waits for it any longer
		return t.e.broken(r, true, context.Cause(t.ctx))
	}
	var refused *gloom.RefusedError
	if errors.As(err, &refused) && refused.Code != gloom.ErrSizeError {
		return nil // held by an earlier run of it, or no room there
	}
	t.e.events.started(r)
	o := runner.GloomOutcome(res.Body, err)
	o.Wall = time.Since(began)
	return t.e.judge(r, &o)
}
