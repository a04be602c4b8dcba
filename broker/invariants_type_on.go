//go:build invariants

package broker

import "gloom/broker/container"

func (c *census) checkTypes() {
	b := c.b
	sum := b.forgottenTotals
	spare, dead := 0, 0
	for _, jt := range b.types.All() {
		if jt == nil {
			continue
		}
		sum.Add(&jt.Ledger)
		l := c.ledgers[jt]
		if l == nil {
			l = &Ledger{}
		}
		mustHold(jt.Imbalance() == 0, "type %q is out of balance: %+v", jt.name, jt.Ledger)
		mustHold(jt.Delayed == l.Delayed && jt.Queued == l.Queued && jt.Running == l.Running,
			"type %q counts %+v, has %+v", jt.name, jt.Ledger, *l)
		mustHold(int(jt.borrowedRuns) == c.borrowedCounts[jt], "type %q counts %d borrowed runs, but has %d", jt.name, jt.borrowedRuns, c.borrowedCounts[jt])
		mustHold(jt.bytes == c.typeBytes[jt], "type %q counts %d bytes, but has %d", jt.name, jt.bytes, c.typeBytes[jt])
		c.checkHeap("line", &jt.line, c.position)
		mustHold(jt.line.Len() == 0 || jt.idleWorkers.Len() == 0 || c.mayBlock(jt), "type %q has %d queues ready and %d workers idle", jt.name, jt.line.Len(), jt.idleWorkers.Len())
		mustHold((jt.unusedRing != nil) == !jt.inUse() && jt.unusedLink.InRing() == !jt.inUse(), "type %q: unused %v, in use %v", jt.name, jt.unusedLink.InRing(), jt.inUse())
		if jt.unusedLink.InRing() && jt.letters.n == 0 {
			spare++
		} else if jt.unusedLink.InRing() {
			dead++
		}
		n := 0
		for w := jt.idleWorkers.First(); w != nil; w = w.idleLink.Next() {
			mustHold(w.jobType == jt && w.hasRoom(), "a worker without room is in line")
			mustHold(n == 0 || w.idleLink.Prev().idleNumber < w.idleNumber, "a worker is in line before one that came first")
			n++
		}
		mustHold(jt.ringLink.InRing() == (jt.idleWorkers.Len() > 0), "type %q has %d idle workers, listed %v", jt.name, jt.idleWorkers.Len(), jt.ringLink.InRing())
		mustHold(n == jt.idleWorkers.Len(), "type %q counts %d idle workers, but has %d", jt.name, jt.idleWorkers.Len(), n)
	}
	mustHold(sum == b.totals, "types add up to %+v, total is %+v", sum, b.totals)
	mustHold(spare == b.countUnusedWithoutLetters() && dead == b.unusedWithLetters.Len(), "spare types %d and %d, counted %d and %d", b.countUnusedWithoutLetters(), b.unusedWithLetters.Len(), spare, dead)
	mustHold(b.cfg.MaxTypes <= 0 || len(b.typesByName)-spare <= b.cfg.MaxTypes, "%d types and %d spare ones, limit %d", len(b.typesByName), spare, b.cfg.MaxTypes)
	mustHold(spare <= b.cfg.MaxUnusedTypes, "%d spare types, limit %d", spare, b.cfg.MaxUnusedTypes)
}

// checkPools checks that each pair is in one heap. A pair's key there may be stale, but then it sorts
// too early, never too late. No job that may run waits while a worker for it is idle.
func (c *census) checkPools() {
	b := c.b
	n := 0
	workers, leavers := map[*pool]int{}, map[*pool]int{}
	for i := range b.peers.All() {
		if w := b.peerAt(i).worker; w != nil && w.pool != nil {
			mustHold(w.jobType == nil, "a worker serves a type and a pool")
			workers[w.pool]++
			leavers[w.pool] += boolToInt(w.hasLeft)
		}
	}
	for _, jt := range b.types.All() {
		if jt == nil {
			continue
		}
		c.checkHeap("pools", &jt.idlePairs, func(ref uint32) int32 { return b.pairs.Get(ref).pos })
		named, waiting := 0, 0
		for rec, prev := jt.firstPair, uint32(0); rec != 0; {
			pair := b.pairs.Get(rec)
			p := b.pools.At(pair.pool)
			mustHold(b.types.At(pair.jobType) == jt && pair.typePrev == prev, "type %q lists another's pair", jt.name)
			mustHold(p.typeSet.serves(jt.name) && pair.byName == p.typeSet.names[string(jt.name)], "type %q is paired with a pool that does not serve it", jt.name)
			if pair.byName {
				named++
			}
			if !pair.inPool {
				waiting++
				mustHold(jt.idlePairs.At(int(pair.pos)).Ref == rec, "a pair is out of place")
				mustHold(p.idleWorkers.Len() == 0 || jt.idlePairs.At(int(pair.pos)).Major <= p.idleWorkers.First().idleNumber, "a pool has been idle for longer than type %q knows", jt.name)
			} else {
				mustHold(p.readyPairs.At(int(pair.pos)).Ref == rec, "a pair is out of place")
				mustHold(p.idleWorkers.Len() == 0 || p.isMarked, "type %q is ready for an idle pool", jt.name)
				best, ready := c.bestKey(jt)
				mustHold(c.mayBlock(jt) || !ready || !best.Before(p.readyPairs.At(int(pair.pos))), "a job of type %q is better than the key that its pool has", jt.name)
			}
			mustHold(c.mayBlock(jt) || jt.line.Len() == 0 || p.idleWorkers.Len() == 0, "a job of type %q waits while a pool is idle", jt.name)
			n++
			prev, rec = rec, pair.typeNext
		}
		mustHold(named == int(jt.namingPools) && waiting == jt.idlePairs.Len(), "type %q counts %d pools that name it and %d in line, but has %d and %d", jt.name, jt.namingPools, jt.idlePairs.Len(), named, waiting)
	}
	mustHold(n == b.pairs.Len(), "%d pairs are listed of %d", n, b.pairs.Len())
	for _, p := range b.pools.All() {
		if p == nil {
			continue
		}
		mustHold(p.ringLink.InRing() == (p.idleWorkers.Len() > 0), "a pool has %d idle workers, listed %v", p.idleWorkers.Len(), p.ringLink.InRing())
		mustHold(b.poolsByKey[p.key] == p && p.workers == workers[p] && p.workers > 0, "a pool counts %d workers, but has %d", p.workers, workers[p])
		mustHold(p.leavers == leavers[p], "a pool counts %d workers that have left, but has %d", p.leavers, leavers[p])
		c.checkHeap("ready", &p.readyPairs, func(ref uint32) int32 { return b.pairs.Get(ref).pos })
		count := 0
		for rec, prev := p.firstPair, uint32(0); rec != 0; {
			pair := b.pairs.Get(rec)
			mustHold(b.pools.At(pair.pool) == p && pair.poolPrev == prev, "a pool lists another's pair")
			count++
			prev, rec = rec, pair.poolNext
		}
		mustHold(count == p.pairCount, "a pool counts %d pairs, but has %d", p.pairCount, count)
		if b.pairingsInProgress == 0 {
			for _, jt := range b.types.All() {
				if jt != nil && p.typeSet.serves(jt.name) {
					count--
				}
			}
			mustHold(count == 0, "a pool has %d pairs more than types to serve", count)
		}
	}
}

// position returns the position in a line that a queue, a tenant or held queues have recorded for
// themselves.
func (c *census) position(ref uint32) int32 {
	switch number := ref &^ refMarks; ref & refMarks {
	case refTenant:
		return c.b.tenants.At(number).pos
	case refHeld:
		return c.b.heldQueues.At(number).pos
	}
	return c.b.queues.At(ref).pos
}

// bestKey returns the key of the job that a type hands out next; known is false if only
// nextQueue can find that out.
func (c *census) bestKey(jt *jobType) (best container.Entry, known bool) {
	b := c.b
	var place container.Entry
	turns := map[*tenant]container.Entry{}
	for _, q := range b.queues.All() {
		if q == nil || q.jobType != jt || q.readyJobs == 0 || q.shutGroup() != nil {
			continue
		}
		key := b.bestKey(q)
		if q.parked && (q.tenant != nil || !q.heldIn.open) || b.holdingOf(b.jobs.Get(key.Ref)).isOrphaned() {
			return container.Entry{}, false
		}
		lineKey := key
		if t := q.tenant; t != nil {
			if other, ok := turns[t]; ok && other.Before(&key) {
				continue
			}
			turns[t] = key
			lineKey = container.Entry{Major: key.Major, Minor: t.lastTurn}
		}
		if !known || !place.Before(&lineKey) {
			best, place, known = key, lineKey, true
		}
	}
	return best, known
}

// mayBlock reports whether jobs of the type may wait although workers are idle.
func (c *census) mayBlock(jt *jobType) bool {
	return jt.paused || jt.limits.Concurrency > 0 && jt.runningHere() >= jt.limits.Concurrency ||
		jt.timerPos >= 0 || c.b.handOutStopped || jt.isMarked || c.b.workLeft
}

// checkQueues checks that queues, tenants and held queues have the right counts and are where they
// belong.
func (c *census) checkQueues() {
	b := c.b
	lanes, heaps := int64(0), b.timers.OwnBytes()+b.contenders.OwnBytes()+b.openGroups.OwnBytes()
	for _, p := range b.pools.All() {
		if p != nil {
			heaps += p.readyPairs.OwnBytes()
		}
	}
	for _, g := range b.groups.All() {
		if g != nil {
			heaps += g.parked.OwnBytes()
		}
	}
	for _, jt := range b.types.All() {
		if jt != nil {
			heaps += jt.line.OwnBytes() + jt.idlePairs.OwnBytes()
			mustHold(jt.contenderPos < 0 || b.workLeft, "type %q is still a contender", jt.name)
		}
	}
	type sum struct{ holdings, jobs, waiting int }
	sums := map[*queue]*sum{}
	for number, q := range b.queues.All() {
		if q != nil {
			mustHold(int(q.number) == number, "queue %d has number %d", number, q.number)
			sums[q] = &sum{}
		}
	}
	for _, h := range b.holdings.All() {
		if h == nil {
			continue
		}
		x := sums[h.queue]
		x.holdings++
		x.waiting += h.queuedJobs
		for _, l := range []*jobList{&h.jobs, &h.runs} {
			for rec := l.head; rec != 0; rec = b.jobs.Get(rec).links[holdingLink].next {
				if j := b.jobs.Get(rec); j.state != stateEnded && j.flags&flagBorrowed == 0 && !b.isUncounted(j) {
					x.jobs++
				}
			}
		}
	}
	tenants := map[*tenant]*sum{}
	for q, x := range sums {
		found := b.queuesByKey[q.queueKey]
		if q.groupSet == nil && q.origin == 0 {
			found = q.jobType.plainQueue
		}
		mustHold(found == q && q.holdings == x.holdings && x.holdings > 0 && q.jobs == x.jobs && q.readyJobs == x.waiting, "a queue of type %q counts %d holdings, %d jobs and %d waiting jobs, but has %+v, or cannot be found by its key", q.jobType.name, q.holdings, q.jobs, q.readyJobs, *x)
		mustHold(b.fairness.isActive || (q.tenant != nil) == q.jobType.fair, "type %q is fair: %v, and a queue has a tenant: %v", q.jobType.name, q.jobType.fair, q.tenant != nil)
		lanes += int64(cap(q.lanes)) * laneSize
		if out := q.spill; out != nil {
			lanes += spillSize
			heaps += out.byOrder.OwnBytes() + out.byAge.OwnBytes()
		}
		mustHold((q.pos >= 0) == (q.readyJobs > 0) && (q.readyJobs > 0 || !q.parked) && (!q.parked || q.heldIn != nil), "a queue with %d jobs is at %d", q.readyJobs, q.pos)
		if q.readyJobs > 0 {
			key, y := b.bestKey(q), q.heap().At(int(q.pos))
			mustHold(y.Ref == q.number && (key.Ties(y) || q.isParkedByTurn() && y.Major == key.Major && y.Minor <= q.tenant.lastTurn), "the place of a queue is not that of its best job")
			mustHold(!q.isParkedByTurn() || q.heldIn.byBestJob.At(int(q.bestJobPos)).Ties(&key), "a queue waits for its turn with a job other than its best")
		}
		c.checkQueue(q)
		if t := q.tenant; t != nil {
			if tenants[t] == nil {
				tenants[t] = &sum{}
			}
			tenants[t].holdings++
			tenants[t].jobs += q.jobs
		}
	}
	for number, t := range b.tenants.All() {
		if t == nil {
			continue
		}
		heaps += t.line.OwnBytes()
		c.checkHeap("tenant", &t.line, c.position)
		x := tenants[t]
		mustHold(int(t.number) == number && t.jobType.tenants[t.key] == t && x != nil && t.queueCount == x.holdings && t.jobCount == x.jobs && (t.pos >= 0) == (t.line.Len() > 0), "a tenant of type %q counts %d queues and %d jobs, but has %v, or cannot be found by its key", t.jobType.name, t.queueCount, t.jobCount, x)
		if t.pos >= 0 {
			y := t.jobType.line.At(int(t.pos))
			mustHold(y.Ref == t.number|refTenant && y.Major == t.line.Top().Major && y.Minor == t.lastTurn, "a tenant of type %q is not at its place", t.jobType.name)
		}
	}
	users := map[*heldQueues]int{}
	for q := range sums {
		users[q.heldIn]++
	}
	for number, p := range b.heldQueues.All() {
		if p == nil {
			continue
		}
		heaps += p.queues.OwnBytes() + p.byBestJob.OwnBytes()
		c.checkHeap("jobs", &p.byBestJob, func(number uint32) int32 { return b.queues.At(number).bestJobPos })
		mustHold(p.parkedLink.InRing() == (p.pos >= 0 && !p.open), "held queues of type %q are parked: %v, and have queues: %v, and are open: %v", p.jobType.name, p.parkedLink.InRing(), p.pos >= 0, p.open)
		c.checkHeap("held", &p.queues, c.position)
		mustHold(int(p.number) == number && p.jobType.heldQueues[p.group] == p && p.refs == users[p] && p.refs > 0 && (p.pos >= 0) == (p.queues.Len() > 0), "held queues of type %q count %d, but are %d, or cannot be found by their group", p.jobType.name, p.refs, users[p])
		if p.pos >= 0 {
			heap := &p.group.parked
			if p.open {
				heap = &p.jobType.line
			}
			mustHold(heap.At(int(p.pos)).Ref == p.number|refHeld && (p.jobType.fair || heap.At(int(p.pos)).Ties(p.queues.Top())), "the place of held queues of type %q is not that of their best job", p.jobType.name)
		}
	}
	mustHold(b.workLeft || b.openGroups.Len() == 0 || b.idleLines.Len() == 0, "workers are idle while %d open groups have parked queues", b.openGroups.Len())
	mustHold(b.laneBytes == lanes && b.heapBytes == heaps, "lanes and heaps take %d and %d bytes, counted %d and %d", lanes, heaps, b.laneBytes, b.heapBytes)
}

// checkHoldings checks the counts of each holding, and that the holding is found by its key.
func (c *census) checkHoldings() {
	b := c.b
	used, unused, unusedBytes, found := map[*jobType]int{}, map[*jobType]int{}, int64(0), 0
	for number, h := range b.holdings.All() {
		if h == nil {
			continue
		}
		mustHold(int(h.number) == number && b.types.Has(h.jobType.number, h.jobType) && h.queue.jobType == h.jobType, "a holding is of type %q, which is forgotten", h.jobType.name)
		if h.unusedLink.InRing() {
			mustHold(h.jobCount() == 0 && !h.isDead, "an unused holding of type %q has jobs", h.jobType.name)
			unused[h.jobType]++
			unusedBytes += h.footprint()
		} else {
			used[h.jobType]++
		}
		var count [stateEnded + 1]int
		run, bytes := int64(0), int64(0)
		for _, l := range []*jobList{&h.jobs, &h.runs} {
			n, prev := 0, uint32(0)
			for rec := l.head; rec != 0; prev, rec = rec, b.jobs.Get(rec).links[holdingLink].next {
				j := b.jobs.Get(rec)
				mustHold(j.holding == h.number && j.links[holdingLink].prev == prev && (j.state == stateRunning) == (l == &h.runs), "a holding lists a job that is not its own")
				count[j.state]++
				n++
				if j.state == stateRunning {
					run += b.weight(h, rec, j)
				}
				if !b.isUncounted(j) {
					bytes += b.weight(h, rec, j)
				}
			}
			mustHold(n == l.n && prev == l.tail, "a holding counts %d jobs, but has %d", l.n, n)
		}
		mustHold(count[stateQueued]+count[stateSpilled] == h.queuedJobs && count[stateDelayed] == h.delayedJobs && count[stateEnded] == h.endedJobs && h.endedJobs == c.endedCounts[h], "a holding counts %d ready, %d delayed and %d ended jobs, but has %v", h.queuedJobs, h.delayedJobs, h.endedJobs, count)
		mustHold(h.runBytes == run && h.bytes == bytes, "a holding counts %d and %d bytes, but has %d and %d", h.bytes, h.runBytes, bytes, run)
		mustHold((!h.isKept || h.origin != 0) && (!h.isKept || !h.isDead), "a holding of kept jobs is dead or has no origin")
		if !h.isDead && (h.submitter != nil || !h.isKept) {
			found++
			mustHold(b.holdingsByKey[h.key()] == h && (h.submitter == nil || h.submitter.holdings[h.index] == h), "a holding of type %q is not found", h.jobType.name)
		}
	}
	mustHold(found == len(b.holdingsByKey), "%d holdings are found, there are %d", len(b.holdingsByKey), found)
	for _, jt := range b.types.All() {
		mustHold(jt == nil || jt.unusedHoldings == unused[jt] && int(jt.holdings) == used[jt], "a type does not count the holdings that it has")
	}
	mustHold(b.unusedBytes == unusedBytes && unusedBytes <= b.unusedLimit(), "unused holdings take %d bytes, counted %d, limit %d", unusedBytes, b.unusedBytes, b.unusedLimit())
}
