package broker

import (
	"strings"
	"time"

	"gloom/wire"
)

// Jobs are listed, counted and cancelled in the order of their records. A record
// keeps its number from a job's submission to its end, so whatever fits all the
// while is met exactly once, whatever happens between two pieces.

// JobFilter says which jobs are meant. What is not set fits all.
type JobFilter struct {
	// Type and Group are whole canonical names, ID is part of an id's value.
	Type, Group []byte
	ID          string
	State       string        // one of JobStates
	Older       time.Duration // since the submission, at least
	// Submitter and Worker are at the ends of the job.
	Submitter, Worker Peer
	// Wanted leaves out what runs though nobody waits for it.
	Wanted bool
}

// JobStates are the states of a job that can be asked for.
var JobStates = []string{"delayed", "queued", "running", "ended"}

// fits tells whether job j is meant; k is the type asked for, nil for any.
func (q *JobFilter) fits(b *Broker, k *jobType, j *job) bool {
	if j.state == stFree || j.state == stOverdue || j.flags&flagBorrowed != 0 || q.State != "" && j.state.String() != q.State {
		return false
	}
	h := b.holder(j)
	switch {
	case k != nil && h.kind != k,
		q.Older > 0 && b.Since(j.at) < q.Older,
		q.Group != nil && !h.queue.set.has(q.Group),
		q.Submitter != 0 && (h.sub == nil || h.sub.id != q.Submitter),
		q.Worker != 0 && (j.state != stRunning || b.peers[j.worker].id != q.Worker),
		q.Wanted && j.state == stRunning && b.unwanted(j),
		b.abandoned(j):
		return false
	}
	return q.ID == "" || strings.Contains(wire.Value(b.id(j)), q.ID)
}

// none tells that no job of the type can fit, for its state.
func (q *JobFilter) none(k *jobType) bool {
	if k == nil {
		return true
	}
	switch q.State {
	case "delayed":
		return k.Delayed == 0
	case "queued":
		return k.Queued == 0
	case "running":
		return k.Running == 0
	case "ended":
		return k.outcomes == 0
	}
	return k.Delayed+k.Queued+k.Running+uint64(k.outcomes) == 0
}

// eachJob calls fn for the jobs of one piece that fit, from a place on, until it
// returns false. It returns the place to go on from, or -1 at the end.
func (b *Broker) eachJob(from int, q *JobFilter, fn func(r uint32, j *job) bool) int {
	var k *jobType
	if q.Type != nil {
		if k = b.typesByName[string(q.Type)]; q.none(k) {
			return -1
		}
	}
	last := int(b.jobs.End())
	for n := 0; n < lookVisits && from < last; n++ {
		r := uint32(from)
		if from++; !b.jobs.Has(r) {
			from = int(b.jobs.Behind(r))
		} else if j := b.jobs.Get(r); q.fits(b, k, j) && !fn(r, j) {
			break
		}
	}
	return following(from, last)
}

// Jobs lists up to limit jobs that fit like Types lists types, in the order of
// their records. What fn is given must not be kept.
func (b *Broker) Jobs(now int64, from, limit int, q *JobFilter, fn func(*JobInfo)) (next int) {
	b.now = max(b.now, now)
	if limit <= 0 {
		return from
	}
	return b.eachJob(from, q, func(r uint32, j *job) bool {
		x := b.jobInfo(r, j)
		fn(&x)
		limit--
		return limit > 0
	})
}

// CountJobs counts the jobs that fit in one piece, from a place on like Jobs.
func (b *Broker) CountJobs(now int64, from int, q *JobFilter) (n, next int) {
	b.now = max(b.now, now)
	next = b.eachJob(from, q, func(uint32, *job) bool {
		n++
		return true
	})
	return n, next
}

// revokeJobs bounds the jobs that one RevokeJobs ends.
const revokeJobs = 256

// RevokeJobs is Revoke of the jobs that fit in one piece, from a place on like
// Jobs, and of up to most: waiting ones, with the state running running ones, no kept
// outcomes. It returns how many it cancelled.
func (b *Broker) RevokeJobs(now int64, from, most int, q *JobFilter) (fx []Effect, n, next int) {
	b.begin(now)
	if most = min(most, revokeJobs); most <= 0 {
		return b.end(), 0, from
	}
	next = b.eachJob(from, q, func(r uint32, j *job) bool {
		if j.state <= stSpilled || q.State == "running" && !b.unwanted(j) {
			b.revoke(r, j)
			n++
		}
		return n < most
	})
	return b.end(), n, next
}
