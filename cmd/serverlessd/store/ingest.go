package store

import (
	"context"
	"database/sql"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
)

const (
	// maxInlinePayload is the longest payload, in bytes, that is stored in the job's own row.
	maxInlinePayload = 1024
	// maxBacklog bounds the age that a job without a delay gets when it is ingested, in case the
	// host's clock has jumped.
	maxBacklog = 24 * time.Hour
	// maxJitter is the largest change in the difference between two clocks that is ignored.
	maxJitter = 100 * time.Millisecond
)

// row is a new job.
type row struct {
	id      job.ID
	jobtype string
	dt      time.Time
	created time.Time
	payload []byte
}

// Ingest implements Store.
func (s *SQL) Ingest(ctx context.Context, piece journal.Range, jobs []journal.Entry, host func() time.Time) (point int64, err error) {
	var rows []row
	err = s.transact(ctx, "ingest", func(t *tx) error {
		point, rows = 0, nil
		if err := t.queryRow("SELECT place FROM sq_points WHERE segment = ?"+s.forUpdate(), []any{piece.Segment}, &point); err != nil {
			return err
		}
		if point >= piece.To {
			return nil
		}
		lead := s.clockAhead(host(), t.now)
		rows = make([]row, 0, len(jobs))
		for _, e := range jobs {
			if e.End > point {
				rows = append(rows, translate(e, lead, t.now))
			}
		}
		if err := t.insert(rows); err != nil {
			return err
		}
		t.put("sq_points", "segment", "place, dt", piece.Segment, piece.To, formatTime(t.now))
		return nil
	})
	return point, s.findRefused(ctx, rows, err)
}

// clockAhead returns by how much the store's clock is ahead of the host's. It ignores small
// changes, because they are probably due to slow answers and would change the order of jobs.
func (s *SQL) clockAhead(host, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := now.Sub(host); (d - s.storeAhead).Abs() > maxJitter {
		s.storeAhead = d
	}
	return s.storeAhead
}

// translate makes a row of a journal's entry, and converts the host's times to the store's clock.
func translate(e journal.Entry, lead time.Duration, now time.Time) row {
	r := row{id: e.ID, jobtype: e.Jobtype, created: now, payload: e.Payload}
	if acceptTime := e.Accepted.Add(lead); !e.Accepted.IsZero() && acceptTime.Before(now) {
		r.created = acceptTime
		if oldest := now.Add(-maxBacklog); acceptTime.Before(oldest) {
			r.created = oldest
		}
	}
	r.dt = r.created
	due := e.Due.Add(lead)
	if e.Delay > 0 && e.Accepted.Add(lead).After(now) { // the host's clock was ahead, and has been corrected
		due = now.Add(e.Delay)
	}
	if !e.Due.IsZero() && due.After(r.dt) {
		r.dt = due
	}
	return r
}

// insert adds jobs. It leaves out jobs that the store already has from a copy of the journal.
func (t *tx) insert(rows []row) error {
	for len(rows) > 0 {
		n := t.store.insertRows(min(maxRowsPerStatement, len(rows)))
		part := rows[:n]
		rows = rows[n:]
		err := t.insertRows(part)
		if err != nil && t.store.kind(err) == kindDuplicate {
			if part, err = t.missing(part); err == nil {
				err = t.insertRows(part)
			}
		}
		if err != nil {
			return err
		}
		for _, r := range part {
			t.count(r.jobtype).Waiting++
			if len(r.payload) > maxInlinePayload {
				t.runAtEnd("INSERT INTO sq_data (id, data) VALUES (?,?)", string(r.id), r.payload)
			}
		}
	}
	return nil
}

func (t *tx) insertRows(rows []row) error {
	const columns = 6
	args := make([]any, 0, columns*len(rows))
	for _, r := range rows {
		var data any
		if len(r.payload) <= maxInlinePayload {
			data = nonNil(r.payload)
		}
		var created any = formatTime(r.created)
		dt := created
		if !r.dt.Equal(r.created) {
			dt = formatTime(r.dt)
		}
		args = append(args, string(r.id), r.jobtype, dt, created, created, data)
	}
	return t.insertAll("INSERT INTO sq_jobs (id, type, dt, create_dt, first_dt, data)", columns, args)
}

func (t *tx) missing(rows []row) (missing []row, err error) {
	stored := make(map[job.ID]bool)
	for text, args := range inLists(idsOf(rows, func(r *row) job.ID { return r.id })) {
		err = t.eachRow("SELECT id FROM sq_jobs WHERE id"+text, args, func(r *sql.Rows) error {
			var id job.ID
			err := r.Scan((*string)(&id))
			stored[id] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, r := range rows {
		if !stored[r.id] {
			stored[r.id] = true // the job occurs twice in one piece
			missing = append(missing, r)
		}
	}
	return missing, nil
}
