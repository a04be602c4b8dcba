//go:build invariants

package broker

import "fmt"

func mustHold(ok bool, format string, args ...any) {
	if !ok {
		panic("broker: invariant broken: " + fmt.Sprintf(format, args...))
	}
}

// mustPass panics if the Check of a structure has found an error; name says which structure.
func mustPass(name string, err error) { mustHold(err == nil, "%s: %v", name, err) }

// checkInvariants checks every invariant of the state, at the cost of a walk over all of
// it.
func (b *Broker) checkInvariants() {
	v := census{b: b, ledgers: map[*jobType]*Ledger{}, typeBytes: map[*jobType]int64{}, submitters: map[*submitter]*[2]int64{}, jobsInSlab: map[uint32]uint32{}, endedCounts: map[*holding]int{}, borrowedCounts: map[*jobType]int{}}
	v.checkRecords()
	v.checkTypes()
	v.checkQueues()
	v.checkHoldings()
	v.checkPeers()
	v.checkPools()
	v.checkGroups()
	v.checkHeap("timers", &b.timers, func(ref uint32) int32 {
		if ref&typeTimer != 0 {
			return b.types.At(ref &^ typeTimer).timerPos
		}
		if ref&groupTimer != 0 {
			return b.groups.At(ref &^ groupTimer).timerPos
		}
		return b.timings.Get(ref).pos
	})
	v.checkMemory()
	v.checkLetters()
}

// census holds what one walk over the state has counted, for comparison with the core's own
// counts.
type census struct {
	b            *Broker
	ledgers      map[*jobType]*Ledger
	typeBytes    map[*jobType]int64
	submitters   map[*submitter]*[2]int64
	idCount      uint32
	overdueRuns  int
	overdueBytes int64
	unswept      int
	jobsInSlab   map[uint32]uint32
	jobBytes     int64
	timingCount  int
	// of kept outcomes
	endedCounts  map[*holding]int
	outcomes     int
	outcomeBytes int64
	// runs of other brokers' jobs
	borrowedCounts map[*jobType]int
	borrowedRuns   int
}

// isUncounted reports whether the job is abandoned and no longer counts. The jobs of a lost submitter count
// until its chore comes to their holding.
func (b *Broker) isUncounted(j *job) bool { return b.isAbandoned(j) && b.holdingOf(j).isDead }

func (c *census) checkRecords() {
	b := c.b
	mustPass("jobs", b.jobs.Check(func(rec uint32, j *job) bool {
		if j.state != stateFree {
			c.checkRecord(rec, j)
		}
		return j.state != stateFree
	}))
	mustHold(b.overdueRuns == c.overdueRuns && b.overdueBytes == c.overdueBytes, "overdueRuns %d of %d bytes, counted %d of %d", b.overdueRuns, b.overdueBytes, c.overdueRuns, c.overdueBytes)
	mustHold(b.outcomes == c.outcomes && b.outcomeBytes == c.outcomeBytes, "outcomes %d of %d bytes, counted %d of %d", b.outcomes, b.outcomeBytes, c.outcomes, c.outcomeBytes)
	mustHold(b.borrowedRuns == c.borrowedRuns, "%d borrowed runs, counted %d", b.borrowedRuns, c.borrowedRuns)
	mustHold(b.unsweptJobs == c.unswept, "unswept %d, counted %d", b.unsweptJobs, c.unswept)
	mustHold(b.bytes == c.jobBytes, "bytes %d, counted %d", b.bytes, c.jobBytes)
	mustHold(b.timings.Len() == c.timingCount, "timings %d, counted %d", b.timings.Len(), c.timingCount)
}

func (c *census) checkRecord(rec uint32, j *job) {
	b := c.b
	c.jobsInSlab[j.slab] += b.slabs.Size(rec, j.slab, j.offset)
	if j.flags&flagIndexed != 0 {
		c.idCount++
		id := b.id(j)
		mustHold(b.jobIndex.Find(b.jobIndex.Hash(id), id) == rec, "id %q does not lead to its record", id)
	}
	if j.timing != 0 {
		c.timingCount++
		mustHold(b.timing(j).rec == rec, "timing of job %d names another", rec)
	}
	if j.state == stateOverdue {
		c.overdueRuns++
		c.overdueBytes += b.weight(nil, rec, j)
		mustHold(j.flags&flagIndexed == 0, "an overdue run holds its id")
		return
	}
	f := b.holdingOf(j)
	weight := int(j.idLen) + len(b.headers(j)) + cap(b.bigBodies[rec]) + JobOverhead
	if j.flags&flagBig == 0 {
		weight += len(b.body(rec, j))
	}
	if j.state != stateEnded {
		weight += int(f.queue.groupSet.weight())
	}
	mustHold(b.weight(f, rec, j) == int64(weight), "job %d weighs %d, counts as %d", rec, weight, b.weight(f, rec, j))
	if b.isUncounted(j) {
		c.unswept++
		return
	}
	c.jobBytes += int64(weight)
	c.typeBytes[f.jobType] += int64(weight)
	if f.submitter != nil && !f.isDead {
		s := c.submitters[f.submitter]
		if s == nil {
			s = &[2]int64{}
			c.submitters[f.submitter] = s
		}
		s[0]++
		s[1] += int64(weight)
	}
	if j.flags&flagBorrowed != 0 {
		c.borrowedCounts[f.jobType]++
		c.borrowedRuns++
		mustHold(j.state == stateRunning && j.flags&flagIndexed == 0 && (f.submitter == nil || f.submitter.isLender), "borrowed job %d waits, or holds its id", rec)
		mustHold(b.borrowedRunOn(b.workerOf(j), b.id(j)) == rec, "borrowed job %d is not found", rec)
		return
	}
	mustHold(j.flags&flagIndexed != 0, "job %d does not hold its id", rec)
	l := c.ledgers[f.jobType]
	if l == nil {
		l = &Ledger{}
		c.ledgers[f.jobType] = l
	}
	switch j.state {
	case stateDelayed:
		l.Delayed++
		mustHold(b.timing(j).pos >= 0, "a delayed job has no timer")
	case stateQueued, stateSpilled:
		l.Queued++
	case stateRunning:
		l.Running++
		mustHold(b.workerOf(j) != nil, "job %d runs on no worker", rec)
	case stateEnded:
		c.endedCounts[f]++
		c.outcomes++
		c.outcomeBytes += int64(weight)
		mustHold(f.isKept && b.timing(j).pos >= 0, "an outcome is not of a kept job, or has no timer")
	}
}

func pointerTo[T any](x T) *T { return &x }

func boolToInt(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (c *census) checkPeers() {
	b := c.b
	joined, borrowers, leavers := map[*jobType]int{}, map[*jobType]int{}, map[*jobType]int{}
	for i := range b.peers.All() {
		if s := b.peerAt(i).submitter; s != nil {
			have := c.submitters[s]
			if have == nil {
				have = &[2]int64{}
			}
			mustHold(int64(s.jobs) == have[0] && s.bytes == have[1], "a submitter counts %d jobs of %d bytes, but has %v", s.jobs, s.bytes, *have)
			for i, h := range s.holdings {
				mustHold(h.submitter == s && !h.isDead && h.index == i, "a submitter lists another's holding")
			}
		}
		w := b.peerAt(i).worker
		if w == nil {
			continue
		}
		if w.jobType != nil {
			joined[w.jobType]++
			borrowers[w.jobType] += boolToInt(w.isBorrower)
			leavers[w.jobType] += boolToInt(w.hasLeft)
		}
		mustHold(w.idleLink.InRing() == w.hasRoom(), "worker idle %v, free %v", w.idleLink.InRing(), w.hasRoom())
		n, over := 0, 0
		for rec := w.runs.head; rec != 0; {
			j := b.jobs.Get(rec)
			if j.state == stateOverdue {
				over++
			} else {
				mustHold(b.workerOf(j) == w, "a job is out on another worker")
				mustHold(j.state == stateRunning, "a job in state %d is out", j.state)
			}
			n++
			rec = j.links[laneLink].next
		}
		mustHold(w.stalledLink.InRing() == (over > 0), "a worker has %d overdue runs, stalled: %v", over, w.stalledLink.InRing())
		mustHold(n == w.runs.n && over == w.overdueRuns, "a worker counts %d runs and %d overdue runs, but has %d and %d", w.runs.n, w.overdueRuns, n, over)
	}
	for jt, n := range joined {
		mustHold(int(jt.workers) == n && int(jt.borrowers) == borrowers[jt], "type %q counts %d workers, %d of them brokers, but has %d and %d", jt.name, jt.workers, jt.borrowers, n, borrowers[jt])
		mustHold(int(jt.leavers) == leavers[jt], "type %q counts %d workers that have left, but has %d", jt.name, jt.leavers, leavers[jt])
	}
}

func (c *census) checkMemory() {
	b := c.b
	mustPass("slabs", b.slabs.Check(c.jobsInSlab))
	mustPass("index", b.jobIndex.Check(c.idCount))
	big := int64(0)
	for rec, body := range b.bigBodies {
		mustHold(b.jobs.Get(rec).flags&flagBig != 0, "a big body belongs to no job")
		big += int64(cap(body))
	}
	mustHold(big == b.bigBytes, "big bodies %d, counted %d", b.bigBytes, big)
}

func (c *census) checkLetters() {
	d := &c.b.deadLetters
	n, bytes := 0, int64(0)
	for _, jt := range c.b.types.All() {
		if jt == nil {
			continue
		}
		mustHold(jt.letters.n <= c.b.cfg.DeadLetters, "type %q keeps %d letters", jt.name, jt.letters.n)
		n += jt.letters.n
		of, last := 0, 0
		for _, letters := range jt.letters.blocks {
			mustHold(len(letters) > 0 && len(letters) <= maxBlockLetters, "type %q has a block of %d letters", jt.name, len(letters))
			for _, l := range letters {
				mustHold(l.Number > last && l.ageLink.InRing() && string(l.Type) == string(jt.name), "a letter of type %q is out of place", jt.name)
				last = l.Number
				of++
				bytes += l.weight()
			}
		}
		mustHold(of == jt.letters.n, "type %q counts %d letters, but has %d", jt.name, jt.letters.n, of)
	}
	mustHold(n == d.byAge.Len() && bytes == d.bytes, "letters count %d, %d bytes; there are %d, %d", d.byAge.Len(), d.bytes, n, bytes)
	mustHold(bytes <= max(0, c.b.cfg.DeadBytes), "letters hold %d bytes", bytes)
}
