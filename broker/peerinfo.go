package broker

import (
	"bytes"
	"slices"
	"time"
)

// WorkerInfo describes a worker.
type WorkerInfo struct {
	Peer  Peer
	Type  []byte // nil before the worker's first join, and if the worker serves several types
	Types int    // how many types it serves
	// Serves are up to maxShownNames names and patterns of types that it serves.
	Serves  [][]byte
	Room    int
	JobsOut int // how many jobs are out on it, overdue runs included
	Overdue int
	HasLeft bool
	// IsSilent reports that the worker has no credit: it does not read, or does not answer pings.
	IsSilent bool
	// IdleTime is how long the worker has had no job. It is 0 while the worker has a job.
	IdleTime time.Duration
	// Jobs are the ids of up to maxWorkerIDs jobs that are out on it.
	Jobs [][]byte
}

// StalledWorkers returns up to limit workers with overdue runs, in the order in which they first
// became overdue.
func (b *Broker) StalledWorkers(limit int) (workers []WorkerInfo) {
	for w := b.stalledWorkers.First(); w != nil && len(workers) < limit; w = w.stalledLink.Next() {
		workers = append(workers, b.workerInfo(w))
	}
	return workers
}

// SubmitterInfo describes a submitter.
type SubmitterInfo struct {
	Peer  Peer
	Jobs  int
	Bytes int64
	// Types is how many types its jobs have, and Names are up to maxShownNames of them. They are those
	// of the latest lookVisits combinations of a type and groups.
	Types int
	Names [][]byte
}

// maxWorkerIDs and maxShownNames bound how many job ids and type names are shown.
const (
	maxWorkerIDs  = 16
	maxShownNames = 16
)

// Workers lists the workers that serve typ (all workers if typ is nil). Like Types, it does so
// piece by piece.
func (b *Broker) Workers(now int64, typ []byte, from, limit int) (workers []WorkerInfo, next int) {
	b.now = max(b.now, now)
	for n := 0; n < lookVisits && len(workers) < limit && from < len(b.peers.All()); from++ {
		n++
		w := b.peerAt(from).worker
		if w == nil || w.isBorrower {
			continue
		}
		if w.pool != nil {
			n += len(w.pool.typeSet.patterns) + len(w.pool.typeSet.exceptPatterns)
		}
		if typ == nil || w.serves(typ) {
			workers = append(workers, b.workerInfo(w))
			n += min(w.runs.n, maxWorkerIDs)
		}
	}
	return workers, continueFrom(from, len(b.peers.All()))
}

func (w *worker) serves(typ []byte) bool {
	if w.pool != nil {
		return w.pool.typeSet.serves(typ)
	}
	return w.jobType != nil && bytes.Equal(w.jobType.name, typ)
}

func (b *Broker) workerInfo(w *worker) WorkerInfo {
	info := WorkerInfo{Peer: w.id, Room: w.room, JobsOut: w.runs.n, Overdue: w.overdueRuns, HasLeft: w.hasLeft, IsSilent: w.credit <= 0}
	if w.jobType != nil {
		info.Type, info.Types, info.Serves = w.jobType.name, 1, [][]byte{w.jobType.name}
	}
	if w.pool != nil {
		info.Types, info.Serves = w.pool.pairCount, w.pool.typeSet.types[:min(len(w.pool.typeSet.types), maxShownNames)]
	}
	if w.runs.n == 0 {
		info.IdleTime = b.Since(w.idleSince)
	}
	for rec := w.runs.head; rec != 0 && len(info.Jobs) < maxWorkerIDs; rec = b.jobs.Get(rec).links[laneLink].next {
		info.Jobs = append(info.Jobs, append([]byte(nil), b.id(b.jobs.Get(rec))...))
	}
	return info
}

// Submitters lists the submitters with jobs of typ (all submitters if typ is nil). Like Types,
// it does so piece by piece. The last slotBits bits of from are the slot of the peer to continue with;
// the others are how many of its holdings are still to be examined, or 0 for all.
func (b *Broker) Submitters(typ []byte, from, limit int) (submitters []SubmitterInfo, next int) {
	const slotBits = 24
	slot, left := from&(1<<slotBits-1), from>>slotBits
	for n := 0; n < lookVisits && len(submitters) < limit && slot < len(b.peers.All()); n++ {
		s := b.peerAt(slot).submitter
		matches := s != nil && !s.isLender
		if matches && typ != nil {
			if left == 0 || left > len(s.holdings) {
				left = len(s.holdings)
			}
			// A holding that is dropped meanwhile is replaced by the last one, which has been examined.
			if matches = left > 0 && s.holdings[left-1].jobCount() > 0 && bytes.Equal(s.holdings[left-1].jobType.name, typ); !matches && left > 1 {
				left--
				continue
			}
		}
		if matches {
			info := SubmitterInfo{Peer: s.id, Jobs: s.jobs, Bytes: s.bytes}
			info.Types, info.Names = s.types()
			submitters = append(submitters, info)
			n += min(len(s.holdings), lookVisits)
		}
		slot, left = slot+1, 0
	}
	if slot >= len(b.peers.All()) {
		return submitters, -1
	}
	return submitters, left<<slotBits | slot
}

// types returns how many types a submitter's jobs have, and up to maxShownNames of these, as far as its
// last lookVisits holdings tell.
func (s *submitter) types() (n int, names [][]byte) {
	seen := map[*jobType]bool{}
	for _, h := range slices.Backward(s.holdings[max(0, len(s.holdings)-lookVisits):]) {
		if h.jobCount() > 0 && !seen[h.jobType] {
			if seen[h.jobType] = true; len(names) < maxShownNames {
				names = append(names, h.jobType.name)
			}
		}
	}
	return len(seen), names
}
