// Package store keeps jobs, results and handlers, which several daemons may share. Store is the
// interface; memory, SQLite and MySQL implement it, and one suite tests all three. The package
// does not decide when jobs run.
//
// Times are those of the store's own clock, in UTC, unless a comment says otherwise.
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

// Errors of all stores. Any other error says that the data is too large.
var (
	ErrAway    = errors.New("the store is away") // cannot be reached, locked by others, too slow: try again
	ErrUnknown = errors.New("there is no such job, handler or schedule")
	ErrRunning = errors.New("the job is running")    // and cannot be deleted or run again now
	ErrDone    = errors.New("the job has ended")     // and cannot be deleted
	ErrNotDone = errors.New("the job has not ended") // and cannot be run again
	ErrTaken   = errors.New("the sysid is taken")
	ErrHeld    = errors.New("another job has taken the unique key meanwhile") // and the job cannot be run again
	// ErrFromFile: a schedule is in the file of schedules, and can only be changed there.
	ErrFromFile  = errors.New("the schedule is in the file that --schedules names, and can only be changed there")
	ErrSchedules = fmt.Errorf("the client has %d schedules, and no more are allowed", schedule.Most)
	// ErrUnwell is an ErrAway of a store that answers but refuses, because of its schema, rights,
	// settings, disk or files. Other calls may succeed.
	ErrUnwell = fmt.Errorf("%w: it answers, but refuses", ErrAway)
)

// Store is a store. A method ends when its context does, and repeats an attempt for a few seconds
// at most.
type Store interface {
	// Name returns the store's address without secrets, for logs.
	Name() string
	Close() error

	// Ingest writes a piece of a journal, together with its read point, in one transaction. It
	// returns the read point as it was before: lines up to there were written earlier and are left
	// out. host reads the host's clock, to translate dates to the store's clock. A *RefusedError
	// names the jobs that the store does not take.
	Ingest(ctx context.Context, piece journal.Range, jobs []journal.Entry, host func() time.Time) (before int64, err error)

	// Share adds jobs with unique keys, all of them or none, and returns what happened to each. Of
	// lines with the same key and type the first one counts. It returns a *RefusedError if one of
	// them is too large.
	Share(ctx context.Context, lines []Keyed, ask unique.Ask, host func() time.Time) ([]Shared, error)

	// Reserve takes a sysid, or returns ErrTaken.
	Reserve(ctx context.Context, sysid string, ttl time.Duration) error
	// Renew prolongs a sysid and the locks of its runs. It returns the runs whose locks the sysid
	// does not have any more. A run whose lock has expired, but whose job has not been taken since,
	// is locked again; one whose end is written is not. It returns ErrUnknown if the store has no
	// row of the sysid.
	Renew(ctx context.Context, sysid string, ttl time.Duration, runs []Run) (lost []Run, err error)
	// Leave forgets a sysid. Its jobs may have been begun: their locks expire now, and the next
	// Sweep frees them.
	Leave(ctx context.Context, sysid string) error

	// Waiting returns the types with due jobs, each with the age of the oldest and a count up to
	// 1,000, and when the next deferred job is due (0: none within the hour). It reads one job of
	// each type.
	Waiting(ctx context.Context) (due []Due, next time.Duration, err error)
	// Take locks up to N due jobs of a type, the oldest first. It stops after the job with which
	// their payloads reach Bytes.
	Take(ctx context.Context, t Taking) ([]Taken, error)
	// End writes how runs ended, all in one transaction. counted reports for each run whether its
	// end counted: the sysid had its lock, or the job had not been taken since.
	End(ctx context.Context, sysid string, ends []Ending) (counted []bool, err error)

	// Sweep does a slice of each kind of maintenance, at most Limit rows, and returns what it
	// did and whether there is more.
	Sweep(ctx context.Context, s Sweeping) (Swept, error)

	Job(ctx context.Context, id job.ID) (*Record, error)
	// Result returns a job's data, or ErrNotDone before its end. Payload returns its payload, nil
	// if the store has lost it.
	Result(ctx context.Context, id job.ID) (*Record, []byte, error)
	Payload(ctx context.Context, id job.ID) (*Record, []byte, error)
	Delete(ctx context.Context, id job.ID) error
	// Retry makes an ended job run again, as if it were new, except for its id. It returns ErrHeld
	// if another job has its unique key.
	Retry(ctx context.Context, id job.ID) error
	// Jobs lists jobs, newest first, and returns the id after which the next call continues, "" at
	// the end. It examines at most 50,000 jobs, so that its time is bounded: a list may be short,
	// or empty, before the end.
	Jobs(ctx context.Context, q Query) (list []Record, next job.ID, err error)
	// Hasten makes a job that waits due now: one that was delayed, or whose last run did not
	// succeed. It has as many tries as before. ErrRunning, ErrDone.
	Hasten(ctx context.Context, id job.ID) error
	// RetryAll is Retry for up to limit jobs of a query, without those whose unique key another
	// job has taken.
	RetryAll(ctx context.Context, q Query) (affected int, more bool, err error)
	// Counts returns the exact numbers of jobs by jobtype, of one client unless client is "". The
	// counts of types without jobs and handlers are added up as CLIENT-*. Deferred jobs are counted
	// as waiting until Divide, which reads them one by one, has divided them.
	Counts(ctx context.Context, client string) (map[string]Counts, error)
	Divide(ctx context.Context, counts map[string]Counts) error

	// PutHandler adds a version and sets its Time; the newest ten are kept. DeleteHandler removes
	// all versions and returns how many there were.
	PutHandler(ctx context.Context, h *job.Handler) error
	DeleteHandler(ctx context.Context, jobtype string) (int, error)
	// Handler returns a version, or the newest one if id is "". Versions returns those that are
	// kept, newest first.
	Handler(ctx context.Context, jobtype, id string) (*job.Handler, error)
	Versions(ctx context.Context, jobtype string) ([]Version, error)
	// Handlers returns the ids of the newest version of each jobtype, and a number that grows with
	// each change. ids is nil if that number is still since.
	Handlers(ctx context.Context, since int64) (ids map[string]string, version int64, err error)

	// PutSchedule sets a schedule; fromFile says whether it is in the file of schedules. It returns
	// ErrFromFile if a schedule of the file would be set without fromFile, or ErrSchedules.
	PutSchedule(ctx context.Context, key schedule.Key, spec schedule.Spec, fromFile bool) error
	// DropSchedule removes a schedule: one of the file if fromFile is set, otherwise one that is
	// not in the file. It returns ErrUnknown or ErrFromFile if it cannot.
	DropSchedule(ctx context.Context, key schedule.Key, fromFile bool) error
	// Schedules returns a client's schedules after a key, in the order of names, and the store's
	// time; those of all clients if client is "". Schedule returns one, or ErrUnknown.
	// FileSchedules returns all that are in files.
	Schedules(ctx context.Context, client string, after schedule.Key, limit int) (list []Named, now time.Time, err error)
	Schedule(ctx context.Context, key schedule.Key) (n Named, now time.Time, err error)
	FileSchedules(ctx context.Context) ([]Named, error)
	// DueSchedules returns some of the schedules that must be settled, and when the next one
	// must be (zero: none is known).
	DueSchedules(ctx context.Context) (due []schedule.Key, now, next time.Time, err error)
	// SettleSchedules makes the due jobs of these schedules, in one transaction with the note that
	// they are made. A time that was due before watched counts as missed.
	SettleSchedules(ctx context.Context, keys []schedule.Key, watched time.Time) (Settled, error)
}

// Run is a job that a daemon has taken.
type Run struct {
	ID    job.ID
	Tries int   // including this run
	Fence int64 // grows with each run and whenever a run is undone, so no two runs of a job have the same
}

// Due is a type with jobs that wait.
type Due struct {
	Jobtype string
	Age     time.Duration // how long the oldest has been due
	Count   int           // at most 1,000, deferred ones included: a Take that returns fewer jobs, and fewer bytes, has taken all
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
	// NoPayload: the payload is gone, because the store has lost it.
	NoPayload bool
	Waited    time.Duration // since it was due
	Age       time.Duration // since its first run, 0 if this is it, or the store's clock may have been set
}

// Fate is what happens after a run.
type Fate uint8

// The fates.
const (
	Archive  Fate = iota // the job has ended
	Again                // it waits for Delay
	GiveBack             // it was not begun, and no try is counted
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
	Last      *Last    // of Archive and Again: kept unless nil; its Try is that of Run
}

// Follow is a job that a run makes.
type Follow struct {
	ID      job.ID
	Jobtype string
	Payload []byte // without the newline
}

// MaxTTL is the longest time that a lock may last. A lock that would last longer was written while
// a clock was ahead, and counts as expired.
const MaxTTL = 24 * time.Hour

// Sweeping says how long jobs are kept.
type Sweeping struct {
	RetryFor, KeepDone, KeepUnrun time.Duration
	// TTL is the ttl of locks, at most MaxTTL. After the store's clock was set, no lock expires for
	// TTL, and nothing is abandoned, expired or purged for an hour, or for its age limit if that is
	// shorter.
	TTL     time.Duration
	Handled func(jobtype string) bool // jobs without a handler end as no_handler after RetryFor
	// Next is the type that gets a follow-on job for each abandoned one, "" for none. NextID makes
	// that job's id.
	Next     func(jobtype string) string
	NextID   func() job.ID
	Segments []string // segments of journals that were removed: their read points are dropped
	Limit    int
}

// Swept is what a sweep did.
type Swept struct {
	Freed, Abandoned, Expired, Purged int
	Righted                           int // they waited for a clock that was ahead
	// Ahead is by how much the time of schedules is ahead of the store's, which nobody sets.
	Ahead time.Duration
	More  bool
	// Imbalance is the error of the counts, in jobs; anything but 0 is a fault. Each sweep checks
	// some types; Miscounted are the types whose counts are wrong.
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

// Record is a job in the store.
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
	Bytes        int64 // of its payload, and DataBytes of what is kept of its data; 0 in lists
	DataBytes    int64
	Last         *Last     // nil: all runs have succeeded, or a Query did not ask
	Runs         []PastRun // the last ones that have ended, the oldest first; none in lists
	first        time.Time // when its first run began
}

// Query finds jobs of a client, or of all.
type Query struct {
	Client, Type string    // Type bare; "": all
	State        job.State // "": all
	After        job.ID    // only older jobs; "": all
	Limit        int
	Last         bool // with the last runs
}

// Counts are the jobs of a type: Added is the sum of all others.
type Counts struct {
	Added, Waiting, Deferred, Running, OK, Failed, Abandoned, Expired, Deleted int64
	SetAside                                                                   int64         // set aside in the journal, and in no store
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
