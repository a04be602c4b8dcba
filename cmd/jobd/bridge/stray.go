package bridge

import (
	"context"
	"time"

	"gloom/cmd/jobd/store"
)

// strays are rows with a claim of this daemon, of which it knows nothing. If a database
// loses commits that it has acknowledged, as after a failover to a replica that was
// behind, rows that have ended are accepted or running again.
type strays struct {
	last time.Time
	seen map[int64]time.Time // since when
}

const (
	// strayTime is how long a row must be a stray: longer than the answer to the commit
	// that accepts a row may take.
	strayTime = time.Minute
	strayLook = 10 * time.Second
	strayGap  = 3 * strayLook // after a longer break between two looks, all times begin again
	strayMost = 1000          // settled at a time
)

// look takes the rows with claims and returns those that have been strays for a long
// time.
func (s *strays) look(claimed []int64, now time.Time, knows func(id int64) bool) (due []int64) {
	if now.Sub(s.last) > strayGap { // doubts from an outage are about to be resolved
		s.seen = nil
	}
	s.last = now
	seen := make(map[int64]time.Time)
	for _, id := range claimed {
		if knows(id) {
			continue
		}
		since, ok := s.seen[id]
		if !ok {
			since = now
		}
		seen[id] = since
		if now.Sub(since) >= strayTime && len(due) < strayMost {
			due = append(due, id)
		}
	}
	s.seen = seen
	return due
}

// settleStrays settles the strays of this daemon. The reaper's lock is held.
func (b *Bridge) settleStrays(ctx context.Context) error {
	s, now := &b.reaper.strays, time.Now()
	if now.Sub(s.last) < strayLook {
		return nil
	}
	claimed, err := b.store.Own(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock() // after the read: rows accepted before it are known by now, or soon will be
	due := s.look(claimed, now, b.machine.Knows)
	b.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	sum, err := b.store.Disown(ctx, due, store.Orphans{
		Requeue: b.cfg.Orphans == requeueOrphans, Reason: store.Forgotten(b.cfg.Name), At: now.Unix(),
	})
	b.noteSettled(sum)
	b.log.Warn().Err(err).Ints64("ids", due).Int("returned", sum.Returned).Int("failed", sum.Failed).
		Msg("the database has lost writes of this daemon: rows that it does not run any more are settled")
	return err
}
