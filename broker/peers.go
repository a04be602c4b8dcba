package broker

import "gloom/broker/container"

// submitter is a connection that submits jobs.
type submitter struct {
	id          Peer
	holdings    []*holding
	lastHolding *holding // the holding used last
	jobs        int
	bytes       int64
	owner       uint64 // see SetOwner
	// isLost reports that the submitter is lost; its holdings are being orphaned.
	isLost bool
	// isLender reports that the submitter is another broker (AddLender).
	isLender bool
}

// worker is a connection that runs jobs.
type worker struct {
	id Peer
	// jobType is the type of a worker that serves one type; pool is the pool of a worker that serves
	// several types. Both are nil before its first join.
	jobType *jobType
	pool    *pool
	// room is how many jobs may be out on the worker.
	room int
	// credit is how many more bytes of jobs it may be handed.
	credit int64
	// runs lists the jobs and overdue runs that are out on it, the oldest first.
	runs         jobList
	overdueRuns  int
	namesJobs    bool // the worker has joined with prefetch, so its answers carry ids
	wantsNotices bool // the worker wants cancel frames
	wantsHeaders bool // the worker wants headers
	hasLeft      bool
	isBorrower   bool                   // the worker is another broker (AddBorrower)
	name         string                 // the name of that broker
	idleLink     container.Link[worker] // its place in idleLine.idleWorkers
	idleNumber   uint64                 // orders idle workers, in all lines: the longest idle first
	idleSince    int64                  // when runs became empty; valid only while it is
	// stalledLink links it in Broker.stalledWorkers while it has overdue runs.
	stalledLink container.Link[worker]
}

func (w *worker) hasRoom() bool {
	return (w.jobType != nil || w.pool != nil) && !w.hasLeft && w.overdueRuns == 0 && w.runs.n < w.room && w.credit > 0
}

// idleLine is a line of workers with room: those that serve only one type, or those of a pool.
type idleLine struct {
	idleWorkers container.Ring[worker]   // the longest idle first
	ringLink    container.Link[idleLine] // in Broker.idleLines, while a worker is in the line
	jobType     *jobType
	pool        *pool // the line's pool, if it is not a type's
	changed     bool  // the line is listed in Broker.changedLines
}

// idleLine returns the line that the worker is in while it has room.
func (w *worker) idleLine() *idleLine {
	if w.pool != nil {
		return &w.pool.idleLine
	}
	return &w.jobType.idleLine
}

// enterIdleLine puts a worker at the end of its line; leaveIdleLine removes it.
func (b *Broker) enterIdleLine(w *worker) {
	b.lastIdleNumber++
	w.idleNumber = b.lastIdleNumber
	l := w.idleLine()
	var at *container.Link[worker] // the first borrower in line; borrowers come last
	switch {
	case w.isBorrower:
		w.idleNumber |= borrowersLast
	case w.jobType != nil && w.jobType.borrowers > 0:
		for x := l.idleWorkers.Last(); x != nil && x.isBorrower; x = x.idleLink.Prev() {
			at = &x.idleLink
		}
	}
	l.idleWorkers.Insert(&w.idleLink, w, at)
	if l.idleWorkers.Len() == 1 {
		b.idleLines.Push(&l.ringLink, l)
	}
	b.noteChange(l)
}

func (b *Broker) leaveIdleLine(w *worker) {
	if !w.idleLink.InRing() {
		return
	}
	l := w.idleLine()
	if l.idleWorkers.Remove(&w.idleLink); l.idleWorkers.Len() == 0 {
		b.idleLines.Remove(&l.ringLink)
	}
	b.noteChange(l)
}

// AddSubmitter adds a connection that submits jobs.
func (b *Broker) AddSubmitter() Peer {
	entry := b.newPeer()
	entry.submitter = &submitter{id: entry.id}
	b.submitterCount++
	return entry.id
}

// AddWorker adds a worker. It gets no jobs before it joins.
func (b *Broker) AddWorker() Peer {
	entry := b.newPeer()
	entry.worker = &worker{id: entry.id, room: 1, credit: b.cfg.Credit, idleSince: b.now}
	b.workerCount++
	return entry.id
}

func (b *Broker) newPeer() *peer {
	entry := &peer{}
	b.lastGeneration++
	entry.id = makePeer(b.lastGeneration, b.peers.Add(entry))
	return entry
}

// peer returns the entry of a connection, and peerAt returns the entry in a slot. The entry is
// empty if there is none.
func (b *Broker) peer(p Peer) peer {
	if entry := b.peerAt(int(p.Slot())); entry.id == p {
		return entry
	}
	return peer{}
}

func (b *Broker) peerAt(slot int) (entry peer) {
	if peers := b.peers.All(); slot < len(peers) && peers[slot] != nil {
		entry = *peers[slot]
	}
	return entry
}

func (b *Broker) submitter(p Peer) *submitter { return b.peer(p).submitter }
func (b *Broker) worker(p Peer) *worker       { return b.peer(p).worker }

// RemovePeer removes a connection that is lost. A submitter's waiting jobs end at once, its
// running jobs become unwanted. A worker's jobs are handed to other workers as far as their
// retries allow.
func (b *Broker) RemovePeer(now int64, p Peer) []Effect { return b.ExpelPeer(now, p, "") }

// ExpelPeer removes a worker that was closed because of an unreadable frame; reason describes the
// fault of the frame. If one job was out on the worker, the job fails at once, because the next
// worker would send the same frame. If several jobs were out, nobody knows which job caused the
// frame. So all are treated like the jobs of a lost worker. Without a reason, ExpelPeer is
// RemovePeer.
func (b *Broker) ExpelPeer(now int64, p Peer, reason string) []Effect {
	b.begin(now)
	b.removePeer(p, reason)
	return b.end()
}

func (b *Broker) removePeer(p Peer, reason string) {
	switch entry := b.peer(p); {
	case entry.submitter != nil:
		b.loseSubmitter(entry.submitter)
		if !entry.submitter.isLender {
			b.submitterCount--
		}
	case entry.worker != nil:
		b.loseWorker(entry.worker, reason)
		if !entry.worker.isBorrower {
			b.workerCount--
		}
	default:
		return
	}
	b.peers.Drop(p.Slot())
}

// loseSubmitter ends the jobs of a lost submitter: from now on the ids are free, and none
// of the jobs is handed out.
func (b *Broker) loseSubmitter(s *submitter) {
	s.isLost = true
	b.chores.add(orphanChore{s})
	b.runChores(&b.chores, choreSteps)
	b.runChores(&b.notifications, tickSteps)
}

// notifyUnwanted tells the worker of a run that nobody waits for it any more.
func (b *Broker) notifyUnwanted(rec uint32, j *job) {
	if j.flags&flagUnwanted != 0 {
		return
	}
	if w := b.workerOf(j); w.wantsNotices {
		b.toWorker(OpCancel, w, rec, j)
	}
}
