package broker

import (
	"gloom/broker/container"
)

// QueuePosition is a job's place among the ready jobs of its type. Ahead counts, up to maxAhead,
// the ready jobs that come before it. In a fair type only jobs of larger priority and jobs of the
// same tenant count. Jobs that a group holds back do not count.
type QueuePosition struct {
	Ahead          int
	next           int             // the number of the queue to continue from
	lastCountedKey container.Entry // the job in that queue's lanes after which to continue
	isUncertain    bool            // an unknown number of other jobs may come before the job
}

const maxAhead = 10_000

// Exact reports whether exactly Ahead jobs come before the job; otherwise there may be more.
func (p *QueuePosition) Exact() bool { return p.Ahead < maxAhead && !p.isUncertain }

// QueuePosition counts one piece of the jobs that come before a queued job, and reports whether
// there is more to count.
func (b *Broker) QueuePosition(id []byte, p *QueuePosition) (more bool) {
	if b.sweepAll() {
		return true
	}
	r, j := b.findJob(id)
	if r == 0 {
		return false
	}
	if j.state != stateQueued && j.state != stateSpilled {
		return false
	}
	own := b.holdingOf(j).queue
	key := j.orderKey(r, b.priority(j))
	held := own.shutGroup()
	p.isUncertain = p.isUncertain || held != nil
	for n := 0; n < lookVisits && p.next < len(b.queues.All()); n++ {
		q := b.queues.All()[p.next]
		if q != nil && q.jobType == own.jobType && q.readyJobs > 0 && b.comesBefore(q, &key, own, held, p) {
			limit := key
			if q.tenant != own.tenant {
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
		p.next, p.lastCountedKey = p.next+1, container.Entry{}
	}
	return p.next < len(b.queues.All())
}

// comesBefore reports whether jobs of q come before the job with key x in queue own. held is the
// group that holds own back, or nil.
func (b *Broker) comesBefore(q *queue, x *container.Entry, own *queue, held *group, p *QueuePosition) bool {
	best := b.bestKey(q)
	otherTurn := q.tenant != own.tenant && best.A <= x.A
	if holder := q.shutGroup(); holder != nil && holder != held && (otherTurn || best.Before(x)) {
		p.isUncertain = true
		return false
	}
	p.isUncertain = p.isUncertain || otherTurn
	return otherTurn && best.A < x.A || !otherTurn && best.Before(x)
}

// shutGroup returns the group that holds back the jobs of a queue, or nil.
func (q *queue) shutGroup() *group { return q.groupSet.shutGroup() }

// sweepAll frees some of the waiting jobs of lost submitters, which a count must not include,
// and reports whether there were any.
func (b *Broker) sweepAll() bool {
	if b.unsweptJobs == 0 {
		return false
	}
	b.runChores(&b.cleanups, lookVisits)
	return true
}

// countAhead counts the jobs of q before j, whose key is given. It returns false if it stopped
// after lookVisits jobs of the lanes, which lie far apart in memory.
func (b *Broker) countAhead(q *queue, key *container.Entry, j *job, p *QueuePosition) (complete bool) {
	l, r := len(q.lanes)-1, uint32(0)
	if p.lastCountedKey.Ref != 0 {
		o, ok := b.lastCountedJob(p)
		if !ok { // it is unknown how many of the jobs that follow now were counted already
			p.isUncertain = true
			return true
		}
		l, _ = q.laneOf(b.priority(o))
		if r = o.links[laneLink].next; r == 0 {
			l--
		}
	}
	for n := 0; l >= 0 && q.lanes[l].priority >= b.priority(j); l, r = l-1, 0 {
		if r == 0 {
			r = q.lanes[l].head
		}
		for ; r != 0; n++ {
			o := b.jobs.Get(r)
			x := o.orderKey(r, q.lanes[l].priority)
			if !x.Before(key) {
				break
			}
			if p.Ahead++; p.Ahead == maxAhead {
				return true
			}
			if n == lookVisits {
				p.lastCountedKey = x
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

// lastCountedJob returns the job up to which a place was counted, if it is still there.
func (b *Broker) lastCountedJob(p *QueuePosition) (*job, bool) {
	if !b.jobs.Has(p.lastCountedKey.Ref) {
		return nil, false
	}
	o := b.jobs.Get(p.lastCountedKey.Ref)
	return o, o.state == stateQueued && int(b.holdingOf(o).queue.number) == p.next && o.orderKey(p.lastCountedKey.Ref, b.priority(o)) == p.lastCountedKey
}
