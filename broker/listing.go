package broker

import (
	"strings"
	"time"

	"gloom/wire"
)

// Jobs are listed, counted and cancelled in the order of their records. A job keeps its record
// from its submit to its end, so a job that matches throughout is met exactly once, whatever
// happens between two pieces.

// JobFilter selects jobs. A field that is not set matches every job.
type JobFilter struct {
	// Type and Group are canonical names. ID is a substring of an id's value.
	Type, Group []byte
	ID          string
	State       string        // one of JobStates
	MinAge      time.Duration // the minimum time since the submission
	// Submitter is the connection that the job belongs to, Worker the one that it runs on.
	Submitter, Worker Peer
	// OnlyWanted leaves out running jobs that nobody waits for.
	OnlyWanted bool
}

// JobStates are the values of JobFilter.State.
var JobStates = []string{"delayed", "queued", "running", "ended"}

// matches reports whether the filter selects job j. k is the type that the filter asks for, nil
// for any.
func (q *JobFilter) matches(b *Broker, k *jobType, j *job) bool {
	if j.state == stateFree || j.state == stateOverdue || j.flags&flagBorrowed != 0 || q.State != "" && j.state.String() != q.State {
		return false
	}
	h := b.holdingOf(j)
	switch {
	case k != nil && h.jobType != k,
		q.MinAge > 0 && b.Since(j.submittedAt) < q.MinAge,
		q.Group != nil && !h.queue.groupSet.has(q.Group),
		q.Submitter != 0 && (h.submitter == nil || h.submitter.id != q.Submitter),
		q.Worker != 0 && (j.state != stateRunning || b.workerOf(j).id != q.Worker),
		q.OnlyWanted && j.state == stateRunning && b.isUnwanted(j),
		b.isAbandoned(j):
		return false
	}
	return q.ID == "" || strings.Contains(wire.Value(b.id(j)), q.ID)
}

// matchesNone reports whether the type has no jobs in the state that the filter asks for.
func (q *JobFilter) matchesNone(k *jobType) bool {
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

// eachJob calls fn for the matching jobs among a piece of the records, beginning at number
// from, until fn returns false. It returns the number to continue from, or -1 at the end.
func (b *Broker) eachJob(from int, q *JobFilter, fn func(r uint32, j *job) bool) int {
	var k *jobType
	if q.Type != nil {
		if k = b.typesByName[string(q.Type)]; q.matchesNone(k) {
			return -1
		}
	}
	return b.jobs.Walk(from, lookVisits, func(r uint32, j *job) bool { return !q.matches(b, k, j) || fn(r, j) })
}

// Jobs calls fn for up to limit matching jobs, piece by piece like Types, in the order of
// their records. fn must not keep its argument.
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

// CountJobs counts the matching jobs of one piece. from and the returned number are as in Jobs.
func (b *Broker) CountJobs(now int64, from int, q *JobFilter) (n, next int) {
	b.now = max(b.now, now)
	next = b.eachJob(from, q, func(uint32, *job) bool {
		n++
		return true
	})
	return n, next
}

// maxRevokeJobs bounds the jobs that one RevokeJobs cancels.
const maxRevokeJobs = 256

// RevokeJobs is Revoke for the matching jobs of one piece, at most limit of them. from and the
// returned number are as in Jobs. It cancels waiting jobs or, if the filter's state is running,
// running jobs. It never forgets outcomes. It returns how many it cancelled.
func (b *Broker) RevokeJobs(now int64, from, limit int, q *JobFilter) (fx []Effect, n, next int) {
	b.begin(now)
	if limit = min(limit, maxRevokeJobs); limit <= 0 {
		return b.end(), 0, from
	}
	next = b.eachJob(from, q, func(r uint32, j *job) bool {
		if j.state <= stateSpilled || q.State == "running" && !b.isUnwanted(j) {
			b.revoke(r, j)
			n++
		}
		return n < limit
	})
	return b.end(), n, next
}
