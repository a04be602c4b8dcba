// Package store keeps jobs, results, handlers and schedules. Several daemons may share a store.
// SQLite, in a file or in memory, and MySQL implement the interface Store, and one suite tests all
// of them. The package does not decide when jobs run.
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

// All stores return these errors. Any other error means that the data is too large.
var (
	ErrAway    = errors.New("the store is away") // the store cannot be reached, others lock it, or it is too slow: try again
	ErrUnknown = errors.New("there is no such job, handler or schedule")
	ErrRunning = errors.New("the job is running")    // the job cannot be deleted or run again now
	ErrDone    = errors.New("the job has ended")     // the job cannot be deleted
	ErrNotDone = errors.New("the job has not ended") // the job cannot be run again
	ErrTaken   = errors.New("the sysid is taken")
	ErrHeld    = errors.New("another job has taken the unique key meanwhile") // the job cannot be run again
	// ErrFromFile means that a schedule is in the file of schedules, and can only be changed there.
	ErrFromFile  = schedule.ErrFromFile
	ErrSchedules = fmt.Errorf("the client has %d schedules, and no more are allowed", schedule.MaxSchedules)
	// ErrUnwell is an ErrAway of a store that answers but refuses, because of its schema, rights,
	// settings, disk or files. Other calls may succeed.
	ErrUnwell = fmt.Errorf("%w: it answers, but refuses", ErrAway)
	// ErrBusy is an ErrAway that says nothing about the store itself.
	ErrBusy error = busyError{}
	// ErrDamaged is an ErrUnwell of a store whose file is damaged: only a backup helps.
	ErrDamaged = fmt.Errorf("%w, because its file is damaged", ErrUnwell)
)

type busyError struct{}

func (busyError) Error() string { return "too many requests wait for the store" }
func (busyError) Unwrap() error { return ErrAway }

// Store keeps the jobs. A method returns when its context ends, and each of its transactions,
// including its repeated attempts, takes at most ten seconds: then it returns ErrAway.
type Store interface {
	// Name returns the store's address without secrets, for logs.
	Name() string
	Close() error

	// Ingest writes a piece of a journal, together with its read point, in one transaction. before
	// is the read point before the call: lines up to it were written earlier and are left out. host
	// reads the host's clock, with which times are converted to the store's clock. A *RefusedError
	// names the jobs that the store will never accept.
	Ingest(ctx context.Context, piece journal.Range, jobs []journal.Entry, host func() time.Time) (before int64, err error)

	// AddUnique adds jobs with unique keys, all of them or none, and returns what happened to each
	// line. Of lines with the same key and type, only the first becomes a job. It returns a
	// *RefusedError if a line is too large.
	AddUnique(ctx context.Context, lines []KeyedEntry, req unique.Request, host func() time.Time) ([]UniqueResult, error)

	// Reserve reserves a sysid, or returns ErrTaken.
	Reserve(ctx context.Context, sysid string, ttl time.Duration) error
	// Renew extends a sysid's lease and the locks of its runs. lost has the runs whose locks the
	// sysid no longer has. If a lock has expired, but the job has not been taken since, it is
	// locked again; a run whose end is written is lost. It returns ErrUnknown if the sysid is not
	// reserved.
	Renew(ctx context.Context, sysid string, ttl time.Duration, runs []Run) (lost []Run, err error)
	// Leave releases a sysid. The locks of its jobs expire at once, and the next Sweep frees the
	// jobs. Their tries count, because they may have begun.
	Leave(ctx context.Context, sysid string) error

	// Waiting returns the types with due jobs, each with the age of the oldest job and a count up
	// to 1,000. next is the time until the next deferred job is due, or 0 if none is due within the
	// hour. Waiting reads one job of each type.
	Waiting(ctx context.Context) (due []DueType, next time.Duration, err error)
	// Take locks up to N due jobs of a type, the oldest first. It stops after the job that makes
	// the sum of the payloads reach Bytes.
	Take(ctx context.Context, t TakeRequest) ([]TakenJob, error)
	// End writes how runs ended, all in one transaction. counted says for each run whether its end
	// counted: the end counts if the sysid still had the lock, or if no daemon had taken the job
	// since.
	End(ctx context.Context, sysid string, ends []RunEnd) (counted []bool, err error)

	// Sweep does a slice of each kind of maintenance, with at most Limit rows each. It returns what
	// it has done, and whether more remains.
	Sweep(ctx context.Context, s SweepOptions) (SweepResult, error)

	Job(ctx context.Context, id job.ID) (*Record, error)
	// Result returns a job's record and data, or ErrNotDone if the job has not ended. Payload
	// returns the job's record and its payload. The payload is nil if the store has lost it. They
	// read at most limit bytes. If the value is longer, they return nil, and the record has its
	// size.
	Result(ctx context.Context, id job.ID, limit int) (*Record, []byte, error)
	Payload(ctx context.Context, id job.ID, limit int) (*Record, []byte, error)
	Delete(ctx context.Context, id job.ID) error
	// Retry makes an ended job run again from the beginning, under the same id. It returns ErrHeld
	// if another job holds its unique key.
	Retry(ctx context.Context, id job.ID) error
	// Jobs lists jobs, newest first, and returns the id from which the next call continues, or ""
	// at the end. It examines at most 50,000 jobs, so that its time is bounded. So a list may be
	// short or empty although there are more jobs.
	Jobs(ctx context.Context, q Query) (list []Record, next job.ID, err error)
	// Hasten makes a delayed job, or a job that waits for its next try, due now. Its number of
	// tries does not change. It returns ErrRunning or ErrDone if the job does not wait.
	Hasten(ctx context.Context, id job.ID) error
	// RetryAll is Retry for up to Limit jobs of a query. It skips jobs whose unique key another job
	// has taken.
	RetryAll(ctx context.Context, q Query) (affected int, more bool, err error)
	// Counts returns the exact numbers of jobs by jobtype, of one client unless client is "". The
	// counts of types without jobs and handlers are added up as CLIENT-*. Deferred jobs are counted
	// as Waiting. Divide counts the deferred jobs, which takes longer, and moves their number to
	// Deferred.
	Counts(ctx context.Context, client string) (map[string]Counts, error)
	Divide(ctx context.Context, counts map[string]Counts) error

	// PutHandler adds a version and sets its Time; the newest ten are kept. DeleteHandler removes
	// all versions and returns how many there were.
	PutHandler(ctx context.Context, h *job.Handler) error
	DeleteHandler(ctx context.Context, jobtype string) (int, error)
	// Handler returns a version of a handler, the newest one if id is "". Versions returns all
	// versions that are kept, newest first.
	Handler(ctx context.Context, jobtype, id string) (*job.Handler, error)
	Versions(ctx context.Context, jobtype string) ([]Version, error)
	// Handlers returns the id of the newest version of each jobtype, and a number that grows with
	// each change. ids is nil if the number is still since.
	Handlers(ctx context.Context, since int64) (ids map[string]string, version int64, err error)

	// PutSchedule sets a schedule. fromFile says that it comes from the file of schedules. It
	// returns ErrFromFile if the schedule is one of the file and fromFile is not set, or
	// ErrSchedules if the client has too many schedules.
	PutSchedule(ctx context.Context, key schedule.Key, spec schedule.Spec, fromFile bool) error
	// DropSchedule removes a schedule. The schedule must come from the file of schedules if fromFile
	// is set, and must not come from it otherwise. It returns ErrUnknown or ErrFromFile if it removes
	// nothing.
	DropSchedule(ctx context.Context, key schedule.Key, fromFile bool) error
	// Schedules returns the schedules of a client, or of all clients if client is "", sorted by
	// name, beginning after a key. Schedule returns one schedule, or ErrUnknown. FileSchedules
	// returns all schedules that came from a file. now is the store's time.
	Schedules(ctx context.Context, client string, after schedule.Key, limit int) (list []NamedSchedule, now time.Time, err error)
	Schedule(ctx context.Context, key schedule.Key) (n NamedSchedule, now time.Time, err error)
	FileSchedules(ctx context.Context) ([]NamedSchedule, error)
	// DueSchedules returns some of the schedules that must be settled now, and when the next one
	// must be settled (zero: not known).
	DueSchedules(ctx context.Context) (due []schedule.Key, now, next time.Time, err error)
	// SettleSchedules makes the due jobs of these schedules, and records this in the same
	// transaction. A due time before watched counts as missed.
	SettleSchedules(ctx context.Context, keys []schedule.Key, watched time.Time) (SettleResult, error)
}

// Run is a job that a daemon has taken.
type Run struct {
	ID    job.ID
	Tries int   // including this run
	Fence int64 // increased with each run, and when a run is undone: no two runs of a job have the same Fence
}

// DueType is a type that has due jobs.
type DueType struct {
	Jobtype string
	Age     time.Duration // how long the oldest job has been due
	Count   int           // number of jobs, at most 1,000; it may include deferred jobs
}

// TakeRequest says which jobs Take is to lock.
type TakeRequest struct {
	Sysid, Jobtype string
	N              int
	Bytes          int // 0: any number
	TTL            time.Duration
	RetryFor       time.Duration // age after which a job is not run again
}

// TakenJob is a job that Take has locked.
type TakenJob struct {
	Run
	Jobtype string
	Payload []byte
	// NoPayload means that the store has lost the payload.
	NoPayload bool
	Waited    time.Duration // how long the job had been due
	Age       time.Duration // time since the job's first run; 0 if this is the first run, or if the store's clock may have been set
}

// EndAction says what happens to a job after a run.
type EndAction uint8

// These are the values of EndAction.
const (
	EndArchive  EndAction = iota // the job has ended
	EndRetry                     // the job waits for Delay, and is then run again
	EndGiveBack                  // the run was not begun, and does not count as a try
)

// RunEnd says how a run ended.
type RunEnd struct {
	Run
	Action    EndAction
	Code      string
	Status    int
	Delay     time.Duration
	Data      []byte // for EndArchive: the data to keep
	Truncated bool
	BadLines  int
	Follow    []FollowJob // for EndArchive: jobs that are added in the same transaction, and are due at once
	Last      *LastRun    // for EndArchive and EndRetry: stored unless it is nil; its Try is ignored in favour of the Run's Tries
}

// FollowJob is a job that follows from the end of a run.
type FollowJob struct {
	ID      job.ID
	Jobtype string
	Payload []byte // without the newline
}

// MaxTTL is the longest ttl of a lock. A lock that would last longer was written while a clock was
// ahead, and counts as expired.
const MaxTTL = 24 * time.Hour

// SweepOptions says what a Sweep is to do.
type SweepOptions struct {
	RetryFor, KeepDone, KeepUnrun time.Duration
	// TTL is the ttl of locks, at most MaxTTL. After the store's clock was set, no lock expires for
	// TTL, and for an hour, or for its age limit if that is shorter, no job is abandoned, expires
	// or is purged.
	TTL     time.Duration
	Handled func(jobtype string) bool // whether a type has a handler; if not, its jobs end with no_handler after RetryFor
	// Next returns the type that gets a follow-on job for each abandoned job, or "". NextID returns
	// an id for the follow-on job.
	Next     func(jobtype string) string
	NextID   func() job.ID
	Segments []string // segments that were removed, whose read points are to be dropped
	Limit    int
}

// SweepResult says what a Sweep has done.
type SweepResult struct {
	Freed, Abandoned, Expired, Purged int
	CorrectedTimes                    int // jobs whose times were corrected, because they came from a clock that was ahead
	// Ahead is the lead of the clock of schedules over the store's clock.
	Ahead time.Duration
	More  bool
	// Imbalance is the number of jobs by which the counts are wrong. Imbalance is 0 unless there is a
	// bug. Each Sweep checks some types. Miscounted names those whose counts are wrong.
	Imbalance  int64
	Miscounted []string
	Ended      []SweptJob  // abandoned or expired
	FollowJobs []FollowJob // the follow-on jobs of abandoned jobs
}

// SweptJob is a job that a Sweep has ended.
type SweptJob struct {
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
	Bytes        int64 // size of the payload; DataBytes is the size of the kept data; both are 0 in lists
	DataBytes    int64
	Last         *LastRun  // nil if all runs have succeeded, or if the Query did not set WithLastRun
	Runs         []PastRun // the last runs that have ended, the oldest first; in lists with WithLastRun, only the run of a job that succeeded at once
	firstStart   time.Time // when the first run began
}

// Query selects jobs of a client, or of all clients.
type Query struct {
	Client, Type string    // Type bare; "": all
	State        job.State // "": all
	After        job.ID    // only older jobs than this one; "": all
	Limit        int
	WithLastRun  bool // whether to return the last run of each job
}

// Counts holds the numbers of a type's jobs, as answers show them. Added is the sum of the others.
type Counts struct {
	Added     int64            `json:"added"`
	Waiting   int64            `json:"waiting"`
	Deferred  int64            `json:"deferred"`
	Running   int64            `json:"running"`
	OK        int64            `json:"ok"`
	Failed    int64            `json:"failed"`
	Abandoned int64            `json:"abandoned"`
	Expired   int64            `json:"expired"`
	Deleted   int64            `json:"deleted"`
	SetAside  int64            `json:"set_aside,omitempty"` // jobs that were set aside and are in no store: see GET /aside
	Oldest    job.Milliseconds `json:"oldest_ms"`           // how long the oldest waiting job has been due
}

// Total returns the counts of all types together.
func Total(types map[string]Counts) (sum Counts) {
	for _, c := range types {
		sum.Add(&c)
	}
	return sum
}

// Add adds other counts to c: those of another store or another type.
func (c *Counts) Add(d *Counts) {
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
