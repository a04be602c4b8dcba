package schedule

import "time"

// Stall is how long the daemons may stop looking for due jobs before those due meanwhile count as
// missed.
const Stall = 5 * time.Second

// Watch knows since when some daemon has looked for due jobs without a break, by the clock that
// says when they are due. Setting that clock back is a break.
type Watch struct{ since, seen time.Time }

// Look records that a daemon looks now, and returns since when there was no break, and whether the
// clock was set back.
func (w *Watch) Look(now time.Time) (since time.Time, set bool) {
	set = now.Before(w.seen)
	if set || now.Sub(w.seen) > Stall {
		w.since = now
	}
	w.seen = now
	return w.since, set
}
