package store

import (
	"context"
	"database/sql"
	"time"

	"gloom/cmd/internal/schedule"
	"gloom/cmd/serverlessd/job"
)

const (
	// maxSettled is the maximum number of schedules that a transaction settles. After maxMade
	// jobs, or madeBytes bytes of payloads, it leaves the rest to the next transaction.
	maxSettled = 100
	maxMade    = 1000
	madeBytes  = 8 << 20
	// never is the column wake of a schedule without a next due time.
	never = "9999-12-31 00:00:00.000"
)

// NamedSchedule is a schedule with its name. Its Schedule is nil if the store's record cannot be read.
type NamedSchedule struct {
	schedule.Key
	*schedule.Schedule
}

// SettleResult is the result of SettleSchedules.
type SettleResult struct {
	Schedules  int // number of settled schedules, without those that another daemon has locked
	Made       []FollowJob
	Skipped    map[string]int // by reason
	Unreadable []schedule.Key
}

const scheduleColumns = "SELECT client, name, data FROM sq_schedules WHERE "

func scanSchedule(r *sql.Rows) (n NamedSchedule, err error) {
	var data sql.RawBytes
	if err := r.Scan(&n.Client, &n.Name, &data); err != nil {
		return n, err
	}
	if s, err := schedule.Decode(data); err == nil {
		n.Schedule = s
	}
	return n, nil
}

// schedule returns a schedule and locks its row. It returns nil if there is none.
func (t *tx) schedule(key schedule.Key, lock string) (found *NamedSchedule, err error) {
	err = t.eachRow(scheduleColumns+"client = ? AND name = ?"+lock, []any{key.Client, key.Name}, func(r *sql.Rows) error {
		n, err := scanSchedule(r)
		found = &n
		return err
	})
	return found, err
}

// scheduleNow returns the time that is compared with the due times of schedules.
func (t *tx) scheduleNow() time.Time { return t.store.scheduleTime(t.now) }

// putSchedule writes a schedule at the end of the transaction.
func (t *tx) putSchedule(key schedule.Key, s *schedule.Schedule) {
	wake, waits := never, ""
	if w := s.WakeTime(t.scheduleNow()); !w.IsZero() {
		wake = formatTime(w)
	}
	if !s.Queued.IsZero() && !s.Paused {
		waits = s.LastJobID
	}
	t.put("sq_schedules", "client, name", "wake, seen, waits, from_file, data",
		key.Client, key.Name, wake, formatTime(t.scheduleNow()), waits, s.FromFile, s.Encode())
}

// PutSchedule implements Store.
func (s *SQL) PutSchedule(ctx context.Context, key schedule.Key, spec schedule.Spec, fromFile bool) error {
	return s.transact(ctx, "put schedule", func(t *tx) error {
		old, err := t.schedule(key, s.forUpdate())
		if err != nil {
			return err
		}
		if old == nil {
			count := 0
			err := t.queryRow("SELECT COUNT(*) FROM sq_schedules WHERE client = ?", []any{key.Client}, &count)
			if err == nil && count >= schedule.MaxSchedules {
				err = ErrSchedules
			}
			if err != nil {
				return err
			}
			old = &NamedSchedule{}
		}
		n, err := schedule.Put(old.Schedule, spec, fromFile, t.scheduleNow()) // a schedule that cannot be read is replaced
		if err == nil && n != old.Schedule {
			t.putSchedule(key, n)
		}
		return err
	})
}

// DropSchedule implements Store.
func (s *SQL) DropSchedule(ctx context.Context, key schedule.Key, fromFile bool) error {
	return s.transact(ctx, "drop schedule", func(t *tx) error {
		old, err := t.schedule(key, s.forUpdate())
		switch {
		case err != nil:
			return err
		case old == nil:
			return ErrUnknown
		case old.Schedule != nil && old.FromFile != fromFile:
			return ErrFromFile
		}
		_, err = t.delete("sq_schedules", "client = ? AND name = ?", key.Client, key.Name)
		return err
	})
}

// Schedules implements Store.
func (s *SQL) Schedules(ctx context.Context, client string, after schedule.Key, limit int) (list []NamedSchedule, now time.Time, err error) {
	if client == "" {
		return s.schedules(ctx, "(client, name) > (?, ?) ORDER BY client, name LIMIT ?", after.Client, after.Name, limit)
	}
	return s.schedules(ctx, "client = ? AND name > ? ORDER BY name LIMIT ?", client, after.Name, limit)
}

// Schedule implements Store.
func (s *SQL) Schedule(ctx context.Context, key schedule.Key) (n NamedSchedule, now time.Time, err error) {
	list, now, err := s.schedules(ctx, "client = ? AND name = ?", key.Client, key.Name)
	if err == nil && len(list) == 0 {
		err = ErrUnknown
	}
	if err != nil {
		return n, now, err
	}
	return list[0], now, nil
}

// FileSchedules implements Store.
func (s *SQL) FileSchedules(ctx context.Context) (list []NamedSchedule, err error) {
	list, _, err = s.schedules(ctx, "from_file = ?", true)
	return list, err
}

func (s *SQL) schedules(ctx context.Context, condition string, args ...any) (list []NamedSchedule, at time.Time, err error) {
	err = s.read(ctx, func(ctx context.Context, q querier, now time.Time) error {
		list, at = nil, s.scheduleTime(now)
		return eachRow(ctx, q, scheduleColumns+condition, args, func(r *sql.Rows) error {
			n, err := scanSchedule(r)
			list = append(list, n)
			return err
		})
	})
	return list, at, err
}

// DueSchedules implements Store.
func (s *SQL) DueSchedules(ctx context.Context) (due []schedule.Key, now time.Time, next time.Time, err error) {
	err = s.read(ctx, func(ctx context.Context, q querier, clock time.Time) error {
		due, now, next = nil, s.scheduleTime(clock), time.Time{}
		known := make(map[schedule.Key]bool)
		for _, c := range []struct{ condition, arg string }{
			{"s.wake <= ? ORDER BY s.wake, s.client, s.name", formatTime(now)},
			{"s.seen > ? ORDER BY s.seen", formatTime(now.Add(time.Second))}, // the row was written while the clock was ahead
			{"s.waits > '' AND NOT EXISTS (SELECT 1 FROM sq_jobs j WHERE j.id = s.waits AND j.`lock` <> ?)", endedLock},
		} {
			err := eachRow(ctx, q, "SELECT s.client, s.name FROM sq_schedules s WHERE "+c.condition+" LIMIT ?", []any{c.arg, maxSettled}, func(r *sql.Rows) error {
				var key schedule.Key
				err := r.Scan(&key.Client, &key.Name)
				if !known[key] {
					known[key] = true
					due = append(due, key)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return queryOne(ctx, q, "SELECT MIN(wake) FROM sq_schedules WHERE wake > ?", []any{formatTime(now)}, (*sqlTime)(&next))
	})
	return due, now, next, err
}

// SettleSchedules implements Store.
func (s *SQL) SettleSchedules(ctx context.Context, keys []schedule.Key, watched time.Time) (settled SettleResult, err error) {
	err = s.transact(ctx, "settle schedules", func(t *tx) error {
		settled = SettleResult{Skipped: make(map[string]int)}
		var rows []row
		bytes := 0
		for _, key := range keys {
			if len(rows) >= maxMade || bytes >= madeBytes {
				break
			}
			n, err := t.schedule(key, s.skipLocked())
			if err != nil {
				return err
			}
			if n == nil { // the schedule was deleted, or another daemon has locked it
				continue
			}
			settled.Schedules++
			var line job.Line
			if n.Schedule != nil {
				line, err = job.ParseScheduled(n.Job, 1<<30)
			}
			if n.Schedule == nil || err != nil {
				settled.Unreadable = append(settled.Unreadable, key)
				t.runAtEnd("UPDATE sq_schedules SET wake = ?, seen = ?, waits = '' WHERE client = ? AND name = ?", never, formatTime(t.scheduleNow()), key.Client, key.Name)
				continue
			}
			plan, err := t.settleSchedule(n, watched, max(1, min(maxSettled, madeBytes/(len(line.Payload)+1))))
			if err != nil {
				return err
			}
			for reason, count := range plan.Skipped {
				settled.Skipped[reason] += count
			}
			for _, madeJob := range plan.Made {
				r := row{id: job.ID(madeJob.JobID), jobtype: job.Jobtype(key.Client, line.Type), dt: t.now, created: t.now, payload: line.Payload}
				rows = append(rows, r)
				bytes += len(r.payload)
				settled.Made = append(settled.Made, FollowJob{ID: r.id, Jobtype: r.jobtype, Payload: r.payload})
			}
			t.putSchedule(key, n.Schedule)
		}
		return t.insert(rows)
	})
	return settled, err
}

func (t *tx) settleSchedule(n *NamedSchedule, watched time.Time, room int) (p schedule.Plan, err error) {
	p = n.Settle(schedule.Conditions{
		Now: t.scheduleNow(), WatchedSince: watched, Room: room,
		JobID: func(due time.Time) string { return job.ScheduledID(n.Key, due).String() },
		IsLive: func(id string) (live bool) {
			err = t.queryRow("SELECT 1 FROM sq_jobs WHERE id = ? AND `lock` <> ?", []any{id, endedLock}, &live)
			return live
		},
	})
	return p, err
}
