package sim

import (
	"slices"

	"gloom/broker"
)

func (o *oracle) submit(c *command) {
	sub := o.peer(c.peer)
	switch {
	case o.jobsByID[c.id] != nil:
		o.refuse(sub.number, broker.IDExists, c.id)
		return
	case o.draining:
		o.refuse(sub.number, broker.Draining, c.id)
		return
	case o.wouldExceedLimit(c):
		o.refuse(sub.number, broker.Overloaded, c.id)
		return
	}
	j := o.acceptJob(c, sub.number)
	if !c.quiet {
		o.ok(sub.number, j.id)
	}
}

// maxRetries is the largest number of retries that the core can count; the protocol allows
// 1000.
const maxRetries = 65534

// acceptJob turns a submit into a job.
func (o *oracle) acceptJob(c *command, owner int) *oracleJob {
	j := &oracleJob{
		command: *c, arrival: o.nextNumber(), owner: owner, origin: owner,
		submittedAt: o.now - int64(c.age), stateSince: o.now - int64(c.age), state: queued,
	}
	if sub := o.peer(owner); sub != nil {
		j.token = sub.token
	}
	if c.detach {
		j.owner = 0
		if ot := o.types[c.typ]; c.keep == 0 && (ot == nil || !ot.fair) {
			j.origin = 0 // in a type that is not fair, the core does not record where detached jobs came from
		}
	}
	if c.retries < 0 {
		j.retries = o.cfg.Retries
	}
	j.retries = min(j.retries, maxRetries)
	if c.expires > 0 {
		j.expires = o.now + int64(c.expires)
	}
	if c.delay > 0 {
		j.state, j.stateSince, j.until = delayed, o.now, o.now+int64(c.delay)
	}
	o.setTimer(j)
	o.jobs = append(o.jobs, j)
	o.jobsByID[j.id] = j
	o.typeNamed(j.typ).Submitted++
	return j
}

// overdueRuns returns how many overdue runs there are, and their weight.
func (o *oracle) overdueRuns() (n int, bytes int64) {
	for _, w := range o.peers {
		for _, r := range w.out {
			if r.job == nil {
				n++
				bytes += int64(len(r.id)) + broker.JobOverhead
			}
		}
	}
	return n, bytes
}

// overhead returns an upper bound on the memory around jobs, in bytes.
func (o *oracle) overhead() int64 {
	n := int64(len(o.names)+len(o.peers)*len(o.names))<<10 + int64(len(o.jobs)+len(o.borrowed))<<8
	for _, w := range o.peers {
		if len(w.types) > 0 { // the set of types with which the worker joined
			n += 1<<10 + int64(len(w.types)+len(w.except))<<8
		}
	}
	return n
}

// wouldExceedLimit reports whether one more job would exceed a limit.
func (o *oracle) wouldExceedLimit(c *command) bool {
	cfg := &o.cfg
	overdue, lateBytes := o.overdueRuns()
	exceeds := func(matches func(*oracleJob) bool, maxJobs int, maxBytes, overhead int64, overdue int, lateBytes int64, lender bool) bool {
		if maxJobs == 0 && maxBytes == 0 {
			return false
		}
		n, bytes := total(o.jobs, matches)
		borrowed, borrowedBytes := total(o.borrowed, matches)
		n, bytes = n+overdue, bytes+borrowedBytes+lateBytes+c.weight()
		if lender {
			n += borrowed
		}
		// The memory around jobs counts, too. Only the core knows how much it is, so both
		// answers are accepted within the bound.
		return maxJobs > 0 && n >= maxJobs || maxBytes > 0 && bytes > maxBytes ||
			maxBytes > 0 && bytes+overhead > maxBytes && o.observed.overloaded
	}
	overhead := o.overhead()
	return exceeds(func(*oracleJob) bool { return true }, cfg.MaxJobs, cfg.MaxBytes, overhead, overdue, lateBytes, false) ||
		exceeds(ofType(c.typ), cfg.MaxTypeJobs, cfg.MaxTypeBytes, 0, 0, 0, false) ||
		!c.detach && exceeds(ownedBy(c.peer), cfg.MaxSubmitterJobs, cfg.MaxSubmitterBytes, 0, 0, 0, true) ||
		o.tooManyTypes(c.typ) || o.tooManyGroups(c.groups, nil)
}

// used reports whether a peer uses the type or the type is configured.
func (o *oracle) used(name string) bool {
	ot := o.types[name]
	return ot != nil && (ot.hasSettings() || o.busy(name))
}

// hasSettings reports whether the type has limits or is fair.
func (ot *oracleType) hasSettings() bool { return ot.fair || ot.concurrency > 0 || ot.rate > 0 }

// busy reports whether a peer uses the type or the type is paused.
func (o *oracle) busy(name string) bool {
	if o.types[name].paused {
		return true
	}
	return slices.ContainsFunc(o.jobs, ofType(name)) || slices.ContainsFunc(o.borrowed, ofType(name)) || o.hasWorkerNamed(name)
}

// hasWorkerNamed reports whether a worker has joined with the type's name.
func (o *oracle) hasWorkerNamed(name string) bool {
	return slices.ContainsFunc(o.peers, func(w *oraclePeer) bool {
		return w.joined && slices.Contains(w.names(), name)
	})
}

// tooManyTypes reports whether using these types, too, would exceed the limit.
func (o *oracle) tooManyTypes(names ...string) bool {
	newTypes := 0
	for _, name := range names {
		if !o.used(name) {
			newTypes++
		}
	}
	return o.exceedsTypeLimit(newTypes)
}

// exceedsTypeLimit reports whether the limit forbids this number of further types in use. The core
// may count types whose jobs it has yet to sweep as used.
func (o *oracle) exceedsTypeLimit(newTypes int) bool {
	limit := o.cfg.MaxTypes
	if limit == 0 || newTypes <= 0 {
		return false
	}
	usedTypes := 0
	for _, n := range o.names {
		if o.used(n) {
			usedTypes++
		}
	}
	return usedTypes+newTypes > limit || o.vanished > 0 && len(o.names)+newTypes > limit && o.observed.overloaded
}

func (o *oracle) cancel(c *command) {
	sub, j := o.peer(c.peer), o.jobsByID[c.id]
	if j == nil || !o.reaches(sub, j) || j.unwanted() || j.state == ended && j.owner != 0 {
		o.refuse(sub.number, broker.UnknownID, c.id)
		return
	}
	o.ok(sub.number, j.id)
	if j.state == ended {
		o.forget(j)
		return
	}
	if j.state == running {
		o.notice(j)
		j.cancelled = true
		return
	}
	o.typeNamed(j.typ).Cancelled++
	o.forget(j)
}

// change carries out a submitter's change of a job or, if the verb is amend, an operator's.
func (o *oracle) change(c *command) {
	sub, j := o.peer(c.peer), o.jobsByID[c.id]
	switch {
	case c.verb == amend:
		if j != nil {
			o.amend(j, c)
		}
	case j == nil || !o.reaches(sub, j) || j.state == ended || j.unwanted():
		o.refuse(sub.number, broker.UnknownID, c.id)
	case j.state == running:
		o.refuse(sub.number, broker.NotProcessing, c.id)
	case c.setGroups && o.tooManyGroups(c.groups, j):
		o.refuse(sub.number, broker.Overloaded, c.id)
	default:
		o.amend(j, c)
		o.ok(sub.number, j.id)
	}
}

func (o *oracle) amend(j *oracleJob, c *command) {
	if j.state != delayed && j.state != queued || c.setGroups && o.tooManyGroups(c.groups, j) {
		return
	}
	if c.setGroups {
		j.groups = c.groups
	}
	if c.setPriority {
		j.priority = c.priority
	}
	before := j.state
	if c.delay >= 0 {
		j.state, j.until = delayed, o.now+int64(c.delay)
	}
	if j.state == delayed && j.until <= o.now {
		j.state = queued
	}
	if j.state != before {
		j.stateSince = o.now
	}
	o.setTimer(j)
}

// notice sends the worker a notice that a run is no longer wanted.
func (o *oracle) notice(j *oracleJob) {
	if w := o.peer(j.worker); w.notices && !j.unwanted() {
		o.send(frame{op: broker.OpCancel, peer: w.number, id: j.id})
	}
}

// revoke carries out a cancel by an operator. It cancels a running job only if c.boolArg is set.
func (o *oracle) revoke(c *command) {
	j := o.jobsByID[c.id]
	switch {
	case j == nil || j.state == running && (!c.boolArg || j.unwanted()):
	case j.state == running:
		o.notice(j)
		j.cancelled, j.revoked = true, j.keep > 0
		if j.keep == 0 && j.owner != 0 {
			o.sendLast(j, frame{op: broker.OpEnd, code: broker.Cancelled, id: j.id})
		}
	case j.state == ended:
		o.forget(j)
	default:
		o.typeNamed(j.typ).Cancelled++
		o.end(j, broker.Cancelled, "")
	}
}

// revokeAll revokes all waiting jobs, or all running jobs, of a type or a group.
func (o *oracle) revokeAll(c *command) {
	for _, j := range slices.Clone(o.jobs) {
		if j.state == ended || c.boolArg != (j.state == running) || c.typ != "" && j.typ != c.typ || c.typ == "" && !slices.Contains(j.groups, c.groups[0]) {
			continue
		}
		o.revoke(&command{id: j.id, boolArg: c.boolArg})
	}
}

// submitterGone ends the waiting jobs of a lost submitter and makes its running jobs unwanted.
func (o *oracle) submitterGone(sub *oraclePeer) {
	for _, j := range slices.Concat(o.jobs, o.borrowed) {
		if j.owner != sub.number {
			continue
		}
		if j.keep > 0 {
			j.owner = 0
			continue
		}
		if j.state == running {
			o.notice(j)
			j.lost = true
			j.owner = 0
			continue
		}
		o.vanished++
		o.typeNamed(j.typ).Discarded++
		o.forget(j)
	}
}
