package broker

import (
	"unsafe"

	"gloom/broker/container"
)

// tenant takes turns with others in a fair type. It is the first group of a job or, for jobs
// without groups, the submitter. The tenant served longest ago goes first. A tenant exists from its
// first job in the type to the end of its last job. A new tenant counts as just served.
type tenant struct {
	number   uint32
	pos      int32 // position in jobType.line, or -1
	jobType  *jobType
	key      tenantKey
	lastTurn uint64
	line     container.Heap
	// queueCount counts its queues, jobCount its waiting and running jobs.
	queueCount, jobCount int
}

// tenantKey identifies a tenant of a type: by a group or, for jobs without groups, by their
// submitter.
type tenantKey struct {
	group  *group
	origin Peer
}

const tenantSize = int64(unsafe.Sizeof(tenant{})) + 96

// attachTenant gives a queue of a fair type its tenant, creating the tenant if it does not exist.
func (b *Broker) attachTenant(q *queue) {
	key := tenantKey{origin: q.origin}
	if q.groupSet != nil {
		key = tenantKey{group: q.groupSet.groups[0]}
	}
	jt := q.jobType
	t := jt.tenants[key]
	if t == nil {
		t = &tenant{jobType: jt, key: key, pos: -1}
		t.line = container.Heap{SetPos: b.posSetters.line, Bytes: &b.heapBytes}
		t.number = b.tenants.Add(t)
		if jt.tenants == nil {
			jt.tenants = map[tenantKey]*tenant{}
		}
		jt.tenants[key] = t
	}
	t.queueCount++
	q.tenant = t
	b.countTenantJobs(t, q.jobs)
}

// detachTenant removes a queue that is in no heap from its tenant.
func (b *Broker) detachTenant(q *queue) {
	t := q.tenant
	if t == nil {
		return
	}
	q.tenant = nil
	b.countTenantJobs(t, -q.jobs)
	if t.queueCount--; t.queueCount == 0 {
		t.line.Release()
		if delete(t.jobType.tenants, t.key); len(t.jobType.tenants) == 0 {
			t.jobType.tenants = nil
		}
		b.tenants.Drop(t.number)
	}
}

// countQueueJobs adds n to the waiting and running jobs of a queue and of its tenant.
func (b *Broker) countQueueJobs(q *queue, n int) {
	q.jobs += n
	if q.tenant != nil {
		b.countTenantJobs(q.tenant, n)
	}
}

func (b *Broker) countTenantJobs(t *tenant, n int) {
	if t.jobCount == 0 && n > 0 {
		b.recordTurn(t)
	}
	t.jobCount += n
}

// recordTurn records that a tenant has had its turn: it moves behind all others of its type.
func (b *Broker) recordTurn(t *tenant) {
	b.lastTurn++
	t.lastTurn = b.lastTurn
	b.rankTenant(t)
}

func (b *Broker) rankTenant(t *tenant) {
	jt := t.jobType
	if jt.firstPair != 0 || jt.contenderPos >= 0 {
		b.markForMatching(jt) // match again, as the next tenant may have an older job
	}
	key := *t.line.Top()
	rankEntry(&jt.line, t.pos, t.line.Len(), container.Entry{Major: key.Major, Minor: t.lastTurn, Ref: t.number | refTenant, Serial: 1})
}

// fairnessChange is the chore that moves queues and jobs to where they belong after types have
// become fair or have stopped being fair. Until the work is done, jobs of such a type may come in
// the old order or in the new order.
type fairnessChange struct {
	isActive               bool
	nextQueue, nextHolding int      // where to continue: all queues first, then all holdings
	target                 *holding // the holding that the jobs of holding nextHolding move to
}

// changeFairness starts a fairnessChange or, if one is in progress, starts it again from the
// beginning.
func (b *Broker) changeFairness(jt *jobType) {
	if int(jt.holdings)+jt.unusedHoldings == 0 {
		return
	}
	if !b.fairness.isActive {
		b.chores.add(&b.fairness)
	}
	b.fairness = fairnessChange{isActive: true}
}

func (c *fairnessChange) step(b *Broker) (cost int, done bool) {
	switch {
	case c.nextQueue < len(b.queues.All()):
		b.correctTenant(b.queues.All()[c.nextQueue])
		c.nextQueue++
	case c.nextHolding >= len(b.holdings.All()):
		c.isActive = false
	case !c.moveOneJob(b, b.holdings.All()[c.nextHolding]):
		c.nextHolding, c.target = c.nextHolding+1, nil
	}
	return 1, !c.isActive
}

// correctTenant gives a queue a tenant if its type is fair, and takes the tenant away if not.
func (b *Broker) correctTenant(q *queue) {
	if q == nil || (q.tenant != nil) == q.jobType.fair {
		return
	}
	wasInLine := q.pos >= 0
	if wasInLine {
		b.unrank(q)
	}
	if q.jobType.fair {
		b.attachTenant(q)
	} else {
		b.detachTenant(q)
	}
	if wasInLine {
		b.rank(q)
		b.markForMatching(q.jobType)
	}
}

// moveOneJob moves one job of a holding (nil for none) to the queue that it belongs in now. It
// returns false if there was no job to move.
func (c *fairnessChange) moveOneJob(b *Broker, h *holding) bool {
	if h == nil || h.isOrphaned() || h.jobCount() == 0 || h.queue.origin == h.jobType.tenantOrigin(h.submitter, h.queue.groupSet, h.origin) {
		return false
	}
	if c.target == nil || !b.holdings.Has(c.target.number, c.target) {
		c.target = b.holdingWithGroups(h, nil)
	}
	b.takeUnusedHolding(c.target)
	rec := h.jobs.head
	if rec == 0 {
		rec = h.runs.head
	}
	b.markForMatching(h.jobType)
	b.moveJob(rec, b.jobs.Get(rec), h, c.target)
	return true
}
