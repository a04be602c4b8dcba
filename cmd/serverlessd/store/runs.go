package store

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"gloom/cmd/serverlessd/job"
)

const (
	// maxRuns is the number of last runs of a job that are kept.
	maxRuns = 16
	// maxRunError is the number of bytes of a run's error that are kept.
	maxRunError = 1 << 10
)

// PastRun is a run that has ended, described with the broker's words.
type PastRun struct {
	N       int       // from 1
	Sysid   string    // the sysid of the daemon; "" if it is not kept
	Started time.Time // zero if not known
	Took    time.Duration
	Outcome string // answered, failed, lost, timed_out
	Error   string // its data, or the end of its standard error, or both; at most 1 KiB; "" after a success
}

// outcomeOf returns the outcome of a run with this code.
func outcomeOf(code string) string {
	switch code {
	case job.CodeOK:
		return "answered"
	case job.CodeLockExpired:
		return "lost"
	case job.CodeTimeout:
		return "timed_out"
	}
	return "failed"
}

// keepRun stores a run that has ended. A job that succeeds in its first run needs no row here,
// because the job's own row has the same information.
func (t *tx) keepRun(id job.ID, r PastRun) {
	var startTime any
	if !r.Started.IsZero() {
		startTime = formatTime(r.Started)
	}
	t.put("sq_runs", "id, n", "worker, started, took_ms, outcome, error",
		string(id), r.N, r.Sysid, startTime, r.Took.Milliseconds(), r.Outcome, []byte(r.Error))
	if r.N > maxRuns {
		t.runAtEnd("DELETE FROM sq_runs WHERE id = ? AND n <= ?", string(id), r.N-maxRuns)
	}
}

// noteWait stores, in the row of a waiting job's next run, when its dt was written. correctTimes
// needs it where no other time of the job is as late. tries is how many runs the job has had. The
// row has no outcome until the run has ended.
func (t *tx) noteWait(h lockedRow, tries int) {
	t.put("sq_runs", "id, n", "worker, started, took_ms, outcome, error", string(h.id), tries+1, "", formatTime(t.now), 0, "", []byte{})
}

// lostRun stores the run of a job whose lock has expired.
func (t *tx) lostRun(h lockedRow) {
	r := PastRun{N: h.tries, Sysid: h.lock, Outcome: outcomeOf(job.CodeLockExpired), Error: "its daemon was lost"}
	if h.tries == 1 {
		r.Started, r.Took = h.firstStart, max(0, t.now.Sub(h.firstStart))
	}
	t.keepRun(h.id, r)
}

// wasWritten reports whether an earlier attempt of this call, whose answer was lost, has written that
// a run ended and its job waits. The job may have been taken again since.
func (t *tx) wasWritten(e *RunEnd, sysid string) (written bool, err error) {
	if e.Action != EndRetry || e.Last == nil {
		return false, nil
	}
	r := e.Last.pastRun(e, sysid, t.now)
	err = t.queryRow("SELECT 1 FROM sq_runs WHERE id = ? AND n = ? AND worker = ? AND took_ms = ? AND outcome = ? AND error = ?",
		[]any{string(e.ID), r.N, r.Sysid, r.Took.Milliseconds(), r.Outcome, []byte(r.Error)}, &written)
	return written, err
}

// pastRun returns the run that l and e describe.
func (l *LastRun) pastRun(e *RunEnd, sysid string, now time.Time) PastRun {
	ended := now.Add(-time.Since(l.At))
	r := PastRun{N: e.Tries, Sysid: sysid, Started: ended.Add(-l.Took), Took: l.Took, Outcome: outcomeOf(l.Code)}
	if l.Code == job.CodeOK {
		return r
	}
	text := strings.TrimSpace(string(l.Data))
	if room := maxRunError - len("…\n") - len(text); room > 0 && len(l.Stderr) > 0 {
		text += "\n" + string(l.Stderr[max(0, len(l.Stderr)-room):])
	}
	if r.Error = strings.ToValidUTF8(strings.TrimSpace(text), "\uFFFD"); r.Error == "" {
		r.Error = l.Code
	}
	if len(r.Error) > maxRunError {
		r.Error = strings.ToValidUTF8(r.Error[:maxRunError-len("…")], "") + "…"
	}
	return r
}

// addOnlyRun adds the run of a job that succeeded in its first run, which the job's row describes.
func (r *Record) addOnlyRun() {
	if r.Tries == 1 && r.Code == job.CodeOK {
		r.Runs = []PastRun{{N: 1, Started: r.firstStart, Took: max(0, r.Done.Sub(r.firstStart)), Outcome: outcomeOf(job.CodeOK)}}
	}
}

// addRuns reads the past runs of a job.
func addRuns(ctx context.Context, q querier, rec *Record) error {
	rec.Runs = []PastRun{}
	if rec.addOnlyRun(); !rec.mayHaveLastRun() {
		return nil
	}
	err := eachRow(ctx, q, "SELECT n, worker, started, took_ms, outcome, error FROM sq_runs WHERE id = ? AND n <= ? AND outcome <> '' ORDER BY n DESC LIMIT ?",
		[]any{string(rec.ID), rec.Tries, maxRuns}, func(r *sql.Rows) error {
			var run PastRun
			var elapsed int64
			err := r.Scan(&run.N, &run.Sysid, (*sqlTime)(&run.Started), &elapsed, &run.Outcome, &run.Error)
			run.Took = time.Duration(elapsed) * time.Millisecond
			rec.Runs = append(rec.Runs, run)
			return err
		})
	slices.Reverse(rec.Runs)
	return err
}
