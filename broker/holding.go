package broker

import (
	"unsafe"

	"gloom/broker/container"
)

// holding is what one submitter has in one queue: its jobs, their counts, and whether the
// submitter is still there. Detached jobs belong to holdings without a submitter.
type holding struct {
	number uint32
	queue  *queue
	kind   *jobType
	sub    *submitter // nil if the jobs are detached, or kept without a connection
	// runs lists the running jobs. In a dead holding, those whose workers have been notified
	// come last. jobs lists the jobs that do not run; queued, delayed and ended count these by
	// state.
	jobs, runs             list
	queued, delayed, ended int
	// bytes is the weight of its jobs, runBytes that of its running jobs.
	bytes, runBytes int64
	// dead reports that the submitter is lost: waiting jobs are abandoned and will be swept,
	// running jobs are unwanted.
	dead bool
	// keep reports that the jobs are kept. Such a holding outlives its submitter; then sub is
	// nil and owner says which submitters may attach.
	keep   bool
	owner  uint64
	origin Peer                    // as in holdingKey
	at     int                     // index in sub.holdings
	unused container.Link[holding] // in Broker.unused
}

// holdingKey identifies a holding.
type holdingKey struct {
	sub   *submitter
	queue *queue
	keep  bool
	// origin is the submitter that the jobs came from. For kept jobs it stays the same when
	// another submitter attaches. For detached jobs it is set only in fair types. For all other
	// jobs it is 0.
	origin Peer
}

func (h *holding) key() holdingKey { return holdingKey{h.sub, h.queue, h.keep, h.origin} }

const (
	holdingSize = int64(unsafe.Sizeof(holding{})) + 96 // with the entries in the map and in the table
	// unusedBytes bounds the size of the empty holdings that are kept, with their queues,
	// groups and tenants: creating all of these costs more than handling a job. Forgetting a
	// type to which all of them belong takes 2 ms.
	unusedBytes = 8 << 20
)

// held returns how many jobs the holding has.
func (h *holding) held() int { return h.jobs.n + h.runs.n }

// holder returns the holding that a job belongs to.
func (b *Broker) holder(j *job) *holding { return b.holdings.At(j.holding) }

// orphaned reports whether nobody waits for the jobs of the holding any more.
func (h *holding) orphaned() bool { return h.dead || h.sub != nil && h.sub.gone && !h.keep }

// holdingFor returns the holding of a submitter (nil for none) with these groups,
// creating it if it does not exist.
func (b *Broker) holdingFor(s *submitter, k *jobType, set *groupSet, keep bool, origin Peer) *holding {
	tenantOrigin := k.tenantOrigin(s, set, origin)
	if s != nil {
		if h := s.last; h != nil && h.kind == k && h.queue.set == set && h.queue.origin == tenantOrigin && h.keep == keep && h.origin == origin {
			b.use(h)
			return h
		}
	}
	key := holdingKey{s, b.queueFor(k, set, tenantOrigin), keep, origin}
	h := b.holdingsByKey[key]
	if h == nil {
		h = b.newHolding(key)
		b.holdingsByKey[key] = h
		if s != nil {
			h.owner = s.owner
			h.at = len(s.holdings)
			s.holdings = append(s.holdings, h)
		}
	}
	if s != nil {
		s.last = h
	}
	b.use(h)
	return h
}

// tenantOrigin returns the submitter for the key of a job's queue. In a fair type, for a job
// without groups, it is the one that the job came from; otherwise it is 0.
func (k *jobType) tenantOrigin(s *submitter, set *groupSet, origin Peer) Peer {
	switch {
	case !k.fair || set != nil:
		return 0
	case origin == 0 && s != nil:
		return s.id
	}
	return origin
}

func (b *Broker) newHolding(key holdingKey) *holding {
	h := &holding{sub: key.sub, queue: key.queue, kind: key.queue.kind, keep: key.keep, origin: key.origin}
	h.number = b.holdings.Add(h)
	h.queue.holdings++
	h.kind.holdings++
	b.typeUsed(h.kind)
	return h
}

// holdingWithGroups returns the holding for a job of h that gets the groups of set. A kept job
// without a connection gets a holding of its own, since holdingsByKey lists none for such
// jobs.
func (b *Broker) holdingWithGroups(h *holding, set *groupSet) *holding {
	if !h.keep || h.sub != nil {
		return b.holdingFor(h.sub, h.kind, set, h.keep, h.origin)
	}
	to := b.newHolding(holdingKey{nil, b.queueFor(h.kind, set, h.kind.tenantOrigin(nil, set, h.origin)), true, h.origin})
	to.owner = h.owner
	return to
}

// move moves a job to another holding of the same type.
func (b *Broker) move(r uint32, j *job, h, to *holding) {
	b.moveJob(j, h, to)
	switch n := h.counts(j.state); {
	case n == nil:
		b.unlink(&h.runs, byHolding, j)
		b.link(&to.runs, byHolding, r, j)
		h.runBytes -= int64(j.weight)
		to.runBytes += int64(j.weight)
	default:
		b.unlink(&h.jobs, byHolding, j)
		b.link(&to.jobs, byHolding, r, j)
		*n--
		*to.counts(j.state)++
		if h.queue != to.queue && n == &h.queued {
			b.pull(h.queue, r, j)
			b.rank(h.queue)
			b.push(to.queue, r, j)
			b.rank(to.queue)
		}
	}
	b.afterLeaving(h)
}

// moveJob makes a job belong to another holding. The job is in none of that holding's
// lists yet.
func (b *Broker) moveJob(j *job, h, to *holding) {
	extraWeight := to.queue.set.weight() - h.queue.set.weight()
	j.weight += extraWeight
	// Count the new place first, so that a tenant of both places always has a job.
	b.countAgainstLimits(to, j, +1)
	j.weight -= extraWeight
	b.countAgainstLimits(h, j, -1)
	j.weight += extraWeight
	j.holding = to.number
}

// counts returns the counter of the jobs in state s, or nil for running jobs, which have none.
func (h *holding) counts(s state) *int {
	switch s {
	case stDelayed:
		return &h.delayed
	case stRunning:
		return nil
	case stEnded:
		return &h.ended
	}
	return &h.queued
}

// countAgainstLimits adds a job to the counts against limits (n is 1) or removes it (n is -1).
func (b *Broker) countAgainstLimits(h *holding, j *job, n int) {
	w := int64(j.weight) * int64(n)
	b.bytes += w
	h.bytes += w
	h.kind.bytes += w
	if h.sub != nil {
		h.sub.jobs += n
		h.sub.bytes += w
	}
	if j.state != stEnded && j.flags&flagBorrowed == 0 {
		b.countTenant(h.queue, n)
	}
}

// afterLeaving is called when a job has left its holding. If the holding is empty and can be found
// again, it is kept for the next job. Of the holdings kept like this, the one that has been unused
// longest is dropped first. None of them keeps its type in use.
func (b *Broker) afterLeaving(h *holding) {
	switch {
	case h.held() > 0:
	case h.dead || h.keep && h.sub == nil:
		b.dropHolding(h)
	default:
		if h.queue.n == 0 {
			b.releaseQueue(h.queue)
		}
		h.kind.unused++
		if h.sub != nil {
			h.sub.unused++
		}
		b.unused.Push(&h.unused, h)
		b.unusedBytes += h.footprint()
		h.kind.holdings--
		b.typeUnused(h.kind)
		for limit := b.maxUnusedBytes(); b.unusedBytes > limit; {
			b.dropHolding(b.unused.First())
		}
	}
}

// use takes a holding out of Broker.unused.
func (b *Broker) use(h *holding) {
	if h.unused.In() {
		b.unlistUnused(h)
		h.kind.holdings++
		b.typeUsed(h.kind)
	}
}

func (b *Broker) unlistUnused(h *holding) {
	h.kind.unused--
	if h.sub != nil {
		h.sub.unused--
	}
	b.unused.Remove(&h.unused)
	b.unusedBytes -= h.footprint()
}

// maxUnusedBytes returns the limit of Broker.unusedBytes: at most a small part of MaxBytes.
func (b *Broker) maxUnusedBytes() int64 {
	if limit := b.cfg.MaxBytes; limit > 0 {
		return min(unusedBytes, limit/64)
	}
	return unusedBytes
}

// footprint returns the size of a holding, its queue, groups and tenant, as if no other holding
// shared these.
func (h *holding) footprint() int64 {
	n := holdingSize + queueSize + tenantSize
	if s := h.queue.set; s != nil {
		n += groupSetSize + int64(len(s.groups))*groupSize + 2*s.bytes
	}
	return n
}

// dropHolding forgets an empty holding.
func (b *Broker) dropHolding(h *holding) {
	if h.unused.In() {
		b.unlistUnused(h)
	} else {
		h.kind.holdings--
		b.typeUnused(h.kind)
	}
	if !h.dead && (h.sub != nil || !h.keep) {
		b.unlist(h)
	}
	b.holdings.Drop(h.number)
	q := h.queue
	if q.holdings--; q.holdings == 0 {
		b.dropQueue(q)
	}
}

// unlist takes a holding out of its submitter's list and out of the index.
func (b *Broker) unlist(h *holding) {
	delete(b.holdingsByKey, h.key())
	s := h.sub
	if s == nil {
		return
	}
	n := len(s.holdings) - 1
	moved := s.holdings[n]
	s.holdings[h.at], moved.at = moved, h.at
	s.holdings[n] = nil
	s.holdings = s.holdings[:n]
	if s.last == h {
		s.last = nil
	}
}

// orphan separates a holding from its lost submitter: waiting jobs are discarded, running
// jobs become unwanted, and kept jobs stay.
func (b *Broker) orphan(h *holding) {
	b.unlist(h)
	sub := h.sub
	h.sub = nil
	switch {
	case h.held() == 0:
		h.dead = true
		b.dropHolding(h)
		return
	case h.keep:
		return
	}
	k, waiting := h.kind, h.queued+h.delayed
	for _, l := range [...]*Ledger{&k.Ledger, &b.total} {
		l.Queued -= uint64(h.queued)
		l.Delayed -= uint64(h.delayed)
		l.Discarded += uint64(waiting)
	}
	b.count(h.queue.set, -waiting)
	b.countTenant(h.queue, -waiting)
	k.bytes -= h.bytes - h.runBytes
	b.bytes -= h.bytes - h.runBytes
	h.bytes = h.runBytes
	h.dead = true
	h.origin = sub.id
	b.unswept += waiting
	if waiting > 0 {
		b.cleanups.add(sweepChore{h})
	}
	if h.runs.n > 0 {
		b.notifications.add(notifyChore{h})
	}
}

// orphanKept orphans a holding if its jobs are kept and its submitter is lost.
func (b *Broker) orphanKept(h *holding) {
	if h.keep && h.sub != nil && h.sub.gone {
		b.orphan(h)
	}
}

// leaveChore is the chore that orphans the holdings of a lost submitter.
type leaveChore struct{ sub *submitter }

func (c leaveChore) step(b *Broker) (cost int, done bool) {
	if n := len(c.sub.holdings); n > 0 {
		b.orphan(c.sub.holdings[n-1])
	}
	return 1, len(c.sub.holdings) == 0
}

// notifyChore is the chore that tells workers that nobody waits for the runs of a dead holding.
type notifyChore struct{ holding *holding }

func (c notifyChore) step(b *Broker) (cost int, done bool) {
	l := &c.holding.runs
	r := l.head
	if r == 0 || b.jobs.Get(r).flags&flagNotified != 0 {
		return 1, true
	}
	j := b.jobs.Get(r)
	b.notifyUnwanted(r, j)
	j.flags |= flagNotified
	b.unlink(l, byHolding, j)
	b.link(l, byHolding, r, j)
	return 1, false
}

// sweepChore is the chore that frees the jobs that waited in a dead holding.
type sweepChore struct{ holding *holding }

func (c sweepChore) step(b *Broker) (cost int, done bool) {
	if r := c.holding.jobs.head; r != 0 {
		b.sweep(c.holding, r, b.jobs.Get(r))
	}
	return 1, c.holding.jobs.n == 0
}

// sweep frees one abandoned job of a dead holding.
func (b *Broker) sweep(h *holding, r uint32, j *job) {
	*h.counts(j.state)--
	if j.state != stDelayed {
		b.pull(h.queue, r, j)
		b.rank(h.queue)
	}
	b.unswept--
	b.recordEnd(h, r, j, OutDiscarded, &Reason{}, 0)
	b.unlink(&h.jobs, byHolding, j)
	b.free(r, j)
	b.afterLeaving(h)
}
