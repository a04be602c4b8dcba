package broker

func (b *Broker) dropOverdue(w *worker, rec uint32, j *job) {
	b.removeFrom(&w.runs, laneLink, j)
	if w.overdueRuns--; w.overdueRuns == 0 {
		b.stalledWorkers.Remove(&w.stalledLink)
	}
	b.overdueRuns--
	b.overdueBytes -= b.weight(nil, rec, j)
	b.freeJob(rec, j)
}

// timeOutRun ends a run whose timeout has passed. The job continues without it, while the
// run takes up room on the worker until the worker answers.
func (b *Broker) timeOutRun(rec uint32, j *job) {
	w := b.workerOf(j)
	h := b.holdingOf(j)
	jt := h.jobType
	unwanted := b.isUnwanted(j)
	if w.isBorrower {
		b.toWorker(OpOverdue, w, rec, j)
	} else if !unwanted {
		b.notifyUnwanted(rec, j)
	}
	b.addOverdue(w, b.id(j))
	b.stopRun(w, h, rec, j)
	if j.flags&flagBorrowed == 0 { // a borrowed run is counted by its home
		jt.Overdue++
		b.totals.Overdue++
	}
	if unwanted {
		b.finishUnwanted(h, rec, j)
	} else {
		b.failRun(rec, j, JobFailed, b.reasonFor(WhyTimedOut, j, ""), false, -1)
	}
	b.evictStalled()
}

// evictStalled closes a worker if overdue runs have reached half of a limit on jobs or bytes. Of
// the workers that have been stalled longest, it closes the one with the most overdue runs.
func (b *Broker) evictStalled() {
	cfg := &b.cfg
	if (cfg.MaxJobs <= 0 || 2*b.overdueRuns <= cfg.MaxJobs) && (cfg.MaxBytes <= 0 || 2*b.overdueBytes <= cfg.MaxBytes) {
		return
	}
	const candidates = 64
	victim := b.stalledWorkers.First()
	for w, n := victim.stalledLink.Next(), 1; w != nil && n < candidates; w, n = w.stalledLink.Next(), n+1 {
		if w.overdueRuns > victim.overdueRuns {
			victim = w
		}
	}
	p := victim.id
	b.refuse(p, Overloaded, nil, Reason{Why: WhyTooManyOverdue, Have: int64(victim.overdueRuns), Overdue: int32(b.overdueRuns)})
	b.removePeer(p, "")
	b.effect(OpClose, p, nil)
}

// addOverdue makes a record of an overdue run with this id on worker w.
func (b *Broker) addOverdue(w *worker, id []byte) {
	rec, j := b.jobs.Take()
	j.state = stateOverdue
	b.storeJob(rec, j, id, 0, nil, nil, false)
	b.appendTo(&w.runs, laneLink, rec, j)
	b.overdueRuns++
	b.overdueBytes += b.weight(nil, rec, j)
	if w.overdueRuns++; w.overdueRuns == 1 {
		b.stalledWorkers.Push(&w.stalledLink, w)
	}
	b.leaveIdleLine(w)
}
