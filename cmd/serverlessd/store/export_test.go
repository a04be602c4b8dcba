package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"time"

	"gloom/cmd/internal/mariadb"
)

// OpenOn opens a SQLite store as Open does, on a host with these clocks: host is the clock that can be
// set; since counts the time since boot.
func OpenOn(path, boot string, host func() time.Time, since func() time.Duration) Store {
	s := newSQL(&sqliteDialect{path: path, clock: host, bootID: boot, sinceBoot: since})
	s.clock.monotonic, s.clock.sinceBoot = since, since
	return s
}

// PartRows makes lists read this many rows at a time until the end of the test.
func PartRows(t interface{ Cleanup(func()) }, n int) {
	oldRows := partRows
	partRows = n
	t.Cleanup(func() { partRows = oldRows })
}

// Exec runs a statement on a store's database.
func Exec(ctx context.Context, s Store, text string) error {
	_, err := s.(*SQL).writeDB.ExecContext(ctx, text)
	return err
}

// IsSQLite reports whether a store is a SQLite store.
func IsSQLite(s Store) bool {
	_, ok := s.(*SQL).dialect.(*sqliteDialect)
	return ok
}

// Interrupt lets a query of each pool of a store take too long.
func Interrupt(ctx context.Context, s Store) {
	for _, db := range []*sql.DB{s.(*SQL).readDB, s.(*SQL).writeDB} {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		var n int
		_ = db.QueryRowContext(ctx, "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n").Scan(&n)
		cancel()
	}
}

// SkipDelete makes the DELETE statement at which a count comes down to 0 succeed without an effect,
// as MariaDB does if KILL QUERY comes at a certain moment.
func SkipDelete(s Store, count *atomic.Int64) {
	intercept(s, func(c connection, ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
		if strings.HasPrefix(query, "DELETE") && count.Add(-1) == 0 {
			return driver.RowsAffected(0), nil
		}
		return c.ExecContext(ctx, query, args)
	})
}

type execFunc func(c connection, ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error)

// intercept makes a store on MySQL run its statements with f.
func intercept(s Store, f execFunc) {
	q := s.(*SQL)
	q.writeDB.Close()
	q.writeDB = sql.OpenDB(interceptConnector{q.dialect.(*mysqlDialect).connector, f})
	q.readDB = q.writeDB
}

type interceptConnector struct {
	*mariadb.Connector
	exec execFunc
}

func (c interceptConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return interceptConn{conn.(connection), c.exec}, nil
}

type interceptConn struct {
	connection
	exec execFunc
}

func (c interceptConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(c.connection, ctx, query, args)
}
