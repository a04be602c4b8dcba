package store

import (
	"database/sql"
	"time"
)

const (
	// Once a store's clock has run evenly for settleTime, the store believes that a job is as old as
	// it looks.
	settleTime = time.Hour
	// noteEvery is the interval at which a daemon renews its note in the store. The note says that
	// the clock runs evenly.
	noteEvery = time.Minute
	// maxStep is the largest jump of a store's clock that may be ignored: jobs are not expired,
	// purged or abandoned earlier than by this, and do not wait for longer.
	maxStep = 15 * time.Second
)

// processStart is when this process began to measure time.
var processStart = time.Now()

// clock compares the store's clock with the monotonic clock of this process. Its fields of type
// time.Duration, except aheadOfBoot, ahead and behind, are times of the monotonic clock.
type clock struct {
	monotonic   func() time.Duration // reads the monotonic clock
	sinceBoot   func() time.Duration // like monotonic, but continues while this host is suspended
	known       bool
	ahead       time.Duration // the store's time since 1970 minus the monotonic time, when the clocks were last read
	evenSince   time.Duration // the store's clock has run evenly since this time, as far as known
	aheadSince  time.Duration // this daemon itself has seen it run evenly since this time
	noteWritten time.Duration // when the note in the store was last written
	// The clock has been set forward: rows that were written before behindUntil, by the store's clock,
	// may look too old by as much as behind. The store has both values, too, for daemons that start
	// later. aheadOfBoot is like ahead, but for sinceBoot.
	behind, aheadOfBoot time.Duration
	behindUntil         time.Time
	// setBacks is increased when rows may have times of a clock that was ahead: when the clock is
	// read for the first time, and whenever it was set back. When correctTimes has searched all
	// rows, it sets setsSearched to the value that setBacks had at its start. searchedTo is the
	// position that the search has reached.
	setBacks, setsSearched int
	searchedTo             rowPosition
}

// ageTime returns the time with which rows are compared to decide whether they are older than long,
// or zero if no row counts as old. No row counts as old until the store's clock has run evenly for
// the duration long, or for settleTime if settleTime is less. Rows from before the clock was last
// set forward look too old, and the time returned is earlier by as much, until all of them are
// older than long. ttl is the ttl of locks: only a jump by more than a quarter of it, or by more
// than maxStep, counts.
//
// When the clock is read for the first time, only a note in the store says until when it has run
// evenly. The note is believed if it is at most an hour old.
func (t *tx) ageTime(ttl, long time.Duration) (time.Time, error) {
	clock := &t.store.clock
	t.store.mu.Lock()
	looked := clock.known
	t.store.mu.Unlock()
	storedTimes := make(map[string]int64) // in milliseconds; times are since 1970
	if !looked {
		err := t.eachRow("SELECT name, value FROM sq_meta WHERE name IN ('clock', 'behind', 'behind_until')", nil, func(r *sql.Rows) error {
			var name string
			var value int64
			err := r.Scan(&name, &value)
			storedTimes[name] = value
			return err
		})
		if err != nil {
			return time.Time{}, err
		}
	}
	sinceEpoch := time.Duration(t.now.UnixNano())
	ahead, aheadOfBoot := sinceEpoch-t.monotonic, sinceEpoch-clock.sinceBoot()
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	switch {
	case !clock.known:
		var credit time.Duration
		if t.now.Sub(time.UnixMilli(storedTimes["clock"])).Abs() <= settleTime {
			credit = settleTime
		}
		clock.evenSince, clock.aheadSince = t.monotonic-credit, t.monotonic
		clock.behind, clock.behindUntil = time.Duration(storedTimes["behind"])*time.Millisecond, time.UnixMilli(storedTimes["behind_until"])
		if setBackBy := max(clock.behindUntil.Sub(t.now), time.UnixMilli(storedTimes["clock"]).Sub(t.now)); setBackBy > maxJitter { // the clock was set back while no daemon was watching
			clock.behind, clock.behindUntil = max(0, clock.behind-setBackBy), t.now
		}
		clock.setBacks++
	case (ahead - clock.ahead).Abs() > max(min(ttl/4, maxStep), maxJitter):
		if ahead < clock.ahead {
			clock.setBacks++
			clock.searchedTo = rowPosition{}
		}
		if set := aheadOfBoot - clock.aheadOfBoot; set.Abs() > maxJitter {
			clock.behind, clock.behindUntil = max(0, clock.behind+set), t.now
		}
		clock.evenSince = t.monotonic
		if (ahead - clock.ahead).Abs() > max(ttl/4, maxJitter) { // a smaller jump leaves living daemons time to renew their locks
			clock.aheadSince = t.monotonic
		}
	}
	clock.known, clock.ahead, clock.aheadOfBoot = true, ahead, aheadOfBoot
	if t.monotonic-clock.evenSince >= settleTime && (clock.noteWritten == 0 || t.monotonic-clock.noteWritten >= noteEvery) {
		clock.noteWritten = t.monotonic
		t.put("sq_meta", "name", "value", "clock", t.now.UnixMilli())
	}
	if t.now.Sub(clock.behindUntil).Abs() < noteEvery { // the clock is considered even for this long, because a transaction may fail
		t.put("sq_meta", "name", "value", "behind", clock.behind.Milliseconds())
		t.put("sq_meta", "name", "value", "behind_until", clock.behindUntil.UnixMilli())
		if t.monotonic-clock.evenSince < noteEvery { // a note from before the clock was set no longer holds
			t.put("sq_meta", "name", "value", "clock", int64(0))
		}
	}
	switch {
	case t.monotonic-clock.evenSince < min(long, settleTime):
		return time.Time{}, nil
	case t.now.Sub(clock.behindUntil) < long:
		return t.now.Add(-clock.behind), nil
	}
	return t.now, nil
}

// clockWatched reports whether this daemon itself has seen the store's clock run evenly for a ttl.
// Within a ttl every living daemon has renewed its locks, even if the clock was set before. The
// note in the store is not enough, because the clock may have been set after it was written.
func (t *tx) clockWatched(ttl time.Duration) bool {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	return t.monotonic-t.store.clock.aheadSince >= ttl
}
