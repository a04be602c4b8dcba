package bridge

import (
	"time"

	"gloom/cmd/jobd/store"
)

// watch decides which incarnations are dead. One whose process can be seen to
// be gone is dead at once. Of any other the beat must have stood still for a time
// that we have watched without a break: for what was left of the lease, by the
// database's clock, when the beat was seen first, and for our patience at least.
// After the database was away the living get the time to renew theirs, and a jump
// of its clock makes no lease shorter or longer that was seen before.
type watch struct {
	patience time.Duration // for how long a beat must stand still
	gap      time.Duration // a longer break between two looks begins everything anew

	last time.Time
	seen map[int64]sight
}

type sight struct {
	beat  int64
	since time.Time
	left  time.Duration // of the lease, then
}

// look takes a fresh list and returns the dead, and how many have a lease that
// is over without being dead yet.
func (w *watch) look(owners []store.Owner, now time.Time, gone func(store.Place) bool) (dead []store.Owner, undecided int) {
	if now.Sub(w.last) > w.gap {
		w.seen = nil
	}
	w.last = now
	seen := make(map[int64]sight, len(owners))
	for _, o := range owners {
		s, ok := w.seen[o.Token]
		if !ok || s.beat != o.Beat {
			s = sight{beat: o.Beat, since: now, left: o.Left}
		}
		seen[o.Token] = s
		switch {
		case o.Dead, gone(o.Place), now.Sub(s.since) >= max(s.left, w.patience):
			dead = append(dead, o)
		case o.Expired():
			undecided++
		}
	}
	w.seen = seen
	return dead, undecided
}

// blind forgets everything, after a look that failed.
func (w *watch) blind() { w.seen = nil }
