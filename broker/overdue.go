package broker

func (b *Broker) dropOverdue(w *worker, r uint32, j *job) {
	b.removeFrom(&w.runs, laneLink, j)
	if w.overdueRuns--; w.overdueRuns == 0 {
		b.stalledWorkers.Remove(&w.stalledLink)
	}
	b.overdueRuns--
	b.overdueBytes -= b.weight(nil, r, j)
	b.freeJob(r, j)
}

// timeOutRun ends a run whose timeout has passed. The job continues without it, while the
// run takes up room on the worker until the worker answers.
func (b *Broker) timeOutRun(r uint32, j *job) {
	w := b.workerOf(j)
	h := b.holdingOf(j)
	k := h.jobType
	unwanted := b.isUnwanted(j)
	if w.isBorrower {
		b.toWorker(OpOverdue, w, r, j)
	} else if !unwanted {
		b.notifyUnwanted(r, j)
	}
	b.addOverdue(w, b.id(j))
	b.stopRun(w, h, r, j)
	if j.flags&flagBorrowed == 0 { // a borrowed run is counted by its home
		k.Overdue++
		b.totals.Overdue++
	}
	if unwanted {
		b.finishUnwanted(h, r, j)
	} else {
		b.failRun(r, j, JobFailed, b.reasonFor(WhyTimedOut, j, ""), false, -1)
	}
	b.evictStalled()
}

// evictStalled closes a worker if overdue runs have reached half of a limit on jobs or bytes. Of
// the workers that have been stalled longest, it closes the one with the most overdue runs.
func (b *Broker) evictStalled() {
	c := &b.cfg
	if (c.MaxJobs <= 0 || 2*b.overdueRuns <= c.MaxJobs) && (c.MaxBytes <= 0 || 2*b.overdueBytes <= c.MaxBytes) {
		return
	}
	const candidates = 64
	worst := b.stalledWorkers.First()
	for w, n := worst.stalledLink.Next(), 1; w != nil && n < candidates; w, n = w.stalledLink.Next(), n+1 {
		if w.overdueRuns > worst.overdueRuns {
			worst = w
		}
	}
	p := worst.id
	b.refuse(p, Overloaded, nil, Reason{Why: WhyTooManyOverdue, Have: int64(worst.overdueRuns), Overdue: int32(b.overdueRuns)})
	b.removePeer(p, "")
	b.effect(OpClose, p, nil)
}

// addOverdue makes a record of an overdue run with this id on worker w.
func (b *Broker) addOverdue(w *worker, id []byte) {
	r, j := b.jobs.Take()
	j.state = stateOverdue
	b.storeJob(r, j, id, 0, nil, nil, false)
	b.appendTo(&w.runs, laneLink, r, j)
	b.overdueRuns++
	b.overdueBytes += b.weight(nil, r, j)
	if w.overdueRuns++; w.overdueRuns == 1 {
		b.stalledWorkers.Push(&w.stalledLink, w)
	}
	b.leaveIdleLine(w)
}
