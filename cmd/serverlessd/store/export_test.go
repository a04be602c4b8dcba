package store

import "time"

// OpenAt opens a SQLite store by these clocks: the store's, and one that nobody sets.
func OpenAt(path string, now func() time.Time, up func() time.Duration) Store {
	s := newSQL(&lite{path: path, clock: now})
	s.clock.up = up
	return s
}
