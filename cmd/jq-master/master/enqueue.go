package master

import (
	"errors"
	"slices"
	"time"

	"gloom/cmd/internal/unique"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// enqueueRequest is a request to enqueue jobs. It calls reply exactly once.
type enqueueRequest struct {
	jobs  []*NewJob
	key   *Key
	reply func(ids []job.ID, replayed bool, err error)

	unique  string   // what happened to the job that held the key: kept, replaced, extended
	inStore bool     // the request was sent to the store, whose answer goes to the pusher in any case
	ids     []job.ID // the new jobs, once they are stored while the job that they replace is being cancelled

	bytes int64
	// memberships holds, for each job, the constraints of list that apply to it.
	memberships [][]membership
	list        []*constraint
}

// match finds the constraints that apply to the jobs. It is called without the lock, because it
// may take long.
func (e *enqueueRequest) match(list []*constraint) {
	e.memberships, e.list = make([][]membership, len(e.jobs)), list
	for i, n := range e.jobs {
		e.memberships[i] = matchAll(list, &n.Attributes, nil)
	}
}

// enqueue adds jobs.
func (m *machine) enqueue(e *enqueueRequest) {
	if e.jobs[0].UniqueRequest != nil && !m.shareKey(e) {
		return
	}
	e.bytes = 0
	for _, n := range e.jobs {
		e.bytes += int64(len(n.Argument)) + n.Unique.Size()
	}
	keys := int64(0)
	if e.key != nil {
		keys = int64(e.key.Size(len(e.jobs)))
	}
	err := m.checkRoom(len(e.jobs), e.bytes+keys)
	if err == nil && keys > 0 {
		err = m.checkKeyRoom()
	}
	m.rematch(e)
	for i := 0; err == nil && i < len(e.memberships); i++ {
		if n := countGroups(e.memberships[i]); n > m.maxGroups {
			err = overloaded("constraints with %d limits apply to the job; the broker takes at most %d", n, m.maxGroups)
		}
	}
	if err != nil {
		m.refuse(e, err)
		m.settleUnique(e, nil, nil)
		return
	}
	e.inStore = true
	old := m.replacedJob(e.jobs[0])
	m.jobsPending += len(e.jobs)
	m.bytes += e.bytes
	m.keyBytes += keys
	if keys > 0 {
		m.keysPending++
	}
	jobs := make([]*job.Job, len(e.jobs))
	for i, n := range e.jobs {
		m.seq++
		jobs[i] = m.queuedJob(m.newID(), n)
		jobs[i].Seq = m.seq
		if old != nil {
			jobs[i].Enqueued = old.Enqueued
		}
	}
	m.runAfterStep(func() {
		m.env.store.Enqueue(jobs, e.key, func(ids []job.ID, replayed bool, err error) {
			m.env.runOr(func() { m.finishEnqueue(e, jobs, old, ids, replayed, err) },
				func() { e.reply(ids, replayed, m.refusal(err)) })
		})
	})
}

// queuedJob returns a new job as it is stored, but without its Seq.
func (m *machine) queuedJob(id job.ID, n *NewJob) *job.Job {
	j := &job.Job{ID: id, Attributes: n.Attributes, Enqueued: m.wallTime, State: job.Queued}
	if n.Delay > 0 {
		j.Due = m.wallTime + toMillis(n.Delay)
	}
	return j
}

// After the store has refused a job for lack of room, the master reports for fullTime that it is
// not ready.
const fullTime = 5 * time.Second

// refuse replies to a request for which there is no room. A repeated request needs none: it gets the
// ids of the first one.
func (m *machine) refuse(e *enqueueRequest, noRoom error) {
	if e.key == nil || m.closedError() != nil {
		e.reply(nil, false, noRoom)
		return
	}
	m.runAfterStep(func() {
		m.env.store.Enqueue(nil, e.key, func(ids []job.ID, replayed bool, err error) {
			answer := func() {
				if err = m.refusal(err); err == nil && !replayed {
					err = noRoom
				}
				e.reply(ids, replayed, err)
			}
			m.env.runOr(answer, answer)
		})
	})
}

// rematch matches the jobs again if constraints have changed meanwhile.
func (m *machine) rematch(e *enqueueRequest) {
	if e.memberships == nil || !isSameSlice(e.list, m.constraints.enabled) {
		e.match(m.constraints.enabled)
	}
}

// closedError returns why the master accepts no jobs at all, or nil.
func (m *machine) closedError() error {
	switch {
	case m.draining:
		return errDraining
	case m.awayErr != nil:
		return m.storeAway()
	}
	return nil
}

// checkRoom returns why there is no room for more jobs, or nil.
func (m *machine) checkRoom(jobs int, bytes int64) error {
	if err := m.closedError(); err != nil {
		return err
	}
	switch {
	case m.unended()+jobs > m.MaxJobs:
		return overloaded("the master holds %d jobs, and with %d more it would pass %d (max-jobs)", m.unended(), jobs, m.MaxJobs)
	case m.usedBytes()+bytes > m.bytesForJobs():
		err := overloaded("jobs, results and idempotency keys have %d bytes, and with %d more they would pass %d, an eighth of which is for results alone (max-bytes)", m.usedBytes(), bytes, m.MaxBytes)
		m.makeRoom(m.usedBytes() + bytes - m.bytesForJobs())
		return err
	}
	return nil
}

// bytesForJobs returns how much of MaxBytes new jobs may take. The last eighth is for results:
// without room for results no job could end.
func (l *Limits) bytesForJobs() int64 { return l.MaxBytes - l.MaxBytes/8 }

// minKeys is the number of idempotency keys that are always allowed, however small MaxJobs is.
const minKeys = 10_000

// checkKeyRoom returns why there is no room for one more idempotency key, or nil.
func (m *machine) checkKeyRoom() error {
	limit := max(m.MaxJobs, minKeys)
	if n := len(m.keys) + m.keysPending; n >= limit {
		return overloaded("%d idempotency keys are remembered, and no more are allowed (max-jobs, at least %d); each is kept for 24 hours", n, minKeys)
	}
	return nil
}

// remember is called when the store has answered: it counts the idempotency key if the key was
// stored.
func (m *machine) remember(key *Key, jobs int, stored bool) {
	if key == nil {
		return
	}
	m.keysPending--
	size := int64(key.Size(jobs))
	if !stored {
		m.keyBytes -= size
		return
	}
	m.keys = append(m.keys, keyEntry{m.wallTime + toMillis(key.TTL), size})
}

// forgetKeys stops counting idempotency keys that have expired. The store itself drops them.
func (m *machine) forgetKeys() {
	for len(m.keys) > 0 && m.keys[0].until <= m.wallTime {
		m.keyBytes -= m.keys.pop().size
	}
}

// checkResultRoom returns why there is no room for the result of a run, or nil. If there is no room,
// it makes room for the worker's next try. If no other result is kept, a result is always admitted,
// so that jobs can end.
func (m *machine) checkResultRoom(r *record, o *job.Outcome) error {
	n := int64(len(o.Result))
	if !o.Success || !r.KeepResult || m.usedBytes()+n <= m.MaxBytes || m.results == 0 && m.resultsPending == 0 {
		return nil
	}
	err := overloaded("jobs, results and idempotency keys have %d bytes, and with the result's %d they would pass %d (max-bytes); send it again", m.usedBytes(), n, m.MaxBytes)
	m.makeRoom(m.usedBytes() + n - m.MaxBytes)
	return err
}

func (m *machine) finishEnqueue(e *enqueueRequest, jobs []*job.Job, old *record, ids []job.ID, replayed bool, err error) {
	m.jobsPending -= len(e.jobs)
	m.bytes -= e.bytes
	m.remember(e.key, len(e.jobs), err == nil && !replayed)
	isFull := errors.Is(err, store.ErrFull)
	if isFull {
		m.fullErr, m.fullUntil = err, m.now+toMillis(fullTime)
		m.makeRoom(16*e.bytes + m.endedBytes/16) // an estimate: the store does not say how much room it lacks
	}
	err = m.refusal(err)
	var r *record
	if err == nil && !replayed {
		m.rematch(e)
		for i, j := range jobs {
			r = m.newRecord(j)
			m.constraints.add(r, m.constraints.setFor(e.memberships[i]))
			m.ledger.Enqueued++
			m.submitWaiting(r)
		}
	}
	switch m.settleUnique(e, r, old); {
	case isFull:
		m.refuse(e, err)
		return
	case old == nil || r == nil:
		e.reply(ids, replayed, err)
		return
	}
	e.ids, e.unique = ids, unique.AnswerReplaced
	m.cancelNow(old, func(error) { e.reply(ids, replayed, err) })
}

// refusal returns the error for a request whose effect the store has not written; nil for nil.
func (m *machine) refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrAway), errors.Is(err, store.ErrFull), errors.As(err, new(*UnwritableError)):
		return unavailable(err)
	case errors.Is(err, store.ErrTooLong):
		return job.Refuse(job.TooLarge, "", "%v", err)
	case errors.Is(err, store.ErrKeyReused):
		return job.Refuse(job.KeyReused, "", "this idempotency key was used with another body before")
	}
	m.env.fail(err)
	return errStarting
}

// newRecord makes a record of a stored job, to which no constraint applies yet.
func (m *machine) newRecord(j *job.Job) *record {
	r := &record{Job: j, name: m.nameOf(j.Name), dueAt: m.monotonic + j.Due - m.wallTime}
	j.Name = r.name.text // all jobs with this name share one string
	if cap(j.Argument) > len(j.Argument)+len(j.Argument)/4+64 {
		j.Argument = slices.Clone(j.Argument)
	}
	m.insert(r)
	return r
}

// submitWaiting submits a waiting job to the broker.
func (m *machine) submitWaiting(r *record) {
	if i, _ := m.find(r.Seq); !m.allSubmitted && i >= m.submitIndex {
		return // submitSlice will submit it
	}
	age := m.wallTime - r.Enqueued
	if age < toMillis(freshAge) && (r.Unique == nil || r.Unique.Replaces.IsZero()) {
		age = 0
	}
	m.submit(r, toBrokerDuration(age))
}

// freshAge is the age below which jobs are submitted in the order of enqueueing, so that the broker
// need not know their age.
const freshAge = time.Second

func (m *machine) submit(r *record, age time.Duration) {
	m.submissions++
	r.submitted, r.handedOut, r.priorityStale, r.submission = true, false, false, m.submissions
	s := submission{
		id: r.ID, number: r.submission, typ: m.typeOf(r), priority: m.brokerPriority(r), age: age, groups: m.limitGroups(r.constraints.groups()),
		retries: r.MaxRetry - r.Retries, backoff: min(m.maxBackoff(r.Retries+1), maxBrokerBackoff), timeout: r.Timeout.Duration() + m.TimeoutGrace,
	}
	if !m.needsOwnWorker(r) {
		s.argument = r.Argument
		s.retries = m.brokerRetries(r)
	}
	s.retried = r.Retries + s.retries
	s.delay = m.remainingWait(r)
	if run := r.currentRun(); run != nil {
		run.onlyThisWorker = true
		// The broker makes no retries: if the worker is lost, no other worker serves this type.
		s.typ, s.priority, s.groups, s.delay, s.retries = m.heldRunsType(run.worker), topPriority, nil, 0, 0
		if r.constraints != nil {
			s.groups = m.limitGroups(r.constraints.runningGroups)
		}
	}
	m.tellBroker(func(b brokerLink) { b.submit(s) })
}

// topPriority is the broker's priority of jobs that already run and are to be handed to their
// workers again.
const topPriority = int64(1)<<62 - 1

// brokerPriority returns the priority of a job at the broker, where the largest is first. With
// aging, a job that was enqueued m.Aging earlier is one priority ahead.
func (m *machine) brokerPriority(r *record) int64 {
	if m.Aging <= 0 {
		return -int64(r.Priority)
	}
	return -(int64(r.Priority)*toMillis(m.Aging) + r.Enqueued)
}

func (m *machine) storeAway() error { return unavailable(m.awayErr) }

func unavailable(reason error) *job.Fault {
	return &job.Fault{Code: job.StoreUnavailable, Reason: reason.Error(), RetryAfter: time.Second}
}

func overloaded(format string, args ...any) *job.Fault {
	f := job.Refuse(job.Overloaded, "", format, args...)
	f.RetryAfter = time.Second
	return f
}

var (
	errStandby  = &job.Fault{Code: job.Standby, Reason: "another master is active, or the store is away", RetryAfter: time.Second}
	errStarting = &job.Fault{Code: job.Starting, Reason: "the master is reading the store", RetryAfter: time.Second}
	errLinking  = &job.Fault{Code: job.Starting, Reason: "the jobs are being submitted to the broker", RetryAfter: time.Second}
	errPausing  = &job.Fault{Code: job.Starting, Reason: brokerAway + ": the master connects to it again soon", RetryAfter: time.Second}
	errDraining = &job.Fault{Code: job.Draining, Reason: "the master is stopping", RetryAfter: 5 * time.Second}
)
