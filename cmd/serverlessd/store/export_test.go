package store

import (
	"context"
	"time"
)

// OpenAt opens a SQLite store with these clocks: the store's, and one that is never set.
func OpenAt(path string, now func() time.Time, up func() time.Duration) Store {
	s := newSQL(&lite{path: path, clock: now})
	s.clock.up = up
	return s
}

// OpenOn opens a SQLite store like Open, on a host with these clocks: that of this boot, and one that
// people set.
func OpenOn(path, boot string, host func() time.Time, since func() time.Duration) Store {
	s := newSQL(&lite{path: path, clock: host, boot: boot, since: since})
	s.clock.up = since
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
	_, err := s.(*SQL).write.ExecContext(ctx, text)
	return err
}

// IsSQLite reports whether a store is in SQLite.
func IsSQLite(s Store) bool {
	_, ok := s.(*SQL).dialect.(*lite)
	return ok
}
