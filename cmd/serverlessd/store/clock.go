package store

import (
	"database/sql"
	"time"
)

const (
	// settle is how long a store's clock must have run evenly before a job that looks old by it
	// counts as old, unless a younger age is enough.
	settle = time.Hour
	// tellEvery is how often the store is told that its clock goes evenly.
	tellEvery = time.Minute
)

// began is the moment from which up counts.
var began = time.Now()

// clock compares the store's clock with one that nobody sets.
type clock struct {
	up     func() time.Duration // reads the clock that nobody sets
	looked bool
	untold bool          // the store had no note about its clock, which has not been set since
	ahead  time.Duration // by how much the store's clock was ahead when it was read last
	even   time.Duration // up since when it has run evenly, as far as known
	seen   time.Duration // up since when this daemon has seen that
	told   time.Duration // up when the store's note was written last
	// sets counts how often rows may have got times of a clock that was ahead: the clock was set
	// back, or it was read for the first time. righted is the value of
	// sets up to which such rows have been looked for; sought is how far the search for later
	// ones has come.
	sets, righted int
	sought        place
}

// steady reports whether the store's clock has run evenly for the time long, or for an hour. It
// was not set in that time, so what looks old by it is old. ttl is that of locks: a jump by a
// quarter of it counts.
//
// At first there is only the store's note that its clock ran evenly until then. Within an hour of
// the note it is believed. Without a note the clock is believed for locks only.
func (t *tx) steady(ttl, long time.Duration) (bool, error) {
	c := &t.s.clock
	t.s.mu.Lock()
	looked := c.looked
	t.s.mu.Unlock()
	var credit time.Duration
	untold := true
	if !looked {
		err := t.each("SELECT value FROM sq_meta WHERE name = 'clock'", nil, func(r *sql.Rows) error {
			var ms int64
			err := r.Scan(&ms)
			if untold = false; t.now.Sub(time.UnixMilli(ms)).Abs() <= settle {
				credit = settle
			}
			return err
		})
		if err != nil {
			return false, err
		}
	}
	ahead := time.Duration(t.now.UnixNano()) - t.up
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	switch {
	case !c.looked:
		c.even, c.seen, c.untold = t.up-credit, t.up, untold
		c.sets++
	case (ahead - c.ahead).Abs() > max(ttl/4, maxJitter):
		if ahead < c.ahead {
			c.sets++
			c.sought = place{}
		}
		c.even, c.seen, c.untold = t.up, t.up, false
	}
	c.looked, c.ahead = true, ahead
	if t.up-c.even >= settle && (c.told == 0 || t.up-c.told >= tellEvery) {
		c.told = t.up
		t.later("INSERT INTO sq_meta (name, value) VALUES ('clock', ?)"+t.s.upsert("name", []string{"value"}, nil), t.now.UnixMilli())
	}
	return t.up-c.even >= min(long, settle) || c.untold && long <= ttl, nil
}

// latest is the latest expiry that the lock of a living daemon can have: once the clock was seen
// to go evenly for a ttl, every daemon has renewed its locks.
func (t *tx) latest(ttl time.Duration) time.Time {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.up-t.s.clock.seen < ttl {
		return archived(t.now)
	}
	return t.now.Add(MaxTTL)
}
