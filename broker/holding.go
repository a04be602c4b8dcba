package broker

import (
	"unsafe"

	"gloom/broker/container"
)

// holding holds the jobs that one submitter has in one queue, their counts, and whether the
// submitter is still there. Detached jobs belong to holdings without a submitter.
type holding struct {
	number    uint32
	queue     *queue
	jobType   *jobType
	submitter *submitter // nil if the jobs are detached, or kept without a connection
	// runs lists the running jobs. In a dead holding, jobs whose workers have been notified come last.
	// jobs lists the jobs that do not run; queuedJobs, delayedJobs and endedJobs count these by state.
	jobs, runs                         jobList
	queuedJobs, delayedJobs, endedJobs int
	// bytes is the weight of all jobs of the holding, runBytes that of its running jobs.
	bytes, runBytes int64
	// isDead reports that the submitter is lost: waiting jobs are abandoned and will be swept,
	// running jobs are unwanted.
	isDead bool
	// isKept reports that the jobs are kept. Such a holding outlives its submitter; then submitter
	// is nil, and owner says which submitters may attach.
	isKept     bool
	owner      uint64
	origin     Peer                    // as in holdingKey
	index      int                     // index in submitter.holdings
	unusedLink container.Link[holding] // in Broker.unusedHoldings
}

// holdingKey identifies a holding.
type holdingKey struct {
	submitter *submitter
	queue     *queue
	isKept    bool
	// origin is the submitter that the jobs came from. For kept jobs it stays the same when
	// another submitter attaches. For detached jobs it is set only in fair types. For all other
	// jobs it is 0.
	origin Peer
}

func (h *holding) key() holdingKey { return holdingKey{h.submitter, h.queue, h.isKept, h.origin} }

const (
	holdingSize = int64(unsafe.Sizeof(holding{})) + 96 // with the entries in the map and in the table
	// maxUnusedBytes bounds the size of the empty holdings that are kept, with their queues,
	// groups and tenants: creating all of these costs more than handling a job. Forgetting a
	// type to which all of them belong takes 2 ms.
	maxUnusedBytes = 8 << 20
)

// jobCount returns how many jobs the holding has.
func (h *holding) jobCount() int { return h.jobs.n + h.runs.n }

// holdingOf returns the holding that a job belongs to.
func (b *Broker) holdingOf(j *job) *holding { return b.holdings.At(j.holding) }

// isOrphaned reports whether nobody waits for the jobs of the holding any more.
func (h *holding) isOrphaned() bool {
	return h.isDead || h.submitter != nil && h.submitter.isLost && !h.isKept
}

// holdingFor returns the holding of a submitter (nil for none) with these groups,
// creating it if it does not exist.
func (b *Broker) holdingFor(s *submitter, jt *jobType, set *groupSet, keep bool, origin Peer) *holding {
	tenantOrigin := jt.tenantOrigin(s, set, origin)
	if s != nil {
		if h := s.lastHolding; h != nil && h.jobType == jt && h.queue.groupSet == set && h.queue.origin == tenantOrigin && h.isKept == keep && h.origin == origin {
			b.takeUnusedHolding(h)
			return h
		}
	}
	key := holdingKey{s, b.queueFor(jt, set, tenantOrigin), keep, origin}
	h := b.holdingsByKey[key]
	if h == nil {
		h = b.newHolding(key)
		b.holdingsByKey[key] = h
		if s != nil {
			h.owner = s.owner
			h.index = len(s.holdings)
			s.holdings = append(s.holdings, h)
		}
	}
	if s != nil {
		s.lastHolding = h
	}
	b.takeUnusedHolding(h)
	return h
}

// tenantOrigin returns the submitter for the key of a job's queue. In a fair type, for a job
// without groups, it is the one that the job came from; otherwise it is 0.
func (jt *jobType) tenantOrigin(s *submitter, set *groupSet, origin Peer) Peer {
	switch {
	case !jt.fair || set != nil:
		return 0
	case origin == 0 && s != nil:
		return s.id
	}
	return origin
}

func (b *Broker) newHolding(key holdingKey) *holding {
	h := &holding{submitter: key.submitter, queue: key.queue, jobType: key.queue.jobType, isKept: key.isKept, origin: key.origin}
	h.number = b.holdings.Add(h)
	h.queue.holdings++
	h.jobType.holdings++
	b.updateUnusedRing(h.jobType)
	return h
}

// holdingWithGroups returns the holding for a job of h that gets the groups of set. A kept job
// without a connection gets a holding of its own, since holdingsByKey lists none for such
// jobs.
func (b *Broker) holdingWithGroups(h *holding, set *groupSet) *holding {
	if !h.isKept || h.submitter != nil {
		return b.holdingFor(h.submitter, h.jobType, set, h.isKept, h.origin)
	}
	target := b.newHolding(holdingKey{nil, b.queueFor(h.jobType, set, h.jobType.tenantOrigin(nil, set, h.origin)), true, h.origin})
	target.owner = h.owner
	return target
}

// moveJob moves a job to another holding of the same type.
func (b *Broker) moveJob(rec uint32, j *job, h, target *holding) {
	b.setHolding(rec, j, h, target)
	switch n := h.counterOf(j.state); {
	case n == nil:
		b.removeFrom(&h.runs, holdingLink, j)
		b.appendTo(&target.runs, holdingLink, rec, j)
		h.runBytes -= b.weight(h, rec, j)
		target.runBytes += b.weight(target, rec, j)
	default:
		b.removeFrom(&h.jobs, holdingLink, j)
		b.appendTo(&target.jobs, holdingLink, rec, j)
		*n--
		*target.counterOf(j.state)++
		if h.queue != target.queue && n == &h.queuedJobs {
			b.removeReady(h.queue, rec, j)
			b.rank(h.queue)
			b.addReady(target.queue, rec, j)
			b.rank(target.queue)
		}
	}
	b.retireIfEmpty(h)
}

// setHolding makes a job belong to another holding. The job is in none of that holding's
// lists yet.
func (b *Broker) setHolding(rec uint32, j *job, h, target *holding) {
	// Count the new place first, so that a tenant of both places always has a job.
	b.countAgainstLimits(target, rec, j, +1)
	b.countAgainstLimits(h, rec, j, -1)
	j.holding = target.number
}

// counterOf returns the counter of the jobs in state s, or nil for running jobs, which have none.
func (h *holding) counterOf(s state) *int {
	switch s {
	case stateDelayed:
		return &h.delayedJobs
	case stateRunning:
		return nil
	case stateEnded:
		return &h.endedJobs
	}
	return &h.queuedJobs
}

// countAgainstLimits adds a job to the counts against limits (n is 1) or removes it (n is -1).
func (b *Broker) countAgainstLimits(h *holding, rec uint32, j *job, n int) {
	weight := b.weight(h, rec, j) * int64(n)
	b.bytes += weight
	h.bytes += weight
	h.jobType.bytes += weight
	if h.submitter != nil {
		h.submitter.jobs += n
		h.submitter.bytes += weight
	}
	if j.state != stateEnded && j.flags&flagBorrowed == 0 {
		b.countQueueJobs(h.queue, n)
	}
}

// retireIfEmpty is called when a job has left its holding. If the holding is empty and can be found
// again, it is kept for the next job. Of the holdings kept like this, the one that has been unused
// longest is dropped first. A holding kept like this does not keep its type in use.
func (b *Broker) retireIfEmpty(h *holding) {
	switch {
	case h.jobCount() > 0:
	case h.isDead || h.isKept && h.submitter == nil:
		b.dropHolding(h)
	default:
		if h.queue.readyJobs == 0 {
			b.shrinkQueue(h.queue)
		}
		h.jobType.unusedHoldings++
		b.unusedHoldings.Push(&h.unusedLink, h)
		b.unusedBytes += h.footprint()
		h.jobType.holdings--
		b.updateUnusedRing(h.jobType)
		for limit := b.unusedLimit(); b.unusedBytes > limit; {
			b.dropHolding(b.unusedHoldings.First())
		}
	}
}

// takeUnusedHolding takes a holding out of Broker.unusedHoldings.
func (b *Broker) takeUnusedHolding(h *holding) {
	if h.unusedLink.InRing() {
		b.unlistUnusedHolding(h)
		h.jobType.holdings++
		b.updateUnusedRing(h.jobType)
	}
}

func (b *Broker) unlistUnusedHolding(h *holding) {
	h.jobType.unusedHoldings--
	b.unusedHoldings.Remove(&h.unusedLink)
	b.unusedBytes -= h.footprint()
}

// unusedLimit returns the limit of Broker.unusedBytes: at most a small part of MaxBytes.
func (b *Broker) unusedLimit() int64 {
	if limit := b.cfg.MaxBytes; limit > 0 {
		return min(maxUnusedBytes, limit/64)
	}
	return maxUnusedBytes
}

// footprint returns the size of a holding, its queue, groups and tenant, as if no other holding
// shared these.
func (h *holding) footprint() int64 {
	n := holdingSize + queueSize + tenantSize
	if s := h.queue.groupSet; s != nil {
		n += groupSetSize + int64(len(s.groups))*groupSize + 2*s.bytes
	}
	return n
}

// dropHolding forgets an empty holding.
func (b *Broker) dropHolding(h *holding) {
	if h.unusedLink.InRing() {
		b.unlistUnusedHolding(h)
	} else {
		h.jobType.holdings--
		b.updateUnusedRing(h.jobType)
	}
	if !h.isDead && (h.submitter != nil || !h.isKept) {
		b.unlistHolding(h)
	}
	b.holdings.Drop(h.number)
	q := h.queue
	if q.holdings--; q.holdings == 0 {
		b.dropQueue(q)
	}
}

// unlistHolding takes a holding out of its submitter's list and out of the index.
func (b *Broker) unlistHolding(h *holding) {
	delete(b.holdingsByKey, h.key())
	s := h.submitter
	if s == nil {
		return
	}
	n := len(s.holdings) - 1
	lastHolding := s.holdings[n]
	s.holdings[h.index], lastHolding.index = lastHolding, h.index
	s.holdings[n] = nil
	s.holdings = s.holdings[:n]
	if s.lastHolding == h {
		s.lastHolding = nil
	}
}

// orphan separates a holding from its lost submitter: waiting jobs are discarded, running
// jobs become unwanted, and kept jobs stay.
func (b *Broker) orphan(h *holding) {
	b.unlistHolding(h)
	sub := h.submitter
	h.submitter = nil
	switch {
	case h.jobCount() == 0:
		h.isDead = true
		b.dropHolding(h)
		return
	case h.isKept:
		return
	}
	jt, waitingJobs := h.jobType, h.queuedJobs+h.delayedJobs
	for _, l := range [...]*Ledger{&jt.Ledger, &b.totals} {
		l.Queued -= uint64(h.queuedJobs)
		l.Delayed -= uint64(h.delayedJobs)
		l.Discarded += uint64(waitingJobs)
	}
	b.countJobs(h.queue.groupSet, -waitingJobs, 0)
	b.countQueueJobs(h.queue, -waitingJobs)
	jt.bytes -= h.bytes - h.runBytes
	b.bytes -= h.bytes - h.runBytes
	h.bytes = h.runBytes
	h.isDead = true
	h.origin = sub.id
	b.unsweptJobs += waitingJobs
	if waitingJobs > 0 {
		b.cleanups.add(sweepChore{h})
	}
	if h.runs.n > 0 {
		b.notifications.add(notifyChore{h})
	}
}

// orphanKept orphans a holding if its jobs are kept and its submitter is lost.
func (b *Broker) orphanKept(h *holding) {
	if h.isKept && h.submitter != nil && h.submitter.isLost {
		b.orphan(h)
	}
}

// orphanChore is the chore that orphans the holdings of a lost submitter.
type orphanChore struct{ submitter *submitter }

func (c orphanChore) step(b *Broker) (cost int, done bool) {
	if n := len(c.submitter.holdings); n > 0 {
		b.orphan(c.submitter.holdings[n-1])
	}
	return recordVisits, len(c.submitter.holdings) == 0
}

// notifyChore is the chore that tells workers that nobody waits for the runs of a dead holding.
type notifyChore struct{ holding *holding }

func (c notifyChore) step(b *Broker) (cost int, done bool) {
	l := &c.holding.runs
	rec := l.head
	if rec == 0 || b.jobs.Get(rec).flags&flagNotified != 0 {
		return 1, true
	}
	j := b.jobs.Get(rec)
	b.notifyUnwanted(rec, j)
	j.flags |= flagNotified
	b.removeFrom(l, holdingLink, j)
	b.appendTo(l, holdingLink, rec, j)
	return 1, false
}

// sweepChore is the chore that frees the jobs that waited in a dead holding.
type sweepChore struct{ holding *holding }

func (c sweepChore) step(b *Broker) (cost int, done bool) {
	if rec := c.holding.jobs.head; rec != 0 {
		b.sweepJob(c.holding, rec, b.jobs.Get(rec))
	}
	return 1, c.holding.jobs.n == 0
}

// sweepJob frees one abandoned job of a dead holding.
func (b *Broker) sweepJob(h *holding, rec uint32, j *job) {
	*h.counterOf(j.state)--
	if j.state != stateDelayed {
		b.removeReady(h.queue, rec, j)
		b.rank(h.queue)
	}
	b.unsweptJobs--
	b.recordEnd(h, rec, j, EndDiscarded, &Reason{}, 0)
	b.removeFrom(&h.jobs, holdingLink, j)
	b.freeJob(rec, j)
	b.retireIfEmpty(h)
}
