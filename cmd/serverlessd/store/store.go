// Package store keeps jobs, results and handlers where several daemons share
// them. Store is the one interface; memory, SQLite and MySQL make it, and one
// suite tries all three. It decides nothing about when what runs.
//
// Times are the store's own UTC clock, except where it is said otherwise.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gloom/cmd/internal/schedule"
	"gloom/cmd/internal/unique"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
)

// Errors of all stores. Whatever else is returned says that what is to be written is
// too large.
var (
	ErrAway    = errors.New("the store is away")     // cannot be reached, locked by others, too slow: try again
	ErrUnknown = errors.New("there is no such")      // job, handler, result
	ErrRunning = errors.New("the job is running")    // and cannot be deleted or run again now
	ErrDone    = errors.New("the job has ended")     // and cannot be deleted
	ErrNotDone = errors.New("the job has not ended") // and cannot be run again
	ErrTaken   = errors.New("the sysid is taken")
	ErrHeld    = errors.New("another job has taken the unique key since") // and the job cannot be run again
	// ErrFromFile: a schedule stands in a file, and is changed by nothing else.
	ErrFromFile  = errors.New("the schedule stands in the file that --schedules names, and is changed there")
	ErrSchedules = fmt.Errorf("the client has %d schedules, as many as are allowed", schedule.Most)
	// ErrUnwell is an ErrAway of a store that answers, and refuses for reasons of its
	// own: its schema, rights, settings, disk or files. Other calls may succeed.
	ErrUnwell = fmt.Errorf("%w: it answers, and refuses", ErrAway)
)

// Store is one store. Methods that take a context end with it; none of them
// repeats on its own for longer than a few seconds.
type Store interface {
	// Name is the store's address without secrets, for logs.
	Name() string
	Close() error

	// Ingest writes a piece of a journal in one transaction with its read point, of
	// which it returns how it stood before: of what had been written until there,
	// nothing is written again. host is the host's clock: dates of jobs are translated
	// by its distance to the store's. A *RefusedError names the jobs without which the
	// piece would have been written.
	Ingest(ctx context.Context, piece journal.Range, jobs []journal.Entry, host func() time.Time) (before int64, err error)

	// Share adds jobs that have unique keys, all of them or none, and tells what became of
	// each: the job that holds its key stays, or it takes its place. Of lines with the same
	// key and type the first one counts. A *RefusedError: one of them is too large.
	Share(ctx context.Context, lines []Keyed, ask unique.Ask, host func() time.Time) ([]Shared, error)

	// Reserve takes a sysid, or returns ErrTaken.
	Reserve(ctx context.Context, sysid string, ttl time.Duration) error
	// Renew prolongs a sysid and the locks of its runs; it returns the runs whose
	// locks are not the sysid's any more. A run whose lock expired but which nobody
	// has taken since is locked again, one whose end is written is not. ErrUnknown:
	// the sysid's own row is gone.
	Renew(ctx context.Context, sysid string, ttl time.Duration, runs []Run) (lost []Run, err error)
	// Leave forgets a sysid. What it still holds may have been begun: its locks are
	// expired from now on, and the next Sweep frees it.
	Leave(ctx context.Context, sysid string) error

	// Waiting are the types with jobs that are due, each with the age of the oldest,
	// the count up to 1,000, and when the next deferred job is due (0: none within
	// the hour). It looks at one job of each type.
	Waiting(ctx context.Context) (due []Due, next time.Duration, err error)
	// Take locks up to N due jobs of a type, oldest first, but none behind the one with
	// which their payloads have Bytes.
	Take(ctx context.Context, t Taking) ([]Taken, error)
	// End writes how runs ended, all in one transaction. The result tells of each
	// whether it counted: its lock was still the sysid's, or nobody had taken the job
	// since.
	End(ctx context.Context, sysid string, ends []Ending) (counted []bool, err error)

	// Sweep does a slice (at most Limit rows) of each kind of maintenance, and
	// tells what it did and whether there is more.
	Sweep(ctx context.Context, s Sweeping) (Swept, error)

	Job(ctx context.Context, id job.ID) (*Record, error)
	// Result is a job's data, ErrNotDone before its end.
	Result(ctx context.Context, id job.ID) (*Record, []byte, error)
	Delete(ctx context.Context, id job.ID) error
	// Retry has an ended job run again, as if it were new but for its id. ErrHeld: another
	// one has its unique key.
	Retry(ctx context.Context, id job.ID) error
	// Jobs lists jobs of a client, newest first.
	Jobs(ctx context.Context, q Query) ([]Record, error)
	// RetryAll is Retry for up to limit of the jobs that a query finds, but for those whose
	// unique key another one has taken.
	RetryAll(ctx context.Context, q Query) (affected int, more bool, err error)
	// Counts are the exact numbers of jobs by jobtype; of one client unless it is "".
	// Those of types of which there is nothing else are added up as CLIENT-*. Deferred
	// ones are among the waiting, until Divide has looked at them: one by one, which
	// takes its time.
	Counts(ctx context.Context, client string) (map[string]Counts, error)
	Divide(ctx context.Context, counts map[string]Counts) error

	// PutHandler adds a version, of which it keeps the newest ten, and sets its
	// Time; DeleteHandler removes all and tells how many.
	PutHandler(ctx context.Context, h *job.Handler) error
	DeleteHandler(ctx context.Context, jobtype string) (int, error)
	Handler(ctx context.Context, jobtype string) (*job.Handler, error)
	// Handlers are the ids of the newest version of each jobtype, and a number
	// that changes with each change of any; nil when it is still since.
	Handlers(ctx context.Context, since int64) (ids map[string]string, version int64, err error)

	// PutSchedule sets a schedule, and fromFile whether it stands in a file. ErrFromFile:
	// it does, and is to be changed by somebody else. ErrSchedules: there are too many.
	PutSchedule(ctx context.Context, key schedule.Key, spec schedule.Spec, fromFile bool) error
	// DropSchedule removes one that stands in a file, or not. ErrUnknown, ErrFromFile.
	DropSchedule(ctx context.Context, key schedule.Key, fromFile bool) error
	// Schedules are a client's, in the order of names from behind one, and the store's
	// time; Schedule is one or ErrUnknown; FileSchedules are all that stand in files.
	Schedules(ctx context.Context, client, after string, limit int) (list []Named, now time.Time, err error)
	Schedule(ctx context.Context, key schedule.Key) (n Named, now time.Time, err error)
	FileSchedules(ctx context.Context) ([]Named, error)
	// DueSchedules are schedules that are to be settled, some of them, and when the next
	// one is (zero: none is known).
	DueSchedules(ctx context.Context) (due []schedule.Key, now, next time.Time, err error)
	// SettleSchedules makes the jobs of what is due of these, in one transaction with
	// the note that they are made. What was due before watched was missed.
	SettleSchedules(ctx context.Context, keys []schedule.Key, watched time.Time) (Settled, error)
}

// Run is a job in hand.
type Run struct {
	ID    job.ID
	Tries int   // as it was taken
	Fence int64 // grows with each run, and whenever one is undone: no two of a job have the same
}

// Due is a type with jobs that wait.
type Due struct {
	Jobtype string
	Age     time.Duration // of the oldest: how long it has been due
	Count   int           // at most 1,000; deferred ones may be among them: a Take that brings fewer jobs, and fewer bytes, has brought all
}

// Taking asks for jobs.
type Taking struct {
	Sysid, Jobtype string
	N              int
	Bytes          int // 0: any number
	TTL            time.Duration
	RetryFor       time.Duration // after which a job is too old to be run again
}

// Taken is a job that was locked.
type Taken struct {
	Run
	Jobtype string
	Payload []byte
	Waited  time.Duration // since it was due
	Age     time.Duration // since its first run, 0 if this is it, or the store's clock may have been set
}

// Fate is what becomes of a run.
type Fate uint8

// The fates.
const (
	Archive  Fate = iota // the job has ended
	Again                // it waits for Delay
	GiveBack             // it was not begun: no try was used
)

// Ending is how a run ended.
type Ending struct {
	Run
	Fate      Fate
	Code      string
	Status    int
	Delay     time.Duration
	Data      []byte // of Archive: what is kept
	Truncated bool
	BadLines  int
	Follow    []Follow // of Archive: written in the same transaction, due at once
	Last      *Last    // of Archive and Again: to be kept, unless nil; its Try is that of Run
}

// Follow is a job that a run makes.
type Follow struct {
	ID      job.ID
	Jobtype string
	Payload []byte // without the newline
}

// MaxTTL is the longest that a lock may last. One that would last longer is of a clock
// that was ahead, and expired.
const MaxTTL = 24 * time.Hour

// Sweeping says how long what is kept.
type Sweeping struct {
	RetryFor, KeepDone, KeepUnrun time.Duration
	// TTL is that of locks, at most MaxTTL: none expire for so long after the store's
	// clock was set.
	// Nothing is abandoned, expired or purged for an hour after, or for as long as
	// what is must be old, if that is less.
	TTL     time.Duration
	Handled func(jobtype string) bool // has a handler; jobs without one end as no_handler after RetryFor
	// Next is the type that gets a follow-on job for each abandoned one, "" for none,
	// and NextID that job's id.
	Next     func(jobtype string) string
	NextID   func() job.ID
	Segments []string // of journals, that are no more: their read points are dropped
	Limit    int
}

// Swept is what a sweep did.
type Swept struct {
	Freed, Abandoned, Expired, Purged int
	Righted                           int // they waited for a clock that was ahead
	More                              bool
	// Imbalance is by how many jobs the counts are off: 0, or there is a fault. Each sweep
	// checks some types; Miscounted are those whose counts are wrong.
	Imbalance  int64
	Miscounted []string
	Ended      []Ended  // abandoned or expired
	Made       []Follow // jobs that follow them
}

// Ended is a job that a sweep ended.
type Ended struct {
	Run
	Jobtype, Code string
}

// Record is what there is to tell of a job.
type Record struct {
	ID           job.ID
	Jobtype      string
	State        job.State
	Due, Created time.Time
	Done         time.Time // zero: not yet
	Lock         string
	Tries        int
	Code         string // "": none
	Status       int    // 0: none
	Truncated    bool
	BadLines     int
	Last         *Last     // nil: no run has not succeeded, or a Query did not ask
	Runs         []PastRun // the last ones that have ended, the oldest first; none in lists
	first        time.Time // when its first run began
}

// Query finds jobs of a client.
type Query struct {
	Client, Type string    // Type bare, "": all
	State        job.State // "": all
	After        job.ID    // older than that
	Limit        int
	Last         bool // with the last runs
}

// Counts are the jobs of a type: Added is the sum of all others.
type Counts struct {
	Added, Waiting, Deferred, Running, OK, Failed, Abandoned, Expired, Deleted int64
	SetAside                                                                   int64         // of the journal: in no store
	Oldest                                                                     time.Duration // how long the oldest waiting one has been due
}

// Sum adds the counts of another store's jobs, or another type's.
func (c *Counts) Sum(d *Counts) {
	c.Added += d.Added
	c.SetAside += d.SetAside
	c.Waiting += d.Waiting
	c.Deferred += d.Deferred
	c.Running += d.Running
	c.OK += d.OK
	c.Failed += d.Failed
	c.Abandoned += d.Abandoned
	c.Expired += d.Expired
	c.Deleted += d.Deleted
	c.Oldest = max(c.Oldest, d.Oldest)
}
