package broker

import (
	"unsafe"

	"gloom/broker/container"
)

// pen holds the queues of one type that one group held back when they were last looked at. A pen
// exists as long as a queue refers to it.
type pen struct {
	number uint32
	pos    int32 // position in kind.line if the pen is open, in group.parked if not; -1 if in neither
	open   bool
	kind   *jobType
	group  *group
	// queues orders the queues by their best jobs. In a fair type it orders them by the last
	// turns of their tenants, as these were when the queue was put here, and jobs orders them
	// by their best jobs.
	queues, jobs container.Heap
	users        int                 // how many queues refer to the pen
	parked       container.Link[pen] // in kind.parked
}

const penSize = int64(unsafe.Sizeof(pen{})) + 96

// takePen gives a queue the pen of a group, creating the pen if it does not exist.
func (b *Broker) takePen(q *queue, g *group) {
	p := q.kind.pens[g]
	if p == nil {
		p = &pen{kind: q.kind, group: g, pos: -1}
		p.queues = container.Heap{Place: b.place.inLine, Held: &b.heapBytes}
		p.jobs = container.Heap{Place: b.place.job, Held: &b.heapBytes}
		p.number = b.pens.Add(p)
		if q.kind.pens == nil {
			q.kind.pens = map[*group]*pen{}
		}
		q.kind.pens[g] = p
	}
	p.users++
	b.leavePen(q)
	q.pen = p
}

// leavePen removes a queue that is in no heap from its pen.
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
		b.pens.Drop(p.number)
	}
}

// rankPen corrects the position of a pen after its best queue has changed.
func (b *Broker) rankPen(p *pen) {
	x := *p.queues.Top()
	if !p.open && p.jobs.Len() > 0 {
		x = *p.jobs.Top()
	}
	if x.Ref = p.number | refPen; p.open {
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

// movePen moves a pen to the line of its type (open) or to the parked pens of its group.
func (b *Broker) movePen(p *pen, open bool) {
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

// openPens opens the pens of a fair type whose groups are open, because the tenant whose turn
// is next may have queues in one of them.
func (b *Broker) openPens(k *jobType) {
	if k.parked.Len() < b.opened.Len() {
		for p := k.parked.First(); p != nil; {
			q := p
			if p = p.parked.Next(); !q.group.shut {
				b.movePen(q, true)
			}
		}
		return
	}
	for i := 0; i < b.opened.Len(); i++ {
		if p := k.pens[b.groups.At(b.opened.At(i).Ref)]; p != nil && p.parked.In() {
			b.movePen(p, true)
			i = -1 // movePen has changed the heap
		}
	}
}

// rankOpen corrects the position of a group in Broker.opened.
func (b *Broker) rankOpen(g *group) {
	n := g.parked.Len()
	if g.shut {
		n = 0
	}
	x := *g.parked.Top()
	x.Ref = g.number
	rankIn(&b.opened, g.opened, n, x)
}

func (b *Broker) placeOpened(number uint32, pos int32) { b.groups.At(number).opened = pos }

// unparkTenant moves the queues of the tenant whose turn is next from an open pen to that
// tenant's line.
func (b *Broker) unparkTenant(p *pen) {
	q := b.queues.At(p.queues.Top().Ref)
	if p.queues.Top().B != q.tenant.served { // the tenant has been served since the queue was put here
		b.rank(q)
		return
	}
	for t := q.tenant; q.tenant == t; q = b.queues.At(p.queues.Top().Ref) {
		if b.rerank(q); p.queues.Len() == 0 {
			return
		}
	}
}

// mustOpenPens reports whether parked pens of open groups must return to their lines: there is an
// idle worker, or a fleet, which must learn of jobs that it could lend.
func (b *Broker) mustOpenPens() bool { return b.opened.Len() > 0 && (b.watching || b.idle.Len() > 0) }

// admitBest finds the best job in all parked pens of open groups and opens its pen.
func (b *Broker) admitBest() {
	g := b.groups.At(b.opened.Top().Ref)
	p := b.pens.At(g.parked.Top().Ref &^ refPen)
	b.movePen(p, true)
	b.touch(p.kind)
}
