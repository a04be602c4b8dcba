package bridge

import (
	"time"

	"gloom/cmd/jobd/store"
)

// watch decides which incarnations are dead. An incarnation whose process has visibly ended is dead
// at once. Any other is dead if its beat has not changed, without a break in our watch, for at
// least patience and at least what was left of its lease, by the database's clock, when we first
// saw the beat. So living daemons get time to renew their leases after the database was away, and a
// jump of its clock does not change leases that were seen before.
type watch struct {
	patience time.Duration // the least time for which a beat must not change
	gap      time.Duration // after a longer break between two checks, all times start again

	last time.Time
	seen map[int64]sight
}

type sight struct {
	beat  int64
	since time.Time
	left  time.Duration // what was left of the lease then
}

// look checks a new list and returns the dead incarnations, and how many of the others have an
// expired lease.
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

// blind forgets all incarnations, after a check that failed.
func (w *watch) blind() { w.seen = nil }
