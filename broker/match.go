package broker

import "slices"

// match hands out jobs while there are both one that may run and a worker with
// room that serves it: the best job first, to the worker that is idle longest.
func (b *Broker) match() {
	b.lapses, b.looks, b.unfinished = 0, 0, false
	if len(b.poolsByKey)+len(b.rules)+b.ripe.n+b.ajar.n+len(b.shutting) > 0 {
		b.unfinished = !b.matchAmong()
	} else {
		b.unfinished = !b.matchTypes()
	}
	if b.unfinished {
		return
	}
	for _, p := range b.touchedPools {
		p.touched = false
	}
	b.touchedPools = b.touchedPools[:0]
}

// matchTypes is match while no type has to do with another one. It returns false
// when it left something to the next command.
func (b *Broker) matchTypes() bool {
	for i := 0; i < len(b.touched); i++ {
		k := b.touched[i]
		for k.idle.n > 0 {
			f := b.runnable(k)
			if f == nil {
				break
			}
			if !b.handOut(f, k.idle.first()) {
				b.unfinished = true
				break
			}
		}
		if b.unfinished {
			b.touched = slices.Delete(b.touched, 0, i)
			return false
		}
		k.touched = false
		b.rest(k)
	}
	b.touched = b.touched[:0]
	return true
}

// matchAmong is match while types have to do with each other, by workers that
// serve several or by groups.
func (b *Broker) matchAmong() bool {
	for {
		if !b.alarm() || !b.ripen() {
			return false
		}
		var f *flow
		var at entry
		var w *worker
		consider := func(g *flow, x entry, by *worker) {
			if f == nil || x.before(&at) || g == f && by.line < w.line {
				f, at, w = g, x, by
			}
		}
		for _, p := range b.touchedPools {
			if p.idle.n > 0 {
				if g, x := b.bestOf(p); g != nil {
					consider(g, x, p.idle.first())
				}
			}
		}
		if g, x, by := b.ripest(); g != nil {
			consider(g, x, by)
		}
		switch {
		case b.unfinished:
			return false
		case len(b.touched)+len(b.shutting) > 0:
			// Something has moved on the way.
		case b.ajar.n > 0 && b.heldIdle > 0 && (f == nil || b.ajar.top().before(&at)):
			if !b.look() {
				return false
			}
			b.admitBest()
		case f == nil:
			return true
		default:
			if by := b.idlest(f.kind, at); by != nil && by.line < w.line {
				w = by
			}
			if !b.handOut(f, w) {
				return false
			}
		}
	}
}

// ripen lets the types touched that may have both a job and a worker for it stand
// by their best job. It returns false when it left some to the next command.
func (b *Broker) ripen() bool {
	for n := len(b.touched) - 1; n >= 0; n = len(b.touched) - 1 {
		k := b.touched[n]
		f := b.runnable(k)
		if b.unfinished {
			return false
		}
		b.touched = slices.Delete(b.touched, n, n+1)
		k.touched = false
		if f != nil {
			at := b.best(&f.ready)
			b.correct(k, at)
			at.ref = k.no
			if k.ripe >= 0 {
				b.ripe.fix(k.ripe, at)
			} else if k.idle.n+k.pools.n > 0 {
				b.ripe.push(at)
			}
		}
		b.rest(k)
	}
	return true
}

func (b *Broker) placeRipe(no uint32, pos int32) { b.types[no].ripe = pos }

// ripest returns, of the types that stand by their best job, the first with a worker
// for it: the flow, the job's key and the worker; nil if there is none.
func (b *Broker) ripest() (*flow, entry, *worker) {
	for b.ripe.n > 0 {
		k := b.types[b.ripe.top().ref]
		f := b.runnable(k)
		if b.unfinished {
			break
		}
		var w *worker
		var at entry
		if f != nil {
			at = b.best(&f.ready)
			w = b.idlest(k, at)
		}
		if w == nil {
			b.ripe.remove(0)
			k.ripe = -1
			b.rest(k)
		} else if at.level(b.ripe.top()) {
			return f, at, w
		} else {
			at.ref = k.no
			b.ripe.fix(0, at)
		}
	}
	return nil, entry{}, nil
}

// runnable returns the flow whose best job, of all of the type, may run now or
// has passed its deadline; nil when there is none.
func (b *Broker) runnable(k *jobType) *flow {
	if k.flows.n == 0 && k.held.n == 0 || k.paused || b.expelling {
		return nil
	}
	if c := k.limits.Concurrency; c > 0 && k.active() >= c {
		return nil
	}
	f := b.front(k)
	if f == nil || k.limits.Rate > 0 && !b.lapsed(b.jobs.get(b.first(&f.ready))) && !b.pace(k) {
		return nil
	}
	return f
}

// handOut gives the best job of a flow, which may run, to worker w. A job past
// its deadline, whose timer is late, ends instead; false is returned when so
// many of these were met that others must get their turn first.
//
// A job with the id of a borrowed one that is out on the worker waits for ClashPause,
// and holds nobody else back; then it meets the next worker in line.
func (b *Broker) handOut(f *flow, w *worker) bool {
	k := f.kind
	r := b.first(&f.ready)
	j := b.jobs.get(r)
	if b.lapsed(j) {
		if b.lapses == tickTimers {
			return false
		}
		b.lapses++
		b.leaveQueue(r, j)
		b.expire(r, j)
		return true
	}
	if b.borrowedRuns > 0 && b.borrowedBy(w, b.id(j)) != 0 {
		since := j.since
		b.leaveQueue(r, j)
		b.wait(f, r, j, b.now+int64(ClashPause))
		j.since = since
		b.stepOut(w)
		b.lineUp(w)
		return true
	}
	if k.limits.Rate > 0 {
		k.paced.take(b.now, step(k.limits.Rate))
	}
	t := f.turn
	b.leaveQueue(r, j)
	b.passTurn(t)
	b.handTo(w, f, r, j)
	return true
}

// handTo gives job r, which stands in no list any more, to worker w.
func (b *Broker) handTo(w *worker, f *flow, r uint32, j *job) {
	b.stepOut(w)
	b.dispatch(w, f, r, j)
	if w.free() {
		b.lineUp(w)
	}
}
