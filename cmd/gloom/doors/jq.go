package doors

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
	"gloom/wire"
)

// jq is jq-master. Names are types. A job that waits for its retry is delayed; one that ended with
// an error has failed and is kept as a dead letter.
type jq struct {
	*Door
	countStart string // the cursor at which the last count began, and at which the change begins
}

func setUpJQ(d *Door) {
	q := &jq{Door: d}
	d.handle("GET /v1/status", q.status)
	d.handle("GET /v1/types", q.types)
	d.handle("GET /v1/workers", q.workers)
	d.serveJobs(q, map[string][]string{
		"queued": {"queued"}, "delayed": {"retrying"}, "running": {"running"},
		"answered": {"done"}, "failed": {"error"}, "cancelled": {"cancelled"},
	})
	d.handle("PATCH /v1/jobs/{id}", q.change)
	d.handle("POST /v1/types/{type}/jobs/cancel", q.bulk("cancel"))
	d.handle("POST /v1/dead/{type}/retry", q.bulk("retry"))
	const rules = "use a constraint, with concurrency 0 to hold jobs back: PUT /v1/constraints/ID, or the web page at /"
	d.unsupported("pause for names", rules, "POST /v1/types/{type}/pause", "POST /v1/types/{type}/resume", "POST /v1/pause", "POST /v1/resume")
	d.unsupported("limits of names", rules, "/v1/types/{type}", "PUT /v1/types/{type}/limits")
	d.unsupported("groups", rules, "/v1/groups", "/v1/groups/{pattern}")
	d.unsupported("submitters with a connection", "gloom ls types shows what was enqueued", "GET /v1/submitters")
	d.unsupported("way to discard failed jobs", "it forgets them by itself: --keep-ended, --max-ended", "DELETE /v1/dead/{type}/{id}", "POST /v1/dead/{type}/discard")
	d.unsupported("way to forget names", "it forgets a name when the name's last job is gone", "DELETE /v1/types/{type}")
	d.unsupported("fleet", "the broker behind it may be in one: ask it, without --door", "GET /v1/fleet")
	d.unsupported("drain over HTTP", "SIGTERM drains it", "POST /v1/drain")
}

// jqStats holds the part of jq-master's statistics that is read.
type jqStats struct {
	States map[string]uint64 `json:"states"`
	Names  []struct {
		Name   string            `json:"name"`
		States map[string]uint64 `json:"states"`
		Served bool              `json:"served"`
	} `json:"names"`
	Rates struct {
		In  float64 `json:"enqueued"`
		Out float64 `json:"ended"`
	} `json:"rates"`
	Ledger  map[string]uint64 `json:"ledger"`
	Workers int               `json:"workers"`
	Bytes   int64             `json:"bytes"`
}

func (q *jq) stats(r *http.Request) (s jqStats, err error) {
	err = q.request(r, http.MethodGet, "/v1/stats", nil, &s)
	return s, err
}

// jqLedger counts the existing jobs, by state.
func jqLedger(c map[string]uint64) api.Ledger {
	l := api.Ledger{
		Queued: c["queued"], Delayed: c["retrying"], Running: c["running"], Answered: c["done"], Failed: c["error"], Cancelled: c["cancelled"],
	}
	l.Submitted = l.Queued + l.Delayed + l.Running + l.Ended()
	return l
}

func (q *jq) status(r *http.Request) (any, error) {
	out, err := q.readStatus(r)
	if err != nil {
		return nil, err
	}
	s, err := q.stats(r)
	out.Rates = &api.Rates{In: s.Rates.In, Out: s.Rates.Out}
	out.Workers, out.Types, out.Dead, out.StoreBytes = s.Workers, len(s.Names), int(s.States["error"]), s.Bytes
	out.Ledger = jqLedger(s.States)
	l := s.Ledger // since the start
	out.Ledger.Submitted, out.Ledger.Answered = l["enqueued"]+l["revived"], l["done"]
	out.Ledger.Failed, out.Ledger.Cancelled = l["error"], l["cancelled"]
	return out, err
}

// jqWorker is a worker of jq-master.
type jqWorker struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	MaxJobs   int        `json:"max_jobs"`
	Running   int        `json:"running"`
	URL       string     `json:"url"`
	Names     []string   `json:"names"`
	Since     *time.Time `json:"registered_at"`
	PausedTo  *time.Time `json:"paused_until"`
	PausedFor string     `json:"paused_for"`
	Leaving   bool       `json:"leaving"`
	Silent    bool       `json:"silent"`
	Seen      *time.Time `json:"seen_at"`
}

func (q *jq) askWorkers(r *http.Request, limit int, cursor string) (list []jqWorker, next string, err error) {
	var page struct {
		Workers []jqWorker `json:"workers"`
		Cursor  string     `json:"cursor"`
	}
	err = q.request(r, http.MethodGet, "/v1/workers?limit="+strconv.Itoa(limit)+"&cursor="+url.QueryEscape(cursor), nil, &page)
	return page.Workers, page.Cursor, err
}

// maxPage is the maximum number of items of a page of jq-master.
const maxPage = 500

func (q *jq) workers(r *http.Request) (any, error) {
	list, next, err := q.askWorkers(r, parseLimit(r, maxPage), parsePlace(r))
	out := page[api.Worker]{List: api.List[api.Worker]{Items: []api.Worker{}}, Place: next}
	for i := range list {
		w := &list[i]
		x := api.Worker{
			Peer:  api.Peer{Address: cmp.Or(w.URL, "pulls"), Client: w.Name + " " + w.ID, Seconds: secondsSince(w.Since)},
			Types: len(w.Names), Prefetch: w.MaxJobs, Out: w.Running, Left: w.Leaving, Silent: w.Silent, Jobs: []string{}, Serves: w.Names,
		}
		if w.Silent {
			x.IdleSeconds = secondsSince(w.Seen)
		}
		if len(w.Names) == 1 {
			x.Type = w.Names[0]
		}
		if w.PausedTo != nil {
			x.Client += fmt.Sprintf(", paused for %v: %s", time.Until(*w.PausedTo).Round(time.Second), w.PausedFor)
		}
		out.Items = append(out.Items, x)
	}
	return &out, err
}

// maxWorkers is the maximum number of workers that are read to find the names that they serve.
const maxWorkers = 10_000

func (q *jq) types(r *http.Request) (any, error) {
	s, err := q.stats(r)
	if err != nil {
		return nil, err
	}
	workers, _, err := q.askWorkers(r, maxWorkers, "")
	type served struct{ all, idle int }
	servedByPattern := make(map[string]served) // patterns; there are few of them
	for i := range workers {
		w := &workers[i]
		for _, glob := range w.Names {
			n := servedByPattern[glob]
			if n.all++; w.Running < w.MaxJobs && !w.Leaving && !w.Silent && w.PausedTo == nil {
				n.idle++
			}
			servedByPattern[glob] = n
		}
	}
	out := api.List[api.Type]{Items: make([]api.Type, 0, len(s.Names))}
	for i := range s.Names {
		n := &s.Names[i]
		x := api.Type{Type: n.Name, Ledger: jqLedger(n.States), Dead: int(n.States["error"])}
		for glob, w := range servedByPattern {
			if p := wire.NewPattern(wire.Canonical(nil, glob)); p.Matches(n.Name) {
				x.Workers, x.Idle = x.Workers+w.all, x.Idle+w.idle
			}
		}
		if n.Served { // workers on sockets are not listed
			x.Workers = max(x.Workers, 1)
		}
		x.Queued, x.Delayed, x.Running = x.Ledger.Queued, x.Ledger.Delayed, x.Ledger.Running
		out.Items = append(out.Items, x)
	}
	return &out, err
}

// jqJob is a job as jq-master reports it.
type jqJob struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Status   string     `json:"status"`
	Priority int64      `json:"priority"`
	MaxRetry int        `json:"max_retry"`
	Worker   string     `json:"worker_id"`
	Attempt  int        `json:"attempt"`
	Enqueued *time.Time `json:"enqueued_at"`
	Due      *time.Time `json:"due_at"`
	Started  *time.Time `json:"started_at"`
	Deadline *time.Time `json:"deadline"`
	Finished *time.Time `json:"finished_at"`
	Reason   string     `json:"reason"`
	Message  string     `json:"message"`
	Size     int        `json:"argument_bytes"`

	// Only the answer about a single job has these fields.
	Argument   json.RawMessage `json:"argument"`
	Result     json.RawMessage `json:"result"`
	HasResult  bool            `json:"has_result"`
	Runs       []run           `json:"runs"`
	BlockedBy  []string        `json:"blocked_by"`
	Waits      string          `json:"waits"`
	Place      *int            `json:"place"`
	PlaceExact bool            `json:"place_exact"`
}

func (x *jqJob) job() job {
	stateOf := map[string]string{"retrying": "delayed", "done": "answered", "error": "failed"}
	j := job{created: x.Enqueued, due: x.Due, started: x.Started, finished: x.Finished, Job: api.Job{
		ID: x.ID, Type: x.Name, State: cmp.Or(stateOf[x.Status], x.Status), Priority: x.Priority, Attempts: x.Attempt, Retries: x.MaxRetry,
		Bytes: x.Size, Reason: x.Message, Holds: x.Waits, Ahead: x.Place, Body: x.Argument, Runs: toRuns(x.Runs, "worker"),
	}}
	if x.Reason == "timeout" {
		j.Reason = strings.TrimSuffix("timeout: "+x.Message, ": ")
	}
	switch x.Status {
	case "running":
		j.due, j.Worker = x.Deadline, &api.Peer{Address: "worker " + x.Worker}
	case "queued", "retrying":
		j.started = nil // the time that was reported is the start of an earlier run
	case "done", "cancelled":
		if j.Body = nil; x.HasResult {
			j.Body, j.answerSize = x.Result, len(x.Result)
		}
	}
	if x.Place != nil {
		j.AheadExact = &x.PlaceExact
	}
	if len(x.BlockedBy) > 0 {
		j.Holds = "the constraint " + strings.Join(x.BlockedBy, ", ")
	}
	return j
}

func (q *jq) list(r *http.Request, f *filter, state, cursor string, _ bool) (jobs []job, next string, err error) {
	v := url.Values{"limit": {strconv.Itoa(parseLimit(r, maxPage))}, "cursor": {cursor}, "status": {state}, "name": {f.typ}}
	if f.older > 0 {
		v.Set("to", formatTime(new(time.Now().Add(-f.older))))
	}
	var page struct {
		Jobs   []jqJob `json:"jobs"`
		Cursor string  `json:"cursor"`
	}
	err = q.request(r, http.MethodGet, "/v1/jobs?"+v.Encode(), nil, &page)
	for i := range page.Jobs {
		jobs = append(jobs, page.Jobs[i].job())
	}
	return jobs, page.Cursor, err
}

func jqPath(id, verb string) string { return "/v1/jobs/" + url.PathEscape(id) + verb }

func (q *jq) find(r *http.Request, id string, body bool) (*job, error) {
	var x jqJob
	err := q.request(r, http.MethodGet, jqPath(id, "?bodies="+strconv.FormatBool(body)), nil, &x)
	return new(x.job()), err
}

func (q *jq) cancel(r *http.Request, id string, running bool) error {
	if running {
		return q.request(r, http.MethodDelete, "/job/"+url.PathEscape(id)+"?force=true", nil, nil)
	}
	err := q.request(r, http.MethodPost, jqPath(id, "/cancel"), nil, nil)
	if err != nil && strings.Contains(err.Error(), "force=true") {
		return cli.Failf(cli.ExitFailed, "%.200q is running", id).SetHint("--running cancels it anyway")
	}
	return err
}

func (q *jq) retry(r *http.Request, _, id string) error {
	return q.request(r, http.MethodPost, jqPath(id, "/retry"), nil, nil)
}

func (q *jq) change(r *http.Request) (any, error) {
	c, err := parseChange(r)
	id := api.Name(r.PathValue("id"))
	switch {
	case err != nil:
		return nil, err
	case c.Groups == nil && c.DelayMS == nil && c.Priority != nil:
		return struct{}{}, q.request(r, http.MethodPost, jqPath(id, "/priority"), map[string]int64{"priority": *c.Priority}, nil)
	case c.Groups == nil && c.Priority == nil && c.DelayMS != nil && *c.DelayMS == 0:
		return struct{}{}, q.retry(r, "", id)
	}
	return nil, q.unsupportedError("change of a job except --priority (smaller numbers run first) and --delay 0 (ends the wait for a retry)", "cancel the job, and enqueue another")
}

// maxBulk is the maximum number of jobs that jq-master changes at once.
const maxBulk = 10_000

// bulk changes all jobs that match, or counts them. Jobs that were added after the count are not
// changed.
func (q *jq) bulk(verb string) answerFunc {
	return func(r *http.Request) (any, error) {
		f, count, limit, err := q.parseBulk(r)
		switch {
		case err != nil:
			return nil, err
		case f.id != "" || f.reason != "":
			return nil, q.unsupportedError("way to select many jobs by a part of their ids or reasons", "list them, and give their ids: gloom jobs --id, gloom dead ls --reason")
		}
		in := map[string]any{"name": f.typ, "limit": maxBulk}
		if verb == "retry" {
			in["status"] = "error"
		} else if f.state != "" {
			in["status"] = map[string]string{"queued": "queued", "delayed": "retrying"}[f.state]
		}
		if f.older > 0 {
			in["to"] = formatTime(new(time.Now().Add(-f.older)))
		}
		if limit > 0 && q.countStart != "" {
			in["cursor"] = q.countStart
		}
		sum := func(count bool) (n int, err error) {
			in := maps.Clone(in)
			for in["count"] = count; ; {
				var t struct {
					Affected      int
					Cursor, Start string
				}
				if err := q.request(r, http.MethodPost, "/v1/jobs/"+verb, in, &t); err != nil {
					return n, err
				}
				if in["cursor"] == nil {
					q.countStart = t.Start
				}
				n += t.Affected
				if t.Cursor == "" {
					return n, nil
				}
				in["cursor"] = t.Cursor
			}
		}
		var out api.Many
		if count {
			out.Before, err = sum(true)
			return &out, err
		}
		if out.Done, err = sum(false); err == nil {
			out.After, err = sum(true)
		}
		return &out, WithCount(err, out.Done)
	}
}
