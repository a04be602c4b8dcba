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
func (q *QueuePosition) Exact() bool { return q.Ahead < maxAhead && !q.isUncertain }

// QueuePosition counts one piece of the jobs that come before a queued job, and reports whether
// there is more to count.
func (b *Broker) QueuePosition(id []byte, place *QueuePosition) (more bool) {
	if b.sweepAll() {
		return true
	}
	rec, j := b.findJob(id)
	if rec == 0 {
		return false
	}
	if j.state != stateQueued && j.state != stateSpilled {
		return false
	}
	ownQueue := b.holdingOf(j).queue
	key := j.orderKey(rec, b.priority(j))
	ownShutGroup := ownQueue.shutGroup()
	place.isUncertain = place.isUncertain || ownShutGroup != nil
	for n := 0; n < lookVisits && place.next < len(b.queues.All()); n++ {
		q := b.queues.All()[place.next]
		if q != nil && q.jobType == ownQueue.jobType && q.readyJobs > 0 && b.comesBefore(q, &key, ownQueue, ownShutGroup, place) {
			limit := key
			if q.tenant != ownQueue.tenant {
				limit = container.Entry{Major: key.Major}
			}
			before := place.Ahead
			complete := b.countAhead(q, &limit, j, place)
			if place.Ahead == maxAhead {
				return false
			}
			if !complete {
				return true
			}
			n += place.Ahead - before
		}
		place.next, place.lastCountedKey = place.next+1, container.Entry{}
	}
	return place.next < len(b.queues.All())
}

// comesBefore reports whether jobs of q come before the job with this key in ownQueue.
// ownShutGroup is the group that holds ownQueue back, or nil.
func (b *Broker) comesBefore(q *queue, key *container.Entry, ownQueue *queue, ownShutGroup *group, place *QueuePosition) bool {
	best := b.bestKey(q)
	otherTurn := q.tenant != ownQueue.tenant && best.Major <= key.Major
	if holder := q.shutGroup(); holder != nil && holder != ownShutGroup && (otherTurn || best.Before(key)) {
		place.isUncertain = true
		return false
	}
	place.isUncertain = place.isUncertain || otherTurn
	return otherTurn && best.Major < key.Major || !otherTurn && best.Before(key)
}

// shutGroup returns the group that holds back the jobs of a queue, or nil.
func (q *queue) shutGroup() *group { return q.groupSet.shutGroup() }

// sweepAll frees some of the waiting jobs of lost submitters, which a count must not include,
// and reports whether there were any.
func (b *Broker) sweepAll() bool {
	if b.unsweptJobs == 0 {
		return false
	}
	b.runChores(&b.cleanups, tickSteps)
	return true
}

// countAhead counts the jobs of q before j, whose key is given. It returns false if it stopped
// after lookVisits jobs of the lanes: these jobs lie far apart in memory.
func (b *Broker) countAhead(q *queue, key *container.Entry, j *job, place *QueuePosition) (complete bool) {
	laneIndex, rec := len(q.lanes)-1, uint32(0)
	if place.lastCountedKey.Ref != 0 {
		other, ok := b.lastCountedJob(place)
		if !ok { // it is unknown how many of the jobs that follow now were counted already
			place.isUncertain = true
			return true
		}
		laneIndex, _ = q.findLane(b.priority(other))
		if rec = other.links[laneLink].next; rec == 0 {
			laneIndex--
		}
	}
	for n := 0; laneIndex >= 0 && q.lanes[laneIndex].priority >= b.priority(j); laneIndex, rec = laneIndex-1, 0 {
		if rec == 0 {
			rec = q.lanes[laneIndex].head
		}
		for ; rec != 0; n++ {
			other := b.jobs.Get(rec)
			otherKey := other.orderKey(rec, q.lanes[laneIndex].priority)
			if !otherKey.Before(key) {
				break
			}
			if place.Ahead++; place.Ahead == maxAhead {
				return true
			}
			if n == lookVisits {
				place.lastCountedKey = otherKey
				return false
			}
			rec = other.links[laneLink].next
		}
	}
	if q.hasSpilled() {
		q.spill.byOrder.EachBefore(0, key, func(*container.Entry) bool {
			place.Ahead++
			return place.Ahead < maxAhead
		})
	}
	return true
}

// lastCountedJob returns the job up to which a place was counted, if it is still there.
func (b *Broker) lastCountedJob(place *QueuePosition) (*job, bool) {
	if !b.jobs.Has(place.lastCountedKey.Ref) {
		return nil, false
	}
	j := b.jobs.Get(place.lastCountedKey.Ref)
	return j, j.state == stateQueued && int(b.holdingOf(j).queue.number) == place.next && j.orderKey(place.lastCountedKey.Ref, b.priority(j)) == place.lastCountedKey
}
