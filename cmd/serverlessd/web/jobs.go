package web

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// jobView is a job as it is shown in an answer.
type jobView struct {
	ID        job.ID    `json:"id"`
	Type      string    `json:"type"`
	State     job.State `json:"state"`
	DT        string    `json:"dt"`
	CreateDT  string    `json:"create_dt"`
	DoneDT    *string   `json:"done_dt"`
	Lock      string    `json:"lock"`
	Tries     int       `json:"tries"`
	Code      *string   `json:"code"`
	ExitCode  *int      `json:"exitcode"`
	Truncated bool      `json:"truncated"`
	BadLines  int       `json:"bad_lines"`
	Bytes     *int64    `json:"payload_bytes,omitempty"` // Bytes and DataBytes are missing in lists
	DataBytes *int64    `json:"data_bytes,omitempty"`
	// Last is set once a run has not succeeded.
	Last *lastRunView `json:"last,omitempty"`
	Runs []runView    `json:"runs,omitzero"` // in lists with last=true, only the run of a job that succeeded at once
}

// runView is a run that has ended, with the same keys as the broker's runs.
type runView struct {
	N         int        `json:"n"`
	Worker    *runWorker `json:"worker"`
	StartedAt *string    `json:"started_at"`
	RanMS     int64      `json:"ran_ms"`
	Outcome   string     `json:"outcome"`
	Error     string     `json:"error,omitempty"`
}

// runWorker is the daemon that had a run.
type runWorker struct {
	ID string `json:"id"`
}

func viewRuns(runs []store.PastRun) []runView {
	if runs == nil {
		return nil
	}
	list := make([]runView, len(runs))
	for i, r := range runs {
		list[i] = runView{r.N, orNull(runWorker{r.Sysid}), timeOrNull(r.Started), r.Took.Milliseconds(), r.Outcome, r.Error}
	}
	return list
}

// lastRunView is the last run as it is shown in an answer. Bytes of its data that are not UTF-8 are
// replaced.
type lastRunView struct {
	Try      int    `json:"try"`
	At       string `json:"at"`
	TookMS   int64  `json:"took_ms"`
	Code     string `json:"code"`
	ExitCode *int   `json:"exitcode"`
	Data     string `json:"data"`
	Stderr   string `json:"stderr"`
}

func viewLastRun(l *store.LastRun) *lastRunView {
	if l == nil {
		return nil
	}
	return &lastRunView{
		Try: l.Try, At: formatTime(l.At), TookMS: l.Took.Milliseconds(), Code: l.Code, ExitCode: orNull(l.Status),
		Data: strings.ToValidUTF8(string(l.Data), "\uFFFD"), Stderr: strings.ToValidUTF8(string(l.Stderr), "\uFFFD"),
	}
}

func viewJob(rec *store.Record) jobView {
	_, typ, _ := job.SplitJobtype(rec.Jobtype)
	return jobView{
		ID: rec.ID, Type: typ, State: rec.State, DT: formatTime(rec.Due), CreateDT: formatTime(rec.Created), DoneDT: timeOrNull(rec.Done), Lock: rec.Lock,
		Tries: rec.Tries, Code: orNull(rec.Code), ExitCode: orNull(rec.Status), Truncated: rec.Truncated, BadLines: rec.BadLines,
		Last: viewLastRun(rec.Last), Runs: viewRuns(rec.Runs),
	}
}

// formatTime returns a time in the format of all answers.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func timeOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return orNull(formatTime(t))
}

// orNull returns a pointer to a value, or nil, which is null in JSON, for the zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// id returns the id of the job in the path, or an error if it is not valid.
func (r *request) id() (job.ID, error) {
	id, err := job.ParseID(r.name)
	if err != nil {
		return "", unknownJob(r.name)
	}
	return id, nil
}

func unknownJob(id string) error {
	return fail(http.StatusNotFound, "unknown_job", "id", "there is no job %.60q", id)
}

// record returns the job in the path, which must belong to the client in the path.
func (s *Web) record(r *request) (*store.Record, error) {
	id, err := r.id()
	if err != nil {
		return nil, err
	}
	rec, err := s.queue.Job(r.Context(), id)
	return rec, r.checkOwner(rec, err)
}

func (r *request) checkOwner(rec *store.Record, err error) error {
	if errors.Is(err, store.ErrUnknown) {
		return unknownJob(r.name)
	}
	if aside, ok := errors.AsType[*journal.AsideError](err); ok {
		rec = &store.Record{Jobtype: aside.Jobtype}
	} else if err != nil {
		return err
	}
	if client, _, _ := job.SplitJobtype(rec.Jobtype); client != r.client {
		return unknownJob(r.name)
	}
	return cmp.Or(r.covers(rec.Jobtype), err)
}

func (s *Web) getJob(r *request) error {
	rec, err := s.record(r)
	if err != nil {
		return err
	}
	view := viewJob(rec)
	view.Bytes, view.DataBytes = &rec.Bytes, &rec.DataBytes
	return answer(r.w, http.StatusOK, view)
}

func (s *Web) deleteJob(r *request) error { return s.change(r, s.queue.Delete) }

func (s *Web) retry(r *request) error { return s.change(r, s.queue.Retry) }

func (s *Web) runNow(r *request) error { return s.change(r, s.queue.Hasten) }

// change calls fn for the job in the path.
func (s *Web) change(r *request, fn func(context.Context, job.ID) error) error {
	rec, err := s.record(r)
	if err != nil {
		return err
	}
	if err := fn(r.Context(), rec.ID); errors.Is(err, store.ErrUnknown) {
		return unknownJob(r.name)
	} else if err != nil {
		return err
	}
	return answer(r.w, http.StatusOK, map[string]any{"ok": true, "id": rec.ID})
}

func (s *Web) result(r *request) error {
	id, err := r.id()
	if err != nil {
		return err
	}
	rec, data, err := s.queue.Result(r.Context(), id, smallBody)
	if errors.Is(err, store.ErrNotDone) || errors.Is(err, store.ErrUnknown) { // the job may be only in the journal
		if _, err := s.record(r); err != nil {
			return err
		}
		return fail(http.StatusNotFound, "not_done", "id", "job %s has not ended", id)
	}
	if err := r.checkOwner(rec, err); err != nil {
		return err
	}
	r.w.Header().Set("job-status", strconv.Itoa(rec.Status))
	return s.writeData(r, id, data, rec.DataBytes, s.queue.Result)
}

// payload answers with a job's payload.
func (s *Web) payload(r *request) error {
	id, err := r.id()
	if err != nil {
		return err
	}
	rec, data, err := s.queue.Payload(r.Context(), id, smallBody)
	if err := r.checkOwner(rec, err); err != nil {
		return err
	}
	if data == nil && rec.Bytes == 0 {
		return fail(http.StatusNotFound, job.CodeNoPayload, "id", "the store has lost the payload of job %s", id)
	}
	return s.writeData(r, id, data, rec.Bytes, s.queue.Payload)
}

// writeData answers a request with a job's result or payload. Large data is read from the store
// only once the request has one of the buffers for large results. So clients that do not read their
// results compete for the same buffers: they use no more memory, and do not block the store.
func (s *Web) writeData(r *request, id job.ID, data []byte, size int64, read func(context.Context, job.ID, int) (*store.Record, []byte, error)) (err error) {
	if size > smallBody || len(data) > smallBody {
		data = nil
		if !s.resultBuffers.acquire(r.Context(), r.client) {
			return unavailable("overloaded", "at most %d large results may be written at a time (--max-bodies); %s", s.resultBuffers.limit, s.resultBuffers.shortage(r.client))
		}
		defer s.resultBuffers.release(r.client)
		var rec *store.Record
		rec, data, err = read(r.Context(), id, math.MaxInt)
		if err := r.checkOwner(rec, err); err != nil { // the job may have been removed meanwhile
			return err
		}
	}
	r.w.Header().Set("Content-Type", "application/octet-stream")
	r.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = r.w.Write(data)
	return nil
}

const (
	defaultList = 100 // default limit of a list
	maxList     = 1000
	maxLast     = 100 // maximum number of jobs of a list with their last runs
)

var allStates = []job.State{job.Waiting, job.Deferred, job.Running, job.Succeeded, job.Failed, job.Abandoned, job.Expired}

// parseQuery parses a query for jobs.
func (r *request) parseQuery() (q store.Query, err error) {
	q = store.Query{Client: r.client, Type: r.query.Get("type"), State: job.State(r.query.Get("state")), After: job.ID(r.query.Get("after"))}
	if q.Type != "" {
		if err := checkType("type", q.Type); err != nil {
			return q, err
		}
		if err := r.covers(job.Jobtype(q.Client, q.Type)); err != nil {
			return q, err
		}
	} else if q.Client == "" && !r.grant.Covers("*") {
		return q, fail(http.StatusForbidden, "forbidden", "type", "the token does not cover all types; ask for those of a client")
	} else if q.Client != "" && !r.grant.Covers(job.Jobtype(q.Client, "*")) {
		return q, fail(http.StatusForbidden, "forbidden", "type", "the token does not cover all types of client %s; name one with type=", q.Client)
	}
	if q.State != "" && !slices.Contains(allStates, q.State) {
		return q, invalid("state", "state=%.40q: must be one of %v", q.State, allStates)
	}
	if q.After != "" {
		if _, err := job.ParseID(string(q.After)); err != nil {
			return q, invalid("after", "after=%.60q: %v", q.After, err)
		}
	}
	q.Limit, err = r.limit()
	return q, err
}

// flag returns a query parameter that is true, false or absent.
func (r *request) flag(name string) (bool, error) {
	switch value := r.query.Get(name); value {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, invalid(name, "%s=%.40q: must be true or false", name, value)
	}
}

func (s *Web) list(r *request) error {
	q, err := r.parseQuery()
	if err != nil {
		return err
	}
	if q.WithLastRun, err = r.flag("last"); err != nil {
		return err
	}
	if q.WithLastRun && q.Limit > maxLast {
		return invalid("limit", "limit=%d: must be from 1 to %d with last=true", q.Limit, maxLast)
	}
	recs, next, err := s.queue.Jobs(r.Context(), q)
	if err != nil {
		return err
	}
	return s.answerJobs(r, recs, next)
}

// listAll lists the jobs of all clients, or the one job with a given id.
func (s *Web) listAll(r *request) error {
	if !r.query.Has("id") {
		return s.list(r)
	}
	if len(r.query) > 1 {
		return invalid("id", "id names one job; no other parameter may be given with it")
	}
	r.name = r.query.Get("id")
	id, err := r.id()
	var rec *store.Record
	if err == nil {
		rec, err = s.queue.Job(r.Context(), id)
	}
	if err == nil {
		err = r.covers(rec.Jobtype)
	} else if aside, ok := errors.AsType[*journal.AsideError](err); ok {
		err = cmp.Or(r.covers(aside.Jobtype), err)
	} else if errors.Is(err, store.ErrUnknown) {
		err = unknownJob(r.name)
	}
	if err != nil {
		return err
	}
	return s.answerJobs(r, []store.Record{*rec}, "")
}

// answerJobs answers with a list of jobs. Their types have the client, unless the path names the
// client.
func (s *Web) answerJobs(r *request, recs []store.Record, next job.ID) error {
	out := struct {
		Jobs  []jobView `json:"jobs"`
		After *job.ID   `json:"after"`
	}{make([]jobView, 0, len(recs)), orNull(next)}
	for i := range recs {
		view := viewJob(&recs[i])
		if r.client == "" {
			view.Type = recs[i].Jobtype
		}
		out.Jobs = append(out.Jobs, view)
	}
	return answer(r.w, http.StatusOK, out)
}

func (s *Web) retryAll(r *request) error {
	q, err := r.parseQuery()
	if err != nil {
		return err
	}
	all, err := r.flag("all")
	if err != nil {
		return err
	}
	if !all && q.Type == "" && q.State == "" {
		return missing("all", "give type or state to say which jobs are to run again, or all=true for all jobs that failed or were abandoned")
	}
	states := []job.State{q.State}
	switch q.State {
	case "":
		states = []job.State{job.Failed, job.Abandoned}
	case job.Waiting, job.Deferred, job.Running:
		return invalid("state", "state=%s: only jobs that have ended can run again", q.State)
	}
	if !r.query.Has("limit") {
		q.Limit = maxList
	}
	affected, more := 0, false
	for _, q.State = range states {
		if q.Limit == 0 {
			more = true // there may be more jobs
			break
		}
		n, rest, err := s.queue.RetryAll(r.Context(), q)
		q.Limit -= n
		affected, more = affected+n, more || rest || err != nil
		if err != nil && affected == 0 {
			return err
		}
		if err != nil { // the answer must say how many already run again
			break
		}
	}
	return answer(r.w, http.StatusOK, map[string]any{"affected": affected, "more": more})
}
