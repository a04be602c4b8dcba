package mariadb

import (
	"context"
	"database/sql/driver"
)

// CloseUnlessReusable returns the connection in a form that database/sql closes when a transaction
// on it could not be ended. Otherwise the BEGIN of the next user would commit the rest of that
// transaction. It also closes a connection whose server has refused a statement for a reason that
// will pass: the reason may be a setting, and a connection keeps the settings that it was opened
// with. The connection must come from go-sql-driver/mysql.
func CloseUnlessReusable(c driver.Conn) driver.Conn { return &conn{connection: c.(connection)} }

// connection is the interface of a connection that database/sql uses.
type connection interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// conn is a connection that knows whether it can be used again.
type conn struct {
	connection
	inTransaction bool // a transaction may be open
	isRefused     bool // a statement was refused, and the server counts as away
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.connection.BeginTx(ctx, opts)
	if err != nil {
		return nil, c.noteRefusal(err)
	}
	c.inTransaction = true
	return &transaction{tx, c}, nil
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.connection.ExecContext(ctx, query, args)
	return result, c.noteRefusal(err)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	result, err := c.connection.QueryContext(ctx, query, args)
	if err != nil {
		return nil, c.noteRefusal(err)
	}
	return &rows{result, c}, nil
}

// rows are the rows of a query. The server may refuse the query after it has sent the first of them, or only
// the names of the columns.
type rows struct {
	driver.Rows
	c *conn
}

// Next implements driver.Rows.
func (r *rows) Next(row []driver.Value) error { return r.c.noteRefusal(r.Rows.Next(row)) }

// HasNextResultSet implements driver.RowsNextResultSet.
func (r *rows) HasNextResultSet() bool { return r.Rows.(driver.RowsNextResultSet).HasNextResultSet() }

// NextResultSet implements driver.RowsNextResultSet.
func (r *rows) NextResultSet() error {
	return r.c.noteRefusal(r.Rows.(driver.RowsNextResultSet).NextResultSet())
}

// Close implements driver.Rows. It reads the rest.
func (r *rows) Close() error { return r.c.noteRefusal(r.Rows.Close()) }

func (c *conn) noteRefusal(err error) error {
	c.isRefused = c.isRefused || KindOf(Number(err)) == Away
	return err
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool { return !c.inTransaction && !c.isRefused && c.connection.IsValid() }

// transaction is a transaction on a conn.
type transaction struct {
	driver.Tx
	conn *conn
}

// Commit implements driver.Tx, as does Rollback.
func (t *transaction) Commit() error { return t.finish(t.Tx.Commit()) }

func (t *transaction) Rollback() error { return t.finish(t.Tx.Rollback()) }

func (t *transaction) finish(err error) error {
	t.conn.inTransaction = err != nil
	return err
}
