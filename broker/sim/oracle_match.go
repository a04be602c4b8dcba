package sim

import (
	"slices"

	"gloom/broker"
)

// lineUp puts the workers that had no room and have room now at the end of the line.
func (o *oracle) lineUp() {
	for _, w := range o.peers {
		if !w.free() {
			w.position = 0
		} else if w.position == 0 {
			o.toEnd(w)
		}
	}
}

// handOut gives the best job that may run to the worker of its type that has been idle longest. It
// repeats this until there is no such job or no such worker.
func (o *oracle) handOut() {
	if o.stopped {
		return
	}
	closed, handOuts := map[string]bool{}, o.handedByType
	clear(o.leftToTick)
	// The core chooses the order in which it looks at the jobs of fair types. Until it has expired
	// those that it meets, they stand for their types, so it also chooses between types. So do jobs
	// whose rates the core may have found open or not.
	hasMet := o.expireMet(func(ot *oracleType) bool { return ot.fair })
	coreChooses := func(ot *oracleType) bool { return ot.fair && (hasMet || o.mayHaveOpened(ot)) }
	o.handOutSeq = o.lastNumber
	o.lastNumber += len(o.observed.frames)
	for lapsed := 0; ; {
		var ot *oracleType
		var w *oraclePeer
		var j *oracleJob
		for _, name := range o.names {
			if t := o.types[name]; !closed[name] && o.mayRun(t) {
				if c := o.candidate(t, handOuts[name]); c != nil && (j == nil || o.goesBefore(c, j, coreChooses(t) || coreChooses(ot))) {
					if first := o.firstInLine(name); first != nil {
						ot, w, j = t, first, c
					}
				}
			}
		}
		if j == nil {
			o.expireMet(func(ot *oracleType) bool { return closed[ot.name] || hasMet })
			return
		}
		// The tick is late, but the job's deadline has passed. (If the type has a rate, the
		// core may leave the job to the tick, as below.)
		if o.lapsed(j) {
			if lapsed == timersPerTick {
				return
			}
			if ot.rate > 0 && !o.ticking && o.observed.held(j.id) {
				o.leftToTick[j] = true
				continue
			}
			lapsed++
			o.expire(j)
			continue
		}
		// The core checks a rate again when its timer fires or when something about the
		// type changes. Between these times it may miss that the rate allows a job, but not at
		// a tick.
		if ot.rate > 0 {
			_, clashed := o.observed.delay(j.id)
			from, until := ot.rateState.opensBetween(ot.quota())
			if from > o.now || (until > o.now || ot.rateMayLag) && handOuts[ot.name] >= len(o.observed.handedOut(ot.name)) && !(clashed && w.has(j.id)) {
				closed[ot.name] = true
				continue
			}
		}
		if w.has(j.id) { // a borrowed one
			o.delayClash(w, j)
			continue
		}
		if ot.rate > 0 {
			ot.rateState.take(j, o.now, ot.quota())
		}
		handOuts[ot.name]++
		o.dispatch(ot, w, j)
	}
}

// goesBefore reports whether job j goes before job k of another type. If the core chooses between
// jobs of the same priority, the one that it hands out first goes first.
func (o *oracle) goesBefore(j, k *oracleJob, coreChooses bool) bool {
	if at, other := o.observed.handOutIndex(j.id), o.observed.handOutIndex(k.id); coreChooses && j.priority == k.priority && at != other {
		return at < other
	}
	return j.before(k)
}

// expireMet ends the jobs of the selected types that the core has looked at after their deadlines. It
// reports whether there were any.
func (o *oracle) expireMet(selects func(ot *oracleType) bool) (hasMet bool) {
	for _, j := range slices.Clone(o.jobs) {
		if j.state == queued && selects(o.types[j.typ]) && o.lapsed(j) && !o.observed.held(j.id) {
			o.expire(j)
			hasMet = true
		}
	}
	return hasMet
}

// mayRun reports whether the type is not paused and its concurrency allows another run.
func (o *oracle) mayRun(ot *oracleType) bool {
	return !ot.paused && (ot.concurrency == 0 || o.active(ot.name) < ot.concurrency)
}

func (o *oracle) firstInLine(typ string) *oraclePeer {
	var first *oraclePeer
	for _, w := range o.peers {
		if w.free() && w.serves(typ) && (first == nil || w.before(first)) {
			first = w
		}
	}
	return first
}

func (o *oracle) dispatch(ot *oracleType, w *oraclePeer, j *oracleJob) {
	o.eachRate(j, func(rate *rateState, q quota) { rate.take(j, o.now, q) })
	if ot.fair {
		o.tenantTurns[tenantOf(j)] = o.commands
	}
	// Between types without a common worker, the core chooses the order.
	j.deadlineSeq = o.handOutSeq + o.observed.handOutIndex(j.id)
	ot.Dispatched++
	o.handTo(w, j)
}

func (o *oracle) handTo(w *oraclePeer, j *oracleJob) {
	j.state, j.stateSince, j.worker = running, o.now, w.number
	j.attempts++
	w.out = append(w.out, run{j.id, j})
	f := frame{op: broker.OpJob, peer: w.number, id: j.id, typ: j.typ, body: j.body}
	if w.headers {
		f.headers = j.headers
	}
	w.credit -= len(f.id) + len(f.typ) + len(f.headers) + len(f.body)
	f.creditSpent = w.credit <= 0
	if w.kind == borrowers {
		f.loan = j.loan(o.now)
	}
	o.send(f)
	if o.toEnd(w); !w.free() {
		w.position = 0
	}
}

func (o *oracle) setTimer(j *oracleJob) { j.deadlineSeq = o.nextNumber() }
