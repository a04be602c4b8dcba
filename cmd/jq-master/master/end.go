package master

import (
	"gloom/cmd/jq-master/job"
)

// ending is an entry in the queue of ended jobs.
type ending struct {
	rec *record
	rev uint32
	at  int64 // when it ended, on the clock
}

// addEnded adds a job to the ended ones. forget is when to forget the job, drop when to drop its
// result (0: it has none).
func (c *machine) addEnded(r *record, forget, drop int64) {
	p := r.history()
	if r.Holds(c.wall) {
		forget = max(forget, r.Unique.Until)
	}
	p.forget = forget
	c.constraints.remove(r)
	if drop != 0 && r.Result != nil {
		p.drop = drop
		c.results++
		c.endedBytes -= r.size()
	}
	c.ended.push(ending{r, r.Rev, c.clock})
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
	p.drop, p.fetch = 0, false
	c.fetched = append(c.fetched, r)
	if c.fetchAt == 0 {
		c.fetchAt = c.now + fetchDelay
	}
	c.ended.push(ending{r, r.Rev, c.clock}) // expire may have skipped the job because of its result
	c.setTimer(r)
}

const fetchDelay = 50 // how long fetches are collected before the store is told, in milliseconds

// flushFetched tells the store which results it can drop.
func (c *machine) flushFetched() {
	for len(c.fetched) > 0 {
		n := min(len(c.fetched), maxStepRecords)
		ids := make([]job.ID, 0, n)
		for _, r := range c.fetched[:n] {
			if c.jobs.Get(r.ID) == r {
				ids = append(ids, r.ID)
			}
		}
		c.fetched = c.fetched[n:]
		if len(ids) > 0 {
			c.tellStore(func(done func(error)) { c.env.store.Fetch(ids, done) })
		}
	}
	c.fetched, c.fetchAt = nil, 0
}

// makeRoom forgets jobs that ended more than minEndedAgeForRoom ago, until it has freed the given
// number of bytes or forgotten maxStepRecords jobs.
func (c *machine) makeRoom(bytes int64) {
	c.toFree = bytes
	c.expire()
	c.toFree = 0
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
		case c.jobs.Get(r.ID) != r || r.Rev != e.rev || !r.State.Ended() || r.op == forgetting || r.runInfo.drop != 0 || r.Holds(c.wall):
			c.ended.pop() // it was revived or forgotten, or still holds a unique key; or it is added again when its result is dropped
			continue
		case spent > c.MaxBytes/2, freed < c.toFree && c.clock-e.at >= ms(minEndedAgeForRoom):
		case c.counts[job.Done]+c.counts[job.Failed]+c.counts[job.Cancelled]-c.leaving-len(surplus) <= c.MaxEnded,
			c.clock-e.at < ms(minEndedAge):
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
		if r.op == idle {
			c.endedBytes -= r.size()
			r.op = forgetting
			ids, kept = append(ids, r.ID), append(kept, r)
		}
	}
	if len(ids) == 0 {
		return
	}
	c.leaving += len(kept)
	c.later(func() {
		c.env.store.Forget(ids, func(err error) {
			c.env.run(func() {
				if err != nil {
					c.env.fail(err)
					return
				}
				c.leaving -= len(kept)
				for _, r := range kept {
					c.remove(r)
					r.op = idle
					c.callWaiting(r)
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
			if c.away != nil {
				c.timers.set(r, c.now+ms(beatInterval))
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
		case r.runInfo.drop != 0 && c.wall >= r.runInfo.drop:
			if r.runInfo.fetch {
				c.timers.set(r, c.now+1000)
				continue
			}
			c.more.expired++
			c.dropResult(r)
		case c.wall >= r.runInfo.forget:
			c.timers.remove(r)
			forgotten = append(forgotten, r)
		default: // wall has jumped: the job is not due yet
			c.timers.set(r, max(c.now+1, c.monoAt(r.runInfo.nextEnd())))
		}
	}
	if len(forgotten) > 0 {
		c.forget(forgotten)
	}
	if c.fetchAt != 0 && c.now >= c.fetchAt && c.away == nil {
		c.flushFetched()
	}
}

// next returns the time at which tick has work to do.
func (c *machine) next() int64 {
	next := c.timers.next()
	if c.fetchAt != 0 && c.away == nil {
		next = min(next, c.fetchAt)
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
