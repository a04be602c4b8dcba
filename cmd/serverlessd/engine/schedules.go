package engine

import (
	"context"
	"errors"
	"time"

	"gloom/cmd/internal/schedule"
	"gloom/cmd/serverlessd/store"
)

const (
	// scheduleEvery is the longest time between two searches for due schedules, because other
	// daemons may change schedules.
	scheduleEvery = 500 * time.Millisecond
	// For scheduleIdle after its start, a daemon leaves earlier due times to daemons that were already
	// running. After that it treats them as missed.
	scheduleIdle = 2 * time.Second
)

// scheduleStore returns the store that has the schedules.
func (e *Engine) scheduleStore() *backend { return e.backends[0] }

// schedule settles due schedules until the engine ends.
func (b *backend) schedule() {
	var watch schedule.Watch
	for b.engine.sleep(b.settleSchedules(&watch)) {
	}
}

// settleSchedules makes the jobs of all due schedules, and returns how long to wait before the next
// call.
func (b *backend) settleSchedules(watch *schedule.Watch) time.Duration {
	skipped := make(map[string]int)
	defer func() {
		if n := skipped[schedule.SkipMissed]; n > 0 {
			b.log.Warn().Int("due_times", n).Msg("schedules were due while no daemon was running; their jobs are not made later")
		}
	}()
	for b.checkReachable() == nil && !b.engine.isLeaving() {
		due, now, next, err := b.store.DueSchedules(b.engine.ctx)
		if b.noteCall("look for due schedules", err) != nil {
			break
		}
		since, wasSetBack := watch.Observe(now)
		if wasSetBack {
			b.log.Warn().Msg("the store's clock was set back; no schedule makes a job twice")
		}
		if idleLeft := scheduleIdle - now.Sub(since); idleLeft > 0 {
			return min(idleLeft, scheduleEvery)
		}
		if len(due) == 0 {
			if next.IsZero() {
				break
			}
			return max(time.Millisecond, min(next.Sub(now), scheduleEvery))
		}
		if !b.settleKeys(due, since, skipped) {
			break
		}
	}
	return scheduleEvery
}

// settleKeys settles schedules, and reports whether it has settled any. If the store refuses
// several schedules together, it settles them one by one.
func (b *backend) settleKeys(due []schedule.Key, since time.Time, skipped map[string]int) (settled bool) {
	start := time.Now()
	settlement, err := b.store.SettleSchedules(b.engine.ctx, due, since)
	if err != nil && !errors.Is(err, store.ErrAway) && len(due) > 1 {
		for i := range due {
			settled = b.settleKeys(due[i:i+1], since, skipped) || settled
		}
		return settled
	}
	if b.noteCall("make the jobs of schedules", err) != nil {
		return false
	}
	b.engine.metrics.observeCall("settle", start)
	b.engine.metrics.observeSettled(&settlement)
	b.engine.events.logFollowed(settlement.Made)
	for _, key := range settlement.Unreadable {
		b.log.Error().Stringer("schedule", key).Msg("the schedule cannot be read and makes no jobs; set it again, or delete it")
	}
	for reason, n := range settlement.Skipped {
		skipped[reason] += n
	}
	if len(settlement.Made) > 0 {
		b.wakePick()
	}
	return settlement.Schedules > 0
}

// keepFile writes the schedules of the file to the store at the start and whenever the file
// changes, until the engine ends.
func (b *backend) keepFile() {
	file := b.engine.cfg.Schedules
	if file == nil {
		return
	}
	for {
		select {
		case <-b.engine.ctx.Done():
			return
		case <-file.Changed():
		}
		for b.checkReachable() != nil || b.noteCall("write the file's schedules", b.putFile(file.All())) != nil {
			if !b.engine.sleep(scheduleEvery) {
				return
			}
		}
	}
}

// putFile writes the schedules of the file to the store, and drops those that are no longer in the
// file.
func (b *backend) putFile(specs map[schedule.Key]schedule.Spec) error {
	ctx := b.engine.ctx
	old, err := b.store.FileSchedules(ctx)
	if err != nil {
		return err
	}
	known, dropCount, putCount := make(map[schedule.Key]bool, len(old)), 0, 0
	for _, n := range old {
		spec, ok := specs[n.Key]
		if known[n.Key] = ok && n.Schedule != nil && n.Equal(&spec); ok {
			continue
		}
		err := b.store.DropSchedule(ctx, n.Key, true)
		if err != nil && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrFromFile) {
			return err
		}
		dropCount++
	}
	for key, spec := range specs {
		if known[key] {
			continue
		}
		err := b.store.PutSchedule(ctx, key, spec, true)
		if err != nil && !errors.Is(err, store.ErrSchedules) {
			return err
		} else if err != nil {
			b.log.Error().Err(err).Stringer("schedule", key).Msg("a schedule of the file is left out")
			continue
		}
		putCount++
	}
	b.log.Info().Int("schedules", len(specs)).Int("changed", putCount).Int("deleted", dropCount).Msg("the schedules of the file are stored")
	return nil
}

// PutSchedule sets a schedule.
func (e *Engine) PutSchedule(ctx context.Context, key schedule.Key, spec schedule.Spec) error {
	b := e.scheduleStore()
	return b.noteRequest(ctx, b.store.PutSchedule(ctx, key, spec, false))
}

// DropSchedule removes a schedule.
func (e *Engine) DropSchedule(ctx context.Context, key schedule.Key) error {
	b := e.scheduleStore()
	return b.noteRequest(ctx, b.store.DropSchedule(ctx, key, false))
}

// Schedule returns a schedule, and the store's time.
func (e *Engine) Schedule(ctx context.Context, key schedule.Key) (store.NamedSchedule, time.Time, error) {
	b := e.scheduleStore()
	n, now, err := b.store.Schedule(ctx, key)
	return n, now, b.noteRequest(ctx, err)
}

// Schedules returns up to limit schedules of a client, or of all clients if client is "". They are
// sorted by name and begin after a key. Schedules also returns the store's time.
func (e *Engine) Schedules(ctx context.Context, client string, after schedule.Key, limit int) ([]store.NamedSchedule, time.Time, error) {
	b := e.scheduleStore()
	list, now, err := b.store.Schedules(ctx, client, after, limit)
	return list, now, b.noteRequest(ctx, err)
}
