package bridge

import (
	"context"
	"time"

	"gloom/cmd/jobd/store"
)

// strayRows are rows that this daemon has claimed but does not know. If a database loses commits that
// it has acknowledged, as after a failover to a replica that was behind, rows that had ended are
// accepted or running again.
type strayRows struct {
	lastCheck time.Time
	firstSeen map[int64]time.Time // when each was first seen
}

const (
	// A row must have been a stray for minStrayTime before it is settled. It is longer than the
	// longest commit that accepts a row.
	minStrayTime       = time.Minute
	strayCheckInterval = 10 * time.Second
	maxStrayGap        = 3 * strayCheckInterval // after a longer break between two checks, all times start again
	maxStrays          = 1000                   // maximum number of strays settled at a time
)

// check returns the claimed rows that have been strays for minStrayTime.
func (s *strayRows) check(claimed []int64, now time.Time, isKnown func(id int64) bool) (due []int64) {
	if now.Sub(s.lastCheck) > maxStrayGap { // after an outage Resolve may still return some of these rows
		s.firstSeen = nil
	}
	s.lastCheck = now
	seen := make(map[int64]time.Time)
	for _, id := range claimed {
		if isKnown(id) {
			continue
		}
		since, ok := s.firstSeen[id]
		if !ok {
			since = now
		}
		seen[id] = since
		if now.Sub(since) >= minStrayTime && len(due) < maxStrays {
			due = append(due, id)
		}
	}
	s.firstSeen = seen
	return due
}

// settleStrays settles the strays of this daemon; b.reaper.mu is held.
func (b *Bridge) settleStrays(ctx context.Context) error {
	s, now := &b.reaper.strays, time.Now()
	if now.Sub(s.lastCheck) < strayCheckInterval {
		return nil
	}
	claimed, err := b.store.OwnClaims(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock() // after OwnClaims, so that the machine knows the rows that it has returned, or soon will
	unwritten := b.writer.unwrittenRows()
	due := s.check(claimed, now, func(id int64) bool { return b.machine.HasRow(id) || unwritten[id] })
	b.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	sum, err := b.store.SettleOwnClaims(ctx, due, store.OrphanPolicy{
		Requeue: b.cfg.Orphans == requeueOrphans, Reason: store.ForgottenReason(b.cfg.Name), FinishedAt: now.Unix(),
	})
	b.recordSettled(sum)
	b.log.Warn().Err(err).Ints64("ids", due).Int("returned", sum.RequeuedCount).Int("failed", len(sum.FailedRows)).
		Msg("the database has lost writes of this daemon: rows that it no longer runs are settled")
	return err
}
