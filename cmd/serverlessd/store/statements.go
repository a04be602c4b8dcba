package store

import (
	"context"
	"database/sql/driver"
	"errors"

	"modernc.org/sqlite"
)

// statementDriver opens connections to SQLite that keep their prepared statements, because parsing
// a statement takes about as long as running it.
type statementDriver struct {
	driver   sqlite.Driver
	name     string
	keptConn driver.Conn // the connection that keep has opened
}

// keep opens a connection that stays open until the pool is closed, and that nothing uses. The pool
// closes connections whose queries took too long. When the last connection closes, SQLite removes
// the WAL.
func (d *statementDriver) keep() error {
	c, err := d.driver.Open(d.name)
	if err != nil {
		return err
	}
	// A connection opens the file and the WAL at its first query.
	if _, err := c.(connection).ExecContext(context.Background(), "SELECT 1 FROM sqlite_schema LIMIT 1", nil); err != nil {
		return errors.Join(err, c.Close())
	}
	d.keptConn = c
	return nil
}

// Close implements io.Closer for sql.DB.
func (d *statementDriver) Close() error {
	if d.keptConn == nil {
		return nil
	}
	return d.keptConn.Close()
}

// Driver and Connect implement driver.Connector.
func (d *statementDriver) Driver() driver.Driver { return &d.driver }

func (d *statementDriver) Connect(context.Context) (driver.Conn, error) {
	c, err := d.driver.Open(d.name)
	if err != nil {
		return nil, err
	}
	return &statementConn{connection: c.(connection), statements: make(map[string]*prepared)}, nil
}

// connection has the methods that database/sql uses.
type connection interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// statementConn is a connection with its prepared statements.
type statementConn struct {
	connection
	statements map[string]*prepared
}

// maxKept limits the statements that a connection keeps. A transaction uses fewer.
const maxKept = 256

type prepared struct {
	driver.Stmt
	inUse bool // whether its rows are being read
}

// statement returns the prepared statement of a text, or nil if it is in use.
func (c *statementConn) statement(ctx context.Context, text string) (*prepared, error) {
	p := c.statements[text]
	switch {
	case p == nil && len(c.statements) < maxKept:
		s, err := c.PrepareContext(ctx, text)
		if err != nil {
			return nil, err
		}
		p = &prepared{Stmt: s}
		c.statements[text] = p
	case p != nil && p.inUse:
		return nil, nil
	}
	return p, nil
}

// ExecContext implements driver.ExecerContext. The context does not interrupt a statement that has
// begun: none takes a long time, and watching the context would cost more than most statements do.
func (c *statementConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	p, err := c.statement(ctx, text)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return c.connection.ExecContext(ctx, text, args)
	}
	return p.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

// QueryContext implements driver.QueryerContext.
func (c *statementConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	p, err := c.statement(ctx, text)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return c.connection.QueryContext(ctx, text, args)
	}
	r, err := p.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	p.inUse = true
	return &statementRows{r, p}, nil
}

// statementRows is the rows of a kept statement.
type statementRows struct {
	driver.Rows
	statement *prepared
}

// Close implements driver.Rows.
func (r *statementRows) Close() error {
	r.statement.inUse = false
	return r.Rows.Close()
}

// Close closes the connection with its statements.
func (c *statementConn) Close() error {
	for _, p := range c.statements {
		_ = p.Close() // the error of closing the connection is enough
	}
	return c.connection.Close()
}
