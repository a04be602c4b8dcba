package doors

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gloom/broker/admin/api"
)

// jobd is jobd-master. Targets are types, and rows are jobs; a row to be run by hand is delayed.
// Rows belong to their application: only the application and the workers change them.
type jobd struct{ *Door }

func setUpJobd(d *Door) {
	m := &jobd{d}
	d.handle("GET /v1/status", m.status)
	d.handle("GET /v1/types", m.types)
	d.handle("GET /v1/workers", m.workers)
	d.serveJobs(m, map[string][]string{
		"queued": {"waiting"}, "delayed": {"manual"}, "running": {"running", "accepted"},
		"answered": {"done ok"}, "failed": {"done fail"}, "discarded": {"ignored"}, "ended": {"done", "ignored"},
	})
	d.handle("POST /v1/types/{type}/pause", m.pause("pause"))
	d.handle("POST /v1/types/{type}/resume", m.pause("resume"))
	const rows = "rows belong to their application: UPDATE the status, then poke the target (on the web page, or with jobctl poke)"
	d.unsupported("pause for all targets at once", "name one: gloom pause TARGET", "POST /v1/pause", "POST /v1/resume")
	d.unsupported("change of rows", rows, "PATCH /v1/jobs/{id}", "POST /v1/types/{type}/jobs/cancel", "POST /v1/dead/{type}/retry", "POST /v1/dead/{type}/discard", "DELETE /v1/dead/{type}/{id}")
	d.unsupported("limits, except the concurrency of a target", "jobctl set-target-concurrency sets it", "/v1/types/{type}", "PUT /v1/types/{type}/limits")
	d.unsupported("groups", "it has targets: gloom ls", "/v1/groups", "/v1/groups/{pattern}")
	d.unsupported("submitters with a connection", "gloom ls types shows what waits", "GET /v1/submitters")
	d.unsupported("way to forget targets", "it forgets one an hour after its last worker", "DELETE /v1/types/{type}")
	d.unsupported("fleet", "gloom ls workers lists its workers", "GET /v1/fleet")
	d.unsupported("drain", "SIGTERM stops it", "POST /v1/drain")
}

// jobdTarget is a target, at one worker or at all workers.
type jobdTarget struct {
	Target      string     `json:"target"`
	Paused      bool       `json:"paused"`
	Concurrency int        `json:"concurrency"`
	Queued      uint64     `json:"queued"` // accepted, and not begun
	Running     uint64     `json:"running"`
	OK          uint64     `json:"ok"`
	Fail        uint64     `json:"fail"`
	Workers     int        `json:"workers"`
	Waiting     uint64     `json:"waiting"` // in the table
	Manual      uint64     `json:"manual"`  // that a run-manual waits for
	Oldest      *time.Time `json:"oldest"`
}

func (t *jobdTarget) toType() api.Type {
	x := api.Type{
		Type: t.Target, Paused: t.Paused, Queued: t.Waiting + t.Queued, Delayed: t.Manual, Running: t.Running, Workers: t.Workers,
		Dead: int(t.Fail), OldestSeconds: secondsSince(t.Oldest),
	}
	if int(t.Running) < t.Concurrency {
		x.Idle = t.Workers
	}
	x.Ledger = api.Ledger{Queued: x.Queued, Delayed: x.Delayed, Running: x.Running, Answered: t.OK, Failed: t.Fail}
	x.Ledger.Submitted = x.Queued + x.Delayed + x.Running + t.OK + t.Fail
	return x
}

func (m *jobd) status(r *http.Request) (any, error) {
	out, err := m.readStatus(r)
	if err != nil {
		return nil, err
	}
	var s struct {
		jobdTarget     // the sum of all targets
		Targets    int `json:"targets"`
	}
	err = m.request(r, http.MethodGet, "/v1/stats", nil, &s)
	out.Workers, out.Types, out.Ledger = s.Workers, s.Targets, s.toType().Ledger
	return out, err
}

// requestPage asks for a page of a listing whose cursors are numbers and can be passed on as they
// are.
func (m *jobd) requestPage(r *http.Request, path string, out any) error {
	return m.request(r, http.MethodGet, path+"?limit="+strconv.Itoa(parseLimit(r, 500))+"&cursor="+cmp.Or(r.URL.Query().Get("cursor"), "0"), nil, out)
}

func (m *jobd) types(r *http.Request) (any, error) {
	var page api.List[jobdTarget]
	err := m.requestPage(r, "/v1/targets", &page)
	out := api.List[api.Type]{Items: []api.Type{}, Next: page.Next}
	for i := range page.Items {
		out.Items = append(out.Items, page.Items[i].toType())
	}
	return &out, err
}

func (m *jobd) workers(r *http.Request) (any, error) {
	var page api.List[struct {
		Name    string       `json:"name"`
		Address string       `json:"address"`
		Since   *time.Time   `json:"since"`
		Targets []jobdTarget `json:"targets"`
		Trouble string       `json:"trouble"`
		Silent  bool         `json:"silent"`
	}]
	err := m.requestPage(r, "/v1/workers", &page)
	out := api.List[api.Worker]{Items: []api.Worker{}, Next: page.Next}
	for _, w := range page.Items {
		x := api.Worker{Peer: api.Peer{Address: w.Address, Client: w.Name, Seconds: secondsSince(w.Since)}, Types: len(w.Targets), Silent: w.Silent, Jobs: []string{}}
		if w.Silent {
			w.Trouble = "does not answer"
		}
		if w.Trouble != "" {
			x.Client += ": " + w.Trouble
		}
		for i := range w.Targets {
			t := &w.Targets[i]
			x.Prefetch, x.Out, x.Serves = x.Prefetch+t.Concurrency, x.Out+int(t.Running), append(x.Serves, t.Target)
		}
		if len(x.Serves) == 1 {
			x.Type = x.Serves[0]
		}
		out.Items = append(out.Items, x)
	}
	return &out, err
}

// jobdRow is a row as jobd-master reports it.
type jobdRow struct {
	ID       int64      `json:"id"`
	Target   string     `json:"target"`
	Status   string     `json:"status"`
	Result   string     `json:"result"`
	Code     *int       `json:"code"`
	Signal   string     `json:"signal"`
	Priority int64      `json:"priority"`
	Created  *time.Time `json:"created_at"`
	Started  *time.Time `json:"started_at"`
	Finished *time.Time `json:"finished_at"`

	// Only the answer about a single row has these fields.
	Stdout string          `json:"stdout"`
	Stderr string          `json:"stderr"`
	Fields json.RawMessage `json:"fields"` // the application's
}

func (x *jobdRow) job() job {
	stateOf := map[string]string{"waiting": "queued", "manual": "delayed", "accepted": "running", "done": "failed", "ignored": "discarded"}
	j := job{created: x.Created, started: x.Started, finished: x.Finished, answerSize: len(x.Stdout), Job: api.Job{
		ID: strconv.FormatInt(x.ID, 10), Type: x.Target, State: cmp.Or(stateOf[x.Status], x.Status), Priority: x.Priority, Bytes: len(x.Fields), Body: x.Fields,
	}}
	switch {
	case x.Status == "manual":
		j.Holds = "it is to be run by hand"
	case x.Status == "accepted":
		j.Holds = "accepted, not started"
	case x.Status == "done" && x.Result == "ok":
		j.State, j.Body = "answered", toJSON([]byte(strings.TrimSuffix(x.Stdout, "\n")))
	case x.Signal != "":
		j.Reason = "signal: " + x.Signal
	case x.Code != nil:
		j.Reason = fmt.Sprintf("exit status %d", *x.Code)
	}
	if text := strings.TrimSpace(x.Stderr); text != "" && j.State == "failed" {
		j.Reason = strings.TrimPrefix(j.Reason+": "+text, ": ")
	}
	if x.Started != nil {
		j.Attempts = 1
	}
	return j
}

// list lists the rows of a target or, if none is given, of all targets, one target after the
// other. A place then names its target, too.
func (m *jobd) list(r *http.Request, f *filter, state, place string, _ bool) (jobs []job, next string, err error) {
	target, otherPlaces := f.typ, []string(nil)
	if target == "" {
		for from := new(0); from != nil; {
			var page api.List[jobdTarget]
			if err := m.request(r, http.MethodGet, "/v1/targets?cursor="+strconv.Itoa(*from), nil, &page); err != nil {
				return nil, "", err
			}
			for i := range page.Items {
				otherPlaces = append(otherPlaces, page.Items[i].Target)
			}
			from = page.Next
		}
		if len(otherPlaces) == 0 {
			return nil, "", nil
		}
		slices.Sort(otherPlaces)
		target = otherPlaces[0]
	}
	if at, placeTarget, ok := strings.Cut(place, " "); ok {
		place, target = at, placeTarget
	}
	status, result, _ := strings.Cut(state, " ")
	v := url.Values{"status": {status}, "limit": {strconv.Itoa(parseLimit(r, 200))}}
	if result != "" {
		v.Set("result", result)
	}
	if place != "" {
		v.Set("cursor", place)
	}
	var page struct {
		Items []jobdRow `json:"items"`
		Next  *int64    `json:"next"`
	}
	err = m.request(r, http.MethodGet, "/v1/targets/"+api.Segment(target)+"/rows?"+v.Encode(), nil, &page)
	for i := range page.Items {
		jobs = append(jobs, page.Items[i].job())
	}
	if page.Next != nil {
		next = strconv.FormatInt(*page.Next, 10) + " " + target
	} else if i := slices.Index(otherPlaces, target) + 1; i > 0 && i < len(otherPlaces) {
		next = " " + otherPlaces[i]
	}
	return jobs, next, err
}

func (m *jobd) find(r *http.Request, id string, body bool) (*job, error) {
	var found api.List[jobdRow]
	if _, err := strconv.ParseUint(id, 10, 53); err == nil {
		if err := m.request(r, http.MethodGet, "/v1/rows/"+id, nil, &found); err != nil {
			return nil, err
		}
	}
	if len(found.Items) == 0 {
		return nil, notFound("unknown_job", "there is no row %.200q", id)
	}
	j := found.Items[0].job()
	if !body {
		j.Body = nil
	}
	return &j, nil
}

func (m *jobd) cancel(*http.Request, string, bool) error {
	return m.unsupportedError("cancel for rows", "UPDATE the status of one that waits; jobctl send-signal ends one that runs")
}

func (m *jobd) retry(*http.Request, string, string) error {
	return m.unsupportedError("retry for rows", "UPDATE its status to waiting, then poke the target (on the web page, or with jobctl poke)")
}

func (m *jobd) pause(verb string) answerFunc {
	return func(r *http.Request) (any, error) {
		path := "/v1/targets/" + api.Segment(api.Name(r.PathValue("type")))
		var t jobdTarget
		if err := m.request(r, http.MethodPost, path+"/"+verb, nil, nil); err != nil {
			return nil, err
		}
		err := m.request(r, http.MethodGet, path, nil, &t)
		return t.toType(), err
	}
}
