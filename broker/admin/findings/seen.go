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
	// Imbalance is how far the ledger of jobs is from balancing: 0, unless the broker has a bug.
	Imbalance int64
	// Lag is the longest delay of a task on an event loop since the last snapshot.
	Lag time.Duration
	// These are counters: requests refused because of a limit, wrong tokens, connections turned
	// away, and connections that failed.
	Refused, Unauthorized, TurnedAway, Unaccepted uint64
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
	// Away: NATS is unreachable or refuses subjects, for the reason Why, since Since.
	Away  bool
	Why   string
	Since time.Time
	// Alone: another broker has this broker's name.
	Alone bool
	// Up is the number of other brokers to which jobs may be lent.
	Up int
	// Lost are brokers that were lost recently, and Foreign are brokers of another version.
	Lost, Foreign []string
	// Had returns the names of the Lost brokers that had workers for a type.
	Had func(typ string) []string
}

// Limit is the use of a limit, named like its flag.
type Limit struct {
	Name      string
	Used, Max int64
	// Bytes: it is a limit on bytes.
	Bytes bool
	// Mild: nothing is refused at the limit.
	Mild bool
}

// Type holds the current and the usual figures of a type.
type Type struct {
	Seen  *api.Type
	Rates *api.Rates
	// Stuck is for how long the same job has been its oldest queued job. Overtaken reports
	// whether other jobs of the type have been dispatched since.
	Stuck     time.Duration
	Overtaken bool
	// UsualWait is the 95th percentile of its jobs' waits, 0 if few jobs were dispatched.
	// MeanRun is the mean duration of a run, 0 if none has ended.
	UsualWait, MeanRun time.Duration
	// Held is how many of its queued jobs a rule of a group holds back.
	Held int
	// Bad counts the failed runs in excess of answered ones, the last failure at BadAt.
	// Good reports whether any run has been answered since, the last one at GoodAt.
	// ExpiredAt is when a deadline last passed.
	Bad                      uint64
	Good                     bool
	BadAt, GoodAt, ExpiredAt time.Time
	// Of is how many of the last failed jobs failed within FailingFor, and Same how many of
	// these failed for the same Reason.
	Reason   string
	Same, Of int
	// LostAt is how many workers were lost while they ran the job Lost, as far as
	// known.
	Lost   string
	LostAt int
	// held is the recent peak of its jobs.
	held peak
	// givenBack counts its released jobs.
	givenBack growth
}

// Note adds the counters of a type. passed is how much the broker's clock, which measures ages,
// has advanced since the last ones were taken.
func (t *Type) Note(before, after *api.Type, now time.Time, passed time.Duration) {
	if after.Ledger.Submitted < before.Ledger.Submitted {
		*t = Type{} // the type has been forgotten in between
	} else {
		t.count(before, after, now)
	}
	t.held.set(after.Queued+after.Delayed+after.Running, now)
	// The oldest job is the same one if its age has grown by the time that has passed.
	t.Stuck = min(t.Stuck+passed, time.Duration(after.OldestSeconds*float64(time.Second)))
	t.Overtaken = t.Overtaken || after.Dispatched > before.Dispatched
	if before.OldestSeconds == 0 || after.OldestSeconds < before.OldestSeconds+0.9*passed.Seconds() {
		t.Stuck, t.Overtaken = 0, false
	}
}

// Fails reports whether its runs are failing: the last failure is recent or, while workers serve
// the type and no run has been answered since, less than FailingFor ago.
func (t *Type) Fails(now time.Time) bool {
	last := lately
	if t.Seen.Workers > 0 && !t.GoodAt.After(t.BadAt) {
		last = FailingFor
	}
	return t.Bad > 0 && now.Sub(t.BadAt) <= last
}

func (t *Type) count(before, after *api.Type, now time.Time) {
	answered := after.Ledger.Answered - before.Ledger.Answered
	failed := after.Ledger.Failed - before.Ledger.Failed
	// A released job is not a failure.
	failed += after.Requeued - before.Requeued - min(after.Releases-before.Releases, after.Requeued-before.Requeued)
	t.givenBack.last = before.Releases
	t.givenBack.set(after.Releases, now, false)
	if failed > 0 {
		t.BadAt = now
	}
	if answered > 0 {
		t.GoodAt = now
	}
	if t.Bad+failed <= answered {
		t.Bad, t.Good = 0, false
	} else {
		t.Bad, t.Good = t.Bad+failed-answered, t.Good || answered > 0
	}
	if after.Ledger.Expired > before.Ledger.Expired {
		t.ExpiredAt = now
	}
}

// Client holds the figures of a connection that may have a problem.
type Client struct {
	Name    string // the name that the client gives itself, or its address
	Number  uint64
	Address string
	Worker  bool
	// Overdue is how many overdue runs it has.
	Overdue int
	// Unread is how many bytes sent to the client it has not read; Stuck is how long it has
	// read nothing.
	Unread int
	Stuck  time.Duration
	// Jobs and Bytes are what it holds as a submitter.
	Jobs, Bytes int64
}

// history holds the broker's counters at the last snapshot, and the last lag that was too long.
type history struct {
	seen                                          bool
	refused, unauthorized, turnedAway, unaccepted growth
	lag                                           time.Duration
	lateAt                                        time.Time
}

// growth is a counter's value, how much it grew lately, and when it last grew.
type growth struct {
	last, amount uint64
	at           time.Time
}

// set sets the counter to n, and reports whether it grew lately.
func (g *growth) set(n uint64, now time.Time, first bool) bool {
	switch {
	case first:
		g.last = n
	case n > g.last:
		if now.Sub(g.at) > lately {
			g.amount = 0
		}
		g.amount, g.last, g.at = g.amount+n-g.last, n, now
	}
	return g.lately(now)
}

func (g *growth) lately(now time.Time) bool { return !g.at.IsZero() && now.Sub(g.at) <= lately }

// peak is the peak of a number in the current period and in the previous one.
type peak struct {
	now, before uint64
	known       bool // before is known
	from        time.Time
}

// growthPeriod is the length of the periods of a peak. A queue counts as growing only if it exceeds
// the peak of the previous period. A queue of constant length, whose jobs are each submitted after
// an answer, does not.
const growthPeriod = 5 * time.Second

func (c *peak) set(n uint64, now time.Time) {
	if now.Sub(c.from) >= growthPeriod {
		*c = peak{before: c.now, known: !c.from.IsZero(), from: now}
	}
	c.now = max(c.now, n)
}

// grows reports whether the number exceeds the peak of the previous period.
func (c *peak) grows() bool { return c.known && c.now > c.before }
