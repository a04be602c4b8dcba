package engine

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/schedule"
	"gloom/cmd/serverlessd/store"
)

const (
	// pollEvery is how often a store is asked for jobs that other daemons have added.
	pollEvery = 250 * time.Millisecond
	// pickRetry is the pause after a store or broker could not be asked.
	pickRetry = 100 * time.Millisecond
)

// A Take ends after takeBytes of payloads, however many jobs a handler wants at a time.
const takeBytes = 16 << 20

// candidate is a type that has due jobs in a store.
type candidate struct {
	backend   *backend
	due       *store.DueType
	handler   *job.Handler
	freeSlots int // idle Gloom workers
}

// pickLoop calls pick again and again until the engine ends.
func (e *Engine) pickLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-e.wake:
		case <-timer.C:
		}
		timer.Reset(e.pick())
	}
}

// pick takes the jobs that may run now, and returns the longest time to wait before the next pick.
func (e *Engine) pick() (wait time.Duration) {
	if !e.isHandingOut() {
		return pollEvery
	}
	wait = pollEvery
	for _, b := range e.backends {
		if next := b.refreshDue(); next > 0 {
			wait = min(wait, next)
		}
	}
	var from []candidate
	var types []schedule.Type
	for _, b := range e.backends {
		if b.usableSysid() == "" {
			continue
		}
		for i := range b.dueTypes {
			c := candidate{backend: b, due: &b.dueTypes[i], handler: e.handlers.newest(b.dueTypes[i].Jobtype)}
			if t, ok := e.eligible(&c); ok {
				from, types = append(from, c), append(types, t)
			}
		}
	}
	failed := make(map[*backend]bool)
	for _, p := range e.plan(from, types) {
		if !e.takeBatches(p) {
			failed[p.backend], wait = true, pickRetry
		}
	}
	for _, b := range e.backends {
		if !failed[b] {
			b.setRefused(actionTake, nil)
		}
	}
	e.mu.Lock()
	e.picking = false
	e.checkIdle()
	e.mu.Unlock()
	return wait
}

// batchPlan says how many batches of a candidate's jobs to take, and of which size. Their slots have
// been taken.
type batchPlan struct {
	candidate
	size, batches int
}

// plan chooses candidates for all free slots, and takes the slots. If it chooses any, it sets
// e.picking.
func (e *Engine) plan(from []candidate, types []schedule.Type) (plans []*batchPlan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := make(map[*store.DueType]*batchPlan)
	for len(types) > 0 && !e.stopped && !e.leaving {
		i := e.scheduler.SelectJobtypeToRun(time.Now(), types)
		if i < 0 {
			break
		}
		c := from[i]
		p := known[c.due]
		if p == nil {
			p = &batchPlan{candidate: c, size: e.batchSize(c.handler)}
			if c.handler.Lang == job.Gloom {
				p.size = min(p.size, c.freeSlots)
			}
			known[c.due], plans = p, append(plans, p)
		}
		p.batches++
		e.scheduler.JobsStarted(time.Now(), types[i].Client, c.due.Jobtype)
		if c.due.Count -= p.size; c.due.Count <= 0 || c.handler.Lang == job.Gloom {
			types, from = append(types[:i], types[i+1:]...), append(from[:i], from[i+1:]...)
		}
	}
	e.picking = len(plans) > 0
	return plans
}

// batchSize returns how many jobs of a handler are taken for a slot. Gloom workers run all jobs of
// a batch at the same time, so a limit on concurrency is shared among the slots.
func (e *Engine) batchSize(h *job.Handler) int {
	size := cmp.Or(h.Options.BatchSize, e.cfg.Batch)
	if limit := h.Options.Concurrency; h.Lang == job.Gloom && limit > 0 {
		size = max(1, min(size, limit/e.cfg.Concurrency))
	}
	return size
}

// refreshDue asks a store which jobs are due, unless it did so a moment ago. It returns how soon it
// must be called again; 0 means after the usual time.
func (b *backend) refreshDue() (next time.Duration) {
	if b.usableSysid() == "" {
		return 0
	}
	b.mu.Lock()
	seen, at := b.askedAt, b.nextDueAt
	b.mu.Unlock()
	now := time.Now()
	if now.Sub(seen) < pollEvery && (at.IsZero() || now.Before(at)) {
		rest := pollEvery - now.Sub(seen)
		if !at.IsZero() {
			rest = min(rest, at.Sub(now))
		}
		return max(time.Millisecond, rest)
	}
	b.mu.Lock()
	b.askedAt = now // set before the store is asked, so that jobs that come meanwhile are looked for again
	b.mu.Unlock()
	ctx, cancel := b.call()
	defer cancel()
	due, next, err := b.store.Waiting(ctx)
	b.engine.metrics.observeCall("waiting", now)
	if b.noteCall("look for jobs", err) != nil {
		return pickRetry
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dueTypes, b.nextDueAt = due, time.Time{}
	if next > 0 {
		b.nextDueAt = now.Add(next)
	}
	return next
}

// eligible returns a candidate as a schedule.Type, and false if it cannot run at all.
func (e *Engine) eligible(c *candidate) (schedule.Type, bool) {
	h := c.handler
	if h == nil || c.due.Count == 0 {
		return schedule.Type{}, false
	}
	client, _, _ := job.SplitJobtype(c.due.Jobtype)
	t := schedule.Type{Client: client, Jobtype: c.due.Jobtype, Age: c.due.Age, Limit: h.Options.Concurrency}
	if h.Lang == job.Gloom {
		c.freeSlots = e.workerRoom(c.due.Jobtype)
		if t.Limit > 0 {
			e.mu.Lock()
			left := t.Limit - len(e.mayStillRun[c.due.Jobtype])
			e.mu.Unlock()
			c.freeSlots = min(c.freeSlots, left)
			t.Limit = max(1, left/e.batchSize(h))
		}
		return t, c.freeSlots > 0
	}
	t.Warm = e.runner.HasWarmContext(client, h)
	return t, !e.isHostPaused(h.Lang)
}

const actionTake = "take jobs"

// takeBatches locks the jobs of a plan and runs them, one batch per slot. It frees the slots for
// which there are no jobs.
func (e *Engine) takeBatches(p *batchPlan) bool {
	client, _, _ := job.SplitJobtype(p.due.Jobtype)
	defer func() {
		if p.batches == 0 {
			return
		}
		e.mu.Lock()
		for range p.batches {
			e.scheduler.JobsStopped(time.Now(), client, p.due.Jobtype)
		}
		e.mu.Unlock()
	}()
	sysid := p.backend.usableSysid()
	if sysid == "" {
		return false
	}
	ctx, cancel := p.backend.call()
	defer cancel()
	began := time.Now()
	taken, err := p.backend.store.Take(ctx, store.TakeRequest{Sysid: sysid, Jobtype: p.due.Jobtype, N: p.size * p.batches, Bytes: takeBytes, TTL: e.cfg.LockTTL, RetryFor: e.cfg.RetryFor})
	if err != nil && (errors.Is(err, store.ErrUnwell) || !errors.Is(err, store.ErrAway)) {
		p.backend.setRefused(actionTake, err)
		return false
	}
	if p.backend.noteRequest(ctx, err) != nil {
		return false
	}
	e.metrics.takenJobs.Add(float64(len(taken)))
	e.metrics.observeCall("take", began)
	bytes := 0
	for i := range taken {
		bytes += len(taken[i].Payload)
	}
	switch {
	case p.handler.Lang == job.Gloom, p.due.Count <= 0 && len(taken) == p.size*p.batches, bytes >= takeBytes:
		p.backend.wakePick() // there may be more jobs than were counted
	case len(taken) < p.size*p.batches:
		p.due.Count = 0
	}
	var bare []store.TakenJob
	taken = slices.DeleteFunc(taken, func(j store.TakenJob) bool {
		if j.NoPayload {
			bare = append(bare, j)
		}
		return j.NoPayload
	})
	var batches []*batch
	for jobs := range slices.Chunk(taken, p.size) {
		batches = append(batches, newBatch(e, &p.candidate, sysid, jobs, began))
	}
	inHand := batches
	if len(bare) > 0 {
		inHand = append(inHand, newBatch(e, &p.candidate, sysid, bare, began))
	}
	held := p.backend.addRunning(inHand, sysid)
	for _, t := range inHand[len(batches):] {
		t.endUnrun(held)
	}
	for _, t := range batches {
		e.startBatch(t, held)
		p.batches--
	}
	return true
}
