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

// matches reports whether the filter selects job j. jt is the type that the filter asks for, nil
// for any.
func (f *JobFilter) matches(b *Broker, jt *jobType, j *job) bool {
	if j.state == stateFree || j.state == stateOverdue || j.flags&flagBorrowed != 0 || f.State != "" && j.state.String() != f.State {
		return false
	}
	h := b.holdingOf(j)
	switch {
	case jt != nil && h.jobType != jt,
		f.MinAge > 0 && b.Since(j.submittedAt) < f.MinAge,
		f.Group != nil && !h.queue.groupSet.has(f.Group),
		f.Submitter != 0 && (h.submitter == nil || h.submitter.id != f.Submitter),
		f.Worker != 0 && (j.state != stateRunning || b.workerOf(j).id != f.Worker),
		f.OnlyWanted && j.state == stateRunning && b.isUnwanted(j),
		b.isAbandoned(j):
		return false
	}
	return f.ID == "" || strings.Contains(wire.Value(b.id(j)), f.ID)
}

// matchesNone reports whether the type has no jobs in the state that the filter asks for.
func (f *JobFilter) matchesNone(jt *jobType) bool {
	if jt == nil {
		return true
	}
	switch f.State {
	case "delayed":
		return jt.Delayed == 0
	case "queued":
		return jt.Queued == 0
	case "running":
		return jt.Running == 0
	case "ended":
		return jt.outcomes == 0
	}
	return jt.Delayed+jt.Queued+jt.Running+uint64(jt.outcomes) == 0
}

// eachJob calls fn for the matching jobs among a piece of the records, beginning at number
// from, until fn returns false. It returns the number to continue from, or -1 at the end.
func (b *Broker) eachJob(from int, filter *JobFilter, fn func(rec uint32, j *job) bool) int {
	var jt *jobType
	if filter.Type != nil {
		if jt = b.typesByName[string(filter.Type)]; filter.matchesNone(jt) {
			return -1
		}
	}
	return b.jobs.Walk(from, lookVisits, func(rec uint32, j *job) bool { return !filter.matches(b, jt, j) || fn(rec, j) })
}

// Jobs calls fn for up to limit matching jobs, piece by piece like Types, ordered by record. fn
// must not keep its argument.
func (b *Broker) Jobs(now int64, from, limit int, filter *JobFilter, fn func(*JobInfo)) (next int) {
	b.now = max(b.now, now)
	if limit <= 0 {
		return from
	}
	return b.eachJob(from, filter, func(rec uint32, j *job) bool {
		info := b.jobInfo(rec, j)
		fn(&info)
		limit--
		return limit > 0
	})
}

// CountJobs counts the matching jobs of one piece. from and the returned number are as in Jobs.
func (b *Broker) CountJobs(now int64, from int, filter *JobFilter) (n, next int) {
	b.now = max(b.now, now)
	next = b.eachJob(from, filter, func(uint32, *job) bool {
		n++
		return true
	})
	return n, next
}

// maxRevokeJobs bounds the jobs that one RevokeJobs cancels.
const maxRevokeJobs = 256

// RevokeJobs revokes up to limit of the matching jobs of one piece, as Revoke does. from and the
// returned number are as in Jobs. It cancels waiting jobs or, if the filter's state is running,
// running jobs. It never forgets outcomes. It returns how many it cancelled.
func (b *Broker) RevokeJobs(now int64, from, limit int, filter *JobFilter) (effects []Effect, n, next int) {
	b.begin(now)
	if limit = min(limit, maxRevokeJobs); limit <= 0 {
		return b.end(), 0, from
	}
	next = b.eachJob(from, filter, func(rec uint32, j *job) bool {
		if j.state <= stateSpilled || filter.State == "running" && !b.isUnwanted(j) {
			b.revoke(rec, j)
			n++
		}
		return n < limit
	})
	return b.end(), n, next
}
