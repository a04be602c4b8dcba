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

// handOut gives the best job that may run to the worker that serves its type and has been idle
// longest, until there is no such job and worker.
func (o *oracle) handOut() {
	if o.stopped {
		return
	}
	closed, handed := map[string]bool{}, o.handed
	clear(o.left)
	o.expireMet(func(k *oracleType) bool { return k.fair }) // the core chooses the order in which it looks at the jobs of fair types
	for lapsed := 0; ; {
		var k *oracleType
		var w *oraclePeer
		var j *oracleJob
		for _, name := range o.names {
			if t := o.types[name]; !closed[name] && o.mayRun(t) {
				if c := o.candidate(t, handed[name]); c != nil && (j == nil || c.before(j)) {
					if first := o.firstInLine(name); first != nil {
						k, w, j = t, first, c
					}
				}
			}
		}
		if j == nil {
			o.expireMet(func(k *oracleType) bool { return closed[k.name] })
			return
		}
		// The tick is late, but the job's deadline has passed. (If the type has a rate, the
		// core may leave the job to the tick, as below.)
		if o.lapsed(j) {
			if lapsed == timersPerTick {
				return
			}
			if k.rate > 0 && !o.ticking && o.observed.held(j.id) {
				o.left[j] = true
				continue
			}
			lapsed++
			o.expire(j)
			continue
		}
		// The core checks a rate again when its timer fires or when something about the
		// type changes. Between these times it may miss that the rate allows a job, but not at
		// a tick.
		if k.rate > 0 {
			_, clashed := o.observed.delay(j.id)
			from, until := k.paced.opens(k.quota())
			if from > o.now || (until > o.now || k.slow) && handed[k.name] >= len(o.observed.handedOut(k.name)) && !(clashed && w.has(j.id)) {
				closed[k.name] = true
				continue
			}
		}
		if w.has(j.id) { // a borrowed one
			o.delayClash(w, j)
			continue
		}
		if k.rate > 0 {
			k.paced.take(j, o.now, k.quota())
		}
		handed[k.name]++
		o.dispatch(k, w, j)
	}
}

// expireMet ends the jobs of the selected types that the core has looked at after their deadlines.
func (o *oracle) expireMet(selects func(k *oracleType) bool) {
	for _, j := range slices.Clone(o.jobs) {
		if j.state == queued && selects(o.types[j.typ]) && o.lapsed(j) && !o.observed.held(j.id) {
			o.expire(j)
		}
	}
}

// mayRun reports whether the type is not paused and its concurrency allows another run.
func (o *oracle) mayRun(k *oracleType) bool {
	return !k.paused && (k.concurrency == 0 || o.active(k.name) < k.concurrency)
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

func (o *oracle) dispatch(k *oracleType, w *oraclePeer, j *oracleJob) {
	o.eachRate(j, func(x *rateState, q quota) { x.take(j, o.now, q) })
	if k.fair {
		o.tenantTurns[tenantOf(j)] = o.commands
	}
	o.setTimer(j)
	k.Dispatched++
	o.handTo(w, j)
}

func (o *oracle) handTo(w *oraclePeer, j *oracleJob) {
	j.state, j.since, j.worker = running, o.now, w.number
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

func (o *oracle) setTimer(j *oracleJob) { j.timer = o.nextNumber() }
