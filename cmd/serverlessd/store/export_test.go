package store

import (
	"context"
	"time"
)

// OpenAt opens a SQLite store with these clocks: the store's, and one that is never set.
func OpenAt(path string, now func() time.Time, up func() time.Duration) Store {
	s := newSQL(&sqliteDialect{path: path, clock: now})
	s.clock.monotonic = up
	return s
}

// OpenOn opens a SQLite store like Open, on a host with these clocks: that of this boot, and one that
// people set.
func OpenOn(path, boot string, host func() time.Time, since func() time.Duration) Store {
	s := newSQL(&sqliteDialect{path: path, clock: host, boot: boot, since: since})
	s.clock.monotonic = since
	return s
}

// PartRows makes lists read that many rows at a time, until the end of a test.
func PartRows(t interface{ Cleanup(func()) }, n int) {
	was := partRows
	partRows = n
	t.Cleanup(func() { partRows = was })
}

// Exec runs a statement on a store's database.
func Exec(ctx context.Context, s Store, text string) error {
	_, err := s.(*SQL).writeDB.ExecContext(ctx, text)
	return err
}

// IsSQLite reports whether a store is in SQLite.
func IsSQLite(s Store) bool {
	_, ok := s.(*SQL).dialect.(*sqliteDialect)
	return ok
}
