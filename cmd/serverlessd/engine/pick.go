package engine

import (
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/schedule"
	"gloom/cmd/serverlessd/store"
)

const (
	// pollEvery is how often a store is asked for jobs that others have added.
	pollEvery = 250 * time.Millisecond
	// pickRetry is the pause after a store or broker could not be asked.
	pickRetry = 100 * time.Millisecond
)

// candidate is a type with jobs that are due in a store.
type candidate struct {
	b       *backend
	due     *store.Due
	handler *job.Handler
}

// pickLoop takes jobs as long as there are slots and jobs.
func (e *Engine) pickLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-e.life.Done():
			return
		case <-e.wake:
		case <-timer.C:
		}
		timer.Reset(e.pick())
	}
}

// pick takes what may run now, and returns when to look again at the latest.
func (e *Engine) pick() (wait time.Duration) {
	if !e.handsOut() {
		return pollEvery
	}
	wait = pollEvery
	for _, b := range e.backends {
		if next := b.ask(); next > 0 {
			wait = min(wait, next)
		}
	}
	var from []candidate
	var types []schedule.Type
	for _, b := range e.backends {
		if b.identity() == "" {
			continue
		}
		for i := range b.due {
			c := candidate{b: b, due: &b.due[i], handler: e.handlers.newest(b.due[i].Jobtype)}
			if t, ok := e.eligible(&c); ok {
				from, types = append(from, c), append(types, t)
			}
		}
	}
	for len(types) > 0 {
		e.mu.Lock()
		i := -1
		if !e.stopped && !e.leaving {
			i = e.sched.SelectJobtypeToRun(time.Now(), types)
		}
		e.mu.Unlock()
		if i < 0 {
			break
		}
		n, err := e.take(&from[i])
		if err != nil {
			wait = pickRetry
			break
		}
		if from[i].due.Count -= n; n == 0 || from[i].due.Count <= 0 || from[i].handler.Lang == job.Gloom {
			from[i].b.look() // there may be more than was counted
			types, from = append(types[:i], types[i+1:]...), append(from[:i], from[i+1:]...)
		}
	}
	return wait
}

func (e *Engine) handsOut() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.stopped && !e.leaving
}

// ask refreshes what is due in a store, and returns how long until a deferred
// job is.
func (b *backend) ask() (next time.Duration) {
	if b.identity() == "" {
		return 0
	}
	b.mu.Lock()
	seen, at := b.seen, b.dueAt
	b.mu.Unlock()
	now := time.Now()
	if now.Sub(seen) < pollEvery && (at.IsZero() || now.Before(at)) {
		return max(time.Millisecond, time.Until(at))
	}
	b.mu.Lock()
	b.seen = now // before asking: what comes meanwhile is looked for again
	b.mu.Unlock()
	ctx, cancel := b.call()
	defer cancel()
	due, next, err := b.store.Waiting(ctx)
	b.e.meter.asked(time.Since(now))
	if b.note(err) != nil {
		b.complain(err, "cannot look for jobs")
		return pickRetry
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due, b.dueAt = due, time.Time{}
	if next > 0 {
		b.dueAt = now.Add(next)
	}
	return next
}

// eligible is a candidate as the scheduler sees it; false when it cannot run at
// all.
func (e *Engine) eligible(c *candidate) (schedule.Type, bool) {
	h := c.handler
	if h == nil || c.due.Count == 0 {
		return schedule.Type{}, false
	}
	client, _, _ := job.Split(c.due.Jobtype)
	t := schedule.Type{Client: client, Jobtype: c.due.Jobtype, Age: c.due.Age, Limit: h.Options.Concurrency}
	if h.Lang == job.Gloom {
		return t, e.gloomRoom(c.due.Jobtype) > 0
	}
	t.Warm = e.runner.Warm(client, h)
	return t, true
}

// take locks a batch of a type and brings it to the broker.
func (e *Engine) take(c *candidate) (n int, err error) {
	sysid := c.b.identity()
	if sysid == "" {
		return 0, store.ErrAway
	}
	want := e.cfg.Batch
	if size := c.handler.Options.BatchSize; size > 0 {
		want = size
	}
	if c.handler.Lang == job.Gloom {
		want = min(want, e.gloomRoom(c.due.Jobtype))
	}
	ctx, cancel := c.b.call()
	defer cancel()
	began := time.Now()
	taken, err := c.b.store.Take(ctx, store.Taking{Sysid: sysid, Jobtype: c.due.Jobtype, N: want, TTL: e.cfg.LockTTL})
	if c.b.note(err) != nil {
		c.b.complain(err, "cannot take jobs")
		return 0, err
	}
	if len(taken) > 0 {
		e.meter.took(len(taken), time.Since(began))
		e.begin(newBatch(e, c, sysid, taken, began))
	}
	return len(taken), nil
}
