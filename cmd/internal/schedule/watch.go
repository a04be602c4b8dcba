package schedule

import "time"

// Stall is how long nobody may look for due jobs before those of that time were missed.
const Stall = 5 * time.Second

// Watch is since when somebody looks for due jobs without a break, by the clock that
// says when they are due. A clock that is set is a break.
type Watch struct{ since, seen time.Time }

// Look notes that somebody looks now, and returns since when; set tells that the clock
// was set back.
func (w *Watch) Look(now time.Time) (since time.Time, set bool) {
	set = now.Before(w.seen)
	if set || now.Sub(w.seen) > Stall {
		w.since = now
	}
	w.seen = now
	return w.since, set
}
