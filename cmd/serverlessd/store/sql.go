package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"gloom/cmd/internal/failpoint"
	"gloom/cmd/serverlessd/job"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/semaphore"
)

const (
	// callTimeout bounds a transaction, including its repeated attempts.
	callTimeout = 10 * time.Second
	// maxRequests limits the calls of requests that write at a time, and those that read. Others wait
	// for at most half of callTimeout. A pool has more connections than that, for the daemon's own calls.
	maxRequests = 6
	// maxRowsPerStatement limits the rows that a statement names.
	maxRowsPerStatement = 512
)

// dialect provides what differs between databases.
type dialect interface {
	name() string
	// open returns the pool of connections that write, and the pool of connections that read.
	open() (write, read *sql.DB, err error)
	schema() []string
	now(ctx context.Context, q querier) (time.Time, error)
	// begin is called when the tables exist, before they are used.
	begin(ctx context.Context, write *sql.DB) error
	// scheduleTime returns the current time of the clock that schedules follow; now is the store's
	// current time.
	scheduleTime(now time.Time) time.Time
	// limitClause is the LIMIT of a SELECT that is run often, with the number of rows as its argument.
	limitClause() string
	// skipLocked ends a SELECT that locks its rows and skips rows that others have locked. forUpdate
	// ends a SELECT that waits for rows locked by others, and locks its rows.
	skipLocked() string
	forUpdate() string
	// idIndexHint returns the index hint for a SELECT that must read the table by id. It follows
	// the table's name.
	idIndexHint() string
	// onConflict continues an INSERT with what happens if a row with the key exists: assignments
	// follow, in which newValue, with a column for %s, is the value that was to be inserted.
	onConflict(key string) (clause, newValue string)
	kind(err error) kind
	// insertRows returns how many of the remaining rows the next INSERT should insert.
	insertRows(rows int) int
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
	kindTemporary kind = iota // a temporary problem of the database: repeat the call later
	kindTooLarge              // the data is too large, and always will be
	kindDuplicate             // the key exists
	kindDamaged               // the database's file is damaged
	kindConflict              // another transaction was in the way: repeat the transaction soon
	kindAway                  // the database does not answer: repeat the call later
)

// SQL is a Store in a database.
type SQL struct {
	dialect
	slot int // the row of a type's counts that this daemon writes
	// Each call of a request takes one of these, so that the daemon's own calls soon get a connection.
	writeTurns, readTurns *semaphore.Weighted

	opening         sync.Mutex // guards the following, and is held while the database is opened
	writeDB, readDB *sql.DB    // nil: not open yet
	ready           bool       // the tables exist

	mu         sync.Mutex // guards the fields below
	storeAhead time.Duration
	clock      clock
	audited    auditState
	heads      typeHeads
}

// Name returns the store's address without secrets.
func (s *SQL) Name() string { return s.name() }

// Close closes the connections.
func (s *SQL) Close() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.writeDB == nil {
		return nil
	}
	return errors.Join(s.writeDB.Close(), s.readDB.Close())
}

// connect opens the database, and creates missing tables.
func (s *SQL) connect(ctx context.Context) error {
	s.opening.Lock()
	defer s.opening.Unlock()
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
	err = s.begin(ctx, s.writeDB)
	s.ready = err == nil
	return err
}

// tx is a transaction.
type tx struct {
	*sql.Tx
	ctx           context.Context
	store         *SQL
	now           time.Time
	monotonic     time.Duration // the monotonic time of this process when now was read
	counts        map[string]*Counts
	changesByText map[string]*change
	statements    []statement // statements to be run at the end of the transaction
}

// transact runs a transaction, and repeats it after a conflict. It returns one of the package's
// errors, or the database's error for data that is too large. name is part of the names of its
// failpoints.
func (s *SQL) transact(ctx context.Context, name string, f func(*tx) error) error {
	return s.retry(ctx, s.writeTurns, func(ctx context.Context) error {
		inner, err := s.writeDB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer inner.Rollback()
		t := &tx{Tx: inner, ctx: ctx, store: s, counts: make(map[string]*Counts), changesByText: make(map[string]*change)}
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
		failpoint.Reach(name + ": before commit")
		if err := inner.Commit(); err != nil {
			return err
		}
		failpoint.Reach(name + ": after commit")
		s.dropHeads(t.counts)
		return nil
	})
}

// read runs queries that change nothing.
func (s *SQL) read(ctx context.Context, f func(ctx context.Context, q querier, now time.Time) error) error {
	return s.retry(ctx, s.readTurns, func(ctx context.Context) error {
		now, err := s.now(ctx, s.readDB)
		if err != nil {
			return err
		}
		return f(ctx, s.readDB, now)
	})
}

// ownCalls is the key of the contexts that OwnCalls returns.
type ownCalls struct{}

// OwnCalls returns a context for calls that a daemon makes on its own, and not for a request. They
// do not wait for the calls of many requests.
func OwnCalls(ctx context.Context) context.Context { return context.WithValue(ctx, ownCalls{}, true) }

// IsOwnCall reports whether a context is for the daemon's own calls.
func IsOwnCall(ctx context.Context) bool { return ctx.Value(ownCalls{}) != nil }

func (s *SQL) retry(ctx context.Context, turns *semaphore.Weighted, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !IsOwnCall(ctx) {
		wait, cancel := context.WithTimeout(ctx, callTimeout/2)
		defer cancel()
		if err := turns.Acquire(wait, 1); err != nil {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		defer turns.Release(1)
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 2*time.Millisecond, 500*time.Millisecond
	var lastRetried error // the error of the last attempt that was repeated
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := s.connect(ctx)
		if err == nil {
			err = f(ctx)
		}
		switch {
		case err == nil:
		case errors.Is(err, errRaced), errors.Is(err, errNotDeleted), s.kind(err) == kindConflict:
			lastRetried = err
		default:
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(callTimeout))
	if permanent, ok := errors.AsType[*backoff.PermanentError](err); ok {
		err = permanent.Err
	}
	switch {
	case err == nil || isStoreError(err) || errors.Is(err, ErrAway):
		return err
	case ctx.Err() != nil && lastRetried != nil && !errors.Is(err, lastRetried):
		return fmt.Errorf("%w: %w: %w", ErrAway, err, lastRetried)
	case ctx.Err() != nil, errors.Is(err, errRaced), errors.Is(err, errNotDeleted), s.kind(err) >= kindConflict:
		return fmt.Errorf("%w: %w", ErrAway, err)
	case s.kind(err) == kindTooLarge:
		return err
	case s.kind(err) == kindDamaged:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return fmt.Errorf("%w: %w", ErrUnwell, err)
}

// errUndo makes transact roll back a transaction that only tries something out.
var errUndo = errors.New("undo")

func isStoreError(err error) bool {
	for _, storeErr := range []error{ErrUnknown, ErrRunning, ErrDone, ErrNotDone, ErrTaken, ErrHeld, ErrFromFile, ErrSchedules, errUndo} {
		if errors.Is(err, storeErr) {
			return true
		}
	}
	return false
}

// runAtEnd adds a statement that is run together with others at the transaction's end.
func (t *tx) runAtEnd(text string, args ...any) {
	t.statements = append(t.statements, statement{text, args})
}

// put inserts a row at the end of the transaction, or replaces the row with its key.
func (t *tx) put(table, key, columns string, values ...any) {
	t.upsert(table, key, columns, "%s = %s", values)
}

// add inserts a row at the end of the transaction. If a row has the same key, add adds the values
// to this row's values.
func (t *tx) add(table, key, columns string, values ...any) {
	t.upsert(table, key, columns, "%[1]s = %[1]s + %[2]s", values)
}

func (t *tx) upsert(table, key, columns, assignment string, values []any) {
	clause, newValue := t.store.onConflict(key)
	list := strings.Split(columns, ", ")
	for i, c := range list {
		list[i] = fmt.Sprintf(assignment, c, fmt.Sprintf(newValue, c))
	}
	t.runAtEnd("INSERT INTO "+table+" ("+key+", "+columns+") VALUES "+placeholders(len(values))+clause+strings.Join(list, ", "), values...)
}

// exec runs a statement at once and returns how many rows it has changed.
func (t *tx) exec(text string, args ...any) (int, error) {
	r, err := t.ExecContext(t.ctx, text, args...)
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	return int(n), err
}

// errNotDeleted means that the server has interrupted a DELETE. The transaction is repeated.
var errNotDeleted = errors.New("the server has interrupted a DELETE without an error")

// delete deletes the rows of a table that match a condition, and returns how many these were.
// MariaDB may report success, with no rows, for a DELETE that KILL QUERY or its time limit has
// ended. So if no row was deleted, delete makes sure that no row matches.
func (t *tx) delete(table, condition string, args ...any) (int, error) {
	n, err := t.exec("DELETE FROM "+table+" WHERE "+condition, args...)
	if err != nil || n > 0 {
		return n, err
	}
	left := false
	err = t.queryRow("SELECT EXISTS(SELECT 1 FROM "+table+" WHERE "+condition+")", args, &left)
	if err == nil && left {
		err = errNotDeleted
	}
	return 0, err
}

// deleteAll deletes the rows of several tables that match a condition.
func (t *tx) deleteAll(tables []string, condition string, args ...any) error {
	for _, table := range tables {
		if _, err := t.delete(table, condition, args...); err != nil {
			return err
		}
	}
	return nil
}

// insertAll inserts rows. args holds the values of all rows, one row after the other.
func (t *tx) insertAll(into string, columns int, args []any) error {
	row := "," + placeholders(columns)
	for len(args) > 0 {
		n := t.store.insertRows(min(maxRowsPerStatement, len(args)/columns))
		if _, err := t.exec(into+" VALUES "+strings.Repeat(row, n)[1:], args[:n*columns]...); err != nil {
			return err
		}
		args = args[n*columns:]
	}
	return nil
}

// eachRow runs a query and calls scan for each row.
func eachRow(ctx context.Context, q querier, text string, args []any, scan func(*sql.Rows) error) error {
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

// queryOne reads a query's only row. If there is no row, the targets are left unchanged.
func queryOne(ctx context.Context, q querier, text string, args []any, to ...any) error {
	return eachRow(ctx, q, text, args, func(r *sql.Rows) error { return r.Scan(to...) })
}

func (t *tx) eachRow(text string, args []any, scan func(*sql.Rows) error) error {
	return eachRow(t.ctx, t, text, args, scan)
}

func (t *tx) queryRow(text string, args []any, to ...any) error {
	return queryOne(t.ctx, t, text, args, to...)
}

// placeholders returns n question marks in parentheses.
func placeholders(n int) string {
	return "(" + strings.TrimSuffix(strings.Repeat("?,", n), ",") + ")"
}

// inLists splits values into slices, and yields for each the condition that a column has one of its
// values, and the arguments of the condition. The last value may be repeated, so that the number of
// different texts stays small, because databases cache statements by text.
func inLists[T ~string](values []T) iter.Seq2[string, []any] {
	return func(yield func(text string, args []any) bool) {
		for part := range slices.Chunk(values, maxRowsPerStatement) {
			n := 1
			for n < len(part) {
				n *= 2
			}
			args := make([]any, n)
			for i := range args {
				args[i] = string(part[min(i, len(part)-1)])
			}
			if !yield(" IN "+placeholders(n), args) {
				return
			}
		}
	}
}

// idsOf returns the ids of a list's elements.
func idsOf[T any](list []T, id func(*T) job.ID) []job.ID {
	ids := make([]job.ID, len(list))
	for i := range list {
		ids[i] = id(&list[i])
	}
	return ids
}
