package findings

import (
	"iter"
	"time"

	"gloom/broker/admin/api"
)

// Broker holds the figures of a broker.
type Broker struct {
	Now      time.Time
	Draining bool
	// Imbalance is the difference between the two sides of the ledger of jobs. It is 0 unless the
	// broker has a bug.
	Imbalance int64
	// Lag is the longest delay of a task on an event loop since the last snapshot.
	Lag time.Duration
	// The following fields count requests refused because of a limit, wrong tokens, connections turned
	// away, and connections that failed.
	Refused, Unauthorized, RefusedConns, AcceptErrors uint64
	// Certificate is a warning about the TLS certificate, "" for none; CertificateInvalid reports
	// that it is not valid now.
	Certificate        string
	CertificateInvalid bool
	// Fleet is the state of its fleet, nil for none.
	Fleet *Fleet
	// Limits are those of the whole broker.
	Limits  []Limit
	Types   iter.Seq[*Type]
	Groups  []api.Group // that hold jobs back
	Clients []Client
	// MaxTypeJobs, MaxTypeBytes and DeadLetters are limits of each type.
	MaxTypeJobs, MaxTypeBytes, DeadLetters int64
	// MaxSubmitterJobs and MaxSubmitterBytes are limits of each submitter.
	MaxSubmitterJobs, MaxSubmitterBytes int64
}

// Fleet is the state of the other brokers.
type Fleet struct {
	// Away reports that NATS is unreachable or refuses subjects, for the reason Why and since
	// Since.
	Away  bool
	Why   string
	Since time.Time
	// NameTaken reports that another broker has this broker's name.
	NameTaken bool
	// BrokersUp is the number of other brokers to which jobs may be lent.
	BrokersUp int
	// LostBrokers are brokers that were lost recently, OtherVersions those of another version.
	LostBrokers, OtherVersions []string
	// LostServing returns the names of the LostBrokers that had workers for a type.
	LostServing func(typ string) []string
}

// Limit is the use of a limit, named like its flag.
type Limit struct {
	Name      string
	Used, Max int64
	// IsBytes reports that the limit is on bytes.
	IsBytes bool
	// RefusesNothing is set for limits on dead letters: at such a limit the oldest dead letter gives
	// way to a new one.
	RefusesNothing bool
}

// Type holds the current and the usual figures of a type.
type Type struct {
	Figures *api.Type
	Rates   *api.Rates
	// StuckFor is how long the same job has been the type's oldest queued job. WasOvertaken reports
	// whether other jobs of the type have been dispatched in that time.
	StuckFor     time.Duration
	WasOvertaken bool
	// UsualWait is the 95th percentile of its jobs' waits, 0 if few jobs were dispatched.
	// MeanRun is the mean duration of a run, 0 if none has ended.
	UsualWait, MeanRun time.Duration
	// HeldJobs is how many of its queued jobs a rule of a group holds back.
	HeldJobs int
	// ExcessFailures counts the failed runs in excess of answered runs; the last run failed at
	// FailedAt. AnsweredSince reports whether any run has been answered since, the last one at
	// AnsweredAt. ExpiredAt is when a deadline last passed.
	ExcessFailures                  uint64
	AnsweredSince                   bool
	FailedAt, AnsweredAt, ExpiredAt time.Time
	// RecentFailures counts those of the last failed jobs that failed within FailingFor. SameReason
	// counts those of them that failed for the same Reason.
	Reason                     string
	SameReason, RecentFailures int
	// LostWorkers counts the workers that are known to have been lost while they ran the job
	// LostJob.
	LostJob     string
	LostWorkers int
	// peakJobs is the recent peak of its jobs.
	peakJobs peak
	// releases counts its released jobs.
	releases growth
}

// Update adds the counters of a type. elapsed is the time since the previous counters were taken, by
// the broker's clock, which also measures ages.
func (t *Type) Update(before, after *api.Type, now time.Time, elapsed time.Duration) {
	if after.Ledger.Submitted < before.Ledger.Submitted {
		*t = Type{} // the type has been forgotten in between
	} else {
		t.countRuns(before, after, now)
	}
	t.peakJobs.update(after.Queued+after.Delayed+after.Running, now)
	// The oldest job is still the same if its age has grown as much as the clock has advanced.
	t.StuckFor = min(t.StuckFor+elapsed, time.Duration(after.OldestSeconds*float64(time.Second)))
	t.WasOvertaken = t.WasOvertaken || after.Dispatched > before.Dispatched
	if before.OldestSeconds == 0 || after.OldestSeconds < before.OldestSeconds+0.9*elapsed.Seconds() {
		t.StuckFor, t.WasOvertaken = 0, false
	}
}

// IsFailing reports whether its runs are failing: the last failure is recent or, while workers serve
// the type and no run has been answered since, less than FailingFor ago.
func (t *Type) IsFailing(now time.Time) bool {
	failureTime := recentTime
	if t.Figures.Workers > 0 && !t.AnsweredAt.After(t.FailedAt) {
		failureTime = FailingFor
	}
	return t.ExcessFailures > 0 && now.Sub(t.FailedAt) <= failureTime
}

func (t *Type) countRuns(before, after *api.Type, now time.Time) {
	newAnswers := after.Ledger.Answered - before.Ledger.Answered
	newFailures := after.Ledger.Failed - before.Ledger.Failed
	// A released job is not a failure.
	newFailures += after.Requeued - before.Requeued - min(after.Releases-before.Releases, after.Requeued-before.Requeued)
	t.releases.lastValue = before.Releases
	t.releases.update(after.Releases, now, false)
	if newFailures > 0 {
		t.FailedAt = now
	}
	if newAnswers > 0 {
		t.AnsweredAt = now
	}
	if t.ExcessFailures+newFailures <= newAnswers {
		t.ExcessFailures, t.AnsweredSince = 0, false
	} else {
		t.ExcessFailures, t.AnsweredSince = t.ExcessFailures+newFailures-newAnswers, t.AnsweredSince || newAnswers > 0
	}
	if after.Ledger.Expired > before.Ledger.Expired {
		t.ExpiredAt = now
	}
}

// Client holds the figures of a connection that may have a problem.
type Client struct {
	Name     string // the name that the client gives itself, or its address
	Number   uint64
	Address  string
	IsWorker bool
	// Overdue counts the client's overdue runs.
	Overdue int
	// Unread counts the bytes that the client was sent and has not read. UnreadFor is how long the
	// client has read nothing.
	Unread    int
	UnreadFor time.Duration
	// Jobs and Bytes count the jobs that the client holds as a submitter, and their bytes.
	Jobs, Bytes int64
}

// lastCounters holds the broker's counters at the last snapshot, and the last lag that was too long.
type lastCounters struct {
	started                                           bool
	refused, unauthorized, refusedConns, acceptErrors growth
	lag                                               time.Duration
	lateAt                                            time.Time
}

// growth holds a counter's value, its recent growth, and the time when it last grew.
type growth struct {
	lastValue, increase uint64
	grewAt              time.Time
}

// update sets the counter to n, and reports whether it grew lately.
func (g *growth) update(n uint64, now time.Time, first bool) bool {
	switch {
	case first:
		g.lastValue = n
	case n > g.lastValue:
		if now.Sub(g.grewAt) > recentTime {
			g.increase = 0
		}
		g.increase, g.lastValue, g.grewAt = g.increase+n-g.lastValue, n, now
	}
	return g.isRecent(now)
}

func (g *growth) isRecent(now time.Time) bool {
	return !g.grewAt.IsZero() && now.Sub(g.grewAt) <= recentTime
}

// peak is the peak of a number in the current period and in the previous period.
type peak struct {
	current, previous uint64
	hasPrevious       bool // previous is known
	since             time.Time
}

// growthPeriod is the length of the periods of a peak. A queue counts as growing only if it exceeds
// the peak of the previous period. A queue of constant length, whose jobs are each submitted after
// an answer, does not.
const growthPeriod = 5 * time.Second

func (c *peak) update(n uint64, now time.Time) {
	if now.Sub(c.since) >= growthPeriod {
		*c = peak{previous: c.current, hasPrevious: !c.since.IsZero(), since: now}
	}
	c.current = max(c.current, n)
}

// isGrowing reports whether the number exceeds the peak of the previous period.
func (c *peak) isGrowing() bool { return c.hasPrevious && c.current > c.previous }
