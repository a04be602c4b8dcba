package broker

import "math"

// Drain refuses new jobs from now on.
func (b *Broker) Drain() { b.draining = true }

// Draining reports whether Drain was called.
func (b *Broker) Draining() bool { return b.draining }

// JobCount returns how many jobs are delayed, queued or running.
func (b *Broker) JobCount() uint64 { return b.totals.Delayed + b.totals.Queued + b.totals.Running }

// maxLeftovers bounds the jobs that one EndLeftovers ends.
const maxLeftovers = 1024

// EndLeftovers ends up to maxLeftovers of the jobs that are left after a drain. Their submitters
// get Draining. It returns false when no job is left.
func (b *Broker) EndLeftovers(now int64) ([]Effect, bool) {
	b.begin(now)
	b.draining, b.handOutStopped = true, true
	n := 0
	b.nextLeftover = b.jobs.Walk(b.nextLeftover, math.MaxInt, func(rec uint32, j *job) bool {
		if j.state != stateFree && j.state <= stateRunning && !b.isAbandoned(j) {
			b.endLeftover(rec, j)
			n++
		}
		return n < maxLeftovers
	})
	return b.end(), b.nextLeftover >= 0
}

func (b *Broker) endLeftover(rec uint32, j *job) {
	h := b.holdingOf(j)
	if j.state == stateRunning {
		w := b.workerOf(j)
		unwanted := b.isUnwanted(j)
		// The run becomes overdue, so that later frames of this worker about it have no effect.
		b.addOverdue(w, b.id(j))
		b.stopRun(w, h, rec, j)
		if unwanted {
			b.finishUnwanted(h, rec, j)
			return
		}
	} else {
		b.leaveQueue(rec, j)
	}
	b.endJob(rec, j, &lastFrame{code: Draining, reason: Reason{Why: WhyStopped}})
}
