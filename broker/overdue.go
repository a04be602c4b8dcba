package broker

func (b *Broker) dropOverdue(w *worker, r uint32, j *job) {
	b.unlink(&w.out, byPlace, j)
	if w.overdue--; w.overdue == 0 {
		b.stalled.Remove(&w.stalled)
	}
	b.overdueRuns--
	b.overdueBytes -= int64(j.weight)
	b.free(r, j)
}

// overdue ends a run whose timeout has passed. The job continues without it, while the
// run takes up room on the worker until the worker answers.
func (b *Broker) overdue(r uint32, j *job) {
	w := b.peers[j.worker].wrk
	h := b.holder(j)
	k := h.kind
	unwanted := b.unwanted(j)
	if w.borrows {
		b.toWorker(OpOverdue, w, r, j)
	} else if !unwanted {
		b.notifyUnwanted(r, j)
	}
	b.leaveOverdue(w, b.id(j))
	b.stopRun(w, h, r, j)
	if j.flags&flagBorrowed == 0 { // a borrowed run is counted by its home
		k.Overdue++
		b.total.Overdue++
	}
	if unwanted {
		b.finishUnwanted(h, r, j)
	} else {
		b.failed(r, j, JobFailed, b.reasonFor(TimedOut, j, ""), false, -1)
	}
	b.evict()
}

// evict closes a worker if overdue runs have reached half of a limit on jobs or bytes. Of the
// workers that have been stalled longest, it closes the one with the most overdue runs.
func (b *Broker) evict() {
	c := &b.cfg
	if (c.MaxJobs <= 0 || 2*b.overdueRuns <= c.MaxJobs) && (c.MaxBytes <= 0 || 2*b.overdueBytes <= c.MaxBytes) {
		return
	}
	const candidates = 64
	worst := b.stalled.First()
	for w, n := worst.stalled.Next(), 1; w != nil && n < candidates; w, n = w.stalled.Next(), n+1 {
		if w.overdue > worst.overdue {
			worst = w
		}
	}
	p := worst.id
	b.refuse(p, Overloaded, nil, Reason{Why: ManyOverdue, Have: int64(worst.overdue), Overdue: int32(b.overdueRuns)})
	b.remove(p, "")
	b.effect(OpClose, p, nil)
}

// leaveOverdue makes a record of an overdue run with this id on worker w.
func (b *Broker) leaveOverdue(w *worker, id []byte) {
	r, j := b.jobs.Take()
	j.state, j.worker = stOverdue, w.id.Slot()
	b.store(r, j, id, nil, nil, false)
	b.link(&w.out, byPlace, r, j)
	b.overdueRuns++
	b.overdueBytes += int64(j.weight)
	if w.overdue++; w.overdue == 1 {
		b.stalled.Push(&w.stalled, w)
	}
	b.leaveIdle(w)
}
