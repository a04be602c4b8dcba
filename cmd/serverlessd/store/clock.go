package store

import (
	"database/sql"
	"time"
)

const (
	// settle is for how long a store's clock must have gone evenly until what it says
	// is old is believed to be, unless it need not be so old.
	settle = time.Hour
	// tellEvery is how often the store is told that its clock goes evenly.
	tellEvery = time.Minute
)

// began is when up counts from.
var began = time.Now()

// clock is what is known of the store's: how it goes beside one that nobody sets.
type clock struct {
	up     func() time.Duration // of the latter
	looked bool
	untold bool          // nobody had told the store anything, nor was it set since
	ahead  time.Duration // of the former, when it was looked at last
	even   time.Duration // up since when it goes evenly, as far as is known
	seen   time.Duration // up since when that was seen from here
	told   time.Duration // up when the store was told last
	// sets counts how often rows may have got times of a clock that was ahead: it was set
	// back, or nobody had looked yet. Up to righted these have been looked for; sought is
	// how far since.
	sets, righted int
	sought        place
}

// steady tells whether the store's clock has gone evenly for so long, or for an hour:
// since then it was not set, and what looks old is. A ttl is that of locks: a jump of
// a quarter of it counts.
//
// At first there is only what the store was told: that its clock went evenly until
// then. Within an hour of that it still does. If it was told nothing, it is believed
// as far as locks go.
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

// latest is the latest time that the lock of somebody who lives may have: once the clock
// was seen to go evenly for a ttl, each has renewed his.
func (t *tx) latest(ttl time.Duration) time.Time {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.up-t.s.clock.seen < ttl {
		return archived(t.now)
	}
	return t.now.Add(MaxTTL)
}
