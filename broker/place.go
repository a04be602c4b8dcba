package broker

import (
	"gloom/broker/container"
)

// Place is a job's place in line. Ahead is how many ready jobs of its type come before it, counted
// up to maxAhead. In a fair type only jobs of larger priority and jobs of the same tenant count.
// Jobs that a group holds back do not count.
type Place struct {
	Ahead       int
	next        int             // the number of the queue to continue from
	lastCounted container.Entry // the job in that queue's lanes after which to continue
	more        bool            // an unknown number of other jobs may come before the job
}

const maxAhead = 10_000

// Exact reports whether exactly Ahead jobs come before the job; otherwise there may be more.
func (p *Place) Exact() bool { return p.Ahead < maxAhead && !p.more }

// Place counts one piece of the jobs that come before a queued job, and reports whether there
// is more to count.
func (b *Broker) Place(id []byte, p *Place) (more bool) {
	if b.sweepAll() {
		return true
	}
	r, j := b.find(id)
	if r == 0 {
		return false
	}
	if j.state != stQueued && j.state != stSpilled {
		return false
	}
	mine := b.holdingOf(j).queue
	key := j.orderKey(r)
	held := mine.shutGroup()
	p.more = p.more || held != nil
	for n := 0; n < lookVisits && p.next < len(b.queues.All()); n++ {
		q := b.queues.All()[p.next]
		if q != nil && q.kind == mine.kind && q.ready > 0 && b.comesBefore(q, &key, mine, held, p) {
			limit := key
			if q.tenant != mine.tenant {
				limit = container.Entry{A: key.A}
			}
			before := p.Ahead
			complete := b.countAhead(q, &limit, j, p)
			if p.Ahead == maxAhead {
				return false
			}
			if !complete {
				return true
			}
			n += p.Ahead - before
		}
		p.next, p.lastCounted = p.next+1, container.Entry{}
	}
	return p.next < len(b.queues.All())
}

// comesBefore reports whether jobs of q come before the job with key x in queue mine. held is the
// group that holds mine back, or nil.
func (b *Broker) comesBefore(q *queue, x *container.Entry, mine *queue, held *group, p *Place) bool {
	best := b.bestKey(q)
	otherTurn := q.tenant != mine.tenant && best.A <= x.A
	if holder := q.shutGroup(); holder != nil && holder != held && (otherTurn || best.Before(x)) {
		p.more = true
		return false
	}
	p.more = p.more || otherTurn
	return otherTurn && best.A < x.A || !otherTurn && best.Before(x)
}

// shutGroup returns the group that holds back the jobs of a queue, or nil.
func (q *queue) shutGroup() *group { return q.groupSet.shutGroup() }

// sweepAll frees some of the waiting jobs of lost submitters, which a count must not include,
// and reports whether there were any.
func (b *Broker) sweepAll() bool {
	if b.unswept == 0 {
		return false
	}
	b.runChores(&b.cleanups, lookVisits)
	return true
}

// countAhead counts the jobs of q before j, whose key is given. It returns false if it stopped
// after lookVisits jobs of the lanes, which lie far apart in memory.
func (b *Broker) countAhead(q *queue, key *container.Entry, j *job, p *Place) (complete bool) {
	l, r := len(q.lanes)-1, uint32(0)
	if p.lastCounted.Ref != 0 {
		o, ok := b.lastAhead(p)
		if !ok { // it is unknown how many of the jobs that follow now were counted already
			p.more = true
			return true
		}
		l, _ = q.laneOf(o.prio)
		if r = o.links[laneLink].next; r == 0 {
			l--
		}
	}
	for n := 0; l >= 0 && q.lanes[l].prio >= j.prio; l, r = l-1, 0 {
		if r == 0 {
			r = q.lanes[l].head
		}
		for ; r != 0; n++ {
			o := b.jobs.Get(r)
			x := o.orderKey(r)
			if !x.Before(key) {
				break
			}
			if p.Ahead++; p.Ahead == maxAhead {
				return true
			}
			if n == lookVisits {
				p.lastCounted = x
				return false
			}
			r = o.links[laneLink].next
		}
	}
	if q.hasSpilled() {
		q.spill.byOrder.EachBefore(0, key, func(*container.Entry) bool {
			p.Ahead++
			return p.Ahead < maxAhead
		})
	}
	return true
}

// lastAhead returns the job up to which a place was counted, if it is still there.
func (b *Broker) lastAhead(p *Place) (*job, bool) {
	if !b.jobs.Has(p.lastCounted.Ref) {
		return nil, false
	}
	o := b.jobs.Get(p.lastCounted.Ref)
	return o, o.state == stQueued && int(b.holdingOf(o).queue.number) == p.next && o.orderKey(p.lastCounted.Ref) == p.lastCounted
}
