package master

import (
	"gloom/cmd/jq-master/job"
)

// endedEntry is an entry in the queue of ended jobs.
type endedEntry struct {
	rec     *record
	rev     uint32
	endedAt int64 // when it ended, on the clock
}

// addEnded adds a job to the ended ones. forget is when to forget the job, drop when to drop its
// result (0: it has none).
func (c *machine) addEnded(r *record, forget, drop int64) {
	p := r.ensureRunInfo()
	if r.Holds(c.wallTime) {
		forget = max(forget, r.Unique.Until)
	}
	p.forget = forget
	c.constraints.remove(r)
	if drop != 0 && r.Result != nil {
		p.drop = drop
		c.results++
		c.endedBytes -= r.size()
	}
	c.ended.push(endedEntry{r, r.Rev, c.monotonic})
	c.setTimer(r)
	c.wakePollers(r)
}

// setTimer sets the timer of an ended job.
func (c *machine) setTimer(r *record) {
	c.timers.set(r, c.monoAt(r.runInfo.nextEnd()))
}

// dropResult drops the result of a job because it was fetched or is too old. The store drops it a
// little later, together with others.
func (c *machine) dropResult(r *record) {
	p := r.runInfo
	if p.drop == 0 {
		return
	}
	j := *r.Job
	j.Result = nil
	c.replaceJob(r, &j)
	c.results--
	c.endedBytes += r.size()
	p.drop, p.fetching = 0, false
	c.fetchedJobs = append(c.fetchedJobs, r)
	if c.dropFetchedAt == 0 {
		c.dropFetchedAt = c.now + fetchDelay
	}
	c.ended.push(endedEntry{r, r.Rev, c.monotonic}) // expire may have skipped the job because of its result
	c.setTimer(r)
}

const fetchDelay = 50 // how long fetches are collected before the store is told, in milliseconds

// flushFetched tells the store which results it can drop.
func (c *machine) flushFetched() {
	for len(c.fetchedJobs) > 0 {
		n := min(len(c.fetchedJobs), maxStepRecords)
		ids := make([]job.ID, 0, n)
		for _, r := range c.fetchedJobs[:n] {
			if c.jobs.Get(r.ID) == r {
				ids = append(ids, r.ID)
			}
		}
		c.fetchedJobs = c.fetchedJobs[n:]
		if len(ids) > 0 {
			c.tellStore(func(done func(error)) { c.env.store.Fetch(ids, done) })
		}
	}
	c.fetchedJobs, c.dropFetchedAt = nil, 0
}

// makeRoom forgets jobs that ended more than minEndedAgeForRoom ago, until it has freed the given
// number of bytes or forgotten maxStepRecords jobs.
func (c *machine) makeRoom(bytes int64) {
	c.bytesToFree = bytes
	c.expire()
	c.bytesToFree = 0
}

// expire forgets the jobs that ended first while there are too many ended jobs or they take too
// many bytes. It forgets at most maxStepRecords jobs at a time.
func (c *machine) expire() {
	var surplus []*record
	spent, freed := c.endedBytes, int64(0)
	for c.ended.len() > 0 && len(surplus) < maxStepRecords {
		e := c.ended.first()
		r := e.rec
		switch {
		case c.jobs.Get(r.ID) != r || r.Rev != e.rev || !r.State.Ended() || r.op == opForget || r.runInfo.drop != 0 || r.Holds(c.wallTime):
			c.ended.pop() // it was revived or forgotten, or still holds a unique key; or it is added again when its result is dropped
			continue
		case spent > c.MaxBytes/2, freed < c.bytesToFree && c.monotonic-e.endedAt >= toMillis(minEndedAgeForRoom):
		case c.counts[job.Done]+c.counts[job.Failed]+c.counts[job.Cancelled]-c.beingForgotten-len(surplus) <= c.MaxEnded,
			c.monotonic-e.endedAt < toMillis(minEndedAge):
			c.forget(surplus)
			return
		}
		c.ended.pop()
		surplus = append(surplus, r)
		spent -= r.size()
		freed += r.size() + 1
	}
	c.forget(surplus)
}

// forget removes ended jobs, at most maxStepRecords.
func (c *machine) forget(records []*record) {
	ids := make([]job.ID, 0, len(records))
	kept := records[:0]
	for _, r := range records {
		if r.op == opNone {
			c.endedBytes -= r.size()
			r.op = opForget
			ids, kept = append(ids, r.ID), append(kept, r)
		}
	}
	if len(ids) == 0 {
		return
	}
	c.beingForgotten += len(kept)
	c.runAfterStep(func() {
		c.env.store.Forget(ids, func(err error) {
			c.env.run(func() {
				if err != nil {
					c.env.fail(err)
					return
				}
				c.beingForgotten -= len(kept)
				for _, r := range kept {
					c.remove(r)
					r.op = opNone
					c.runWaiting(r)
				}
			})
		})
	})
}

// tick does the work that is due.
func (c *machine) tick() {
	var forgotten []*record
	for n := 0; n < maxStepRecords && c.timers.next() <= c.now; n++ {
		r := c.timers[0]
		switch u := r.runInfo.run; {
		case u != nil:
			if c.awayErr != nil {
				c.timers.set(r, c.now+toMillis(beatInterval))
				continue
			}
			if c.now < c.deadlinesFrom {
				c.timers.set(r, c.deadlinesFrom)
				continue
			}
			c.timers.remove(r)
			c.timeOut(r, u)
		case !r.State.Ended():
			c.timers.remove(r)
		case r.runInfo.drop != 0 && c.wallTime >= r.runInfo.drop:
			if r.runInfo.fetching {
				c.timers.set(r, c.now+1000)
				continue
			}
			c.metrics.expired++
			c.dropResult(r)
		case c.wallTime >= r.runInfo.forget:
			c.timers.remove(r)
			forgotten = append(forgotten, r)
		default: // wall has jumped: the job is not due yet
			c.timers.set(r, max(c.now+1, c.monoAt(r.runInfo.nextEnd())))
		}
	}
	if len(forgotten) > 0 {
		c.forget(forgotten)
	}
	if c.dropFetchedAt != 0 && c.now >= c.dropFetchedAt && c.awayErr == nil {
		c.flushFetched()
	}
}

// next returns the time at which tick has work to do.
func (c *machine) next() int64 {
	next := c.timers.next()
	if c.dropFetchedAt != 0 && c.awayErr == nil {
		next = min(next, c.dropFetchedAt)
	}
	return next
}

func (p *runInfo) nextEnd() int64 {
	if p.drop != 0 {
		return min(p.drop, p.forget)
	}
	return p.forget
}

// timeOut fails a run whose deadline has passed.
func (c *machine) timeOut(r *record, u *run) {
	c.whenIdle(r, u, func() {
		c.ledger.Timeouts++
		c.fail(r, job.Timeout, "no answer within the timeout")
	})
}
