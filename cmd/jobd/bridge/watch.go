package bridge

import (
	"time"

	"gloom/cmd/jobd/store"
)

// watch decides which incarnations are dead. One whose process can be seen to
// be gone is dead at once. Of any other the lease must be over, by the
// database's clock, and its beat must have stood still for a while that we have
// watched without a break: after the database was away, or its clock jumped,
// the living get the time to renew theirs.
type watch struct {
	patience time.Duration // for how long a beat must stand still
	gap      time.Duration // a longer break between two looks begins everything anew

	last time.Time
	seen map[int64]sight
}

type sight struct {
	beat  int64
	since time.Time
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
			s = sight{beat: o.Beat, since: now}
		}
		seen[o.Token] = s
		switch {
		case o.Dead, gone(o.Place), o.Expired && now.Sub(s.since) >= w.patience:
			dead = append(dead, o)
		case o.Expired:
			undecided++
		}
	}
	w.seen = seen
	return dead, undecided
}

// blind forgets everything, after a look that failed.
func (w *watch) blind() { w.seen = nil }
