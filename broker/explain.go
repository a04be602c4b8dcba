package broker

import (
	"bytes"
	"time"
)

// TypeOf returns the type of the job with this id if submitter p may cancel or change the job.
// Otherwise it returns nil, and so reveals nothing about other submitters' jobs.
func (b *Broker) TypeOf(p Peer, id []byte) []byte {
	if sub := b.submitter(p); sub != nil {
		if h, rec, _ := b.findOwn(sub, id); rec != 0 {
			return h.jobType.name
		}
	}
	return nil
}

// JobInfo describes the state of a job.
type JobInfo struct {
	ID, Type []byte
	// State is delayed, queued, running or, for a kept outcome, ended.
	State string
	// IsUnwanted reports that the job runs, but nobody waits for it.
	IsUnwanted bool
	Priority   int64
	Attempts   int
	Retries    int
	Bytes      int
	Age        time.Duration
	// TimeInState is how long it has been in this state.
	TimeInState time.Duration
	// DueIn is the time until the job's timer fires, if the job has one: the end of a delay, the
	// timeout of a run or the deadline. ExpiresIn is the time until the job's deadline, if there is
	// one.
	DueIn      time.Duration
	ExpiresIn  time.Duration
	IsDetached bool
	KeepTime   time.Duration // how long its outcome is kept, 0 for not at all
	Submitter  Peer
	Worker     Peer
	Broker     string // the worker's name if the worker is another broker
	// Releases is how often workers gave the job back.
	Releases int
	// Groups are the groups of the job. HeldBy is the group that holds the job back, and HeldRule
	// is the pattern of the rule that does so.
	Groups           [][]byte
	HeldBy, HeldRule []byte
	// Hold says what a waiting job waits for. DelayLeft is the rest of the job's delay. Limits are
	// the limits of its type.
	Hold      Hold
	DelayLeft time.Duration
	Limits    TypeLimits
	// EndKind says how an ended job ended. Reason says why the job has no answer.
	EndKind EndKind
	Reason  Reason
}

// Hold is what a waiting job waits for.
type Hold uint8

const (
	HeldByDelay        Hold = iota + 1 // its delay or backoff
	HeldBeyondDeadline                 // its delay or backoff, but its deadline comes first
	HeldByPause
	HeldByRule // the rule HeldRule, in the group HeldBy
	HeldByConcurrency
	HeldByRate
	HeldForWorker     // no worker serves its type
	HeldByLeftWorkers // all workers that serve its type have left
	HeldByBusyWorkers // all workers of its type are busy
	HeldByAwayWorkers // no worker of its type has room, and none runs a job of its type
	// There are more workers of its type than running jobs of its type, and none has room.
	HeldByFewWorkers
)

// Explain returns the state of the job with this id, and false if there is no such job.
func (b *Broker) Explain(now int64, id []byte) (JobInfo, bool) {
	b.now = max(b.now, now)
	rec, j := b.findJob(id)
	if rec == 0 {
		return JobInfo{}, false
	}
	return b.jobInfo(rec, j), true
}

func (b *Broker) jobInfo(rec uint32, j *job) JobInfo {
	h := b.holdingOf(j)
	jt := h.jobType
	info := JobInfo{
		ID: append([]byte(nil), b.id(j)...), Type: jt.name, Priority: b.priority(j), Limits: jt.limits,
		Attempts: int(b.attempts(j)), Retries: int(j.retries), Bytes: len(b.body(rec, j)),
		Age: b.Since(j.submittedAt), TimeInState: b.Since(b.stateSince(j)), IsDetached: j.flags&flagDetached != 0,
	}
	info.Groups = h.queue.groupSet.names()
	if h.submitter != nil && !h.submitter.isLost {
		info.Submitter = h.submitter.id
	}
	if j.timing != 0 {
		t := b.timing(j)
		info.Releases = int(t.releases)
		info.KeepTime = time.Duration(t.keepTime)
		if t.pos >= 0 {
			info.DueIn = time.Duration(max(0, int64(b.timers.At(int(t.pos)).Major)-b.now))
		}
		if t.deadline != 0 && j.state != stateEnded {
			info.ExpiresIn = time.Duration(max(1, t.deadline-b.now))
		}
	}
	info.State = j.state.String()
	switch {
	case j.state == stateDelayed:
		t := b.timing(j)
		info.Hold, info.DelayLeft = HeldByDelay, time.Duration(t.delayUntil-b.now)
		if t.deadline != 0 && t.deadline <= t.delayUntil {
			info.Hold = HeldBeyondDeadline
		}
	case j.state == stateRunning:
		info.IsUnwanted = b.isUnwanted(j)
		w := b.workerOf(j)
		info.Worker, info.Broker = w.id, w.name
	case j.state == stateEnded:
		frame := b.loadOutcome(rec, j)
		info.EndKind, info.Reason = endKindOf(frame.code), frame.reason
	default:
		if g := h.queue.shutGroup(); g != nil {
			cause, _ := b.shutCause(g)
			info.HeldBy = g.name
			if cause != nil {
				info.HeldRule = cause.Pattern
			}
		}
		info.Hold = b.holdOf(jt, &info)
	}
	return info
}

// JobContent returns copies of the body and the headers (nil: none) of the job with this id.
// For a kept outcome it returns the answer, nil if there is none.
func (b *Broker) JobContent(id []byte) (body, headers []byte) {
	rec, j := b.findJob(id)
	if rec == 0 {
		return nil, nil
	}
	if j.state == stateEnded && b.timing(j).code != 0 {
		return nil, nil
	}
	body = b.body(rec, j)
	if j.flags&flagBig == 0 { // a big body needs no copy, since nobody writes to it
		body = bytes.Clone(body)
	}
	return body, bytes.Clone(b.headers(j))
}

func (b *Broker) holdOf(jt *jobType, info *JobInfo) Hold {
	switch {
	case jt.paused:
		return HeldByPause
	case info.HeldBy != nil:
		return HeldByRule
	case jt.limits.Concurrency > 0 && jt.runningHere() >= jt.limits.Concurrency:
		return HeldByConcurrency
	case jt.timerPos >= 0:
		return HeldByRate
	case jt.workers == jt.borrowers && jt.firstPair == 0:
		return HeldForWorker
	case !b.hasWorkers(jt):
		return HeldByLeftWorkers
	case jt.runningHere() == 0:
		return HeldByAwayWorkers
	case jt.runningHere() < int(jt.workers-jt.borrowers-jt.leavers):
		return HeldByFewWorkers
	}
	return HeldByBusyWorkers
}
