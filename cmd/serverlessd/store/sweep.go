package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"gloom/cmd/serverlessd/job"
)

// Sweep implements Store.
func (s *SQL) Sweep(ctx context.Context, want SweepOptions) (swept SweepResult, err error) {
	for _, f := range []func(context.Context, SweepOptions, *SweepResult) error{s.expireLocks, s.correctTimes, s.abandonUnhandled, s.expire, s.purge, s.expireKeys, s.dropReadPoints, s.addCounts, s.audit} {
		if err := f(ctx, want, &swept); err != nil {
			return swept, err
		}
	}
	return swept, nil
}

// sweepStep runs one kind of maintenance in a transaction. If the transaction is rolled back,
// swept is as before.
func (s *SQL) sweepStep(ctx context.Context, name string, swept *SweepResult, f func(*tx) error) error {
	before := *swept
	err := s.transact(ctx, name, func(t *tx) error {
		*swept = before
		return f(t)
	})
	if err != nil {
		*swept = before
	}
	return err
}

// expireLocks frees the jobs of daemons that were lost or have left, and releases their sysids. It
// lets locks expire by the clock only when this daemon has watched the clock for a ttl.
func (s *SQL) expireLocks(ctx context.Context, want SweepOptions, swept *SweepResult) error {
	return s.sweepStep(ctx, "expire locks", swept, func(t *tx) error {
		swept.Ahead = t.scheduleNow().Sub(t.now).Round(maxJitter)
		ageTime, err := t.ageTime(want.TTL, want.RetryFor)
		if err != nil {
			return err
		}
		expired, latest := longPast, dueOfEnded(t.now)
		if t.clockWatched(want.TTL) {
			expired, latest = t.now, t.now.Add(MaxTTL)
		}
		// Locks that begin with __ never expire.
		for _, owners := range [][2]string{{"", "__"}, {"_`", "~"}} {
			rows, err := t.lockRows("`lock` > ? AND `lock` < ? AND (dt <= ? OR dt > ?) ORDER BY `lock`, dt LIMIT ?"+s.skipLocked(),
				owners[0], owners[1], formatTime(expired), formatTime(latest), want.Limit)
			if err != nil {
				return err
			}
			swept.More = swept.More || len(rows) == want.Limit
			for _, h := range rows {
				switch {
				case h.jobtype == sysidType:
					t.runAtEnd("DELETE FROM sq_jobs WHERE id = ? AND `lock` = ? AND dt = ?", string(h.id), h.lock, formatTime(h.dt))
				case ageTime.Sub(h.firstStart) > want.RetryFor:
					t.lostRun(h)
					if err := t.abandonJob(h, want, job.CodeLockExpired, swept); err != nil {
						return err
					}
				default:
					swept.Freed++
					t.lostRun(h)
					t.freeJob(h, t.now, ", code = ?", job.CodeLockExpired)
					t.noteWait(h, h.tries)
				}
			}
		}
		return nil
	})
}

// rowPosition is a position among the waiting rows, which are sorted by dt and id.
type rowPosition struct{ due, id string }

// searchFactor limits a sweep: correctTimes examines at most searchFactor times as many waiting
// jobs as it may change.
const searchFactor = 10

// correctTimes corrects the times of jobs that were written while the store's clock was ahead, so that
// they wait no longer than requested. It searches for them once after the store was opened, and
// after each time the clock was set back; each sweep does a slice of the search.
func (s *SQL) correctTimes(ctx context.Context, want SweepOptions, swept *SweepResult) error {
	s.mu.Lock()
	sets, searched, fromRow := s.clock.setBacks, s.clock.setsSearched, s.clock.searchedTo
	s.mu.Unlock()
	if sets == searched {
		return nil
	}
	lateRows := make(map[job.ID]waitingRow)
	var toRow rowPosition
	var more bool
	err := s.read(ctx, func(ctx context.Context, q querier, now time.Time) error {
		clear(lateRows)
		toRow, more = fromRow, false
		if toRow.due == "" {
			toRow.due = formatTime(now)
		}
		seen := 0
		return eachRow(ctx, q, "SELECT "+rowColumns+", (SELECT l.dt FROM sq_last l WHERE l.id = sq_jobs.id),"+
			" (SELECT r.started FROM sq_runs r WHERE r.id = sq_jobs.id AND r.n = sq_jobs.tries + 1 AND r.outcome = '')"+
			" FROM sq_jobs WHERE `lock` = '' AND dt >= ? AND (dt > ? OR id > ?) ORDER BY dt, id LIMIT ?",
			[]any{toRow.due, toRow.due, toRow.id, searchFactor * want.Limit}, func(r *sql.Rows) error {
				if more = len(lateRows) == want.Limit; more {
					return nil
				}
				var lastEnd, waitNoted sqlTime
				h, err := scanLocked(r, &lastEnd, &waitNoted)
				if w := (waitingRow{h, lastEnd.time(), waitNoted.time()}); w.clockAhead(now) > 0 {
					lateRows[h.id] = w
				}
				seen++
				toRow, more = rowPosition{formatTime(h.dt), string(h.id)}, seen == searchFactor*want.Limit
				return err
			})
	})
	if err != nil {
		return err
	}
	if len(lateRows) > 0 {
		err = s.transact(ctx, "correct times", func(t *tx) error {
			rows, err := t.lockAll(slices.Collect(maps.Keys(lateRows)))
			for _, h := range rows {
				w := lateRows[h.id]
				lead := w.clockAhead(t.now)
				if h.lock != "" || h.fence != w.fence || !h.dt.Equal(w.dt) || lead <= 0 { // it has changed since
					continue
				}
				corrected := func(storedTime time.Time) string {
					return formatTime(storedTime.Add(-max(0, min(lead, storedTime.Sub(t.now)))))
				}
				t.change(h, "dt = ?, create_dt = ?, first_dt = ?", corrected(h.dt), corrected(h.created), corrected(h.firstStart))
				if !w.lastEnd.IsZero() {
					t.runAtEnd("UPDATE sq_last SET dt = ? WHERE id = ?", corrected(w.lastEnd), string(h.id))
				}
				if !w.waitNoted.IsZero() {
					t.runAtEnd("UPDATE sq_runs SET started = ? WHERE id = ? AND n = ?", corrected(w.waitNoted), string(h.id), h.tries+1)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock.setBacks == sets { // if it has changed, the clock was set back again, and the search begins anew
		if s.clock.searchedTo = toRow; !more {
			s.clock.setsSearched = sets
		}
	}
	swept.More, swept.CorrectedTimes = swept.More || more && len(lateRows) > 0, len(lateRows)
	return nil
}

// waitingRow is a row whose job waits. lastEnd is the time at which its last run without success
// ended, and waitNoted is the time that noteWait has stored; both are zero if there is none.
type waitingRow struct {
	lockedRow
	lastEnd, waitNoted time.Time
}

// clockAhead returns the lead of the clock that wrote a waiting job's times, as far as these times
// show it: a job cannot have been added, run, given back or extended in the future. The time at
// which it is due shows nothing, because a client may have asked for it.
func (w *waitingRow) clockAhead(now time.Time) time.Duration {
	return max(w.created.Sub(now), w.firstStart.Sub(now), w.lastEnd.Sub(now), w.waitNoted.Sub(now))
}

// abandonJob ends a job without a further run, and adds its follow-on job.
func (t *tx) abandonJob(h lockedRow, want SweepOptions, code string, swept *SweepResult) error {
	swept.Abandoned++
	swept.addEnded(h, code)
	t.countEnded(h, code)
	t.archive(h, code, 0)
	if want.Next == nil {
		return nil
	}
	next := want.Next(h.jobtype)
	if next == "" {
		return nil
	}
	followJob := FollowJob{ID: want.NextID(), Jobtype: next}
	swept.FollowJobs = append(swept.FollowJobs, followJob)
	return t.insert([]row{{id: followJob.ID, jobtype: next, dt: t.now, created: t.now}})
}

func (s *SweepResult) addEnded(h lockedRow, code string) {
	s.Ended = append(s.Ended, SweptJob{Run: Run{ID: h.id, Tries: h.tries}, Jobtype: h.jobtype, Code: code})
}

// abandonUnhandled ends jobs whose type has had no handler for too long.
func (s *SQL) abandonUnhandled(ctx context.Context, want SweepOptions, swept *SweepResult) error {
	if want.Handled == nil {
		return nil
	}
	var types []string
	err := s.read(ctx, func(ctx context.Context, q querier, now time.Time) error {
		types = nil
		return s.eachOpenType(ctx, q, func(jobtype string, oldest time.Time, _ int64) {
			if now.Sub(oldest) > want.RetryFor && !want.Handled(jobtype) {
				types = append(types, jobtype)
			}
		})
	})
	limit := swept.Abandoned + want.Limit
	for _, jobtype := range types {
		if err != nil || swept.Abandoned == limit {
			break
		}
		err = s.sweepStep(ctx, "abandon", swept, func(t *tx) error {
			ageTime, err := t.ageTime(want.TTL, want.RetryFor)
			if err != nil || ageTime.IsZero() {
				return err
			}
			rows, err := t.lockRows("type = ? AND `lock` = '' AND dt < ? ORDER BY dt, id LIMIT ?"+s.skipLocked(),
				jobtype, formatTime(ageTime.Add(-want.RetryFor)), limit-swept.Abandoned)
			for _, h := range rows {
				if err := t.abandonJob(h, want, job.CodeNoHandler, swept); err != nil {
					return err
				}
			}
			return err
		})
	}
	swept.More = swept.More || swept.Abandoned == limit
	return err
}

// expire ends jobs that have waited for too long without ever being run.
func (s *SQL) expire(ctx context.Context, want SweepOptions, swept *SweepResult) error {
	return s.sweepStep(ctx, "expire", swept, func(t *tx) error {
		ageTime, err := t.ageTime(want.TTL, want.KeepUnrun)
		if err != nil || ageTime.IsZero() {
			return err
		}
		rows, err := t.lockRows("`lock` = '' AND dt < ? AND tries = 0 ORDER BY dt LIMIT ?"+s.skipLocked(), formatTime(ageTime.Add(-want.KeepUnrun)), want.Limit)
		swept.Expired, swept.More = len(rows), swept.More || len(rows) == want.Limit
		for _, h := range rows {
			swept.addEnded(h, job.CodeExpired)
			t.uncount(h).Expired++
			t.archive(h, job.CodeExpired, 0)
		}
		return err
	})
}

// purge removes jobs that ended long ago. They are still counted, under remainderType if they were
// the last jobs of their type.
func (s *SQL) purge(ctx context.Context, want SweepOptions, swept *SweepResult) error {
	return s.sweepStep(ctx, "purge", swept, func(t *tx) error {
		ageTime, err := t.ageTime(want.TTL, want.KeepDone)
		if err != nil || ageTime.IsZero() {
			return err
		}
		rows, err := t.lockRows("`lock` = ? AND dt <= ? ORDER BY dt LIMIT ?"+s.skipLocked(), endedLock, formatTime(dueOfEnded(ageTime).Add(-want.KeepDone)), want.Limit)
		if err != nil {
			return err
		}
		swept.Purged, swept.More = len(rows), swept.More || len(rows) == want.Limit
		if err := t.remove(rows, " AND until IS NULL"); err != nil {
			return err
		}
		types := make(map[string]bool)
		for _, h := range rows {
			types[h.jobtype] = true
		}
		for _, jobtype := range slices.Sorted(maps.Keys(types)) {
			if err := t.settleRemainder(jobtype); err != nil {
				return err
			}
		}
		return nil
	})
}

// dropReadPoints drops the read points of segments that were removed.
func (s *SQL) dropReadPoints(ctx context.Context, want SweepOptions, _ *SweepResult) error {
	if len(want.Segments) == 0 {
		return nil
	}
	return s.transact(ctx, "forget", func(t *tx) error {
		for _, segment := range want.Segments {
			t.runAtEnd("DELETE FROM sq_points WHERE segment = ?", segment)
		}
		return nil
	})
}

// remove deletes jobs and everything that belongs to them. keys is a further condition for the rows
// of unique keys that are deleted.
func (t *tx) remove(rows []lockedRow, keys string) error {
	for text, args := range inLists(idsOf(rows, func(h *lockedRow) job.ID { return h.id })) {
		if err := t.deleteAll([]string{"sq_jobs", "sq_data", "sq_results", "sq_last", "sq_runs"}, "id"+text, args...); err != nil {
			return err
		}
		if _, err := t.delete("sq_keys", "id"+text+keys, args...); err != nil {
			return err
		}
	}
	return nil
}
