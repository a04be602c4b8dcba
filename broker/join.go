package broker

// JoinRequest is a worker's request to join.
type JoinRequest struct {
	// Type is the one type that the worker serves. Types, unless nil, replaces Type: it has the
	// names and patterns of several types. Except has names and patterns of types that the
	// worker does not serve.
	Type          []byte
	Types, Except [][]byte
	// Allows reports whether the worker may serve a type; nil allows all. Workers with the same
	// AllowsID have the same Allows.
	Allows   func(typ []byte) bool
	AllowsID uint64
	// Prefetch limits the jobs that are out on the connection at a time; 0 stands for 1. Once a
	// connection has set Prefetch, even to 1, the connection names the jobs that it answers.
	Prefetch int
	// WantsNotices asks for a cancel frame when nobody waits for a run any more.
	WantsNotices bool
	// WantsHeaders asks for the headers of jobs.
	WantsHeaders bool
}

// Join sets what worker p does from now on. The jobs that are out on it are not affected. The
// request is refused with Overloaded if a limit on types or on sets of types is reached.
func (b *Broker) Join(now int64, p Peer, req *JoinRequest) []Effect {
	b.begin(now)
	w := b.worker(p)
	if w == nil {
		return b.end()
	}
	var set *pool
	var reason Reason
	if req.Types != nil {
		set, reason = b.poolFor(req)
	} else if b.typeExceedsLimit(b.typesByName[string(req.Type)]) {
		reason = b.tooManyTypes()
	}
	if reason.Why != 0 {
		b.refuse(p, Overloaded, nil, reason)
		return b.end()
	}
	// Count the worker in the new set before it leaves the old set, because the two sets may be the
	// same.
	if set != nil {
		set.workers++
	}
	b.leaveType(w)
	w.pool = set
	if set == nil {
		w.jobType = b.typeFor(req.Type)
		w.jobType.workers++
		b.updateUnusedRing(w.jobType)
	}
	w.room = max(1, req.Prefetch)
	w.namesJobs = w.namesJobs || req.Prefetch > 0
	w.wantsNotices, w.wantsHeaders = req.WantsNotices, req.WantsHeaders
	w.hasLeft = false
	b.replyOK(p, nil)
	b.lineUp(w)
	return b.end()
}

// leaveType removes the worker from its type or pool.
func (b *Broker) leaveType(w *worker) {
	b.leaveIdleLine(w)
	if w.hasLeft {
		w.countLeaver(-1)
	}
	if jt := w.jobType; jt != nil {
		jt.workers--
		if w.isBorrower {
			jt.borrowers--
		}
		b.updateUnusedRing(jt)
	}
	if p := w.pool; p != nil {
		if p.workers--; p.workers == 0 {
			b.dropPool(p)
		}
	}
	w.jobType, w.pool = nil, nil
}

// countLeaver adds n to the workers of its type or pool that have left.
func (w *worker) countLeaver(n int) {
	switch {
	case w.jobType != nil:
		w.jobType.leavers += int32(n)
	case w.pool != nil:
		w.pool.leavers += n
	}
}

// Leave makes worker p get no more jobs until it joins again.
func (b *Broker) Leave(now int64, p Peer) []Effect {
	b.begin(now)
	if w := b.worker(p); w != nil {
		if !w.hasLeft {
			w.hasLeft = true
			w.countLeaver(1)
		}
		b.leaveIdleLine(w)
		b.replyOK(p, nil)
	}
	return b.end()
}

// lineUp puts a worker in line if it has room.
func (b *Broker) lineUp(w *worker) {
	if !w.hasRoom() {
		b.leaveIdleLine(w)
		return
	}
	if !w.idleLink.InRing() {
		if w.runs.n == 0 {
			w.idleSince = b.now
		}
		b.enterIdleLine(w)
	}
	if w.pool != nil {
		b.markPoolForMatching(w.pool)
	} else {
		b.markForMatching(w.jobType)
	}
}

// SetCredit sets how many bytes of jobs worker p may be handed from now on, whatever it was handed
// before.
func (b *Broker) SetCredit(now int64, p Peer, bytes int64) []Effect {
	b.begin(now)
	if w := b.worker(p); w != nil {
		w.credit = bytes
		b.lineUp(w)
	}
	return b.end()
}

// markForMatching marks a type whose jobs, workers or limits have changed. The type is matched at the
// end of the command, when everything that is due has happened, so that the best job goes first.
func (b *Broker) markForMatching(jt *jobType) {
	b.noteChange(&jt.idleLine)
	if !jt.isMarked {
		jt.isMarked = true
		b.typesToMatch = append(b.typesToMatch, jt)
	}
}

func (b *Broker) markPoolForMatching(p *pool) {
	if !p.isMarked {
		p.isMarked = true
		b.poolsToMatch = append(b.poolsToMatch, p)
	}
}
