package master

import (
	"gloom/cmd/jq-master/job"
)

// endedEntry is an entry in the queue of ended jobs.
type endedEntry struct {
	rec     *record
	rev     uint32
	endedAt int64 // when the job ended, as machine.now
}

// addEnded adds a job to the ended jobs. forgetAt is the time at which to forget the job, and
// dropAt the time at which to drop its result (0: it has none).
func (m *machine) addEnded(r *record, forgetAt, dropAt int64) {
	m.countJob(r, -1)
	p := r.ensureRunInfo()
	p.forgetAt, p.keyUntil = forgetAt, 0
	if r.HoldsKey(m.wallTime) {
		p.keyUntil = r.Unique.Until
		p.forgetAt = max(forgetAt, p.keyUntil)
	}
	m.constraints.remove(r)
	if dropAt != 0 && r.Result != nil {
		p.dropAt = dropAt
	}
	m.countJob(r, 1)
	m.queueEnded(r)
	m.wakePollers(r)
}

// queueEnded sets the timer of an ended job, and lets expire forget the job unless its result or its
// unique key is kept: then queueEnded is called again when neither is kept any more.
func (m *machine) queueEnded(r *record) {
	if p := r.runInfo; p.dropAt == 0 && p.keyUntil == 0 {
		m.ended = append(m.ended, endedEntry{r, r.Rev, m.monotonic})
	}
	m.timers.set(r, m.monoAt(r.runInfo.nextEnd()))
}

// dropResult drops the result of a job because it was fetched or is too old. The store drops it a
// little later, together with others.
func (m *machine) dropResult(r *record) {
	p := r.runInfo
	if p.dropAt == 0 {
		return
	}
	j := *r.Job
	j.Result = nil
	m.countJob(r, -1)
	r.Job, p.dropAt, p.fetching = &j, 0, false
	m.countJob(r, 1)
	m.fetchedJobs = append(m.fetchedJobs, r)
	if m.dropFetchedAt == 0 {
		m.dropFetchedAt = m.now + fetchDelay
	}
	m.queueEnded(r)
}

const fetchDelay = 50 // how long fetches are collected before the store is told, in milliseconds

// flushFetched tells the store which results it can drop.
func (m *machine) flushFetched() {
	for len(m.fetchedJobs) > 0 {
		n := min(len(m.fetchedJobs), maxStepRecords)
		ids := make([]job.ID, 0, n)
		for _, r := range m.fetchedJobs[:n] {
			if m.jobs.Get(r.ID) == r {
				ids = append(ids, r.ID)
			}
		}
		m.fetchedJobs = m.fetchedJobs[n:]
		if len(ids) > 0 {
			m.tellStore(func(done func(error)) { m.env.store.Fetch(ids, done) }, nil)
		}
	}
	m.fetchedJobs, m.dropFetchedAt = nil, 0
}

// makeRoom forgets jobs that ended more than minEndedAgeForRoom ago, until it has freed the given
// number of bytes or forgotten maxStepRecords jobs.
func (m *machine) makeRoom(bytes int64) {
	m.bytesToFree = bytes
	m.expire()
	m.bytesToFree = 0
}

// expire forgets the jobs that ended first while there are too many ended jobs or they take too
// many bytes. It forgets at most maxStepRecords jobs at a time.
func (m *machine) expire() {
	var surplus []*record
	usedBytes, freedBytes := m.endedBytes, int64(0)
	for len(m.ended) > 0 && len(surplus) < maxStepRecords {
		e := m.ended[0]
		r := e.rec
		switch {
		case m.jobs.Get(r.ID) != r || r.Rev != e.rev || !r.State.Ended() || r.op == opForget:
			m.ended.pop() // it was revived or forgotten
			continue
		case usedBytes > m.MaxBytes/2, freedBytes < m.bytesToFree && m.monotonic-e.endedAt >= toMillis(minEndedAgeForRoom):
		case m.counts[job.Done]+m.counts[job.Failed]+m.counts[job.Cancelled]-m.beingForgotten-len(surplus) <= m.MaxEnded,
			m.monotonic-e.endedAt < toMillis(minEndedAge):
			m.forget(surplus)
			return
		}
		m.ended.pop()
		surplus = append(surplus, r)
		usedBytes -= r.size()
		freedBytes += r.size() + 1
	}
	m.forget(surplus)
}

// forget removes ended jobs, at most maxStepRecords.
func (m *machine) forget(records []*record) {
	ids := make([]job.ID, 0, len(records))
	kept := records[:0]
	for _, r := range records {
		if r.op == opNone {
			m.endedBytes -= r.size()
			r.op = opForget
			ids, kept = append(ids, r.ID), append(kept, r)
		}
	}
	if len(ids) == 0 {
		return
	}
	m.beingForgotten += len(kept)
	m.tellStore(func(done func(error)) { m.env.store.Forget(ids, done) }, func() {
		m.beingForgotten -= len(kept)
		for _, r := range kept {
			m.remove(r)
			r.op = opNone
			m.runWaiting(r)
		}
	})
}

// tick does the work that is due.
func (m *machine) tick() {
	var oldRecords []*record
	for n := 0; n < maxStepRecords && m.timers.next() <= m.now; n++ {
		r := m.timers[0]
		switch {
		case r.runInfo.run != nil:
			if m.awayErr != nil || r.op != opNone || r.runInfo.run.unread { // when its start is written, or it is handed out, it gets a later deadline
				m.timers.set(r, m.now+toMillis(beatInterval))
				continue
			}
			if m.now < m.deadlinesFrom {
				m.timers.set(r, m.deadlinesFrom)
				continue
			}
			m.timers.remove(r)
			m.ledger.Timeouts++
			m.fail(r, job.Timeout, "no answer within the timeout")
		case !r.State.Ended():
			m.timers.remove(r)
		case r.runInfo.dropAt != 0 && m.wallTime >= r.runInfo.dropAt:
			if r.runInfo.fetching {
				m.timers.set(r, m.now+1000)
				continue
			}
			m.metrics.expired++
			m.dropResult(r)
		case r.runInfo.keyUntil != 0 && m.wallTime >= r.runInfo.keyUntil:
			m.countJob(r, -1)
			r.runInfo.keyUntil = 0
			m.countJob(r, 1)
			m.queueEnded(r)
		case m.wallTime >= r.runInfo.forgetAt:
			m.timers.remove(r)
			oldRecords = append(oldRecords, r)
		default: // the wall clock has jumped, and the job is not due yet
			m.timers.set(r, max(m.now+1, m.monoAt(r.runInfo.nextEnd())))
		}
	}
	if len(oldRecords) > 0 {
		m.forget(oldRecords)
	}
	if m.dropFetchedAt != 0 && m.now >= m.dropFetchedAt && m.awayErr == nil {
		m.flushFetched()
	}
}

// nextAlarm returns the time at which tick has work to do.
func (m *machine) nextAlarm() int64 {
	next := m.timers.next()
	if m.dropFetchedAt != 0 && m.awayErr == nil {
		next = min(next, m.dropFetchedAt)
	}
	return next
}

func (p *runInfo) nextEnd() int64 {
	at := p.forgetAt
	for _, end := range []int64{p.dropAt, p.keyUntil} {
		if end != 0 {
			at = min(at, end)
		}
	}
	return at
}
