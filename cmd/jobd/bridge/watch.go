package bridge

import (
	"time"

	"gloom/cmd/jobd/store"
)

// watch decides which incarnations are dead. An incarnation whose process has visibly
// ended is dead at once. For any other, we must have seen its beat stand still for some
// time without a break in our watch: at least for the rest of its lease, by the
// database's clock, when we first saw the beat, and at least for our patience. So
// living daemons get time to renew their leases after the database was away, and a jump
// of its clock does not change leases that were seen before.
type watch struct {
	patience time.Duration // how long a beat must stand still
	gap      time.Duration // after a longer break between two looks, all times begin again

	last time.Time
	seen map[int64]sight
}

type sight struct {
	beat  int64
	since time.Time
	left  time.Duration // rest of the lease, at that time
}

// look takes a new list and returns the dead incarnations, and how many others have a
// lease that is over.
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
