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

// ClashDelay is how long a job waits if the worker that is chosen for it runs another broker's job
// with the same id.
const ClashDelay = 100 * time.Millisecond

// borrowersLast is the bit in worker.idleNumber that puts borrowers behind all other workers.
const borrowersLast = 1 << 63

// AddBorrower adds a broker with the given name that takes jobs of a type. The broker gets no
// jobs before Allot is called. The peer is 0 if the new type would exceed MaxTypes.
func (b *Broker) AddBorrower(now int64, typ []byte, name string) (Peer, []Effect) {
	b.begin(now)
	if b.typeExceedsLimit(b.typesByName[string(typ)]) {
		return 0, b.end()
	}
	x := b.newPeer()
	k := b.typeFor(typ)
	k.workers++
	k.borrowers++
	b.reviewUse(k)
	x.worker = &worker{id: x.id, jobType: k, idleSince: b.now, credit: math.MaxInt64, namesJobs: true, wantsNotices: true, wantsHeaders: true, isBorrower: true, name: name}
	return x.id, b.end()
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
func (b *Broker) RunCount(p Peer) (out, overdue int) {
	if w := b.worker(p); w != nil {
		return w.runs.n, w.overdueRuns
	}
	return 0, 0
}

// AddLender adds a broker that lends jobs.
func (b *Broker) AddLender() Peer {
	x := b.newPeer()
	x.submitter = &submitter{id: x.id, isLender: true}
	return x.id
}

// Borrow hands a job of lender p to the worker that has been idle longest. It returns the
// number of the run, which effects about the run carry in Run, or 0 and the reason why no
// worker can have the job now. Of s it uses only ID, Type, Body, StableBody, Priority, Age, Headers
// and Progress.
func (b *Broker) Borrow(now int64, p Peer, s *Submission) (fx []Effect, run uint64, why BorrowRefusal) {
	b.begin(now)
	sub := b.submitter(p)
	k := b.typesByName[string(s.Type)]
	if sub == nil || !sub.isLender || k == nil || !b.mayRunMore(k) {
		return b.end(), 0, NoIdleWorker
	}
	w := b.longestIdle(k, container.Entry{})
	if w == nil || w.isBorrower || !b.rateAllows(k) {
		return b.end(), 0, NoIdleWorker
	}
	if b.exceededLimit(sub, k, s).Why != 0 {
		return b.end(), 0, LimitReached
	}
	if b.runOf(w, s.ID) != 0 {
		b.leaveIdleLine(w)
		b.enterIdleLine(w) // moves it to the end, so that the next call tries another worker
		return b.end(), 0, IDClash
	}
	h := b.holdingFor(sub, k, nil, false, 0)
	r, j := b.newJob(h, s, flagBorrowed)
	k.rate.take(b.now, &k.pace)
	b.rateAllows(k) // sets the type's timer if the rate now holds jobs back
	b.assign(w, h, r, j)
	key := b.borrowedKey(w, s.ID)
	b.borrowedIndex.Insert(b.borrowedIndex.Hash(key), r)
	return b.end(), outcomeNumber(r, j), 0
}

// BorrowRefusal says why a job is not borrowed.
type BorrowRefusal uint8

// NoIdleWorker: no worker is idle, or no more of the type may run. IDClash: the worker has a job
// with the same id. LimitReached: a limit on jobs or bytes is reached.
const (
	NoIdleWorker BorrowRefusal = iota + 1
	IDClash
	LimitReached
)

// Loan holds what a borrower needs to know about a job besides what is in its frame.
type Loan struct {
	Priority      int64
	Age           int64 // ns since it was submitted
	WantsProgress bool  // whether progress is wanted
}

// Loan returns the Loan of a run that is lent, given the run's number (Effect.Run).
func (b *Broker) Loan(run uint64) Loan {
	j := b.jobs.Get(uint32(run >> 32))
	return Loan{Priority: b.priority(j), Age: b.now - j.submittedAt, WantsProgress: j.flags&flagProgress != 0}
}

// MarkUnwanted marks a run of lender p as unwanted. If the run is overdue at its home, it
// becomes overdue here, too: its worker gets no more jobs before it has answered.
func (b *Broker) MarkUnwanted(now int64, p Peer, run uint64, overdue bool) []Effect {
	b.begin(now)
	if r, j := b.borrowedRun(p, run); r != 0 {
		b.notifyUnwanted(r, j)
		if j.flags |= flagUnwanted; overdue {
			b.timeOutRun(r, j)
		}
	}
	return b.end()
}

// WantProgress sets whether lender p wants progress of a run.
func (b *Broker) WantProgress(p Peer, run uint64, wanted bool) {
	if r, j := b.borrowedRun(p, run); r != 0 {
		if j.flags &^= flagProgress; wanted {
			j.flags |= flagProgress
		}
	}
}

// borrowedRun finds a run of lender p by its number.
func (b *Broker) borrowedRun(p Peer, run uint64) (uint32, *job) {
	if r, sub := uint32(run>>32), b.submitter(p); sub != nil && b.jobs.Has(r) {
		j := b.jobs.Get(r)
		if j.state == stateRunning && j.flags&flagBorrowed != 0 && j.arrival == uint32(run) && b.holdingOf(j).submitter == sub {
			return r, j
		}
	}
	return 0, nil
}

// BorrowedRuns returns how many jobs of other brokers run here.
func (b *Broker) BorrowedRuns() int { return b.borrowedRuns }

// runOf finds the job with this id that runs on a worker, or 0. A borrowed job is not in the
// index of ids, so borrowedRunOn finds it.
func (b *Broker) runOf(w *worker, id []byte) uint32 {
	if r := b.jobIndex.Find(b.jobIndex.Hash(id), id); r != 0 {
		if j := b.jobs.Get(r); j.state == stateRunning && b.workerOf(j) == w {
			return r
		}
	}
	return b.borrowedRunOn(w, id)
}

// borrowedRunOn finds a borrowed run by its worker and id, or 0.
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
func (b *Broker) mayRunMore(k *jobType) bool {
	c := k.limits.Concurrency
	return !k.paused && !b.draining && (c == 0 || k.runningHere() < c)
}

// runningHere returns how many jobs of the type run here, borrowed ones included.
func (k *jobType) runningHere() int { return int(k.Running) + int(k.borrowedRuns) }

// Demand describes the waiting jobs of a type that could run but have no worker at this broker.
type Demand struct {
	Jobs int
	// Priority is the priority of the best of these jobs, and Since is when it was submitted.
	Priority, Since int64
}

// Demand returns the jobs of a type that could be lent.
func (b *Broker) Demand(typ []byte) (d Demand) {
	k := b.typesByName[string(typ)]
	if k == nil || k.paused || b.endsLeftovers || k.line.Len() == 0 || k.timerPos >= 0 {
		return d
	}
	if d.Jobs = int(k.Queued); d.Jobs == 0 {
		return d // all its jobs are abandoned
	}
	if c := k.limits.Concurrency; c > 0 {
		d.Jobs = min(d.Jobs, max(0, c-k.runningHere()))
	}
	top := k.line.Top()
	d.Priority, d.Since = int64(^top.A^1<<63), b.now
	if top.Ref&refTenant == 0 {
		d.Since = int64(top.B ^ 1<<63)
	}
	return d
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
	k := b.typesByName[string(typ)]
	if k == nil || !b.mayRunMore(k) || k.line.Len() > 0 || k.timerPos >= 0 {
		return 0
	}
	limit = k.rate.tokens(b.now, &k.pace)
	if c := k.limits.Concurrency; c > 0 {
		limit = min(limit, c-k.runningHere())
	}
	if k.idleWorkers.Len() > 0 && !add(Supply{0, freePlaces(&k.idleWorkers, limitOf(0))}) {
		return limit
	}
	for r := k.firstPair; r != 0; r = b.pairs.Get(r).typeNext {
		if p := b.pools.At(b.pairs.Get(r).pool); p.idleWorkers.Len() > 0 && !add(Supply{p.number + 1, freePlaces(&p.idleWorkers, limitOf(p.number+1))}) {
			break
		}
	}
	return limit
}

// IsServed reports whether workers of this broker serve a type, or may turn out to serve it
// because pairing is not done yet.
func (b *Broker) IsServed(typ []byte) bool {
	k := b.typesByName[string(typ)]
	return b.pairingsInProgress > 0 || k != nil && b.hasWorkers(k)
}

// maxPoolVisits bounds how many pools hasWorkers visits.
const maxPoolVisits = 64

// hasWorkers reports whether workers of this broker serve a type and have not left. It visits a
// bounded number of pools, and assumes that the workers of the others have not left.
func (b *Broker) hasWorkers(k *jobType) bool {
	if k.workers > k.borrowers+k.leavers {
		return true
	}
	r := k.firstPair
	for n := 0; r != 0 && n < maxPoolVisits; n++ {
		x := b.pairs.Get(r)
		if p := b.pools.At(x.pool); p.workers > p.leavers {
			break
		}
		r = x.typeNext
	}
	return r != 0
}

// freePlaces returns how many jobs, up to limit, the workers in a line have room for, not counting
// borrowers.
func freePlaces(line *container.Ring[worker], limit int) (n int) {
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
func (b *Broker) idleWorkerCount(k *jobType) int {
	n := k.idleWorkers.Len()
	if k.borrowers > 0 {
		for w := k.idleWorkers.Last(); w != nil && w.isBorrower; w = w.idleLink.Prev() {
			n--
		}
	}
	return n
}

// TypeMatcher returns a function that reports whether a worker that joins with these names and
// patterns serves a type.
func TypeMatcher(types, except [][]byte) func(typ []byte) bool {
	key, _ := (&JoinRequest{Types: types, Except: except}).key()
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
		m := IdleChange{Places: freePlaces(&l.idleWorkers, maxPlaces)}
		if p := l.pool; p != nil {
			m.Set, m.Types, m.Except = p.number+1, p.typeSet.types, p.typeSet.except
		} else if m.Types = [][]byte{l.jobType.name}; !b.mayRunMore(l.jobType) {
			m.Places = 0
		}
		fn(&m)
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
