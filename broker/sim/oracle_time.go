package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gloom/broker"
)

// timersPerTick limits the deadlines that one tick handles. The others wait for the next tick, and
// other commands may come in between.
const timersPerTick = 512

// sweptPerTick is how many jobs of lost submitters one tick sweeps at least.
const sweptPerTick = 512

func (o *oracle) tick(*command) {
	type alarm struct {
		at  int64
		job *oracleJob
	}
	var alarms []alarm
	for _, j := range o.jobs {
		if at, set := j.due(); set && at <= o.now {
			alarms = append(alarms, alarm{at, j})
		}
	}
	slices.SortFunc(alarms, func(a, b alarm) int {
		return cmp.Or(cmp.Compare(a.at, b.at), a.job.deadlineSeq-b.job.deadlineSeq)
	})
	for _, a := range alarms[:min(len(alarms), timersPerTick)] {
		j := a.job
		if at, set := j.due(); !set || at != a.at || !slices.Contains(o.jobs, j) {
			continue // the run has ended: its worker was closed because of other overdue runs
		}
		switch {
		case j.state == running:
			o.timeOut(j)
		case j.state == ended:
			o.forget(j)
		case o.lapsed(j):
			o.expire(j)
		default:
			j.state, j.stateSince = queued, o.now
			o.setTimer(j)
		}
		o.updateTenants() // after each timer, because a tenant that has no jobs then loses its place
	}
	for _, ot := range o.types {
		ot.rateMayLag = false
	}
	o.vanished = max(0, o.vanished-sweptPerTick)
	o.age()
}

func (o *oracle) expire(j *oracleJob) {
	o.typeNamed(j.typ).Expired++
	o.end(j, broker.Expired, "")
}

// timeOut handles a run that has exceeded its timeout. The run stays on its worker until the
// worker answers, and the job continues without it.
func (o *oracle) timeOut(j *oracleJob) {
	if w := o.peer(j.worker); w.kind == borrowers {
		o.send(frame{op: broker.OpOverdue, peer: w.number, id: j.id})
	} else {
		o.notice(j)
	}
	o.giveUp(j)
	o.count(j, &o.typeNamed(j.typ).Overdue)
	if j.unwanted() {
		o.endUnwanted(j)
	} else {
		o.failRun(j, broker.JobFailed, "", false, -1)
	}
	o.evict()
}

// giveUp makes a job's run overdue, so that the job continues without it.
func (o *oracle) giveUp(j *oracleJob) {
	w := o.peer(j.worker)
	for i := range w.out {
		if w.out[i].job == j {
			w.out[i].job = nil
		}
	}
}

// evict closes a worker if overdue runs have reached half of a limit. The simulation has so few
// workers that the one closed is always the one with the most overdue runs.
func (o *oracle) evict() {
	n, bytes := o.overdueRuns()
	if (o.cfg.MaxJobs == 0 || 2*n <= o.cfg.MaxJobs) && (o.cfg.MaxBytes == 0 || 2*bytes <= o.cfg.MaxBytes) {
		return
	}
	if len(o.observed.closed) == 0 {
		o.complaint = fmt.Sprintf("%d overdue runs of %d bytes, and no worker is closed", n, bytes)
		return
	}
	w := o.peer(o.observed.closed[0])
	o.observed.closed = o.observed.closed[1:]
	for _, other := range o.peers {
		if w == nil || other.overdue() > w.overdue() {
			o.complaint = fmt.Sprintf("of %v and p%d, the wrong worker is closed", w, other.number)
			return
		}
	}
	o.refuse(w.number, broker.Overloaded, "")
	o.peers = slices.DeleteFunc(o.peers, func(p *oraclePeer) bool { return p == w })
	o.workerGone(w, "")
	o.send(frame{op: broker.OpClose, peer: w.number})
}

// next returns the earliest moment at which a tick has something to do.
func (o *oracle) next() int64 {
	at := int64(math.MaxInt64)
	for _, j := range o.jobs {
		if due, set := j.due(); set {
			at = min(at, due)
		}
		if opensAt, waits := o.waitsForRate(j); waits {
			at = min(at, opensAt)
		}
	}
	if len(o.letters) > 0 {
		at = min(at, o.letters[0].failed+int64(o.cfg.DeadAge))
	}
	for _, ot := range o.types {
		_, opensAt := ot.rateState.opensBetween(ot.quota())
		if ot.rate > 0 && (opensAt > o.now || ot.rateMayLag) && !o.stopped && o.mayRun(ot) && o.firstInLine(ot.name) != nil && o.candidate(ot, math.MaxInt) != nil {
			at = min(at, opensAt)
		}
	}
	return at
}
