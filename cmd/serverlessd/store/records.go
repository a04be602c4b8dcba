package store

import (
	"context"
	"database/sql"
	"time"

	"gloom/cmd/serverlessd/job"
)

const recordColumns = "SELECT j.id, j.type, j.dt, j.create_dt, j.done_dt, j.`lock`, j.tries, j.code, j.exitcode, j.first_dt, r.truncated, r.bad_lines" +
	" FROM sq_jobs j LEFT JOIN sq_results r ON r.id = j.id WHERE j.type <> '" + sysidType + "' AND "

func scanRecord(r *sql.Rows, now time.Time) (rec Record, err error) {
	var dt, created, ended, first moment
	var code sql.NullString
	var exit, truncated, badLines sql.NullInt64
	err = r.Scan((*string)(&rec.ID), &rec.Jobtype, &dt, &created, &ended, &rec.Lock, &rec.Tries, &code, &exit, &first, &truncated, &badLines)
	rec.Due, rec.Created, rec.Done, rec.first = dt.time(), created.time(), ended.time(), first.time()
	rec.Code, rec.Status = code.String, int(exit.Int64)
	rec.Truncated, rec.BadLines = truncated.Int64 != 0, int(badLines.Int64)
	switch {
	case rec.Lock == done:
		rec.State = job.Ended(rec.Code)
	case rec.Lock != "":
		rec.State = job.Running
	case rec.Due.After(now):
		rec.State = job.Deferred
	default:
		rec.State = job.Waiting
	}
	return rec, err
}

// Job implements Store.
func (s *SQL) Job(ctx context.Context, id job.ID) (rec *Record, err error) {
	err = s.look(ctx, func(ctx context.Context, q querier, now time.Time) error {
		if rec, err = record(ctx, q, now, id); err != nil {
			return err
		}
		if err := addLast(ctx, q, []*Record{rec}); err != nil {
			return err
		}
		return addRuns(ctx, q, rec)
	})
	return rec, err
}

func record(ctx context.Context, q querier, now time.Time, id job.ID) (found *Record, err error) {
	err = each(ctx, q, recordColumns+"j.id = ?", []any{string(id)}, func(r *sql.Rows) error {
		rec, err := scanRecord(r, now)
		found = &rec
		return err
	})
	if err == nil && found == nil {
		err = ErrUnknown
	}
	return found, err
}

// Result implements Store.
func (s *SQL) Result(ctx context.Context, id job.ID) (rec *Record, data []byte, err error) {
	err = s.look(ctx, func(ctx context.Context, q querier, now time.Time) error {
		rec, err = record(ctx, q, now, id)
		if err != nil {
			return err
		}
		if rec.Lock != done {
			return ErrNotDone
		}
		return each(ctx, q, "SELECT data FROM sq_results WHERE id = ?", []any{string(id)}, func(r *sql.Rows) error { return r.Scan(&data) })
	})
	return rec, data, err
}

// one holds the row of a job.
func (t *tx) one(id job.ID) (held, error) {
	rows, err := t.hold("id = ? AND type <> ?"+t.s.locked(), string(id), sysidType)
	if err == nil && len(rows) == 0 {
		err = ErrUnknown
	}
	if err != nil {
		return held{}, err
	}
	return rows[0], nil
}

// Delete implements Store.
func (s *SQL) Delete(ctx context.Context, id job.ID) error {
	return s.transact(ctx, "delete", func(t *tx) error {
		h, err := t.one(id)
		switch {
		case err != nil:
			return err
		case h.lock == done:
			return ErrDone
		case h.lock != "":
			return ErrRunning
		}
		t.from(h).deleted++
		return t.remove([]held{h}, "")
	})
}

// Retry implements Store.
func (s *SQL) Retry(ctx context.Context, id job.ID) error {
	return s.transact(ctx, "retry", func(t *tx) error {
		h, err := t.one(id)
		switch {
		case err != nil:
			return err
		case h.lock == "":
			return ErrNotDone
		case h.lock != done:
			return ErrRunning
		}
		t.retry(h)
		return t.reclaim(h)
	})
}

func (t *tx) retry(h held) {
	t.free(h, t.now, ", tries = 0, fence = fence + 1, first_dt = ?, done_dt = NULL, code = NULL, exitcode = NULL", at(t.now))
	t.later("DELETE FROM sq_results WHERE id = ?", string(h.id))
	t.later("DELETE FROM sq_last WHERE id = ?", string(h.id))
	t.later("DELETE FROM sq_runs WHERE id = ?", string(h.id))
}

// condition returns the condition of a query.
func (q Query) condition(prefix string, now time.Time) (where string, args []any) {
	where = prefix + "type >= ? AND " + prefix + "type < ?"
	args = []any{q.Client + "-", q.Client + "."}
	if q.Type != "" {
		where, args = prefix+"type = ?", []any{job.Jobtype(q.Client, q.Type)}
	}
	and := func(text string, more ...any) {
		where += " AND " + text
		args = append(args, more...)
	}
	if q.After != "" {
		and(prefix+"id < ?", string(q.After))
	}
	lock := prefix + "`lock`"
	switch q.State {
	case "":
	case job.Waiting:
		and(lock+" = '' AND "+prefix+"dt <= ?", at(now))
	case job.Deferred:
		and(lock+" = '' AND "+prefix+"dt > ?", at(now))
	case job.Running:
		and(lock+" <> '' AND "+lock+" <> ?", done)
	case job.Abandoned:
		and(lock+" = ? AND "+prefix+"code NOT IN (?,?,?)", done, job.CodeOK, job.CodeFailed, job.CodeExpired)
	default: // the states of ended jobs are their codes
		and(lock+" = ? AND "+prefix+"code = ?", done, string(q.State))
	}
	return where, args
}

// Jobs implements Store.
func (s *SQL) Jobs(ctx context.Context, want Query) (list []Record, err error) {
	err = s.look(ctx, func(ctx context.Context, q querier, now time.Time) error {
		list = nil
		where, args := want.condition("j.", now)
		err := each(ctx, q, recordColumns+where+" ORDER BY j.id DESC LIMIT ?", append(args, want.Limit), func(r *sql.Rows) error {
			rec, err := scanRecord(r, now)
			list = append(list, rec)
			return err
		})
		if err != nil || !want.Last {
			return err
		}
		recs := make([]*Record, len(list))
		for i := range list {
			recs[i] = &list[i]
		}
		return addLast(ctx, q, recs)
	})
	return list, err
}

// RetryAll implements Store.
func (s *SQL) RetryAll(ctx context.Context, want Query) (affected int, more bool, err error) {
	err = s.transact(ctx, "retry all", func(t *tx) error {
		where, args := want.condition("", t.now)
		rows, err := t.hold(where+" AND `lock` = ? AND NOT EXISTS (SELECT 1 FROM sq_keys k WHERE k.id = sq_jobs.id AND k.holds IS NULL)"+
			" ORDER BY id DESC LIMIT ?"+s.locked(), append(args, done, want.Limit)...)
		for _, h := range rows {
			t.retry(h)
		}
		affected, more = len(rows), len(rows) == want.Limit
		return err
	})
	return affected, more, err
}
