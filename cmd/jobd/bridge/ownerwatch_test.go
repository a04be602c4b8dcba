package bridge

import (
	"fmt"
	"testing"
	"time"

	"gloom/cmd/jobd/store"
)

// TestOwnerIsDeadAfterSilence checks the same incarnation every second.
func TestOwnerIsDeadAfterSilence(t *testing.T) {
	neverGone := func(store.Process) bool { return false }
	type look struct {
		beat  int64
		left  time.Duration // of the lease
		pause time.Duration // time since the previous check, if not a second
		blind bool          // the previous check failed
	}
	longLease, renewedLook, expiredLook := look{beat: 1, left: time.Hour}, look{beat: 1, left: 2 * time.Second}, look{beat: 1}
	for _, c := range []struct {
		name      string
		looks     []look
		deadAfter int // the check at which it is dead, 0 for never
	}{
		{"a lease that runs", []look{longLease, longLease, longLease, longLease, longLease, longLease, longLease}, 0},
		{"silence", []look{renewedLook, renewedLook, expiredLook, expiredLook, expiredLook}, 4},
		{"silence since the first look", []look{expiredLook, expiredLook, expiredLook, expiredLook, expiredLook}, 4},
		{"a slow one", []look{expiredLook, expiredLook, {beat: 2}, {beat: 2}, {beat: 3}}, 0},
		{"back after an outage", []look{renewedLook, {beat: 1, pause: time.Minute}, {beat: 1}, {beat: 2}}, 0},
		{"not back after an outage", []look{renewedLook, {beat: 1, pause: time.Minute}, expiredLook, expiredLook, expiredLook}, 5},
		{"after a failed look", []look{expiredLook, expiredLook, {beat: 1, blind: true}, expiredLook, expiredLook, expiredLook}, 6},
		{"its clock jumped ahead", []look{{beat: 1, left: 6 * time.Second}, expiredLook, expiredLook, expiredLook, expiredLook, expiredLook, expiredLook}, 7},
		{"its clock jumped back", []look{renewedLook, longLease, longLease, longLease}, 4},
		{"a clock that jumped", []look{expiredLook, {beat: 2}, {beat: 3}, {beat: 4}, {beat: 5}}, 0},
	} {
		w := ownerWatch{minSilence: 3 * time.Second, maxGap: 5 * time.Second}
		now := time.Unix(1000, 0)
		got := 0
		for i, l := range c.looks {
			if l.pause == 0 {
				l.pause = time.Second
			}
			if l.blind {
				w.reset()
			}
			now = now.Add(l.pause)
			deadOwners, undecidedCount := w.check([]store.Owner{{Token: 1, Heartbeat: l.beat, LeaseLeft: l.left}}, now, neverGone)
			if len(deadOwners) > 0 && got == 0 {
				got = i + 1
			}
			if (undecidedCount == 1) != (l.left <= 0 && len(deadOwners) == 0) {
				t.Errorf("%s: %d undecided at look %d", c.name, undecidedCount, i+1)
			}
		}
		if got != c.deadAfter {
			t.Errorf("%s: dead at look %d, want %d", c.name, got, c.deadAfter)
		}
	}
	w := ownerWatch{minSilence: time.Hour, maxGap: time.Hour}
	isGone := func(p store.Process) bool { return p.PID == 7 }
	deadOwners, _ := w.check([]store.Owner{{Token: 1, Process: store.Process{PID: 7}}, {Token: 2, IsSettling: true}, {Token: 3, Process: store.Process{PID: 8}}}, time.Unix(5, 0), isGone)
	if len(deadOwners) != 2 || deadOwners[0].Token != 1 || deadOwners[1].Token != 2 {
		t.Errorf("%s", fmt.Sprint(deadOwners))
	}
}
