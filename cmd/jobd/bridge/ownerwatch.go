package bridge

import (
	"time"

	"gloom/cmd/jobd/store"
)

// ownerWatch decides which incarnations are dead. An incarnation whose process has visibly ended is
// dead at once. Any other incarnation is dead if its heartbeat has not changed for at least
// minSilence and at least the rest of its lease, while we watched without a break. That rest is
// measured, by the database's clock, when we first see the heartbeat. So living daemons get time to
// renew their leases after the database was away, and a jump of its clock does not change leases
// that were seen before.
type ownerWatch struct {
	minSilence time.Duration // the minimum time for which a heartbeat must not change
	maxGap     time.Duration // after a longer break between two checks, all times start again

	lastCheck time.Time
	sightings map[int64]sighting
}

// sighting records when a heartbeat of an incarnation was first seen.
type sighting struct {
	heartbeat int64
	firstSeen time.Time
	leaseLeft time.Duration // what was left of the lease when the heartbeat was first seen
}

// check compares the current list of other incarnations with what was seen before. It returns the
// dead incarnations, and how many of the other incarnations have an expired lease.
func (w *ownerWatch) check(owners []store.Owner, now time.Time, isGone func(store.Process) bool) (deadOwners []store.Owner, undecidedCount int) {
	if now.Sub(w.lastCheck) > w.maxGap {
		w.sightings = nil
	}
	w.lastCheck = now
	seen := make(map[int64]sighting, len(owners))
	for _, o := range owners {
		s, ok := w.sightings[o.Token]
		if !ok || s.heartbeat != o.Heartbeat {
			s = sighting{heartbeat: o.Heartbeat, firstSeen: now, leaseLeft: o.LeaseLeft}
		}
		seen[o.Token] = s
		switch {
		case o.IsSettling, isGone(o.Process), now.Sub(s.firstSeen) >= max(s.leaseLeft, w.minSilence):
			deadOwners = append(deadOwners, o)
		case o.IsExpired():
			undecidedCount++
		}
	}
	w.sightings = seen
	return deadOwners, undecidedCount
}

// reset forgets all incarnations, after a check that failed.
func (w *ownerWatch) reset() { w.sightings = nil }
