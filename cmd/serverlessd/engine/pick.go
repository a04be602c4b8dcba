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
	// pollEvery is the interval at which a store is asked for jobs that other daemons have added.
	pollEvery = 250 * time.Millisecond
	// pickRetryPause is the pause after a store or broker could not be asked.
	pickRetryPause = 100 * time.Millisecond
)

// takeBytes is the number of bytes of payloads that a Take reads before it ends, however many jobs
// a handler wants at a time.
const takeBytes = 16 << 20

// candidate is a type that has due jobs in a store. plan sets how many batches of its jobs to take,
// and reserves a slot for each.
type candidate struct {
	backend *backend
	due     *store.DueType
	handler *job.Handler
	client  string
	size    int // of a batch
	batches int
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
	var candidates []*candidate
	var types []schedule.Type
	for _, b := range e.backends {
		b.mu.Lock()
		full := b.isQueueFull()
		b.mu.Unlock()
		if full || b.usableSysid() == "" {
			continue
		}
		for i := range b.dueTypes {
			c := &candidate{backend: b, due: &b.dueTypes[i], handler: e.handlers.newest(b.dueTypes[i].Jobtype)}
			if t, ok := e.eligible(c); ok {
				candidates, types = append(candidates, c), append(types, t)
			}
		}
	}
	failed := make(map[*backend]bool)
	for _, c := range e.plan(candidates, types) {
		if !e.takeBatches(c) {
			failed[c.backend], wait = true, pickRetryPause
		}
	}
	for _, b := range e.backends {
		if !failed[b] {
			b.setFailure(actionTake, nil)
		}
	}
	e.mu.Lock()
	e.isPicking = false
	e.checkIdle()
	e.mu.Unlock()
	return wait
}

// plan chooses candidates for all free slots, and takes the slots. If it chooses any, it sets
// e.isPicking.
func (e *Engine) plan(candidates []*candidate, types []schedule.Type) (choice []*candidate) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(types) > 0 && !e.stopped && !e.leaving {
		i := e.scheduler.SelectJobtypeToRun(time.Now(), types)
		if i < 0 {
			break
		}
		c := candidates[i]
		if c.batches++; c.batches == 1 {
			choice = append(choice, c)
		}
		e.scheduler.JobsStarted(time.Now(), c.client, c.due.Jobtype)
		c.due.Count -= c.size
		if c.due.Count <= 0 || c.handler.Lang == job.Gloom {
			types, candidates = slices.Delete(types, i, i+1), slices.Delete(candidates, i, i+1)
		}
	}
	e.isPicking = len(choice) > 0
	return choice
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

// refreshDue asks a store which jobs are due, unless it asked the store a moment ago. It returns
// how soon it must be called again; 0 means after the usual time.
func (b *backend) refreshDue() (next time.Duration) {
	if b.usableSysid() == "" {
		return 0
	}
	b.mu.Lock()
	askedAt, dueAt := b.askedAt, b.nextDueAt
	b.mu.Unlock()
	now := time.Now()
	if now.Sub(askedAt) < pollEvery && (dueAt.IsZero() || now.Before(dueAt)) {
		pauseLeft := pollEvery - now.Sub(askedAt)
		if !dueAt.IsZero() {
			pauseLeft = min(pauseLeft, dueAt.Sub(now))
		}
		return max(time.Millisecond, pauseLeft)
	}
	b.mu.Lock()
	b.askedAt = now // set before the store is asked, so that jobs that come meanwhile are looked for again
	b.mu.Unlock()
	due, next, err := b.store.Waiting(b.engine.ctx)
	b.engine.metrics.observeCall("waiting", now)
	if b.noteCall("look for jobs", err) != nil {
		return pickRetryPause
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
	c.client, _, _ = job.SplitJobtype(c.due.Jobtype)
	c.size = e.batchSize(h)
	t := schedule.Type{Client: c.client, Jobtype: c.due.Jobtype, Age: c.due.Age, Limit: h.Options.Concurrency}
	if h.Lang == job.Gloom {
		room := e.workerRoom(c.due.Jobtype)
		if t.Limit > 0 {
			e.mu.Lock()
			left := t.Limit - len(e.mayStillRun[c.due.Jobtype])
			e.mu.Unlock()
			room = min(room, left)
			t.Limit = max(1, left/c.size)
		}
		c.size = min(c.size, room)
		return t, room > 0
	}
	t.Warm = e.runner.HasWarmProcess(c.client, h)
	return t, !e.isHostPaused(h.Lang)
}

const actionTake = "take jobs"

// takeBatches locks the planned jobs of a candidate and runs them, one batch per slot. It frees the
// slots for which there are no jobs.
func (e *Engine) takeBatches(c *candidate) bool {
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for range c.batches {
			e.scheduler.JobsStopped(time.Now(), c.client, c.due.Jobtype)
		}
	}()
	sysid := c.backend.usableSysid()
	if sysid == "" {
		return false
	}
	start := time.Now()
	wanted := c.size * c.batches
	taken, err := c.backend.store.Take(e.ctx, store.TakeRequest{Sysid: sysid, Jobtype: c.due.Jobtype, N: wanted, Bytes: takeBytes, TTL: e.cfg.LockTTL, RetryFor: e.cfg.RetryFor})
	if err != nil && (errors.Is(err, store.ErrUnwell) || !errors.Is(err, store.ErrAway)) {
		c.backend.setFailure(actionTake, err)
		return false
	}
	if c.backend.noteRequest(e.ctx, err) != nil {
		return false
	}
	e.metrics.takenJobs.Add(float64(len(taken)))
	e.metrics.observeCall("take", start)
	bytes := 0
	for i := range taken {
		bytes += len(taken[i].Payload)
	}
	switch {
	case c.handler.Lang == job.Gloom, c.due.Count <= 0 && len(taken) == wanted, bytes >= takeBytes:
		c.backend.wakePick() // there may be more jobs than were counted
	case len(taken) < wanted:
		c.due.Count = 0
	}
	var jobsWithoutPayload []store.TakenJob
	taken = slices.DeleteFunc(taken, func(j store.TakenJob) bool {
		if j.NoPayload {
			jobsWithoutPayload = append(jobsWithoutPayload, j)
		}
		return j.NoPayload
	})
	var batches []*batch
	for jobs := range slices.Chunk(taken, c.size) {
		batches = append(batches, newBatch(e, c, sysid, jobs, start))
	}
	withoutPayload := newBatch(e, c, sysid, jobsWithoutPayload, start)
	held := c.backend.addRunning(append(batches, withoutPayload), sysid)
	withoutPayload.endWithoutPayload(held)
	for _, t := range batches {
		e.startBatch(t, held)
		c.batches--
	}
	return true
}
