package doors

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gloom/broker/admin/api"
)

// job is a job of a daemon in the broker's words: the state of an ended job is its outcome.
type job struct {
	api.Job
	created, due, started, finished *time.Time
	answerSize                      int
}

// jobSource holds the jobs of a daemon. States are the daemon's own words.
type jobSource interface {
	// list returns a page of the jobs in a state ("": in any) that match, beginning at cursor, with
	// the reasons of failures if reasons is set.
	list(r *http.Request, f *filter, state, cursor string, reasons bool) (jobs []job, next string, err error)
	// find returns a job, with its body and answer if body is set.
	find(r *http.Request, id string, body bool) (*job, error)
	cancel(r *http.Request, id string, running bool) error
	retry(r *http.Request, typ, id string) error
}

// serveJobs registers the answers to requests about jobs. stateNames maps the broker's states
// to the daemon's.
func (d *Door) serveJobs(s jobSource, stateNames map[string][]string) {
	listed := func(r *http.Request) (any, error) {
		f, err := d.parseFilter(r)
		if err != nil {
			return nil, err
		}
		states := stateNames[f.state]
		switch {
		case f.state == "":
			states = slices.Concat(stateNames["queued"], stateNames["delayed"], stateNames["running"])
		case f.state == "ended" && f.outcome == "" && states == nil:
			states = []string{""}
		case f.state == "ended" && f.outcome == "":
		case f.state == "ended":
			states = stateNames[f.outcome]
		}
		if states == nil {
			return nil, d.unsupportedError("jobs that are "+f.state+" "+f.outcome, "gloom jobs lists those that wait or run, --ended the others")
		}
		if f.state != "ended" {
			return pages(r, s, f, states, false, (*job).toJob)
		}
		return pages(r, s, f, states, true, (*job).toEnded)
	}
	d.handle("GET /v1/jobs", listed)
	d.handle("GET /v1/types/{type}/jobs", listed)
	d.handle("GET /v1/jobs/{id}", func(r *http.Request) (any, error) {
		j, err := s.find(r, api.Name(r.PathValue("id")), r.URL.Query().Has("body"))
		if err != nil {
			return nil, err
		}
		return j.toJob(), nil
	})
	d.handle("DELETE /v1/jobs/{id}", func(r *http.Request) (any, error) {
		return struct{}{}, s.cancel(r, api.Name(r.PathValue("id")), r.URL.Query().Has("running"))
	})
	d.handle("GET /v1/dead/{type}", func(r *http.Request) (any, error) {
		f, err := d.parseFilter(r)
		if err != nil {
			return nil, err
		}
		return pages(r, s, f, stateNames["failed"], true, (*job).toDeadJob)
	})
	letter := func(r *http.Request) (*api.DeadJob, error) {
		id, typ := api.Name(r.PathValue("id"))+r.URL.Query().Get("id"), api.Name(r.PathValue("type"))
		j, err := s.find(r, id, true)
		if err == nil && (j.State != "failed" || typ != "" && typ != j.Type) {
			err = notFound("unknown_job", "no failed job %.200q of %.200q", id, typ)
		}
		if err != nil {
			return nil, err
		}
		return j.toDeadJob(), nil
	}
	d.handle("GET /v1/dead/{type}/{id}", func(r *http.Request) (any, error) { return letter(r) })
	d.handle("GET /v1/dead", func(r *http.Request) (any, error) {
		x, err := letter(r)
		return api.List[*api.DeadJob]{Items: []*api.DeadJob{x}}, err
	})
	d.handle("POST /v1/dead/{type}/{id}/retry", func(r *http.Request) (any, error) {
		return struct{}{}, s.retry(r, api.Name(r.PathValue("type")), api.Name(r.PathValue("id")))
	})
}

// pages returns a page of a listing that has the jobs of several states, one state after another.
// Its place begins with the index of the state.
func pages[T any](r *http.Request, s jobSource, f *filter, states []string, ended bool, convert func(*job) T) (any, error) {
	at, cursor, _ := strings.Cut(parsePlace(r), " ")
	n, _ := strconv.Atoi(at) // 0 at the start
	jobs, next, err := s.list(r, f, states[n], cursor, ended)
	if next != "" {
		next = strconv.Itoa(n) + " " + next
	} else if n+1 < len(states) {
		next = strconv.Itoa(n+1) + " "
	}
	out := page[T]{List: api.List[T]{Items: make([]T, 0, len(jobs))}, Place: next}
	for i := range jobs {
		if j := &jobs[i]; f.matches(j) && ended == (j.finished != nil) {
			out.Items = append(out.Items, convert(j))
		}
	}
	return &out, err
}

// toJob converts a job to the form that the broker's API has for one job, and for listings of jobs
// that have not ended.
func (j *job) toJob() *api.Job {
	out := j.Job
	out.Detached, out.Groups, out.AgeSeconds = true, []string{}, secondsSince(j.created)
	switch {
	case j.finished != nil:
		out.State, out.Outcome, out.End, out.InSeconds = "ended", j.State, j.toEnd(), secondsSince(j.finished)
		if j.State == "failed" { // the dead letter has its body
			out.Body = nil
		}
	case j.started != nil:
		out.InSeconds, out.DueSeconds = secondsSince(j.started), secondsUntil(j.due)
	default:
		out.InSeconds, out.DueSeconds = out.AgeSeconds, secondsUntil(j.due)
		if out.DueSeconds != nil && out.Holds == "" {
			out.Holds = "due in " + time.Until(*j.due).Round(time.Second).String()
		}
	}
	return &out
}

// toEnded returns an ended job in the form of a listing.
func (j *job) toEnded() *api.Ended {
	return &api.Ended{ID: j.ID, Type: j.Type, State: "ended", Groups: []string{}, Outcome: j.State, Reason: j.Reason, Attempts: j.Attempts, End: *j.toEnd()}
}

func (j *job) toEnd() *api.End {
	end := &api.End{SubmittedAt: formatTime(j.created), EndedAt: formatTime(j.finished), WaitedMS: milliseconds(j.created, j.finished), Size: j.Bytes, AnswerSize: j.answerSize}
	if j.started != nil {
		end.StartedAt, end.WaitedMS, end.RanMS = new(formatTime(j.started)), milliseconds(j.created, j.started), milliseconds(j.started, j.finished)
	}
	return end
}

// toDeadJob returns a failed job as a dead letter.
func (j *job) toDeadJob() *api.DeadJob {
	return &api.DeadJob{
		ID: j.ID, Type: j.Type, Reason: j.Reason, Priority: j.Priority, Attempts: j.Attempts, Bytes: j.Bytes,
		FailedSeconds: secondsSince(j.finished), Body: j.Body,
	}
}

// run is a run of a job. All daemons report it in this form, except that each has its own kind of
// ids for workers.
type run struct {
	api.Run
	Worker *struct {
		ID string `json:"id"`
	} `json:"worker"`
}

// toRuns returns runs in the form of a broker. worker says what the ids of workers identify.
func toRuns(list []run, worker string) []api.Run {
	var out []api.Run
	for _, x := range list {
		x.Run.Worker = &api.Peer{Address: "a " + worker}
		if x.Worker != nil {
			x.Run.Worker.Address = worker + " " + x.Worker.ID
		}
		out = append(out, x.Run)
	}
	return out
}

// toJSON returns bytes as a body: a string if they are not JSON.
func toJSON(data []byte) json.RawMessage {
	if json.Valid(data) {
		return data
	}
	text, _ := json.Marshal(string(data)) // a string can always be encoded
	return text
}

// secondsSince returns how many seconds ago a moment was, 0 if it is missing or still to come.
func secondsSince(t *time.Time) float64 {
	if t == nil {
		return 0
	}
	return max(0, time.Since(*t).Seconds())
}

// secondsUntil returns the seconds until a moment that is still to come, nil for any other.
func secondsUntil(t *time.Time) *float64 {
	if t == nil || !t.After(time.Now()) {
		return nil
	}
	return new(time.Until(*t).Seconds())
}

// formatTime returns a moment in the broker's form.
func formatTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// milliseconds returns the time from a to b in milliseconds, 0 if either is missing.
func milliseconds(a, b *time.Time) int64 {
	if a == nil || b == nil {
		return 0
	}
	return max(0, b.Sub(*a).Milliseconds())
}
