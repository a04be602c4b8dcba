package store

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"gloom/cmd/serverlessd/job"
)

// recordQuery returns the beginning of a query for job records. tables is the text of its FROM clause,
// in which j is the table of jobs.
func recordQuery(tables string) string {
	return "SELECT j.id, j.type, j.dt, j.create_dt, j.done_dt, j.`lock`, j.tries, j.code, j.exitcode, j.first_dt, r.truncated, r.bad_lines" +
		" FROM " + tables + " LEFT JOIN sq_results r ON r.id = j.id WHERE j.type <> '" + sysidType + "' AND "
}

func scanRecord(r *sql.Rows, now time.Time) (rec Record, err error) {
	var dt, created, ended, first sqlTime
	var code sql.NullString
	var exit, truncated, badLines sql.NullInt64
	err = r.Scan((*string)(&rec.ID), &rec.Jobtype, &dt, &created, &ended, &rec.Lock, &rec.Tries, &code, &exit, &first, &truncated, &badLines)
	rec.Due, rec.Created, rec.Done, rec.firstStart = dt.time(), created.time(), ended.time(), first.time()
	rec.Code, rec.Status = code.String, int(exit.Int64)
	rec.Truncated, rec.BadLines = truncated.Int64 != 0, int(badLines.Int64)
	switch {
	case rec.Lock == endedLock:
		rec.State = job.StateOf(rec.Code)
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
	err = s.read(ctx, func(ctx context.Context, q querier, now time.Time) error {
		if rec, err = findRecord(ctx, q, now, id); err != nil {
			return err
		}
		if err := loadLastRuns(ctx, q, []*Record{rec}); err != nil {
			return err
		}
		if err := queryOne(ctx, q, "SELECT COALESCE("+payloadExpr("LENGTH")+", 0), COALESCE((SELECT LENGTH(r.data) FROM sq_results r WHERE r.id = j.id), 0) FROM sq_jobs j WHERE j.id = ?", []any{string(id)},
			&rec.Bytes, &rec.DataBytes); err != nil {
			return err
		}
		return addRuns(ctx, q, rec)
	})
	return rec, err
}

func findRecord(ctx context.Context, q querier, now time.Time, id job.ID) (found *Record, err error) {
	err = eachRow(ctx, q, recordQuery("sq_jobs j")+"j.id = ?", []any{string(id)}, func(r *sql.Rows) error {
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
func (s *SQL) Result(ctx context.Context, id job.ID, limit int) (rec *Record, data []byte, err error) {
	err = s.read(ctx, func(ctx context.Context, q querier, now time.Time) error {
		rec, err = findRecord(ctx, q, now, id)
		if err != nil {
			return err
		}
		if rec.Lock != endedLock {
			return ErrNotDone
		}
		return queryOne(ctx, q, "SELECT CASE WHEN LENGTH(data) <= ? THEN data END, LENGTH(data) FROM sq_results WHERE id = ?", []any{limit, string(id)}, &data, &rec.DataBytes)
	})
	return rec, data, err
}

// payloadExpr returns an SQL expression that applies a function to a job's payload. The payload is
// in the job's row or, if it is long, in sq_data.
func payloadExpr(function string) string {
	return "COALESCE(" + function + "(j.data), (SELECT " + function + "(d.data) FROM sq_data d WHERE d.id = j.id))"
}

// Payload implements Store.
func (s *SQL) Payload(ctx context.Context, id job.ID, limit int) (rec *Record, data []byte, err error) {
	err = s.read(ctx, func(ctx context.Context, q querier, now time.Time) error {
		if rec, err = findRecord(ctx, q, now, id); err != nil {
			return err
		}
		size := payloadExpr("LENGTH")
		var n sql.NullInt64 // the size is not null for an empty payload, for which SQLite's driver returns nil
		err = queryOne(ctx, q, "SELECT CASE WHEN "+size+" <= ? THEN "+payloadExpr("")+" END, "+size+" FROM sq_jobs j WHERE j.id = ?", []any{limit, string(id)}, &data, &n)
		if rec.Bytes = n.Int64; n.Valid && rec.Bytes == 0 {
			data = []byte{}
		}
		return err
	})
	return rec, data, err
}

// lockRow locks the row of a job and returns it.
func (t *tx) lockRow(id job.ID) (lockedRow, error) {
	rows, err := t.lockRows("id = ? AND type <> ?"+t.store.forUpdate(), string(id), sysidType)
	if err == nil && len(rows) == 0 {
		err = ErrUnknown
	}
	if err != nil {
		return lockedRow{}, err
	}
	return rows[0], nil
}

// lockWaiting is like lockRow, but returns ErrDone or ErrRunning unless the job waits.
func (t *tx) lockWaiting(id job.ID) (lockedRow, error) {
	h, err := t.lockRow(id)
	switch {
	case err == nil && h.lock == endedLock:
		err = ErrDone
	case err == nil && h.lock != "":
		err = ErrRunning
	}
	return h, err
}

// Delete implements Store.
func (s *SQL) Delete(ctx context.Context, id job.ID) error {
	return s.transact(ctx, "delete", func(t *tx) error {
		h, err := t.lockWaiting(id)
		if err != nil {
			return err
		}
		t.uncount(h).Deleted++
		if err := t.remove([]lockedRow{h}, ""); err != nil {
			return err
		}
		return t.settleRemainder(h.jobtype)
	})
}

// Retry implements Store.
func (s *SQL) Retry(ctx context.Context, id job.ID) error {
	return s.transact(ctx, "retry", func(t *tx) error {
		h, err := t.lockRow(id)
		switch {
		case err != nil:
			return err
		case h.lock == "":
			return ErrNotDone
		case h.lock != endedLock:
			return ErrRunning
		}
		if err := t.retry([]lockedRow{h}); err != nil {
			return err
		}
		return t.takeKeyAgain(h)
	})
}

// retry makes jobs wait as if they were new.
func (t *tx) retry(rows []lockedRow) error {
	for _, h := range rows {
		t.freeJob(h, t.now, ", tries = 0, fence = fence + 1, first_dt = ?, done_dt = NULL, code = NULL, exitcode = NULL", formatTime(t.now))
	}
	for text, args := range inLists(idsOf(rows, func(h *lockedRow) job.ID { return h.id })) {
		if err := t.deleteAll([]string{"sq_results", "sq_last", "sq_runs"}, "id"+text, args...); err != nil {
			return err
		}
	}
	return nil
}

// Hasten implements Store.
func (s *SQL) Hasten(ctx context.Context, id job.ID) error {
	return s.transact(ctx, "hasten", func(t *tx) error {
		h, err := t.lockWaiting(id)
		if err == nil && h.dt.After(t.now) {
			t.count(h.jobtype) // the counts stay the same, but another job may now be the oldest of the type
			t.change(h, "dt = ?", formatTime(t.now))
			t.noteWait(h, h.tries)
		}
		return err
	})
}

// condition returns the WHERE condition of a query on jobs j. A plus before a column keeps SQLite
// from using an index on the column, in which it would find a million jobs.
func (q Query) condition(now time.Time) (sql string, args []any) {
	sql = "+j.type >= ? AND +j.type < ?"
	args = []any{q.Client + "-", q.Client + "."}
	switch {
	case q.Client == "":
		sql, args = "1 = 1", nil
	case q.Type != "":
		sql, args = "+j.type = ?", []any{job.Jobtype(q.Client, q.Type)}
	}
	addTerm := func(text string, moreArgs ...any) {
		sql += " AND " + text
		args = append(args, moreArgs...)
	}
	if q.After != "" {
		addTerm("j.id < ?", string(q.After))
	}
	const lock = "+j.`lock`"
	switch q.State {
	case "":
	case job.Waiting:
		addTerm(lock+" = '' AND +j.dt <= ?", formatTime(now))
	case job.Deferred:
		addTerm(lock+" = '' AND +j.dt > ?", formatTime(now))
	case job.Running:
		addTerm(lock+" <> '' AND "+lock+" <> ?", endedLock)
	case job.Abandoned:
		addTerm(lock+" = ? AND +j.code NOT IN (?,?,?)", endedLock, job.CodeOK, job.CodeFailed, job.CodeExpired)
	default: // the state of an ended job follows from its code
		addTerm(lock+" = ? AND +j.code = ?", endedLock, string(q.State))
	}
	return sql, args
}

// partRows is the number of rows that a list examines at a time. These rows are a part.
var partRows = 10_000

const (
	// listParts is the maximum number of parts that a list examines.
	listParts = 5
	// runningCondition is the condition for jobs that daemons have locked: sysids begin with a
	// digit or a lowercase letter, and no other lock does.
	runningCondition = "(SELECT id FROM sq_jobs WHERE `lock` >= '0' AND `lock` < '_' UNION ALL SELECT id FROM sq_jobs WHERE `lock` >= 'a') h" +
		" CROSS JOIN sq_jobs j ON j.id = h.id"
)

// Jobs implements Store.
func (s *SQL) Jobs(ctx context.Context, want Query) (list []Record, next job.ID, err error) {
	err = s.read(ctx, func(ctx context.Context, q querier, now time.Time) error {
		list, next = nil, want.After
		for range listParts {
			part := want
			part.After, part.Limit = next, want.Limit-len(list)
			if next, err = s.appendPage(ctx, q, now, part, &list); err != nil {
				return err
			}
			if next == "" || len(list) == want.Limit {
				break
			}
		}
		if !want.WithLastRun {
			return nil
		}
		recs := make([]*Record, len(list))
		for i := range list {
			recs[i] = &list[i]
			recs[i].addOnlyRun()
		}
		return loadLastRuns(ctx, q, recs)
	})
	return list, next, err
}

// appendPage examines the next part of the jobs, sorted by id, and appends those that match a
// query. It returns the id at which the next part begins, or "" after the last part. There are few
// running jobs, so one part examines all of them.
func (s *SQL) appendPage(ctx context.Context, q querier, now time.Time, want Query, list *[]Record) (next job.ID, err error) {
	condition, args := want.condition(now)
	tables := runningCondition
	if want.State != job.Running {
		tables = "sq_jobs j" + s.idIndexHint()
		from := want.After
		if from == "" {
			from = "~" // this sorts after all ids
		}
		err = queryOne(ctx, q, "SELECT id FROM sq_jobs j"+s.idIndexHint()+" WHERE id < ? ORDER BY id DESC LIMIT 1 OFFSET ?", []any{string(from), partRows - 1}, (*string)(&next))
		condition += " AND j.id >= ?"
		args = append(args, string(next))
	}
	if err != nil {
		return "", err
	}
	n := 0
	err = eachRow(ctx, q, recordQuery(tables)+condition+" ORDER BY j.id DESC LIMIT ?", append(args, want.Limit), func(r *sql.Rows) error {
		rec, err := scanRecord(r, now)
		*list = append(*list, rec)
		n++
		return err
	})
	if err == nil && n == want.Limit {
		next = (*list)[len(*list)-1].ID
	}
	return next, err
}

// RetryAll implements Store. It searches for the jobs as Jobs does, so that others can write
// meanwhile.
func (s *SQL) RetryAll(ctx context.Context, want Query) (affected int, more bool, err error) {
	for affected == 0 && err == nil {
		var list []Record
		if list, want.After, err = s.Jobs(ctx, want); err != nil {
			return 0, true, err
		}
		if len(list) > 0 {
			err = s.transact(ctx, "retry all", func(t *tx) error {
				affected, err = t.retryAll(list, want.State)
				return err
			})
			if err != nil {
				return 0, true, err
			}
		}
		if want.After == "" {
			return affected, false, err
		}
	}
	return affected, true, err
}

// retryAll makes jobs run again. It leaves out jobs that are no longer in this state (or, if it is
// "", in any ended state), and jobs whose unique key another job has taken.
func (t *tx) retryAll(list []Record, state job.State) (n int, err error) {
	for text, args := range inLists(idsOf(list, func(r *Record) job.ID { return r.ID })) {
		rows, err := t.lockRows("id"+text+" AND `lock` = ? AND NOT EXISTS (SELECT 1 FROM sq_keys k WHERE k.id = sq_jobs.id AND k.holds IS NULL)"+
			" ORDER BY id"+t.store.forUpdate(), append(args, endedLock)...)
		if err != nil {
			return n, err
		}
		rows = slices.DeleteFunc(rows, func(h lockedRow) bool { return state != "" && job.StateOf(h.code) != state })
		if err := t.retry(rows); err != nil {
			return n, err
		}
		n += len(rows)
	}
	return n, nil
}
