package schedule

import "time"

// MaxWatchGap is the longest time without a look for due jobs. If no daemon has looked for longer,
// the due times in between count as missed.
const MaxWatchGap = 5 * time.Second

// Watch records the time since which daemons have looked for due jobs without a break. Its times
// are those of the clock that decides when jobs are due. If that clock is set back, this counts as
// a break.
type Watch struct{ since, lastLook time.Time }

// Observe records that a daemon looks for due jobs at the time now. It returns the time since which
// there has been no break, and whether the clock was set back.
func (w *Watch) Observe(now time.Time) (since time.Time, wasSetBack bool) {
	wasSetBack = now.Before(w.lastLook)
	if wasSetBack || now.Sub(w.lastLook) > MaxWatchGap {
		w.since = now
	}
	w.lastLook = now
	return w.since, wasSetBack
}
