package findings

import (
	"iter"
	"time"

	"gloom/broker/admin/api"
)

// Broker is what was seen of a broker.
type Broker struct {
	Now      time.Time
	Draining bool
	// Imbalance is what the ledger of jobs is off by.
	Imbalance int64
	// Lag is the longest time that an event loop took to get to a task since the
	// last look.
	Lag time.Duration
	// What only grows: requests refused for a limit, wrong tokens, connections turned
	// away and not accepted.
	Refused, Unauthorized, TurnedAway, Unaccepted uint64
	// Fleet is the fleet that it is in, nil for none.
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

// Fleet is what was seen of other brokers.
type Fleet struct {
	// Away: NATS is, or refuses subjects, for the reason Why and Since then.
	Away  bool
	Why   string
	Since time.Time
	// Alone: another broker has this one's name.
	Alone bool
	// Up is how many others may be lent jobs.
	Up int
	// Lost are brokers that were there a while ago, Foreign those that speak another
	// version.
	Lost, Foreign []string
	// Had returns the names of those lost that had workers for a type.
	Had func(typ string) []string
}

// Limit is how much of a limit, named like its flag, is used.
type Limit struct {
	Name      string
	Used, Max int64
	// Bytes: it counts bytes.
	Bytes bool
	// Mild: at the limit nothing is refused.
	Mild bool
}

// Type is what was seen of a type, and what it usually takes.
type Type struct {
	Seen  *api.Type
	Rates *api.Rates
	// Stuck is for how long its oldest queued job has been the same, Overtaken whether
	// others were handed out meanwhile.
	Stuck     time.Duration
	Overtaken bool
	// UsualWait is what 19 of 20 of its jobs waited less than, 0 if few have been
	// handed out; MeanRun is how long a run takes, 0 if none has ended.
	UsualWait, MeanRun time.Duration
	// Held is how many of its queued jobs a rule of a group holds back.
	Held int
	// Bad is how many runs have failed since as many were answered, the last one at
	// BadAt; Good tells whether any was answered meanwhile, the last one at GoodAt.
	// ExpiredAt is when a deadline last passed.
	Bad                      uint64
	Good                     bool
	BadAt, GoodAt, ExpiredAt time.Time
	// Reason is why Same of the last Of jobs failed that did within FailingFor.
	Reason   string
	Same, Of int
	// LostAt workers were lost at work on the job Lost, as far as it is known.
	Lost   string
	LostAt int
	// held is the most jobs of it that were there of late.
	held crest
	// givenBack counts the jobs that workers gave back.
	givenBack grown
}

// Note notes what has become of a type since a while ago.
func (t *Type) Note(was, is *api.Type, now time.Time, passed time.Duration) {
	if is.Ledger.Submitted < was.Ledger.Submitted {
		*t = Type{} // it was forgotten meanwhile
	} else {
		t.count(was, is, now)
	}
	t.held.to(is.Queued+is.Delayed+is.Running, now)
	// The same job is the oldest if its age has grown like the time.
	t.Stuck = min(t.Stuck+passed, time.Duration(is.OldestSeconds*float64(time.Second)))
	t.Overtaken = t.Overtaken || is.Dispatched > was.Dispatched
	if was.OldestSeconds == 0 || is.OldestSeconds < was.OldestSeconds+0.9*passed.Seconds() {
		t.Stuck, t.Overtaken = 0, false
	}
}

// Fails tells whether its runs fail these days: the last one did, and somebody works on
// more of them, or it was but now.
func (t *Type) Fails(now time.Time) bool {
	last := lately
	if t.Seen.Workers > 0 && !t.GoodAt.After(t.BadAt) {
		last = FailingFor
	}
	return t.Bad > 0 && now.Sub(t.BadAt) <= last
}

func (t *Type) count(was, is *api.Type, now time.Time) {
	good := is.Ledger.Answered - was.Ledger.Answered
	bad := is.Ledger.Failed - was.Ledger.Failed
	// What was given back is no failure.
	bad += is.Requeued - was.Requeued - min(is.Releases-was.Releases, is.Requeued-was.Requeued)
	t.givenBack.last = was.Releases
	t.givenBack.to(is.Releases, now, false)
	if bad > 0 {
		t.BadAt = now
	}
	if good > 0 {
		t.GoodAt = now
	}
	if t.Bad+bad <= good {
		t.Bad, t.Good = 0, false
	} else {
		t.Bad, t.Good = t.Bad+bad-good, t.Good || good > 0
	}
	if is.Ledger.Expired > was.Ledger.Expired {
		t.ExpiredAt = now
	}
}

// Client is a connection that was looked at because of what it holds.
type Client struct {
	Name    string // as it calls itself, or its address
	Number  uint64
	Address string
	Worker  bool
	// Overdue runs are on it.
	Overdue int
	// Unread is what it has not read of what it was sent, in bytes; Stuck for how
	// long it has read nothing.
	Unread int
	Stuck  time.Duration
	// Jobs and Bytes are what it holds as a submitter.
	Jobs, Bytes int64
}

// past is what was counted up to the last look, and when it last grew.
type past struct {
	seen                                          bool
	refused, unauthorized, turnedAway, unaccepted grown
	lag                                           time.Duration
	lateAt                                        time.Time
}

// grown is a count that only grows.
type grown struct {
	last, by uint64
	at       time.Time
}

// to notes the count, and tells whether it grew lately.
func (g *grown) to(n uint64, now time.Time, first bool) bool {
	switch {
	case first:
		g.last = n
	case n > g.last:
		if now.Sub(g.at) > lately {
			g.by = 0
		}
		g.by, g.last, g.at = g.by+n-g.last, n, now
	}
	return g.lately(now)
}

func (g *grown) lately(now time.Time) bool { return !g.at.IsZero() && now.Sub(g.at) <= lately }

// crest is the most of a number that goes up and down, in this piece of time and in the
// one before it.
type crest struct {
	now, before uint64
	known       bool // the one before was watched
	from        time.Time
}

// growing is how long a piece of time is, in which a queue that grows must pass its
// crest. As many jobs as one lets wait all the while, each after the last one's answer,
// pass none.
const growing = 5 * time.Second

func (c *crest) to(n uint64, now time.Time) {
	if now.Sub(c.from) >= growing {
		*c = crest{before: c.now, known: !c.from.IsZero(), from: now}
	}
	c.now = max(c.now, n)
}

// grows tells whether it has passed the crest of the time before.
func (c *crest) grows() bool { return c.known && c.now > c.before }
