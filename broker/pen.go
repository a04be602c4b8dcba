package broker

import (
	"unsafe"

	"gloom/broker/container"
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

const penSize = int64(unsafe.Sizeof(pen{})) + 96

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

// movePen lets a pen stand in the line of its type, or parked.
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

// openPens opens all pens of a fair type whose groups are open: they may have the tenant
// whose turn is next.
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

// unparkTenant lets the tenant whose turn is next in a pen, which is open, have its queues
// there stand in its line.
func (b *Broker) unparkTenant(p *pen) {
	q := b.queues.At(p.queues.Top().Ref)
	if p.queues.Top().B != q.tenant.served { // since it has stood here
		b.rank(q)
		return
	}
	for t := q.tenant; q.tenant == t; q = b.queues.At(p.queues.Top().Ref) {
		if b.rerank(q); p.queues.Len() == 0 {
			return
		}
	}
}

// admitBest lets the pen stand in the line of its type that has the best job of all
// pens of groups that are open.
func (b *Broker) admitBest() {
	g := b.groups.At(b.opened.Top().Ref)
	p := b.pens.At(g.parked.Top().Ref &^ refPen)
	b.movePen(p, true)
	b.touch(p.kind)
}
