package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"gloom/cmd/internal/mariadb"
)

// Internals for the tests. All tests are in another package, because package storetest imports this
// package.

const (
	CutMark   = cutMark
	StdoutCut = stdoutCutMark

	ShapePeriod = shapePeriod
)

var (
	IsNumber = hasNumber
	KindOf   = kindOf
)

// PassesOver reports whether locked rows are skipped. DisableSkipLocked makes the store wait for
// locked rows, as with servers that cannot skip them.
func (s *SQL) PassesOver() bool   { return s.skipLocked != "" }
func (s *SQL) DisableSkipLocked() { s.skipLocked = "" }

// LimitCalls replaces callTimeout.
func (s *SQL) LimitCalls(timeout time.Duration) { s.callTimeout = timeout }

func (s *SQL) DB() *sql.DB                          { return s.db }
func (s *SQL) MarkDoubtful(rows []Row, manual bool) { s.addUncertain(rows, manual) }

// BlockResolve begins as Resolve does. It returns a function that ends the Resolve as if these rows
// had been found settled.
func (s *SQL) BlockResolve(ids ...int64) (end func()) {
	doubtful := s.copyUncertain()
	return func() { s.dropUncertain(doubtful, ids) }
}

func (s *SQL) RememberWritten(b Batch) { s.rememberWritten(b) }

// AnswerCommits makes commits take effect and then return the error in err, if any.
func (s *SQL) AnswerCommits(err *atomic.Pointer[error]) {
	s.db.Close()
	s.db = sql.OpenDB(badCommitConnector{s.connector, err})
}

type badCommitConnector struct {
	*mariadb.Connector
	err *atomic.Pointer[error]
}

func (c badCommitConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return badCommitConn{conn.(connection), c.err}, nil
}

type connection interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.NamedValueChecker
	driver.QueryerContext
}

type badCommitConn struct {
	connection
	err *atomic.Pointer[error]
}

func (c badCommitConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.connection.BeginTx(ctx, opts)
	return badCommitTx{tx, c.err}, err
}

// SkipDeletes makes DELETE statements succeed without an effect while skip is set, as MariaDB does if
// KILL QUERY comes at a certain moment.
func (s *SQL) SkipDeletes(skip *atomic.Bool) {
	s.db.Close()
	s.db = sql.OpenDB(skipDeleteConnector{s.connector, skip})
}

type skipDeleteConnector struct {
	*mariadb.Connector
	skip *atomic.Bool
}

func (c skipDeleteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return skipDeleteConn{conn.(connection), c.skip}, nil
}

type skipDeleteConn struct {
	connection
	skip *atomic.Bool
}

func (c skipDeleteConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if before, after, found := strings.Cut(query, "DELETE FROM "); found && c.skip.Load() {
		query = before + "DELETE FROM " + strings.Replace(after, " WHERE ", " WHERE FALSE AND ", 1)
	}
	return c.connection.ExecContext(ctx, query, args)
}

// CountStatements counts the round trips of statements, without those that begin and end transactions.
func (s *SQL) CountStatements(count *atomic.Int64) {
	s.db.Close()
	s.db = sql.OpenDB(countConnector{s.connector, count})
}

type countConnector struct {
	*mariadb.Connector
	count *atomic.Int64
}

func (c countConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return countConn{conn.(connection), c.count}, nil
}

type countConn struct {
	connection
	count *atomic.Int64
}

func (c countConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.count.Add(1)
	return c.connection.ExecContext(ctx, query, args)
}

func (c countConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.count.Add(1)
	return c.connection.QueryContext(ctx, query, args)
}

type badCommitTx struct {
	driver.Tx
	err *atomic.Pointer[error]
}

func (t badCommitTx) Commit() error {
	err := t.Tx.Commit()
	if answer := t.err.Load(); answer != nil {
		return *answer
	}
	return err
}

func (s *SQL) WaitingQuery(limit int) string {
	return fmt.Sprintf("SELECT id, target, 0 FROM jobs%s WHERE status = 'waiting' AND %s ORDER BY id LIMIT %d FOR UPDATE", s.table().indexHint(), s.table().targetCondition, limit)
}
