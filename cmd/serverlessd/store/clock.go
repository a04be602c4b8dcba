package store

import (
	"database/sql"
	"time"
)

const (
	// settle is the longest time for which a store's clock must have run evenly before a job that
	// looks old by it counts as old.
	settle = time.Hour
	// noteEvery is how often the store's note that its clock runs evenly is renewed.
	noteEvery = time.Minute
)

// began is the moment from which up counts.
var began = time.Now()

// clock compares the store's clock with the monotonic clock of this process.
type clock struct {
	monotonic  func() time.Duration // reads the monotonic clock
	read       bool
	ahead      time.Duration // by how much the store's clock was ahead when it was read last
	evenSince  time.Duration // value of up since which it has run evenly, as far as known
	aheadSince time.Duration // value of up since which this daemon has seen that
	noted      time.Duration // value of up when the store's note was last written
	// sets counts how often rows may have been given times by a clock that was ahead: the clock was
	// set back, or it was read for the first time. righted is the value of sets up to which such
	// rows have been looked for; searched is how far the search for later ones has come.
	sets, righted int
	searched      place
}

// clockSteady reports whether the store's clock has run evenly for the time long, or for settle if that
// is less. It was not set in that time, so a job that looks old by it is old. ttl is the ttl of
// locks: a jump by a quarter of it counts.
//
// At first there is only a note in the store, which says until when its clock ran evenly. It is
// believed for an hour.
func (t *tx) clockSteady(ttl, long time.Duration) (bool, error) {
	c := &t.s.clock
	t.s.mu.Lock()
	looked := c.read
	t.s.mu.Unlock()
	var credit time.Duration
	if !looked {
		err := t.each("SELECT value FROM sq_meta WHERE name = 'clock'", nil, func(r *sql.Rows) error {
			var ms int64
			err := r.Scan(&ms)
			if t.now.Sub(time.UnixMilli(ms)).Abs() <= settle {
				credit = settle
			}
			return err
		})
		if err != nil {
			return false, err
		}
	}
	ahead := time.Duration(t.now.UnixNano()) - t.monotonic
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	switch {
	case !c.read:
		c.evenSince, c.aheadSince = t.monotonic-credit, t.monotonic
		c.sets++
	case (ahead - c.ahead).Abs() > max(ttl/4, maxJitter):
		if ahead < c.ahead {
			c.sets++
			c.searched = place{}
		}
		c.evenSince, c.aheadSince = t.monotonic, t.monotonic
	}
	c.read, c.ahead = true, ahead
	if t.monotonic-c.evenSince >= settle && (c.noted == 0 || t.monotonic-c.noted >= noteEvery) {
		c.noted = t.monotonic
		t.atEnd("INSERT INTO sq_meta (name, value) VALUES ('clock', ?)"+t.s.upsert("name", []string{"value"}, nil), t.now.UnixMilli())
	}
	return t.monotonic-c.evenSince >= min(long, settle), nil
}

// clockWatched reports whether this daemon has seen the store's clock run evenly for a ttl. Then every
// living daemon has renewed its locks, even if the clock was set before. The note in the store
// does not say this, since the clock may have been set after it.
func (t *tx) clockWatched(ttl time.Duration) bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.monotonic-t.s.clock.aheadSince >= ttl
}
