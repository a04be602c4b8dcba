package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gloom/cmd/internal/failpoint"
	"gloom/cmd/internal/mariadb"
	"gloom/cmd/jobd/config"

	"github.com/cenkalti/backoff/v5"
	"github.com/rs/zerolog"
)

// Options are the options of a store.
type Options struct {
	MySQL      config.MySQL
	Claims     string        // companion table; "" means the table's name and "_claims"
	Name       string        // name of the daemon
	Lease      time.Duration // lease of an incarnation
	ReadFields bool          // accepted rows have the user's columns
	// A row that has been missing for ConfirmAfter counts as deleted. If a trigger has refused an
	// output for ConfirmAfter, the output counts as too large.
	ConfirmAfter time.Duration
	Log          zerolog.Logger
}

// SQL is a Store in MySQL or MariaDB.
type SQL struct {
	options        Options
	db             *sql.DB
	connector      *mariadb.Connector
	tableShape     atomic.Pointer[table]
	skipLocked     string        // " SKIP LOCKED" if the server has it
	hasClaimsTable bool          // there is a companion table
	callTimeout    time.Duration // callTimeout, except in tests
	readerSlots    chan struct{} // bounds the reads for operators that run at a time
	resolving      chan struct{} // holds a value while a Resolve runs

	mu               sync.Mutex                 // guards the fields below
	shapeRead        time.Time                  // when the table's shape was last read
	badID            string                     // id of a row that is never run; "" if there is none
	token            int64                      // token of this incarnation
	uncertainAccepts map[int64]*uncertainAccept // rows of which it is unknown whether their accept was committed
	uncertainWrites  map[int64]bool             // rows of which it is unknown whether their write was committed
	claimsNumber     int64                      // the companion table's number, which changes if the table is emptied or created again
	claims           map[int64]claim            // rows that this incarnation has claimed
	sightings        map[int64]conditionSighting
	positions        map[string]readPosition // by target: where the next Accept continues
	passedOverUntil  map[int64]time.Time     // rows that the table refuses to have accepted, and until when they are passed over
}

// uncertainAccept says that it is unknown whether an accept of a row was committed; a later
// accept of the same row has a record of its own.
type uncertainAccept struct {
	isManual  bool
	startedAt int64 // time_started of a row that began at once; 0 for all other rows
}

// claim is a copy of a claim, in case its record is lost.
type claim struct {
	isManual    bool
	isRunning   bool
	startedAt   int64 // time_started of a running row
	isUncertain bool  // the row may have ended, and been accepted by others since
}

// conditionSighting is when a possibly temporary condition of a row was first and last seen.
type conditionSighting struct{ firstSeen, lastSeen time.Time }

// isPermanent reports whether a condition of a row has been seen long enough to be permanent.
func (s *SQL) isPermanent(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	seen, ok := s.sightings[id]
	if !ok || now.Sub(seen.lastSeen) > s.options.ConfirmAfter {
		seen.firstSeen = now
	}
	seen.lastSeen = now
	s.sightings[id] = seen
	return now.Sub(seen.firstSeen) >= s.options.ConfirmAfter
}

// forgetSightings forgets the sightings of rows, except those that are still watched.
func (s *SQL) forgetSightings(ids, watched []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sightings) == 0 {
		return
	}
	for _, id := range ids {
		if !slices.Contains(watched, id) {
			delete(s.sightings, id)
		}
	}
}

const (
	// callTimeout limits one transaction of up to batchBytes, including waits for locks. A larger one, which
	// is a single large output, has as much time for each batchBytes: otherwise no path that needs longer
	// than callTimeout for it would ever take it.
	callTimeout    = 20 * time.Second
	maxConnections = 8
	// maxReaders limits the connections that read for operators at a time. The others serve jobs.
	maxReaders = 2
	// shapePeriod is the interval at which the table's shape is read again, and shapeTimeout limits each of
	// these reads: the transaction that waits for it may succeed although the table is locked.
	shapePeriod  = 5 * time.Second
	shapeTimeout = 2 * time.Second
	maxAttempts  = 10 // of one transaction
	minPause     = 6 * time.Millisecond
	maxPause     = 375 * time.Millisecond
)

// Open connects, reads the table's shape and creates the companion table. If the user may not
// create it, Open logs a warning and works without it. If it fails, IsAway tells whether the server
// could not be reached (true) or has refused (false).
func Open(ctx context.Context, opt Options) (*SQL, error) {
	if opt.Claims == "" {
		opt.Claims = companionTable(opt.MySQL.Table)
	}
	link, err := newConnector(opt.MySQL, opt.Lease)
	if err != nil {
		return nil, err
	}
	s := &SQL{options: opt, callTimeout: callTimeout, connector: link, db: link.Open(maxConnections), readerSlots: make(chan struct{}, maxReaders), resolving: make(chan struct{}, 1), uncertainAccepts: make(map[int64]*uncertainAccept), uncertainWrites: make(map[int64]bool), claims: make(map[int64]claim), sightings: make(map[int64]conditionSighting), positions: make(map[string]readPosition), passedOverUntil: make(map[int64]time.Time)}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.open(ctx); err != nil {
		s.db.Close()
		if isUnreachable(err) {
			err = &AwayError{err}
		}
		return nil, err
	}
	return s, nil
}

func (s *SQL) open(ctx context.Context) error {
	if err := s.readShape(ctx); hasNumber(err, 1176) {
		return fmt.Errorf("table %s has no primary key: jobd needs one that begins with id, so it can use no view: %w", s.table().name, err)
	} else if err != nil {
		return err
	}
	if err := s.checkEngine(ctx); err != nil {
		return err
	}
	// Trying it is more reliable than the version number, which differs between forks.
	rows, err := s.db.QueryContext(ctx, "SELECT id FROM "+s.table().name+primaryKeyHint+" WHERE id IN (-1) FOR UPDATE SKIP LOCKED")
	switch {
	case err == nil:
		rows.Close()
		s.skipLocked = " SKIP LOCKED"
	case !hasNumber(err, 1064):
		return err
	}
	return s.makeClaims(ctx)
}

// table returns the shape of the table as last read.
func (s *SQL) table() *table { return s.tableShape.Load() }

// readShape reads the shape of the table.
func (s *SQL) readShape(ctx context.Context) error {
	t, err := readTableShape(ctx, s.db, s.options.MySQL.Table, s.options.Claims)
	if err != nil {
		return err
	}
	if old := s.tableShape.Swap(t); t.index == "" && (old == nil || old.index != "") {
		s.options.Log.Warn().Str("table", s.options.MySQL.Table).
			Msg("there is no index on (status, target, id), or the server ignores it: every poll reads the whole table")
	}
	return s.lookForStrangeIDs(ctx, t)
}

// checkEngine logs an error if the table has no transactions. Without row locks, several daemons may
// accept a row.
func (s *SQL) checkEngine(ctx context.Context) error {
	database, tableName := splitName(s.options.MySQL.Table)
	var engine string
	err := s.db.QueryRowContext(ctx, `SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'NO' AND ENGINE =
		(SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?)`, database, tableName).Scan(&engine)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err == nil {
		s.options.Log.Error().Str("table", s.options.MySQL.Table).Str("engine", engine).
			Msg("the table has no transactions: rows may run twice, or stay accepted after a crash; use ENGINE=InnoDB")
	}
	return err
}

// lookForStrangeIDs logs once if rows have ids that no claim can have.
func (s *SQL) lookForStrangeIDs(ctx context.Context, t *table) error {
	var id string
	err := s.db.QueryRowContext(ctx, "SELECT id FROM "+t.name+primaryKeyHint+" WHERE NOT ("+claimableID+") ORDER BY id LIMIT 1").Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		id, err = "", nil
	}
	s.mu.Lock()
	old := s.badID
	s.badID = id
	s.mu.Unlock()
	if id != "" && old == "" {
		s.options.Log.Error().Str("table", s.options.MySQL.Table).Str("id", id).
			Msgf("rows with ids below 0 or above %d are never run", math.MaxInt64)
	}
	return err
}

// refreshShape reads the table's shape again if shapePeriod has passed or a statement was refused
// since, because the table may have been altered. While there is no table, the last shape is used.
func (s *SQL) refreshShape(ctx context.Context) {
	s.mu.Lock()
	due := time.Since(s.shapeRead) >= shapePeriod
	if due {
		s.shapeRead = time.Now()
	}
	s.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shapeTimeout)
	defer cancel()
	if err := s.readShape(ctx); err != nil {
		s.options.Log.Debug().Err(err).Msg("the table's shape cannot be read")
	}
}

// OutputRoom implements Store.
func (s *SQL) OutputRoom() int64 { return max(s.table().stdout.maxBytes, s.table().stderr.maxBytes) }

// HasClaimsTable implements Store.
func (s *SQL) HasClaimsTable() bool { return s.hasClaimsTable }

// Token implements Store.
func (s *SQL) Token() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// Close closes the connections. It leaves claims and lease as they are.
func (s *SQL) Close() error { return s.db.Close() }

// unknownCommitError is the error of a commit whose outcome is unknown.
type unknownCommitError struct{ err error }

func (e *unknownCommitError) Error() string {
	return fmt.Sprintf("outcome of commit is unknown: %v", e.err)
}
func (e *unknownCommitError) Unwrap() error { return e.err }

func isCommitUnknown(err error) bool {
	var u *unknownCommitError
	return errors.As(err, &u)
}

// transact runs a transaction, repeats it after a conflict, and rolls it back on an error. name is
// the prefix of its failpoints.
func (s *SQL) transact(ctx context.Context, name string, f func(context.Context, *sql.Tx) error) error {
	return s.transactLarge(ctx, name, 0, f)
}

// transactLarge is like transact, for a transaction that sends a number of bytes.
func (s *SQL) transactLarge(ctx context.Context, name string, bytes int64, f func(context.Context, *sql.Tx) error) error {
	timeout := max(s.callTimeout, s.callTimeout/batchBytes*time.Duration(bytes))
	s.refreshShape(ctx)
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = minPause, maxPause, 2
	for attempt := 1; ; attempt++ {
		err := s.transactOnce(ctx, name, timeout, f)
		if err == nil {
			return nil
		}
		switch kind := kindOf(err); {
		case err == ErrFenced:
			return err
		case isCommitUnknown(err), kind == mariadb.Away:
			return &AwayError{err}
		case kind == mariadb.Refused:
			return err
		case attempt == maxAttempts:
			return &AwayError{err}
		}
		select {
		case <-ctx.Done():
			return &AwayError{err}
		case <-time.After(pause.NextBackOff()):
		}
	}
}

func (s *SQL) transactOnce(ctx context.Context, name string, timeout time.Duration, f func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(ctx, tx); err != nil {
		if n := mariadb.Number(err); n != 0 && mariadb.KindOf(n) != mariadb.Conflict {
			s.mu.Lock()
			s.shapeRead = time.Time{}
			s.mu.Unlock()
		}
		return err
	}
	failpoint.Reach(name + ": before commit")
	if err := tx.Commit(); err != nil {
		if hasNumber(err, 1213) {
			return err // a deadlock: the server has certainly rolled it back
		}
		return &unknownCommitError{err}
	}
	failpoint.Reach(name + ": after commit")
	return nil
}
