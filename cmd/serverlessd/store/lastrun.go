package store

import (
	"context"
	"database/sql"
	"time"

	"gloom/cmd/serverlessd/job"
)

// LastRun says how the last run of a job ended. A job has one only after a run that did not
// succeed.
type LastRun struct {
	Try          int
	At           time.Time // when the run ended; in a RunEnd, by this process's clock
	Took         time.Duration
	Code         string // code of the run: for an abandoned job it may be error
	Status       int
	Data, Stderr []byte // at most MaxLastData bytes each
}

// MaxLastData is the number of bytes of Data, and of Stderr, that are kept.
const MaxLastData = job.MaxStderr

// writeLastRun writes how a job's last run ended.
func (t *tx) writeLastRun(sysid string, e *RunEnd) {
	l := e.Last
	if l == nil {
		return
	}
	t.keepRun(e.ID, l.pastRun(e, sysid, t.now))
	t.put("sq_last", "id", "tries, dt, took_ms, code, exitcode, data, stderr",
		string(e.ID), e.Tries, formatTime(t.now.Add(-time.Since(l.At))), l.Took.Milliseconds(), l.Code, l.Status,
		nonNil(l.Data[:min(len(l.Data), MaxLastData)]), nonNil(l.Stderr[max(0, len(l.Stderr)-MaxLastData):]))
}

// mayHaveLastRun reports whether a job may have a LastRun: its row shows that a run did not
// succeed.
func (r *Record) mayHaveLastRun() bool { return r.Tries > 1 || r.Code != "" && r.Code != job.CodeOK }

// loadLastRuns reads how the last runs of jobs ended. A row with more tries than its job is out of
// date: a daemon of an earlier version, which does not write such rows, has retried the job.
func loadLastRuns(ctx context.Context, q querier, recs []*Record) error {
	known := make(map[job.ID]*Record)
	var ids []job.ID
	for _, rec := range recs {
		if rec.mayHaveLastRun() {
			known[rec.ID] = rec
			ids = append(ids, rec.ID)
		}
	}
	for text, args := range inLists(ids) {
		err := eachRow(ctx, q, "SELECT id, tries, dt, took_ms, code, exitcode, data, stderr FROM sq_last WHERE id"+text, args, func(r *sql.Rows) error {
			var id job.ID
			var dt sqlTime
			var elapsed int64
			l := &LastRun{}
			if err := r.Scan((*string)(&id), &l.Try, &dt, &elapsed, &l.Code, &l.Status, &l.Data, &l.Stderr); err != nil {
				return err
			}
			l.At, l.Took = dt.time(), time.Duration(elapsed)*time.Millisecond
			if rec := known[id]; l.Try <= rec.Tries {
				rec.Last = l
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
