package sim

import (
	"fmt"
	"math"
	"slices"

	"gloom/broker"
)

// The other brokers of a fleet are peers. A borrower is a worker that comes last in line, and a
// lender is a submitter whose jobs run at once or are refused. A borrowed job holds no id and
// is in no ledger.

// before reports whether p comes before x in line.
func (p *oraclePeer) before(x *oraclePeer) bool {
	if p.kind != x.kind {
		return x.kind == borrowers
	}
	return p.position < x.position
}

// has reports whether a job with this id runs on the worker.
func (p *oraclePeer) has(id string) bool {
	return slices.ContainsFunc(p.out, func(r run) bool { return r.job != nil && r.id == id })
}

// toEnd moves a worker to the end of the line.
func (o *oracle) toEnd(w *oraclePeer) { w.position = o.nextNumber() }

// A job should go to a worker that already runs a borrowed job with the same id. delayClash makes
// the job wait for a while, and moves the worker to the end of the line.
func (o *oracle) delayClash(w *oraclePeer, j *oracleJob) {
	j.state, j.until = delayed, o.now+int64(broker.ClashDelay)
	o.setTimer(j)
	o.toEnd(w)
}

func (j *oracleJob) loan(now int64) broker.Loan {
	return broker.Loan{Priority: j.priority, Age: now - j.submittedAt, WantsProgress: j.progress}
}

// count adds 1 to a counter, unless the job is borrowed.
func (o *oracle) count(j *oracleJob, n *uint64) {
	if !j.borrowed {
		*n++
	}
}

func (o *oracle) borrow(c *command) {
	why := o.borrowRefusal(c)
	if why != o.observed.borrowRefusal {
		o.complaint = fmt.Sprintf("the core did not borrow because of %d, expected %d", o.observed.borrowRefusal, why)
	}
	ot, w := o.types[c.typ], o.firstInLine(c.typ)
	switch why {
	case 0:
		j := &oracleJob{command: *c, owner: c.peer, borrowed: true, submittedAt: o.now - int64(c.age)}
		j.retries = 0
		o.borrowed = append(o.borrowed, j)
		if ot.rate > 0 {
			ot.rateState.take(j, o.now, ot.quota())
		}
		o.handTo(w, j)
		o.handedByType[c.typ]++
	case broker.IDClash:
		o.toEnd(w)
	}
}

// borrowRefusal returns why a job cannot be borrowed, or 0. Where this depends on how the core
// counts rates and bytes, or on whether the core still knows the type, the core's answer is
// accepted.
func (o *oracle) borrowRefusal(c *command) broker.BorrowRefusal {
	p, w := o.peer(c.peer), o.firstInLine(c.typ)
	if p == nil || p.kind != lenders || o.draining || w == nil || w.kind == borrowers {
		return broker.NoIdleWorker
	}
	ot := o.typeNamed(c.typ)
	earliest, latest := ot.rateState.opensBetween(ot.quota())
	if !o.mayRun(ot) || ot.rate > 0 && (earliest > o.now || latest > o.now && o.observed.borrowRefusal == broker.NoIdleWorker) {
		return broker.NoIdleWorker
	}
	if !o.used(c.typ) && o.cfg.MaxTypes > 0 && o.observed.borrowRefusal == broker.NoIdleWorker {
		return broker.NoIdleWorker
	}
	isTooLarge := o.observed.borrowRefusal == broker.TooLarge
	o.observed.overloaded = isTooLarge || o.observed.borrowRefusal == broker.LimitReached
	switch exceedsLimit := o.wouldExceedLimit(c); {
	case exceedsLimit && isTooLarge:
		return broker.TooLarge
	case exceedsLimit:
		return broker.LimitReached
	case w.has(c.id):
		return broker.IDClash
	}
	return 0
}

// loan returns the borrowed job that a lender's command names, or nil if that job does not run.
func (o *oracle) loan(c *command) *oracleJob {
	for _, j := range o.borrowed {
		if j.run == c.run && j.owner == c.peer && j.state == running {
			return j
		}
	}
	return nil
}

// unwant makes a run unwanted. If the run is overdue at its home, it becomes overdue here.
func (o *oracle) unwant(c *command) {
	j := o.loan(c)
	if j == nil {
		return
	}
	o.notice(j)
	j.cancelled = true
	if c.boolArg {
		o.timeOut(j)
	}
}

func (o *oracle) follow(c *command) {
	if j := o.loan(c); j != nil {
		j.progress = c.boolArg
	}
}

// allot sets how many jobs of this broker may be out on a borrower.
func (o *oracle) allot(c *command) {
	o.peer(c.peer).room = c.room
}

// compareMoves checks that a fleet knows from EachIdleChange alone which types have jobs to lend.
func (r *runner) compareMoves() error {
	d := r.driver
	lendable := func(typ []byte) bool { return d.core.Demand(typ).Jobs > 0 }
	d.core.EachIdleChange(func(change *broker.IdleChange) {
		if change.Set == 0 {
			d.lendable[string(change.Types[0])] = lendable(change.Types[0])
		}
	})
	for _, name := range r.oracle.names {
		if d.watched && lendable([]byte(name)) && !d.lendable[name] {
			return fmt.Errorf("type %q has jobs to lend, and has not moved", name)
		}
	}
	return nil
}

// compareLending compares the facts about a type that a fleet gets: the jobs that could be lent,
// and how many borrowed jobs the workers could take.
func (r *runner) compareLending(ot *oracleType) error {
	o, b := r.oracle, r.driver.core
	if ot.rate > 0 || o.vanished > 0 || !r.driver.watched {
		return nil
	}
	queuedJobs, room := o.countIn(queued, ot.name), math.MaxInt
	if ot.concurrency > 0 {
		room = max(0, ot.concurrency-o.active(ot.name))
	}
	var want broker.Demand
	if best := o.candidate(ot, math.MaxInt); best != nil && !ot.paused && !o.stopped {
		want = broker.Demand{Jobs: min(queuedJobs, room), Priority: best.priority, Since: best.submittedAt}
	}
	got := b.Demand([]byte(ot.name))
	if len(o.rules) > 0 { // the core may offer jobs that a group holds back
		if want.Jobs > 0 && got.Jobs == 0 {
			return fmt.Errorf("jobs of type %q could run, and are not offered", ot.name)
		}
		return nil
	}
	if ot.fair {
		got.Since, want.Since = 0, 0
		got.Priority, want.Priority = 0, 0
	}
	if got != want {
		return fmt.Errorf("demand of type %q differs: expected %+v, got %+v", ot.name, want, got)
	}
	limit, places := 0, 0
	if !ot.paused && !o.draining && room > 0 && queuedJobs == 0 {
		limit = room
		for _, w := range o.peers {
			if w.free() && w.kind == workers && w.serves(ot.name) {
				places += w.room - len(w.out)
			}
		}
	}
	gotPlaces := 0
	wantLimit := b.Supply([]byte(ot.name), func(uint32) int { return math.MaxInt32 }, func(s broker.Supply) bool {
		gotPlaces += s.Places
		return true
	})
	if wantLimit != limit || gotPlaces != places {
		return fmt.Errorf("supply of type %q differs: expected %d places and a limit of %d, got %d places and a limit of %d", ot.name, places, limit, gotPlaces, wantLimit)
	}
	return nil
}
