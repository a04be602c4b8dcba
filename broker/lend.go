package broker

// Brokers of a fleet lend each other jobs. For the broker that lends, a borrower is a worker
// of one type that gets jobs only while no other worker is idle. For the broker that
// borrows, a lender is a submitter whose jobs never wait: each one goes to an idle worker at
// once or is refused. A borrowed job holds no id and is in no ledger and no listing. It
// counts against its type's limits and against limits on bytes. Only its home applies the
// rules of groups.

import (
	"encoding/binary"
	"math"
	"time"

	"gloom/broker/container"
)

// ClashDelay is how long a job waits if its chosen worker runs another broker's job with the same
// id.
const ClashDelay = 100 * time.Millisecond

// RefusalDelay is how long a job waits at home after a broker at a limit has refused it. Meanwhile the
// jobs behind it, which may fit, get their turn.
const RefusalDelay = time.Second

// borrowersLast is the bit in worker.idleNumber that puts borrowers behind all other workers.
const borrowersLast = 1 << 63

// AddBorrower adds a broker with the given name that takes jobs of a type. The broker gets no
// jobs before Allot is called. The peer is 0 if the new type would exceed MaxTypes.
func (b *Broker) AddBorrower(now int64, typ []byte, name string) (Peer, []Effect) {
	b.begin(now)
	if b.typeExceedsLimit(b.typesByName[string(typ)]) {
		return 0, b.end()
	}
	entry := b.newPeer()
	jt := b.typeFor(typ)
	jt.workers++
	jt.borrowers++
	b.updateUnusedRing(jt)
	entry.worker = &worker{id: entry.id, jobType: jt, idleSince: b.now, credit: math.MaxInt64, namesJobs: true, wantsNotices: true, wantsHeaders: true, isBorrower: true, name: name}
	return entry.id, b.end()
}

// Allot sets how many jobs of this broker may be out on borrower p.
func (b *Broker) Allot(now int64, p Peer, room int) []Effect {
	b.begin(now)
	if w := b.worker(p); w != nil && w.isBorrower {
		w.room = room
		b.lineUp(w)
	}
	return b.end()
}

// RunCount returns how many jobs are out on a worker and how many of them are overdue. A worker with
// an overdue job gets no more jobs.
func (b *Broker) RunCount(p Peer) (runs, overdueRuns int) {
	if w := b.worker(p); w != nil {
		return w.runs.n, w.overdueRuns
	}
	return 0, 0
}

// AddLender adds a broker that lends jobs.
func (b *Broker) AddLender() Peer {
	entry := b.newPeer()
	entry.submitter = &submitter{id: entry.id, isLender: true}
	return entry.id
}

// Borrow hands a job of lender p to the worker that has been idle longest. It returns the
// number of the run, which effects about the run carry in Run, or 0 and the reason why no
// worker can have the job now. Of s it uses only ID, Type, Body, StableBody, Priority, Age, Headers
// and Progress.
func (b *Broker) Borrow(now int64, p Peer, s *Submission) (effects []Effect, run uint64, why BorrowRefusal) {
	b.begin(now)
	sub := b.submitter(p)
	jt := b.typesByName[string(s.Type)]
	if sub == nil || !sub.isLender || jt == nil || !b.mayRunMore(jt) {
		return b.end(), 0, NoIdleWorker
	}
	w := b.longestIdle(jt, container.Entry{})
	if w == nil || w.isBorrower || !b.rateAllows(jt) {
		return b.end(), 0, NoIdleWorker
	}
	if reason := b.exceededLimit(sub, jt, s); reason.Why != 0 {
		if reason.Need > reason.Limit {
			return b.end(), 0, TooLarge
		}
		return b.end(), 0, LimitReached
	}
	if b.runOf(w, s.ID) != 0 {
		b.leaveIdleLine(w)
		b.enterIdleLine(w) // moves it to the end, so that the next call tries another worker
		return b.end(), 0, IDClash
	}
	h := b.holdingFor(sub, jt, nil, false, 0)
	rec, j := b.newJob(h, s, flagBorrowed)
	jt.rate.take(b.now, &jt.pace)
	b.rateAllows(jt) // sets the type's timer if the rate now holds jobs back
	b.assign(w, h, rec, j)
	key := b.borrowedKey(w, s.ID)
	b.borrowedIndex.Insert(b.borrowedIndex.Hash(key), rec)
	return b.end(), jobNumber(rec, j), 0
}

// BorrowRefusal says why a job is not borrowed.
type BorrowRefusal uint8

// NoIdleWorker: no worker is idle, or no more of the type may run. IDClash: the worker has a job
// with the same id. LimitReached: a limit on jobs or bytes is reached. TooLarge: the job alone exceeds a
// limit on bytes.
const (
	NoIdleWorker BorrowRefusal = iota + 1
	IDClash
	LimitReached
	TooLarge
)

// Loan holds the facts about a job that a borrower needs and that are not in the job's frame.
type Loan struct {
	Priority      int64
	Age           int64 // ns since it was submitted
	WantsProgress bool  // the submitter wants the progress of the run
}

// Loan returns the Loan of a lent run, given the run's number (Effect.Run).
func (b *Broker) Loan(run uint64) Loan {
	j := b.jobs.Get(uint32(run >> 32))
	return Loan{Priority: b.priority(j), Age: b.now - j.submittedAt, WantsProgress: j.flags&flagProgress != 0}
}

// MarkUnwanted marks a run of lender p as unwanted. If the run is overdue at its home, it
// becomes overdue here, too: its worker gets no more jobs before it has answered.
func (b *Broker) MarkUnwanted(now int64, p Peer, run uint64, overdue bool) []Effect {
	b.begin(now)
	if rec, j := b.borrowedRun(p, run); rec != 0 {
		b.notifyUnwanted(rec, j)
		j.flags |= flagUnwanted
		if overdue {
			b.timeOutRun(rec, j)
		}
	}
	return b.end()
}

// SetWantsProgress sets whether lender p wants progress of a run.
func (b *Broker) SetWantsProgress(p Peer, run uint64, wanted bool) {
	if rec, j := b.borrowedRun(p, run); rec != 0 {
		j.flags &^= flagProgress
		if wanted {
			j.flags |= flagProgress
		}
	}
}

// borrowedRun finds a run of lender p by its number.
func (b *Broker) borrowedRun(p Peer, run uint64) (uint32, *job) {
	if rec, sub := uint32(run>>32), b.submitter(p); sub != nil && b.jobs.Has(rec) {
		j := b.jobs.Get(rec)
		if j.state == stateRunning && j.flags&flagBorrowed != 0 && j.arrival == uint32(run) && b.holdingOf(j).submitter == sub {
			return rec, j
		}
	}
	return 0, nil
}

// BorrowedRuns returns how many jobs of other brokers run here.
func (b *Broker) BorrowedRuns() int { return b.borrowedRuns }

// runOf returns the job with this id that runs on a worker, or 0. A borrowed job is not in the
// index of ids, so borrowedRunOn finds it.
func (b *Broker) runOf(w *worker, id []byte) uint32 {
	if rec := b.jobIndex.Find(b.jobIndex.Hash(id), id); rec != 0 {
		if j := b.jobs.Get(rec); j.state == stateRunning && b.workerOf(j) == w {
			return rec
		}
	}
	return b.borrowedRunOn(w, id)
}

// borrowedRunOn returns the borrowed run with this worker and id, or 0.
func (b *Broker) borrowedRunOn(w *worker, id []byte) uint32 {
	if b.borrowedRuns == 0 {
		return 0
	}
	key := b.borrowedKey(w, id)
	return b.borrowedIndex.Find(b.borrowedIndex.Hash(key), key)
}

func (b *Broker) borrowedKey(w *worker, id []byte) []byte {
	b.scratch = append(binary.LittleEndian.AppendUint32(b.scratch[:0], w.id.Slot()), id...)
	return b.scratch
}

// mayRunMore reports whether more jobs of the type may run: it is neither paused nor at its
// concurrency, and the broker is not draining.
func (b *Broker) mayRunMore(jt *jobType) bool {
	c := jt.limits.Concurrency
	return !jt.paused && !b.draining && (c == 0 || jt.runningHere() < c)
}

// runningHere returns how many jobs of the type run here, borrowed ones included.
func (jt *jobType) runningHere() int { return int(jt.Running) + int(jt.borrowedRuns) }

// Demand describes the waiting jobs of a type that could run but have no worker at this broker.
type Demand struct {
	Jobs int
	// Priority is the priority of the best of these jobs, and Since is when it was submitted.
	Priority, Since int64
}

// Demand returns the jobs of a type that could be lent.
func (b *Broker) Demand(typ []byte) (demand Demand) {
	jt := b.typesByName[string(typ)]
	if jt == nil || jt.paused || b.handOutStopped || jt.line.Len() == 0 || jt.timerPos >= 0 {
		return demand
	}
	if demand.Jobs = int(jt.Queued); demand.Jobs == 0 {
		return demand // all its jobs are abandoned
	}
	if c := jt.limits.Concurrency; c > 0 {
		demand.Jobs = min(demand.Jobs, max(0, c-jt.runningHere()))
	}
	top := jt.line.Top()
	demand.Priority, demand.Since = int64(^top.Major^1<<63), b.now
	if top.Ref&refTenant == 0 {
		demand.Since = int64(top.Minor ^ 1<<63)
	}
	return demand
}

// IntroduceType makes a type known because its jobs may be borrowed, so that it is paired with
// the pools that serve it.
func (b *Broker) IntroduceType(now int64, typ []byte) []Effect {
	if len(b.poolsByKey) == 0 || b.typesByName[string(typ)] != nil || b.typeExceedsLimit(nil) {
		return nil
	}
	b.begin(now)
	b.typeFor(typ)
	return b.end()
}

// Supply is the number of jobs of a type that the idle workers of one set could take. Set 0 is the
// workers that serve only this type; other numbers are as in IdleChange.
type Supply struct {
	Set    uint32
	Places int
}

// Supply calls add for each set of this broker's workers until add returns false. It passes the
// number of jobs of a type that the set could take, capped at limitOf(set). limit is the number of
// jobs that the limits of the type allow for all sets together.
func (b *Broker) Supply(typ []byte, limitOf func(set uint32) int, add func(Supply) (more bool)) (limit int) {
	jt := b.typesByName[string(typ)]
	if jt == nil || !b.mayRunMore(jt) || jt.line.Len() > 0 || jt.timerPos >= 0 {
		return 0
	}
	limit = jt.rate.tokens(b.now, &jt.pace)
	if c := jt.limits.Concurrency; c > 0 {
		limit = min(limit, c-jt.runningHere())
	}
	if jt.idleWorkers.Len() > 0 && !add(Supply{0, countFreePlaces(&jt.idleWorkers, limitOf(0))}) {
		return limit
	}
	for rec := jt.firstPair; rec != 0; rec = b.pairs.Get(rec).typeNext {
		if p := b.pools.At(b.pairs.Get(rec).pool); p.idleWorkers.Len() > 0 && !add(Supply{p.number + 1, countFreePlaces(&p.idleWorkers, limitOf(p.number+1))}) {
			break
		}
	}
	return limit
}

// IsServed reports whether workers of this broker serve a type, or may turn out to serve it
// because pairing is not done yet.
func (b *Broker) IsServed(typ []byte) bool {
	jt := b.typesByName[string(typ)]
	return b.pairingsInProgress > 0 || jt != nil && b.hasWorkers(jt)
}

// maxPoolVisits bounds how many pools hasWorkers visits.
const maxPoolVisits = 64

// hasWorkers reports whether workers of this broker serve a type and have not left. It visits a
// bounded number of pools, and assumes that the workers of the others have not left.
func (b *Broker) hasWorkers(jt *jobType) bool {
	if jt.workers > jt.borrowers+jt.leavers {
		return true
	}
	rec := jt.firstPair
	for n := 0; rec != 0 && n < maxPoolVisits; n++ {
		pair := b.pairs.Get(rec)
		if p := b.pools.At(pair.pool); p.workers > p.leavers {
			break
		}
		rec = pair.typeNext
	}
	return rec != 0
}

// countFreePlaces returns how many jobs, up to limit, the workers in a line have room for, not counting
// borrowers.
func countFreePlaces(line *container.Ring[worker], limit int) (n int) {
	if line.Len() >= limit && limit > 0 && !line.Last().isBorrower {
		return limit // each has room
	}
	for w := line.First(); w != nil && n < limit && !w.isBorrower; w = w.idleLink.Next() {
		n += w.room - w.runs.n
	}
	return min(n, limit)
}

// idleWorkerCount returns how many workers that serve only this type have room, not counting
// borrowers.
func (b *Broker) idleWorkerCount(jt *jobType) int {
	n := jt.idleWorkers.Len()
	if jt.borrowers > 0 {
		for w := jt.idleWorkers.Last(); w != nil && w.isBorrower; w = w.idleLink.Prev() {
			n--
		}
	}
	return n
}

// TypeMatcher returns a function that reports whether a worker that joins with these names and
// patterns serves a type.
func TypeMatcher(types, exceptTypes [][]byte) func(typ []byte) bool {
	key, _ := (&JoinRequest{Types: types, Except: exceptTypes}).key()
	return newTypeSet(key, nil).serves
}

// TrackIdle makes the core record which types and sets of workers change, for EachIdleChange.
func (b *Broker) TrackIdle() { b.trackIdle = true }

// ReportIdle makes EachIdleChange report everything that has idle workers.
func (b *Broker) ReportIdle() { b.idleLines.Each(b.noteChange) }

// IdleChange describes a change of a type or of a set of workers: jobs or workers have been added or
// removed, or workers have become idle. For a type, Set is 0; for workers that joined with
// several types, it is the number of their set.
type IdleChange struct {
	Set uint32
	// Types and Except are the names and patterns of the set. For a type, Types is the type's
	// name alone.
	Types, Except [][]byte
	// Places is the number of further jobs for which the idle workers have room, at most maxPlaces.
	Places int
}

// maxPlaces bounds the places that are counted for one set of workers.
const maxPlaces = 1 << 10

// EachIdleChange calls fn for everything that has changed since the last call. fn must not change
// what it is given.
func (b *Broker) EachIdleChange(fn func(*IdleChange)) {
	for _, l := range b.changedLines {
		l.changed = false
		change := IdleChange{Places: countFreePlaces(&l.idleWorkers, maxPlaces)}
		if p := l.pool; p != nil {
			change.Set, change.Types, change.Except = p.number+1, p.typeSet.types, p.typeSet.except
		} else if change.Types = [][]byte{l.jobType.name}; !b.mayRunMore(l.jobType) {
			change.Places = 0
		}
		fn(&change)
	}
	clear(b.changedLines)
	b.changedLines = b.changedLines[:0]
}

// noteChange records that a type or a pool has changed, for EachIdleChange.
func (b *Broker) noteChange(l *idleLine) {
	if b.trackIdle && !l.changed {
		l.changed = true
		b.changedLines = append(b.changedLines, l)
	}
}
