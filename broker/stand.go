package broker

import (
	"slices"
	"unsafe"

	"gloom/broker/container"
)

// Where queues with ready jobs stand, each in one heap, by its best job:
//
//	type.line ──┬── queue
//	            ├── tenant.line ── queue     in a fair type
//	            └── pen.queues ─── queue     while their group lets them go
//	group.parked ── pen.queues ─── queue     while it does not
//
// A tenant stands in the line of its type by the priority of its best job and by when
// it was served last. A pen is what a group holds back of a type. While it is parked
// nobody looks at it. When the group opens, its pens do not all come back: only as many
// as somebody asks for, the best first. For the next job shuts the group again, and each
// of ten thousand types would have been met for nothing.

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

const (
	tenantSize = int64(unsafe.Sizeof(tenant{})) + 96
	penSize    = int64(unsafe.Sizeof(pen{})) + 96
	// refTenant and refPen mark what stands in the line of a type beside queues.
	refTenant = 1 << 31
	refPen    = 1 << 30
	refMarks  = refTenant | refPen
)

// pen has queues of one type that one group held back when somebody looked. It is
// there as long as a queue may stand in it again.
type pen struct {
	no    uint32
	pos   int32 // in kind.line if it is open, else in group.parked; -1
	open  bool
	kind  *jobType
	group *group
	// queues are by their best jobs; in a fair type by when their tenants were served,
	// or earlier, and jobs has them by their best jobs.
	queues, jobs container.Heap
	users        int                 // queues whose pen it is
	parked       container.Link[pen] // in kind.parked, while it is
}

// rent gives a queue of a fair type its tenant.
func (b *Broker) rent(q *queue) {
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

// vacateQueue takes a queue that does not stand from its tenant, if it has one.
func (b *Broker) vacateQueue(q *queue) {
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

func (b *Broker) placeStanding(ref uint32, pos int32) {
	switch no := ref &^ refMarks; ref & refMarks {
	case refTenant:
		b.tenants.At(no).pos = pos
	case refPen:
		b.pens.At(no).pos = pos
	default:
		b.queues.At(no).pos = pos
	}
}

func (b *Broker) placeJob(no uint32, pos int32) { b.queues.At(no).job = pos }

// stands is the heap in which a queue stands.
func (q *queue) stands() *container.Heap {
	switch {
	case q.parked:
		return &q.pen.queues
	case q.tenant != nil:
		return &q.tenant.line
	}
	return &q.kind.line
}

// inTurn: it is parked, and waits there for its tenant's turn.
func (q *queue) inTurn() bool { return q.parked && q.tenant != nil }

// rank puts a queue where its best job puts it.
func (b *Broker) rank(q *queue) {
	if q.n == 0 {
		if q.pos >= 0 {
			b.unrank(q)
		}
		return
	}
	if q.pos < 0 {
		if g := q.heldBy(); g != nil {
			b.takePen(q, g)
			q.parked = true
		}
	}
	x := b.best(q)
	x.Ref = q.no
	moved := false
	if q.inTurn() {
		moved = q.pen.jobs.Put(q.job, x)
		x.B, x.C = q.tenant.served, 0
	}
	if q.stands().Put(q.pos, x) || moved {
		b.ranked(q)
	}
}

// unrank lets a queue stand nowhere.
func (b *Broker) unrank(q *queue) {
	q.stands().Remove(q.pos)
	q.pos = -1
	if q.inTurn() {
		q.pen.jobs.Remove(q.job)
		q.job = -1
	}
	b.ranked(q)
	q.parked = false
}

// restand lets a queue with ready jobs stand where it belongs now.
func (b *Broker) restand(q *queue) {
	b.unrank(q)
	b.rank(q)
}

// ranked corrects where the tenant or the pen stands in whose heap something moved.
func (b *Broker) ranked(q *queue) {
	if q.parked {
		b.rankPen(q.pen)
	} else if q.tenant != nil {
		b.rankTenant(q.tenant)
	}
}

func (b *Broker) rankTenant(t *tenant) {
	k := t.kind
	if k.pairs != 0 || k.ripe >= 0 {
		b.touch(k) // whose turn is next may have an older job
	}
	x := *t.line.Top()
	rankIn(&k.line, t.pos, t.line.Len(), container.Entry{A: x.A, B: t.served, Ref: t.no | refTenant, C: 1})
}

// rankIn lets what has so many elements stand in h with key x, or no more.
func rankIn(h *container.Heap, pos int32, n int, x container.Entry) {
	switch {
	case n > 0:
		h.Put(pos, x)
	case pos >= 0:
		ref := h.At(int(pos)).Ref
		h.Remove(pos)
		h.Place(ref, -1)
	}
}

// takePen lets a queue have the pen of a group.
func (b *Broker) takePen(q *queue, g *group) {
	p := q.kind.pens[g]
	if p == nil {
		p = &pen{kind: q.kind, group: g, pos: -1}
		p.queues = container.Heap{Place: b.place.standing, Held: &b.heapBytes}
		p.jobs = container.Heap{Place: b.place.job, Held: &b.heapBytes}
		p.no = b.pens.Add(p)
		if q.kind.pens == nil {
			q.kind.pens = map[*group]*pen{}
		}
		q.kind.pens[g] = p
	}
	p.users++
	b.leavePen(q)
	q.pen = p
}

// leavePen lets a queue that does not stand have no pen.
func (b *Broker) leavePen(q *queue) {
	p := q.pen
	if p == nil {
		return
	}
	q.pen = nil
	if p.users--; p.users == 0 {
		p.queues.Release()
		p.jobs.Release()
		if delete(p.kind.pens, p.group); len(p.kind.pens) == 0 {
			p.kind.pens = nil
		}
		b.pens.Drop(p.no)
	}
}

// rankPen puts a pen where its best queue puts it.
func (b *Broker) rankPen(p *pen) {
	x := *p.queues.Top()
	if !p.open && p.jobs.Len() > 0 {
		x = *p.jobs.Top()
	}
	if x.Ref = p.no | refPen; p.open {
		rankIn(&p.kind.line, p.pos, p.queues.Len(), x)
		return
	}
	rankIn(&p.group.parked, p.pos, p.queues.Len(), x)
	if in := p.pos >= 0; in && !p.parked.In() {
		p.kind.parked.Push(&p.parked, p)
	} else if !in && p.parked.In() {
		p.kind.parked.Remove(&p.parked)
	}
	b.rankOpen(p.group)
}

// setPen lets a pen stand in the line of its type, or parked.
func (b *Broker) setPen(p *pen, open bool) {
	h := &p.group.parked
	if p.open {
		h = &p.kind.line
	}
	h.Remove(p.pos)
	if p.pos, p.open = -1, open; open {
		p.kind.parked.Remove(&p.parked)
		b.rankOpen(p.group)
	}
	b.rankPen(p)
}

// bringIn opens all pens of a fair type whose groups are open: they may have the tenant
// whose turn is next.
func (b *Broker) bringIn(k *jobType) {
	if k.parked.Len() < b.opened.Len() {
		for p := k.parked.First(); p != nil; {
			q := p
			if p = p.parked.Next(); !q.group.shut {
				b.setPen(q, true)
			}
		}
		return
	}
	for i := 0; i < b.opened.Len(); i++ {
		if p := k.pens[b.groups.At(b.opened.At(i).Ref)]; p != nil && p.parked.In() {
			b.setPen(p, true)
			i = -1 // the heap may have changed
		}
	}
}

// rankOpen lets a group that is open and still has parked pens stand among those, by
// the best job of these.
func (b *Broker) rankOpen(g *group) {
	n := g.parked.Len()
	if g.shut {
		n = 0
	}
	x := *g.parked.Top()
	x.Ref = g.no
	rankIn(&b.opened, g.opened, n, x)
}

func (b *Broker) placeOpened(no uint32, pos int32) { b.groups.At(no).opened = pos }

// lookSteps bounds how many jobs and queues one command meets that cannot be handed out.
const lookSteps = 1024

// look counts a look; false says that this command has none left.
func (b *Broker) look() bool {
	b.unfinished = b.unfinished || b.looks == lookSteps
	if !b.unfinished {
		b.looks++
	}
	return !b.unfinished
}

// front returns the queue whose best job a type hands out next; nil when there is none,
// or all are held back. Jobs that nobody waits for go on the way.
func (b *Broker) front(k *jobType) *queue {
	if k.fair && k.parked.Len() > 0 && b.opened.Len() > 0 {
		b.bringIn(k)
	}
	for more := !b.unfinished; more && k.line.Len() > 0; more = b.look() {
		ref := k.line.Top().Ref
		switch no := ref &^ refMarks; ref & refMarks {
		case refTenant:
			ref = b.tenants.At(no).line.Top().Ref
		case refPen:
			p := b.pens.At(no)
			if p.group.shut {
				b.setPen(p, false)
				continue
			}
			if ref = p.queues.Top().Ref; b.queues.At(ref).tenant != nil {
				b.letOut(p)
				continue
			}
		}
		q := b.queues.At(ref)
		if s := q.set; s != nil {
			if b.revising > 0 {
				b.catchUp(s)
			}
			if s.shutGroup() != nil {
				b.restand(q)
				continue
			}
		}
		r := b.first(q)
		j := b.jobs.Get(r)
		h := b.holder(j)
		if h.sub != nil && h.sub.gone {
			b.lose(h)
		}
		if h.dead {
			b.skip(q, h, r, j)
			continue
		}
		if k.fair {
			b.watch(k, q.set)
		}
		return q
	}
	return nil
}

// letOut lets the tenant whose turn is next in a pen, which is open, have its queues
// there stand in its line.
func (b *Broker) letOut(p *pen) {
	q := b.queues.At(p.queues.Top().Ref)
	if p.queues.Top().B != q.tenant.served { // since it has stood here
		b.rank(q)
		return
	}
	for t := q.tenant; q.tenant == t; q = b.queues.At(p.queues.Top().Ref) {
		if b.restand(q); p.queues.Len() == 0 {
			return
		}
	}
}

// admitBest lets the pen stand in the line of its type that has the best job of all
// pens of groups that are open.
func (b *Broker) admitBest() {
	g := b.groups.At(b.opened.Top().Ref)
	p := b.pens.At(g.parked.Top().Ref &^ refPen)
	b.setPen(p, true)
	b.touch(p.kind)
}

// guard lets a fair type be looked at again when a group of its next job shuts: the
// one whose turn is then next may have an older job.
type guard struct {
	group *group
	link  container.Link[jobType] // in group.guarded
}

// watch has a fair type guard the groups of its next job.
func (b *Broker) watch(k *jobType, set *groupSet) {
	if k.watched == set {
		return
	}
	for i := range k.guards {
		x := &k.guards[i]
		x.group.guarded.Remove(&x.link)
	}
	k.watched, k.guards = nil, k.guards[:0]
	if set == nil || len(b.poolsByKey)+len(b.rules) == 0 {
		return
	}
	k.watched, k.guards = set, slices.Grow(k.guards, len(set.groups))[:len(set.groups)]
	for i, g := range set.groups {
		k.guards[i] = guard{group: g}
		g.guarded.Push(&k.guards[i].link, k)
	}
}

// settling lets queues and jobs stand where they belong since tenants have begun to
// take turns in types, or ceased to. Until it is done both orders are mixed.
type settling struct {
	active         bool
	queue, holding int      // to go on with: all queues first, then all holdings
	to             *holding // whose the jobs of that holding become
}

// settle begins that, from the start.
func (b *Broker) settle(k *jobType) {
	if int(k.holdings)+k.unused == 0 {
		return
	}
	if !b.settling.active {
		b.chores.add(&b.settling)
	}
	b.settling = settling{active: true}
}

func (c *settling) step(b *Broker) (cost int, done bool) {
	switch {
	case c.queue < len(b.queues.All()):
		b.settleQueue(b.queues.All()[c.queue])
		c.queue++
	case c.holding >= len(b.holdings.All()):
		c.active = false
	case !c.moveOne(b, b.holdings.All()[c.holding]):
		c.holding, c.to = c.holding+1, nil
	}
	return 1, !c.active
}

// settleQueue gives a queue a tenant, or takes it away.
func (b *Broker) settleQueue(q *queue) {
	if q == nil || (q.tenant != nil) == q.kind.fair {
		return
	}
	stood := q.pos >= 0
	if stood {
		b.unrank(q)
	}
	if q.kind.fair {
		b.rent(q)
	} else {
		b.vacateQueue(q)
	}
	if stood {
		b.rank(q)
		b.touch(q.kind)
	}
}

// moveOne lets one job of a holding, nil for none, be in the queue in which it now
// belongs, and tells whether there was any that was not.
func (c *settling) moveOne(b *Broker, h *holding) bool {
	if h == nil || h.lost() || h.held() == 0 || h.queue.origin == h.kind.turn(h.sub, h.queue.set, h.origin) {
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
