package store

import "time"

const (
	// settleTime is the longest time for which a store's clock must have run evenly before the store
	// believes that a job is as old as it looks.
	settleTime = time.Hour
	// noteEvery is the interval at which a daemon renews its note in the store. The note says that
	// the clock runs evenly.
	noteEvery = time.Minute
)

// processStart is when this process began to measure time.
var processStart = time.Now()

// clock compares the store's clock with the monotonic clock of this process. Its fields of type
// time.Duration, except ahead, are times of the monotonic clock.
type clock struct {
	monotonic   func() time.Duration // reads the monotonic clock
	known       bool
	ahead       time.Duration // the store's time since 1970 minus the monotonic time, when the clocks were last read
	evenSince   time.Duration // the store's clock has run evenly since this time, as far as known
	aheadSince  time.Duration // this daemon itself has seen it run evenly since this time
	noteWritten time.Duration // when the note in the store was last written
	// setBacks is increased when rows may have times of a clock that was ahead: when the clock is read
	// for the first time, and whenever it was set back. When correctTimes has searched all rows, it
	// sets setsSearched to the value that setBacks had at its start. searchedTo is the position
	// that the search has reached.
	setBacks, setsSearched int
	searchedTo             rowPosition
}

// clockSteady reports whether the store's clock has run evenly for the duration long, or for settle
// if that is less. Then the clock was not set in this time, and a job that looks old is old. ttl is
// the ttl of locks: only a jump by more than a quarter of it counts.
//
// When the clock is read for the first time, only a note in the store says until when it has run
// evenly. The note is believed if it is at most an hour old.
func (t *tx) clockSteady(ttl, long time.Duration) (bool, error) {
	c := &t.store.clock
	t.store.mu.Lock()
	looked := c.known
	t.store.mu.Unlock()
	var credit time.Duration
	if !looked {
		var noted int64 // milliseconds since 1970
		if err := t.queryRow("SELECT value FROM sq_meta WHERE name = 'clock'", nil, &noted); err != nil {
			return false, err
		}
		if t.now.Sub(time.UnixMilli(noted)).Abs() <= settleTime {
			credit = settleTime
		}
	}
	ahead := time.Duration(t.now.UnixNano()) - t.monotonic
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	switch {
	case !c.known:
		c.evenSince, c.aheadSince = t.monotonic-credit, t.monotonic
		c.setBacks++
	case (ahead - c.ahead).Abs() > max(ttl/4, maxJitter):
		if ahead < c.ahead {
			c.setBacks++
			c.searchedTo = rowPosition{}
		}
		c.evenSince, c.aheadSince = t.monotonic, t.monotonic
	}
	c.known, c.ahead = true, ahead
	if t.monotonic-c.evenSince >= settleTime && (c.noteWritten == 0 || t.monotonic-c.noteWritten >= noteEvery) {
		c.noteWritten = t.monotonic
		t.put("sq_meta", "name", "value", "clock", t.now.UnixMilli())
	}
	return t.monotonic-c.evenSince >= min(long, settleTime), nil
}

// clockWatched reports whether this daemon itself has seen the store's clock run evenly for a ttl.
// In this time every living daemon has renewed its locks, even if the clock was set before. The
// note in the store is not enough, because the clock may have been set after it was written.
func (t *tx) clockWatched(ttl time.Duration) bool {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	return t.monotonic-t.store.clock.aheadSince >= ttl
}
