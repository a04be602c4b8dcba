package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"gloom/cmd/internal/failpoint"

	"github.com/cenkalti/backoff/v5"
)

const (
	// callTimeout bounds a transaction, including its repetitions.
	callTimeout = 10 * time.Second
	// slice is the most rows that a statement names.
	slice = 512
)

// dialect has what differs between the databases.
type dialect interface {
	name() string
	// open returns the connections that write and those that read.
	open() (write, read *sql.DB, err error)
	schema() []string
	now(ctx context.Context, q querier) (time.Time, error)
	// begin is called with the tables there, before anything else.
	begin(ctx context.Context, write *sql.DB) error
	// date returns what people take for the time when the store's clock shows now: the due times of
	// schedules follow it.
	date(now time.Time) time.Time
	// skipLocked ends a SELECT of rows that the transaction will change, and skips rows that
	// others have locked. locked ends one that waits for such rows.
	skipLocked() string
	locked() string
	// byID follows the table of a SELECT that must go through it in the order of ids.
	byID() string
	// upsert ends an INSERT. If the key exists, these columns are set to the new values, or the
	// new values are added to them.
	upsert(key string, set []string, add []string) string
	kind(err error) kind
	// atOnce is how many of these rows an INSERT should have.
	atOnce(rows int) int
	// exec runs statements in as few round trips as possible.
	exec(ctx context.Context, t *tx, list []statement) error
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

type statement struct {
	text string
	args []any
}

// kind says what to do about an error.
type kind int

const (
	unwell   kind = iota // the database has a temporary problem: repeat it later
	unfit                // the data is too large, and always will be
	double               // the key exists
	conflict             // another transaction was in the way: repeat it soon
	away                 // the database gives no answer: repeat it later
)

// SQL is a Store in a database.
type SQL struct {
	dialect
	slot int // which of the counts' rows this daemon writes

	mu              sync.Mutex // guards the following, and the opening of the database
	writeDB, readDB *sql.DB    // nil: not open yet
	ready           bool       // the tables are there
	distance        time.Duration
	clock           clock
	audited         auditState
	heads           heads
}

// Name returns the store's address without secrets.
func (s *SQL) Name() string { return s.name() }

// Close closes the connections.
func (s *SQL) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeDB == nil {
		return nil
	}
	return errors.Join(s.writeDB.Close(), s.readDB.Close())
}

// connect opens the database and makes missing tables.
func (s *SQL) connect(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		return nil
	}
	var err error
	if s.writeDB == nil {
		if s.writeDB, s.readDB, err = s.open(); err != nil {
			return err
		}
	}
	for _, text := range s.schema() {
		if _, err := s.writeDB.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	if _, err := s.writeDB.ExecContext(ctx, "SELECT fence FROM sq_jobs LIMIT 0"); err != nil {
		// An earlier version made the table, and can still use it.
		if _, err := s.writeDB.ExecContext(ctx, "ALTER TABLE sq_jobs ADD COLUMN fence BIGINT NOT NULL DEFAULT 0"); err != nil {
			return err
		}
	}
	if err := s.begin(ctx, s.writeDB); err != nil {
		return err
	}
	s.ready = true
	return nil
}

// tx is a transaction.
type tx struct {
	*sql.Tx
	ctx           context.Context
	s             *SQL
	now           time.Time
	monotonic     time.Duration // the monotonic clock of this process, at now
	counts        map[string]*countChange
	changesByText map[string]*change
	statements    []statement // to be run at the end
}

// transact runs a transaction, and repeats it after a conflict. It returns one of the package's
// errors, or the error of data that is too large. name names its fault points.
func (s *SQL) transact(ctx context.Context, name string, f func(*tx) error) error {
	return s.again(ctx, func(ctx context.Context) error {
		inner, err := s.writeDB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer inner.Rollback()
		t := &tx{Tx: inner, ctx: ctx, s: s, counts: make(map[string]*countChange), changesByText: make(map[string]*change)}
		if t.now, err = s.now(ctx, inner); err != nil {
			return err
		}
		t.monotonic = s.clock.monotonic()
		if err := f(t); err != nil {
			return err
		}
		t.writeChanges()
		t.writeCounts()
		if err := s.exec(ctx, t, t.statements); err != nil {
			return err
		}
		failpoint.Point(name + ": before commit")
		if err := inner.Commit(); err != nil {
			return err
		}
		failpoint.Point(name + ": after commit")
		s.touch(t.counts)
		return nil
	})
}

// read runs queries that change nothing.
func (s *SQL) read(ctx context.Context, f func(ctx context.Context, q querier, now time.Time) error) error {
	return s.again(ctx, func(ctx context.Context) error {
		now, err := s.now(ctx, s.readDB)
		if err != nil {
			return err
		}
		return f(ctx, s.readDB, now)
	})
}

func (s *SQL) again(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 2*time.Millisecond, 500*time.Millisecond
	var met error // the last error after which it was repeated
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := s.connect(ctx)
		if err == nil {
			err = f(ctx)
		}
		switch {
		case err == nil:
		case errors.Is(err, errRaced), s.kind(err) == conflict:
			met = err
		default:
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(callTimeout))
	var permanent *backoff.PermanentError
	if errors.As(err, &permanent) {
		err = permanent.Err
	}
	switch {
	case err == nil || isOurs(err) || errors.Is(err, ErrAway):
		return err
	case ctx.Err() != nil && met != nil && !errors.Is(err, met):
		return fmt.Errorf("%w: %w: %w", ErrAway, err, met)
	case ctx.Err() != nil, errors.Is(err, errRaced), s.kind(err) >= conflict:
		return fmt.Errorf("%w: %w", ErrAway, err)
	case s.kind(err) == unfit:
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnwell, err)
}

// errUndo rolls back a transaction that only tried something.
var errUndo = errors.New("undo")

func isOurs(err error) bool {
	for _, ours := range []error{ErrUnknown, ErrRunning, ErrDone, ErrNotDone, ErrTaken, ErrHeld, ErrFromFile, ErrSchedules, errUndo} {
		if errors.Is(err, ours) {
			return true
		}
	}
	return false
}

// atEnd adds a statement that is run together with others at the transaction's end.
func (t *tx) atEnd(text string, args ...any) {
	t.statements = append(t.statements, statement{text, args})
}

// exec runs a statement now and returns how many rows it changed.
func (t *tx) exec(text string, args ...any) (int, error) {
	r, err := t.ExecContext(t.ctx, text, args...)
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	return int(n), err
}

// each runs a query and calls scan for each row.
func each(ctx context.Context, q querier, text string, args []any, scan func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t *tx) each(text string, args []any, scan func(*sql.Rows) error) error {
	return each(t.ctx, t, text, args, scan)
}

// marks returns n question marks in parentheses.
func marks(n int) string {
	return "(" + strings.TrimSuffix(strings.Repeat("?,", n), ",") + ")"
}

// in returns a condition on names, and its arguments. The last name may be repeated, which keeps
// the number of different texts small: databases cache them.
func in[T ~string](names []T) (text string, args []any) {
	n := 1
	for n < len(names) {
		n *= 2
	}
	args = make([]any, n)
	for i := range args {
		args[i] = string(names[min(i, len(names)-1)])
	}
	return " IN " + marks(n), args
}
