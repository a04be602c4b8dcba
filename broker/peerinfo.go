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
	// Serves are up to shownNames names and patterns of types that it serves.
	Serves  [][]byte
	Room    int
	Out     int // how many jobs are out on it, overdue runs included
	Overdue int
	Left    bool
	// Idle is how long it has had no job, 0 while it works.
	Idle time.Duration
	// Jobs are the ids of up to workerIDs jobs that are out on it.
	Jobs [][]byte
}

// Stalled returns up to limit workers with overdue runs, in the order in which they first
// became overdue.
func (b *Broker) Stalled(limit int) (found []WorkerInfo) {
	for w := b.stalled.First(); w != nil && len(found) < limit; w = w.stalled.Next() {
		found = append(found, b.workerInfo(w))
	}
	return found
}

// SubmitterInfo describes a submitter.
type SubmitterInfo struct {
	Peer  Peer
	Jobs  int
	Bytes int64
	Types int
	// Names are up to shownNames types of its jobs.
	Names [][]byte
}

// workerIDs and shownNames bound how many ids of jobs and names of types are shown.
const (
	workerIDs  = 16
	shownNames = 16
)

// Workers lists the workers that serve typ (all workers if typ is nil). Like Types, it does so
// piece by piece.
func (b *Broker) Workers(now int64, typ []byte, from, limit int) (found []WorkerInfo, next int) {
	b.now = max(b.now, now)
	for n := 0; n < lookVisits && len(found) < limit && from < len(b.peers); from++ {
		n++
		w := b.peers[from].wrk
		if w == nil || w.borrows {
			continue
		}
		if w.pool != nil {
			n += len(w.pool.set.patterns) + len(w.pool.set.notPatterns)
		}
		if typ == nil || w.serves(typ) {
			found = append(found, b.workerInfo(w))
			n += min(w.out.n, workerIDs)
		}
	}
	return found, following(from, len(b.peers))
}

func (w *worker) serves(typ []byte) bool {
	if w.pool != nil {
		return w.pool.set.serves(typ)
	}
	return w.kind != nil && bytes.Equal(w.kind.name, typ)
}

func (b *Broker) workerInfo(w *worker) WorkerInfo {
	x := WorkerInfo{Peer: w.id, Room: w.room, Out: w.out.n, Overdue: w.overdue, Left: w.left}
	if w.kind != nil {
		x.Type, x.Types, x.Serves = w.kind.name, 1, [][]byte{w.kind.name}
	}
	if w.pool != nil {
		x.Types, x.Serves = w.pool.n, w.pool.set.types[:min(len(w.pool.set.types), shownNames)]
	}
	if w.out.n == 0 {
		x.Idle = b.Since(w.since)
	}
	for r := w.out.head; r != 0 && len(x.Jobs) < workerIDs; r = b.jobs.Get(r).links[byPlace].next {
		x.Jobs = append(x.Jobs, append([]byte(nil), b.id(b.jobs.Get(r))...))
	}
	return x
}

// Submitters lists the submitters with jobs of typ (all submitters if typ is nil). Like Types,
// it does so piece by piece.
func (b *Broker) Submitters(typ []byte, from, limit int) (found []SubmitterInfo, next int) {
	for n := 0; n < lookVisits && len(found) < limit && from < len(b.peers); from++ {
		n++
		s := b.peers[from].sub
		if s == nil || s.lends {
			continue
		}
		if typ != nil {
			n += len(s.holdings)
		}
		if typ == nil || slices.ContainsFunc(s.holdings, func(h *holding) bool { return bytes.Equal(h.kind.name, typ) && h.jobs.n > 0 }) {
			found = append(found, SubmitterInfo{Peer: s.id, Jobs: s.jobs, Bytes: s.bytes, Types: len(s.holdings) - s.unused, Names: s.names()})
		}
	}
	return found, following(from, len(b.peers))
}

// names returns up to shownNames types of a submitter's jobs.
func (s *submitter) names() (names [][]byte) {
	for _, h := range slices.Backward(s.holdings[max(0, len(s.holdings)-lookVisits):]) {
		if h.held() > 0 && !slices.ContainsFunc(names, func(n []byte) bool { return bytes.Equal(n, h.kind.name) }) {
			if names = append(names, h.kind.name); len(names) == shownNames {
				break
			}
		}
	}
	return names
}
