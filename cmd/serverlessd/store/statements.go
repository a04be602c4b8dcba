package store

import (
	"context"
	"database/sql/driver"

	"modernc.org/sqlite"
)

// keeper opens connections to SQLite that keep their prepared statements: parsing a statement
// takes about as long as running it.
type keeper struct {
	driver sqlite.Driver
	name   string
}

// Driver implements driver.Connector, as does Connect.
func (k *keeper) Driver() driver.Driver { return &k.driver }

func (k *keeper) Connect(context.Context) (driver.Conn, error) {
	c, err := k.driver.Open(k.name)
	if err != nil {
		return nil, err
	}
	return &keeping{connection: c.(connection), kept: make(map[string]*prepared)}, nil
}

// connection has the methods that database/sql wants.
type connection interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// keeping is a connection with its prepared statements.
type keeping struct {
	connection
	kept map[string]*prepared
}

// maxKept is how many statements a connection keeps. Transactions use fewer.
const maxKept = 256

type prepared struct {
	driver.Stmt
	busy bool // its rows are being read
}

// statement returns the prepared statement of a text, nil if it cannot be used now.
func (c *keeping) statement(ctx context.Context, text string) (*prepared, error) {
	p := c.kept[text]
	switch {
	case p == nil && len(c.kept) < maxKept:
		s, err := c.PrepareContext(ctx, text)
		if err != nil {
			return nil, err
		}
		p = &prepared{Stmt: s}
		c.kept[text] = p
	case p != nil && p.busy:
		return nil, nil
	}
	return p, nil
}

// ExecContext implements driver.ExecerContext. It does not interrupt a statement that has begun:
// none of them takes long, and watching over each would take longer than most.
func (c *keeping) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
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
func (c *keeping) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
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
	p.busy = true
	return &reading{r, p}, nil
}

// reading has the rows of a kept statement.
type reading struct {
	driver.Rows
	of *prepared
}

// Close implements driver.Rows.
func (r *reading) Close() error {
	r.of.busy = false
	return r.Rows.Close()
}

// Close closes the connection with its statements.
func (c *keeping) Close() error {
	for _, p := range c.kept {
		_ = p.Close() // the connection's error is enough
	}
	return c.connection.Close()
}
