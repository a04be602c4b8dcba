package broker

import (
	"time"
)

// Queries from outside are answered in pieces, because all commands wait during a piece. One piece
// visits roughly lookVisits places in memory. With cold caches these visits take about a tenth of a
// millisecond.
const lookVisits = 1024

// TypeInfo describes a type.
type TypeInfo struct {
	Name []byte
	Ledger
	// IsKept reports that only ForgetType forgets the type (Config.KeptTypes).
	IsKept bool
	Limits TypeLimits
	Paused bool
	Fair   bool // tenants take turns
	// Workers is the number of workers that have not left, IdleWorkers the number of those with room. Until
	// Survey.Complete has been called, both count only workers that serve just this type, and
	// OldestAge, HeldJobs and Submitters are 0.
	Workers     int
	IdleWorkers int
	OldestAge   time.Duration // age of the oldest queued job, 0 if there is none
	HeldJobs    int           // queued jobs that a rule of a group holds back
	Submitters  int           // connected submitters that have jobs of the type
	Bytes       int64
	DeadLetters int
	jobType     *jobType
}

func (b *Broker) typeInfo(jt *jobType) TypeInfo {
	return TypeInfo{
		Name: jt.name, Ledger: jt.Ledger, IsKept: b.isKept(jt), Limits: jt.limits, Paused: jt.paused, Fair: jt.fair,
		Workers: int(jt.workers - jt.borrowers - jt.leavers), IdleWorkers: b.idleWorkerCount(jt),
		Bytes: jt.bytes, DeadLetters: jt.letters.n, jobType: jt,
	}
}

// Type returns the description of a type.
func (b *Broker) Type(name []byte) (TypeInfo, TypeStats, bool) {
	jt := b.typesByName[string(name)]
	if jt == nil {
		return TypeInfo{}, TypeStats{}, false
	}
	return b.typeInfo(jt), jt.stats, true
}

// Types calls fn for up to limit types. from is 0 at first, then the place that the last call
// returned. It returns the place to continue from, or -1 at the end. One call may call fn
// fewer times than limit, even never, before the end is reached. fn must not keep its arguments.
func (b *Broker) Types(from, limit int, fn func(t *TypeInfo, s *TypeStats)) int {
	for end := from + lookVisits; limit > 0 && from < min(end, len(b.types.All())); from++ {
		if jt := b.types.All()[from]; jt != nil {
			limit--
			t := b.typeInfo(jt)
			fn(&t, &jt.stats)
		}
	}
	return continueFrom(from, len(b.types.All()))
}

// continueFrom returns from, the place to continue from, or -1 if a listing of n places ends
// there.
func continueFrom(from, n int) int {
	if from < n {
		return from
	}
	return -1
}

// OtherStats returns the durations of all types, known or forgotten, except kept types.
func (b *Broker) OtherStats() *TypeStats { return &b.otherStats }

// Survey collects figures of types that are spread over many places: the age of the oldest
// queued job, the workers that serve the type among others, and the submitters.
type Survey struct {
	now int64
	// The numbers of the queue, the pair and the peer to continue from, and the index among
	// that peer's holdings.
	nextQueue, nextPair, nextPeer, nextHolding int
	types                                      map[*jobType]surveyResult
}

// surveyResult holds the figures that a survey has found so far for one type.
type surveyResult struct {
	hasQueued            bool
	oldestSubmit         int64 // when its oldest queued job was submitted
	workers, idleWorkers int
	heldBack             int // jobs that rules of groups hold back
	submitters           int
	lastSubmitter        Peer // the submitter counted last
}

// Time returns the time of the last piece, by the broker's clock. Ages grow with it, not with
// the wall clock: the broker's clock stands still while the process does.
func (s *Survey) Time() time.Duration { return time.Duration(s.now) }

// Survey takes one piece of the survey and reports whether there is more. It misses no job that
// is queued throughout, whatever happens between calls.
func (b *Broker) Survey(now int64, s *Survey) (more bool) {
	b.now = max(b.now, now)
	if s.types == nil {
		s.types = map[*jobType]surveyResult{}
	}
	s.now = b.now
	if b.sweepAll() {
		return true
	}
	n := 0
	for ; n < lookVisits && s.nextQueue < len(b.queues.All()); s.nextQueue++ {
		n++
		q := b.queues.All()[s.nextQueue]
		if q == nil || q.readyJobs == 0 {
			continue
		}
		n += len(q.lanes)
		result, at := s.types[q.jobType], b.oldestSubmit(q)
		if !result.hasQueued || at < result.oldestSubmit {
			result.hasQueued, result.oldestSubmit = true, at
		}
		if q.shutGroup() != nil {
			result.heldBack += q.readyJobs
		}
		s.types[q.jobType] = result
	}
	s.nextPair = b.pairs.Walk(s.nextPair, lookVisits-n, func(_ uint32, pair *pair) bool {
		n++
		if pair.inUse {
			jt, p := b.types.At(pair.jobType), b.pools.At(pair.pool)
			result := s.types[jt]
			result.workers, result.idleWorkers = result.workers+p.workers-p.leavers, result.idleWorkers+p.idleWorkers.Len()
			s.types[jt] = result
		}
		return true
	})
	for n < lookVisits && s.nextPeer < len(b.peers.All()) {
		n++
		sub := b.peerAt(s.nextPeer).submitter
		if sub == nil || sub.isLender || s.nextHolding >= len(sub.holdings) {
			s.nextPeer, s.nextHolding = s.nextPeer+1, 0
			continue
		}
		h := sub.holdings[s.nextHolding]
		if result := s.types[h.jobType]; h.jobCount() > 0 && result.lastSubmitter != sub.id {
			result.submitters, result.lastSubmitter = result.submitters+1, sub.id
			s.types[h.jobType] = result
		}
		s.nextHolding++
	}
	return s.nextQueue < len(b.queues.All()) || s.nextPair >= 0 || s.nextPeer < len(b.peers.All())
}

// Complete adds to a type what the survey found.
func (s *Survey) Complete(t *TypeInfo) {
	result := s.types[t.jobType]
	t.Workers, t.IdleWorkers, t.HeldJobs, t.Submitters = t.Workers+result.workers, t.IdleWorkers+result.idleWorkers, result.heldBack, result.submitters
	if result.hasQueued {
		t.OldestAge = time.Duration(max(0, s.now-result.oldestSubmit))
	}
}

// IdleWorkerCount returns how many workers with room serve a type, known or not. It checks all sets
// of types with which workers have joined.
func (b *Broker) IdleWorkerCount(name []byte) (n int) {
	if jt := b.typesByName[string(name)]; jt != nil {
		n = b.idleWorkerCount(jt)
	}
	for _, p := range b.poolsByKey {
		if p.idleWorkers.Len() > 0 && p.typeSet.serves(name) {
			n += p.idleWorkers.Len()
		}
	}
	return n
}
