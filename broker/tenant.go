package broker

import (
	"unsafe"

	"gloom/broker/container"
)

// tenant is who takes turns in a fair type: the first of a job's groups or, without
// one, its submitter. The one served longest ago goes first. It is known from its first
// job in the type until it has none there, and counts as just served when it comes.
type tenant struct {
	no     uint32
	pos    int32 // in kind.line, -1
	kind   *jobType
	key    tenantKey
	served uint64
	line   container.Heap
	// queues counts those that it has, jobs what of it waits or runs.
	queues, jobs int
}

type tenantKey struct {
	group  *group
	origin Peer
}

const tenantSize = int64(unsafe.Sizeof(tenant{})) + 96

// takeTenant gives a queue of a fair type its tenant.
func (b *Broker) takeTenant(q *queue) {
	key := tenantKey{origin: q.origin}
	if q.set != nil {
		key = tenantKey{group: q.set.groups[0]}
	}
	k := q.kind
	t := k.tenants[key]
	if t == nil {
		t = &tenant{kind: k, key: key, pos: -1}
		t.line = container.Heap{Place: b.place.standing, Held: &b.heapBytes}
		t.no = b.tenants.Add(t)
		if k.tenants == nil {
			k.tenants = map[tenantKey]*tenant{}
		}
		k.tenants[key] = t
	}
	t.queues++
	q.tenant = t
	b.tenantJobs(t, q.jobs)
}

// leaveTenant takes a queue that does not stand from its tenant, if it has one.
func (b *Broker) leaveTenant(q *queue) {
	t := q.tenant
	if t == nil {
		return
	}
	q.tenant = nil
	b.tenantJobs(t, -q.jobs)
	if t.queues--; t.queues == 0 {
		t.line.Release()
		if delete(t.kind.tenants, t.key); len(t.kind.tenants) == 0 {
			t.kind.tenants = nil
		}
		b.tenants.Drop(t.no)
	}
}

// countTenant adds to the jobs of a queue that wait or run.
func (b *Broker) countTenant(q *queue, n int) {
	q.jobs += n
	if q.tenant != nil {
		b.tenantJobs(q.tenant, n)
	}
}

func (b *Broker) tenantJobs(t *tenant, n int) {
	if t.jobs == 0 && n > 0 {
		b.serve(t)
	}
	t.jobs += n
}

// serve puts a tenant behind all others of its type.
func (b *Broker) serve(t *tenant) {
	b.turns++
	t.served = b.turns
	b.rankTenant(t)
}

func (b *Broker) rankTenant(t *tenant) {
	k := t.kind
	if k.pairs != 0 || k.contender >= 0 {
		b.touch(k) // whose turn is next may have an older job
	}
	x := *t.line.Top()
	rankIn(&k.line, t.pos, t.line.Len(), container.Entry{A: x.A, B: t.served, Ref: t.no | refTenant, C: 1})
}

// fairnessChange lets queues and jobs stand where they belong since tenants have begun to
// take turns in types, or ceased to. Until it is done both orders are mixed.
type fairnessChange struct {
	active         bool
	queue, holding int      // to go on with: all queues first, then all holdings
	to             *holding // whose the jobs of that holding become
}

// changeFairness begins that, from the start.
func (b *Broker) changeFairness(k *jobType) {
	if int(k.holdings)+k.unused == 0 {
		return
	}
	if !b.fairness.active {
		b.chores.add(&b.fairness)
	}
	b.fairness = fairnessChange{active: true}
}

func (c *fairnessChange) step(b *Broker) (cost int, done bool) {
	switch {
	case c.queue < len(b.queues.All()):
		b.correctTenant(b.queues.All()[c.queue])
		c.queue++
	case c.holding >= len(b.holdings.All()):
		c.active = false
	case !c.moveOne(b, b.holdings.All()[c.holding]):
		c.holding, c.to = c.holding+1, nil
	}
	return 1, !c.active
}

// correctTenant gives a queue a tenant, or takes it away.
func (b *Broker) correctTenant(q *queue) {
	if q == nil || (q.tenant != nil) == q.kind.fair {
		return
	}
	stood := q.pos >= 0
	if stood {
		b.unrank(q)
	}
	if q.kind.fair {
		b.takeTenant(q)
	} else {
		b.leaveTenant(q)
	}
	if stood {
		b.rank(q)
		b.touch(q.kind)
	}
}

// moveOne lets one job of a holding, nil for none, be in the queue in which it now
// belongs, and tells whether there was any that was not.
func (c *fairnessChange) moveOne(b *Broker, h *holding) bool {
	if h == nil || h.orphaned() || h.held() == 0 || h.queue.origin == h.kind.turn(h.sub, h.queue.set, h.origin) {
		return false
	}
	if c.to == nil || !b.holdings.Has(c.to.no, c.to) {
		c.to = b.regrouped(h, nil)
	}
	b.use(c.to)
	r := h.jobs.head
	if r == 0 {
		r = h.runs.head
	}
	b.touch(h.kind)
	b.move(r, b.jobs.Get(r), h, c.to)
	return true
}
