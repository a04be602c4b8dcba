package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"gloom/cmd/serverlessd/job"
)

const (
	maxCount  = 1000
	lookAhead = time.Hour
)

// Waiting implements Store.
func (s *SQL) Waiting(ctx context.Context) (due []DueType, next time.Duration, err error) {
	err = s.read(ctx, func(ctx context.Context, q querier, now time.Time) error {
		due, next = nil, 0
		err := s.eachOpenType(ctx, q, func(jobtype string, oldest time.Time, open int64) {
			if !oldest.After(now) {
				due = append(due, DueType{Jobtype: jobtype, Age: now.Sub(oldest), Count: int(min(open, maxCount))})
			}
		})
		if err != nil {
			return err
		}
		var first sqlTime
		err = queryOne(ctx, q, "SELECT MIN(dt) FROM sq_jobs WHERE `lock` = '' AND dt > ?", []any{formatTime(now)}, &first)
		if wait := first.time().Sub(now); !first.time().IsZero() && wait <= lookAhead {
			next = wait
		}
		return err
	})
	return due, next, err
}

// Take implements Store.
func (s *SQL) Take(ctx context.Context, want TakeRequest) (taken []TakenJob, err error) {
	err = s.transact(ctx, "take", func(t *tx) error {
		taken = nil
		ageTime, err := t.ageTime(want.TTL, want.RetryFor)
		if err != nil {
			return err
		}
		err = t.eachRow("SELECT id, tries, fence, dt, first_dt, data, data IS NULL FROM sq_jobs WHERE type = ? AND `lock` = '' AND dt <= ? ORDER BY dt, id"+s.limitClause()+s.skipLocked(),
			[]any{want.Jobtype, formatTime(t.now), want.N}, func(r *sql.Rows) error {
				var dt, first sqlTime
				var data sql.RawBytes // SQLite's driver returns nil for an empty payload, too
				var elsewhere bool
				one := TakenJob{Jobtype: want.Jobtype}
				if err := r.Scan((*string)(&one.ID), &one.Tries, &one.Fence, &dt, &first, &data, &elsewhere); err != nil {
					return err
				}
				if one.Waited = t.now.Sub(dt.time()); one.Tries > 0 {
					one.Age = max(0, ageTime.Sub(first.time()))
				}
				one.Tries++
				one.Fence++
				if !elsewhere {
					one.Payload = append([]byte{}, data...)
				}
				taken = append(taken, one)
				return nil
			})
		if err != nil || len(taken) == 0 {
			return err
		}
		if taken, err = t.readPayloads(taken, want.Bytes); err != nil {
			return err
		}
		for text, args := range inLists(idsOf(taken, func(j *TakenJob) job.ID { return j.ID })) {
			_, err := t.exec("UPDATE sq_jobs SET `lock` = ?, dt = ?, first_dt = CASE WHEN tries = 0 THEN ? ELSE first_dt END, tries = tries + 1, fence = fence + 1"+
				" WHERE id"+text, append([]any{want.Sysid, formatTime(t.now.Add(want.TTL)), formatTime(t.now)}, args...)...)
			if err != nil {
				return err
			}
		}
		c := t.count(want.Jobtype)
		c.Waiting -= int64(len(taken))
		c.Running += int64(len(taken))
		return nil
	})
	return taken, err
}

// maxRead is the number of payloads that are read before their bytes are counted.
const maxRead = 16

// readPayloads reads the payloads that have rows of their own. As soon as all payloads together
// have maxBytes or more, it returns the jobs so far. If maxBytes is 0, it returns all jobs.
func (t *tx) readPayloads(taken []TakenJob, maxBytes int) ([]TakenJob, error) {
	n, size := 0, 0
	for part := range slices.Chunk(taken, maxRead) {
		var long []job.ID
		for i := range part {
			if part[i].Payload == nil {
				long = append(long, part[i].ID)
			}
		}
		payloads, err := t.longPayloads(long)
		if err != nil {
			return nil, err
		}
		for i := range part {
			if part[i].Payload == nil {
				data, exists := payloads[part[i].ID]
				part[i].Payload, part[i].NoPayload = data, !exists
			}
			size += len(part[i].Payload)
			if n++; maxBytes > 0 && size >= maxBytes {
				return taken[:n], nil
			}
		}
	}
	return taken, nil
}

// longPayloads reads the payloads that have rows of their own.
func (t *tx) longPayloads(ids []job.ID) (map[job.ID][]byte, error) {
	payloads := make(map[job.ID][]byte)
	for text, args := range inLists(ids) {
		err := t.eachRow("SELECT id, data FROM sq_data WHERE id"+text, args, func(r *sql.Rows) error {
			var id job.ID
			var data []byte
			err := r.Scan((*string)(&id), &data)
			payloads[id] = data
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return payloads, nil
}

// lockedRow is a row of sq_jobs that the transaction has locked.
type lockedRow struct {
	id         job.ID
	jobtype    string
	lock       string
	dt         time.Time
	created    time.Time
	firstStart time.Time
	tries      int
	fence      int64
	code       string
	exitcode   int
}

const (
	rowColumns    = "id, type, `lock`, dt, create_dt, first_dt, tries, fence, code, exitcode"
	lockedColumns = "SELECT " + rowColumns + " FROM sq_jobs WHERE "
)

// scanLocked reads a row. further are the destinations of columns after rowColumns.
func scanLocked(r *sql.Rows, further ...any) (h lockedRow, err error) {
	var dt, created, first sqlTime
	var code sql.NullString
	var exit sql.NullInt64
	err = r.Scan(append([]any{(*string)(&h.id), &h.jobtype, &h.lock, &dt, &created, &first, &h.tries, &h.fence, &code, &exit}, further...)...)
	h.dt, h.created, h.firstStart, h.code, h.exitcode = dt.time(), created.time(), first.time(), code.String, int(exit.Int64)
	return h, err
}

// isRun reports whether r is still the last run of the row's job: the job has not been taken again,
// and the run has not been undone. A comparison of the tries would not be enough, because a job
// that is given back has one try less.
func (h lockedRow) isRun(r Run) bool { return h.tries == r.Tries && h.fence == r.Fence }

// lockRows locks the rows that match a condition, and returns them.
func (t *tx) lockRows(condition string, args ...any) (rows []lockedRow, err error) {
	err = t.eachRow(lockedColumns+condition, args, func(r *sql.Rows) error {
		h, err := scanLocked(r)
		rows = append(rows, h)
		return err
	})
	return rows, err
}

// lockAll locks the rows with these ids, sorted by id.
func (t *tx) lockAll(ids []job.ID) (map[job.ID]lockedRow, error) {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, cmp.Compare[job.ID])
	lockedRows := make(map[job.ID]lockedRow, len(ids))
	for text, args := range inLists(ids) {
		rows, err := t.lockRows("id"+text+" ORDER BY id"+t.store.forUpdate(), args...)
		if err != nil {
			return nil, err
		}
		for _, h := range rows {
			lockedRows[h.id] = h
		}
	}
	return lockedRows, nil
}
