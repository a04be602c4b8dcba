// Package store reads and writes the rows of jobd's table and the claims on them. The
// bridge decides what to fetch, when to start and whose rows to settle.
//
// A claim is a record, in a companion table, that a row which is accepted or running
// belongs to one incarnation of a daemon, known by its token. The transaction that accepts
// the row makes the claim; each transaction that writes the row checks and locks the
// claim; and the one that ends or returns the row removes it. An incarnation has a lease
// and renews it. When it is dead, its claims are settled, and its late writes find no
// claim.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The states of a row.
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
	ID       int64
	Target   string
	Priority int64  // of the column of that name; 0 if there is none
	Fields   []byte // JSON object of the id and the user's columns; nil unless asked for
}

// Want is how many waiting rows of a target to accept, at most.
type Want struct {
	Target string
	Rows   int // at least 1
}

// Page is the result of one Accept.
type Page struct {
	Rows []Row // by id

	// More names the targets that may have further rows. Busy names those with a
	// waiting row that was passed over because somebody else had it locked: it may
	// still be waiting when that lock has gone.
	More, Busy []string
}

// Request is the result for one row that was to be run by hand.
type Request struct {
	Row      Row
	Found    bool
	Accepted bool
	Status   string // the status found, when not accepted
}

// Final is how a row ends.
type Final struct {
	ID             int64
	Started        int64 // the row's time_started, UNIX seconds; 0 when it is not known
	OK             bool
	Code           int    // return_code, 0 to 255; negative for NULL
	Signal         string // sig; "" for NULL
	Stdout, Stderr string // valid UTF-8; cut, and characters replaced, to fit their columns
	At             int64  // time_finished, UNIX seconds
}

// stdoutCut begins the stderr of a row whose stdout is not whole.
const stdoutCut = "[stdout is cut, its end says why]\n"

// TellCut makes stderr say that stdout is cut. It returns false if stderr says so already.
func (f *Final) TellCut() bool {
	if strings.HasPrefix(f.Stderr, stdoutCut) {
		return false
	}
	f.Stderr = stdoutCut + f.Stderr
	return true
}

// Batch is a set of writes, each row in one list only.
type Batch struct {
	Token   int64   // of the incarnation whose rows they are; 0 is this one
	Start   []int64 // accepted rows that begin to run
	At      int64   // their time_started, UNIX seconds
	Finish  []Final // running rows that have ended
	Return  []int64 // accepted rows that have not run and go back to where they came from
	Requeue []int64 // running rows that are to run again; they go to where they came from, too
}

// Written is the result for the rows of a batch. Those in no list have been written.
type Written struct {
	Lost   map[int64]string // not ours any more; the reason
	Busy   []int64          // locked by somebody else, or missing for now: try again
	Failed map[int64]error  // refused by the database, however small: try again, perhaps without success

	done []Batch // results of the transactions that succeeded
}

// Owner is an incarnation of a daemon.
type Owner struct {
	Token int64
	Name  string
	Place Place

	Beat int64         // grows with every renewal
	Left time.Duration // until the lease is over, by the database's clock; may be negative
	Dead bool          // somebody has begun to settle it
}

// Expired tells whether the lease is over, by the database's clock.
func (o Owner) Expired() bool { return o.Left <= 0 }

// Died is the reason in a row that ended with a daemon of this name. The row's result
// replaces it if that turns up in the daemon's spool.
func Died(name string) string { return fmt.Sprintf("jobd '%s' died while the job was running", name) }

// Forgotten is the reason in a row that ran when the database forgot how it ended.
func Forgotten(name string) string {
	return fmt.Sprintf("the database has lost how the job ended: jobd '%s' does not run it", name)
}

// Orphans says what happens to the running rows of a dead incarnation.
type Orphans struct {
	Requeue bool    // back to where they came from; otherwise done and failed
	Reason  string  // for stderr
	At      int64   // time_finished, UNIX seconds
	Except  []int64 // rows that are left as they are
}

// Settled is what a settlement changed.
type Settled struct {
	Returned int      // rows that wait again
	Failed   int      // rows that have ended
	Targets  []string // of the rows that wait again
	Left     bool     // some rows were locked, missing or excepted, and are still to be settled
}

// Store is a table of jobs and its claims, as one daemon sees it. Methods may be called
// from any goroutine. Short conflicts are retried inside. An error for which Away is
// true means that the database could not be reached or written, and that nothing was
// done or, after a lost commit, that the same call made again finds out.
type Store interface {
	// Accept takes waiting rows, the lowest ids first, at most limit of them; 0 leaves
	// the number to the store. If rows have a priority, it takes the best of the first
	// limit rows of each target. Like AcceptManual it returns ErrFenced, and takes
	// nothing, if this incarnation is settled.
	Accept(ctx context.Context, wants []Want, limit int) (Page, error)

	// AcceptManual takes the manual rows with these ids whose target is served. Other
	// waiting rows, by hand or not, become ignored. The answers are in the order of the
	// ids.
	AcceptManual(ctx context.Context, ids []int64, serves func(target string) bool) ([]Request, error)

	// Resolve finds out about rows that an Accept or AcceptManual took and whose commit
	// got lost. It returns those that are ours, to be run. Rows of a lost AcceptManual
	// are set back. Accept does the same first.
	Resolve(ctx context.Context) ([]Row, error)

	// Write writes a batch.
	Write(ctx context.Context, b Batch) (Written, error)

	// Register begins a new incarnation under a new token; Renew prolongs its lease, or returns
	// ErrFenced if the incarnation has been settled. If somebody has emptied or dropped the
	// companion table, Renew makes it and the claims again. Leave ends the incarnation. All do
	// nothing if there is no companion table.
	Register(ctx context.Context) error
	Renew(ctx context.Context) error
	Leave(ctx context.Context) error

	// Owners lists all other incarnations, and the tokens of claims without an
	// incarnation.
	Owners(ctx context.Context) ([]Owner, error)

	// Settle frees the rows of a dead incarnation. It does nothing if the incarnation
	// has renewed its lease since it was listed.
	Settle(ctx context.Context, o Owner, how Orphans) (Settled, error)

	// Own lists the rows on which this incarnation has claims. Disown settles such rows as
	// Settle does those of a dead one.
	Own(ctx context.Context) ([]int64, error)
	Disown(ctx context.Context, ids []int64, how Orphans) (Settled, error)

	// OutputRoom is how many bytes of an output the roomier of its two columns
	// holds.
	OutputRoom() int64

	// Claims tells whether there is a companion table, and so recovery.
	Claims() bool

	// Token is the token of this incarnation.
	Token() int64

	Close() error
}

// ErrFenced means that this incarnation was taken for dead: its rows belong to others.
var ErrFenced = errors.New("lease was lost: this daemon's rows have been settled by another one")

// Away tells whether an error means that the database is out of reach, does not accept
// writes or is too busy, as opposed to objecting to a statement.
func Away(err error) bool {
	var away *AwayError
	return errors.As(err, &away)
}

// AwayError is one for which Away is true.
type AwayError struct{ Err error }

func (e *AwayError) Error() string { return fmt.Sprintf("database is away: %v", e.Err) }
func (e *AwayError) Unwrap() error { return e.Err }

// page is how many rows an Accept without limit takes at once.
const page = 1000
