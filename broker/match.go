package broker

// match hands out jobs while there are both one that may run and a worker with
// room that serves it: the best job first, to the worker that is idle longest.
func (b *Broker) match() {
	b.lapses, b.looks, b.unfinished = 0, 0, false
	finished := true
	if len(b.poolsByKey)+len(b.rules) > 0 {
		finished = b.matchPools()
	} else {
		for i := 0; i < len(b.touched); i++ {
			k := b.touched[i]
			for finished && k.idle.n > 0 {
				f := b.runnable(k)
				if f == nil {
					break
				}
				finished = b.handOut(f, k.idle.first())
			}
		}
	}
	if !finished || b.unfinished {
		b.unfinished = true
		return
	}
	for _, k := range b.touched {
		k.touched = false
		b.rest(k)
	}
	for _, p := range b.touchedPools {
		p.touched = false
	}
	b.touched, b.touchedPools = b.touched[:0], b.touchedPools[:0]
}

// matchPools is match while types have to do with each other, by workers that
// serve several or by groups.
func (b *Broker) matchPools() bool {
	// Handing out lets nobody else become ready: who drops out stays out.
	types, seen := b.matching[:0], 0
	for {
		for i, k := range b.touched {
			// Of a fair type the best job may become a better one at any time.
			if i >= seen || k.fair {
				b.correct(k)
			}
		}
		types = append(types, b.touched[seen:]...)
		seen = len(b.touched)
		var kind *jobType
		var at entry
		var w *worker
		consider := func(k *jobType, by *worker) {
			x := b.standing(k)
			if kind == nil || x.before(&at) || k == kind && by.line < w.line {
				kind, at, w = k, x, by
			}
		}
		for _, p := range b.touchedPools {
			if p.idle.n > 0 {
				if k := b.bestOf(p); k != nil {
					consider(k, p.idle.first())
				}
			}
		}
		n := 0
		for _, k := range types {
			if b.runnable(k) != nil {
				if by := b.idlest(k); by != nil {
					consider(k, by)
					types[n] = k
					n++
				}
			}
		}
		types = types[:n]
		if kind == nil {
			if cap(types) > 64 {
				types = nil // clearing it each time would cost more than a new one
			}
			clear(types[:cap(types)])
			b.matching = types[:0]
			return true
		}
		f := b.front(kind)
		if f == nil {
			return false // the looks of this command are used up
		}
		if by := b.idlest(kind); by != nil && by.line < w.line {
			w = by
		}
		if !b.handOut(f, w) {
			return false
		}
	}
}

// runnable returns the flow whose best job, of all of the type, may run now or
// has passed its deadline; nil when there is none.
func (b *Broker) runnable(k *jobType) *flow {
	if k.flows.n == 0 || k.paused || b.expelling {
		return nil
	}
	if c := k.limits.Concurrency; c > 0 && k.Running >= uint64(c) {
		return nil
	}
	f := b.front(k)
	if f == nil || k.limits.Rate > 0 && !b.lapsed(b.jobs.get(b.best(&f.ready).ref)) && !b.pace(k) {
		return nil
	}
	return f
}

// standing is the key of the best job of a type that is runnable.
func (b *Broker) standing(k *jobType) entry { return b.best(&b.front(k).ready) }

// handOut gives the best job of a flow, which may run, to worker w. A job past
// its deadline, whose timer is late, ends instead; false is returned when so
// many of these were met that others must get their turn first.
func (b *Broker) handOut(f *flow, w *worker) bool {
	k := f.kind
	r := b.best(&f.ready).ref
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
	if k.limits.Rate > 0 {
		k.tat = max(k.tat, b.now) + step(k.limits.Rate)
	}
	var t *turn
	if f.share != nil {
		t = f.share.turn
	}
	b.leaveQueue(r, j)
	if t != nil && len(t.shares) > 0 {
		b.turns++
		b.setTurn(t, b.turns, 0)
	}
	b.stepOut(w)
	b.dispatch(w, f, r, j)
	if w.free() {
		b.lineUp(w)
	}
	return true
}
