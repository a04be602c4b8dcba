// Package store reads and writes the rows of jobd's table and the claims on them. The
// bridge decides what to fetch, when to start and whose rows to settle.
//
// A claim is a record in a companion table. A claim says that an accepted or running row belongs to
// one incarnation of a daemon. A token identifies the incarnation. The transaction that accepts the
// row creates the claim. Each transaction that writes the row checks and locks the claim. The
// transaction that ends or returns the row removes the claim. An incarnation has a lease and renews
// it. When it is dead, its claims are settled, and its late writes find no claim.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A row has one of these states.
const (
	Waiting  = "waiting"
	Manual   = "manual"
	Accepted = "accepted"
	Running  = "running"
	Done     = "done"
	Ignored  = "ignored"
)

// Row is an accepted row.
type Row struct {
	ID        int64
	Target    string
	Priority  int64  // the row's priority; 0 if there is no such column
	Fields    []byte // JSON object of the id and the user's columns; nil unless asked for
	StartedAt int64  // time_started of a row that has begun, UNIX seconds; 0 if it is only accepted
}

// AcceptRequest says how many waiting rows of a target to accept at most.
type AcceptRequest struct {
	Target   string
	Rows     int // at least 1
	MaxBegin int // how many of the rows begin at once: they are running, and never accepted
}

// Page is the result of one Accept.
type Page struct {
	Rows []Row // sorted by id

	// MoreTargets names the targets that may have more rows. BusyTargets names the targets with a
	// waiting row that another transaction had locked: the row was passed over, and may still be
	// waiting when the lock is released.
	MoreTargets, BusyTargets []string
}

// ManualResult says whether a row that a client asked to run by hand was accepted.
type ManualResult struct {
	Row         Row
	WasFound    bool
	WasAccepted bool
	Status      string // the row's status, if it was not accepted
}

// Result describes how a row ends.
type Result struct {
	ID             int64
	Started        int64 // the row's time_started, UNIX seconds; 0 if it is not known
	OK             bool
	Code           int    // return_code, 0 to 255; negative for NULL
	Signal         string // sig; "" for NULL
	Stdout, Stderr string // valid UTF-8, cut and converted to fit the columns
	At             int64  // time_finished, UNIX seconds

	nullStdout, nullStderr bool // the column is NULL
}

// stdoutCutMark begins the stderr of a row whose stdout was cut.
const stdoutCutMark = "[stdout is cut, its end says why]\n"

// MarkStdoutCut makes stderr say that stdout is cut. It returns false if stderr already says so.
func (f *Result) MarkStdoutCut() bool {
	if strings.HasPrefix(f.Stderr, stdoutCutMark) {
		return false
	}
	f.Stderr = stdoutCutMark + f.Stderr
	return true
}

// Batch is a set of writes. Each row is in one list only.
type Batch struct {
	Token       int64    // token of the incarnation that has claimed the rows; 0 means this one
	StartRows   []int64  // accepted rows that begin to run
	StartedAt   int64    // time_started of StartRows, UNIX seconds
	FinishRows  []Result // running rows that have ended
	ReturnRows  []int64  // accepted rows that have not run; they become waiting or manual again
	RequeueRows []int64  // running rows that must run again; they become waiting or manual again, too
}

// WriteResult is the result for the rows of a batch. Every row that is in none of these lists has
// been written.
type WriteResult struct {
	LostRows   map[int64]string // rows that are no longer ours, and why
	BusyRows   []int64          // rows that are locked or, for now, missing: try again
	FailedRows map[int64]error  // rows that the database refuses even with a short result: a retry may fail, too

	writtenBatches []Batch // results of the transactions that succeeded
}

// Owner is an incarnation of a daemon.
type Owner struct {
	Token   int64
	Name    string
	Process Process

	Heartbeat  int64         // a number that grows with every renewal
	LeaseLeft  time.Duration // time until the lease expires, by the database's clock; negative afterwards
	IsSettling bool          // the incarnation is being settled
}

// IsExpired reports whether the lease has expired, by the database's clock.
func (o Owner) IsExpired() bool { return o.LeaseLeft <= 0 }

// DeathReason returns the reason that is written into a row whose daemon died. The row was running,
// but without a launcher its job may not have begun. If the row's result is found in the daemon's
// spool, it replaces the reason.
func DeathReason(name string) string {
	return fmt.Sprintf("jobd '%s' died while the row was running", name)
}

// ForgottenReason returns the reason written into a running row whose end the database has lost.
func ForgottenReason(name string) string {
	return fmt.Sprintf("the database has lost how the job ended: jobd '%s' does not run it", name)
}

// OrphanPolicy says what happens to the running rows of a dead incarnation.
type OrphanPolicy struct {
	Requeue    bool    // they become waiting or manual again; otherwise they are done and have failed
	Reason     string  // for stderr
	FinishedAt int64   // time_finished, UNIX seconds
	Except     []int64 // rows that are not settled
}

// SettleResult describes what a settlement changed.
type SettleResult struct {
	RequeuedCount int              // rows that wait again
	FailedRows    map[int64]string // rows that have ended, and their targets
	Targets       []string         // targets of the rows that wait again
	Incomplete    bool             // some rows were locked, missing or excepted, and are still to be settled
}

// Store is a table of jobs and its claims, as one daemon sees it. Methods may be called from any
// goroutine, and retry short conflicts themselves. An error for which IsAway is true means that the
// database could not be reached or written: either nothing was done or, after a commit whose
// outcome is unknown, repeating the call finds out the outcome.
type Store interface {
	// Accept accepts waiting rows, the lowest ids first, at most limit of them; 0 leaves the
	// number to the store. If rows have a priority, it accepts the best of the first limit rows
	// of each target. Accept does not begin a row that this incarnation has already claimed. Like
	// AcceptManual it returns ErrFenced, and accepts nothing, if this incarnation is settled.
	Accept(ctx context.Context, requests []AcceptRequest, limit int) (Page, error)

	// AcceptManual accepts the manual rows with these ids whose target is served. Other manual rows
	// and waiting rows with these ids become ignored. The answers have the order of ids.
	AcceptManual(ctx context.Context, ids []int64, serves func(target string) bool) ([]ManualResult, error)

	// Resolve finds out whether rows were accepted by an Accept or AcceptManual whose commit had an
	// unknown outcome. It returns the rows of Accept, which must now run. Rows that Accept wrote as
	// running are accepted again. Rows of AcceptManual become manual again. Accept does the same
	// first.
	Resolve(ctx context.Context) ([]Row, error)

	// Write makes the changes of a batch.
	Write(ctx context.Context, b Batch) (WriteResult, error)

	// Register begins a new incarnation under a new token; Renew renews its lease, or returns
	// ErrFenced if the incarnation has been settled. If the companion table was emptied or
	// dropped, Renew creates it and the claims again. Leave ends the incarnation. All three do
	// nothing if there is no companion table.
	Register(ctx context.Context) error
	Renew(ctx context.Context) error
	Leave(ctx context.Context) error

	// Owners returns all other incarnations, including those that have only claims.
	Owners(ctx context.Context) ([]Owner, error)

	// Settle settles the rows of a dead incarnation. It does nothing if the incarnation has renewed
	// its lease since Owners returned that incarnation.
	Settle(ctx context.Context, o Owner, orphans OrphanPolicy) (SettleResult, error)

	// OwnClaims returns the rows on which this incarnation has claims, without those that Resolve
	// may still return. SettleOwnClaims settles some of them as Settle settles the rows of a dead
	// incarnation.
	OwnClaims(ctx context.Context) ([]int64, error)
	SettleOwnClaims(ctx context.Context, ids []int64, orphans OrphanPolicy) (SettleResult, error)

	// OutputRoom returns how many bytes of an output the larger of the two columns holds.
	OutputRoom() int64

	// HasClaimsTable reports whether there is a companion table, without which there is no recovery.
	HasClaimsTable() bool

	// Token returns the token of this incarnation.
	Token() int64

	Close() error
}

// ErrFenced means that this incarnation was considered dead: its rows no longer belong to it.
var ErrFenced = errors.New("lease was lost: this daemon's rows have been settled by another one")

// IsAway reports whether an error means that the database cannot be reached, does not accept writes
// or is too busy. It returns false if the database refuses a statement.
func IsAway(err error) bool {
	var awayErr *AwayError
	return errors.As(err, &awayErr)
}

// AwayError is an error for which IsAway is true.
type AwayError struct{ Err error }

func (e *AwayError) Error() string { return fmt.Sprintf("database is away: %v", e.Err) }
func (e *AwayError) Unwrap() error { return e.Err }

// maxPage is the maximum number of rows that an Accept without limit accepts at once.
const maxPage = 1000
