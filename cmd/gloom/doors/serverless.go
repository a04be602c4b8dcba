package doors

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gloom/broker/admin/api"
)

// serverless is serverlessd. The name of a type begins with its client. A handler counts as a
// worker, a job that failed or was abandoned is a dead letter, and only the whole daemon can be
// paused.
type serverless struct{ *Door }

func setUpServerless(d *Door) {
	s := &serverless{d}
	d.handle("GET /v1/status", s.status)
	d.handle("GET /v1/types", s.types)
	d.serveJobs(s, map[string][]string{
		"queued": {"waiting"}, "delayed": {"deferred"}, "running": {"running"},
		"answered": {"ok"}, "failed": {"failed", "abandoned"}, "expired": {"expired"},
	})
	d.handle("POST /v1/types/{type}/jobs/cancel", s.bulk((*serverless).drop, "waiting", "deferred"))
	d.handle("POST /v1/dead/{type}/retry", s.bulk((*serverless).retry, "failed", "abandoned"))
	d.handle("POST /v1/pause", s.pause("/stop"))
	d.handle("POST /v1/resume", s.pause("/start"))
	d.unsupported("pause for types, only for the whole daemon", "leave the type out: gloom pause, gloom resume", "POST /v1/types/{type}/pause", "POST /v1/types/{type}/resume")
	d.unsupported("limits of types", "concurrency is an option of the type's handler", "/v1/types/{type}", "PUT /v1/types/{type}/limits")
	d.unsupported("groups", "clients are the first part of a type's name: gloom ls", "/v1/groups", "/v1/groups/{pattern}")
	d.unsupported("workers of its own", "handlers run its jobs; gloom ls shows which types have no handler", "GET /v1/workers")
	d.unsupported("submitters with a connection", "gloom ls types shows what was added", "GET /v1/submitters")
	d.handle("PATCH /v1/jobs/{id}", s.change)
	d.unsupported("way to discard failed jobs", "it forgets them by itself: --keep-done", "DELETE /v1/dead/{type}/{id}", "POST /v1/dead/{type}/discard")
	d.unsupported("way to forget types", "it forgets a type without a handler when the type's last job is gone", "DELETE /v1/types/{type}")
	d.unsupported("fleet", "the broker behind it may be in one: ask it, without --door", "GET /v1/fleet")
	d.unsupported("drain", "SIGTERM stops it gracefully, as POST /quit does", "POST /v1/drain")
}

// serverlessCounts holds the numbers of a type's jobs.
type serverlessCounts struct {
	Added     uint64 `json:"added"`
	Waiting   uint64 `json:"waiting"`
	Deferred  uint64 `json:"deferred"`
	Running   uint64 `json:"running"`
	OK        uint64 `json:"ok"`
	Failed    uint64 `json:"failed"`
	Abandoned uint64 `json:"abandoned"`
	Expired   uint64 `json:"expired"`
	Deleted   uint64 `json:"deleted"`
	Aside     uint64 `json:"set_aside"`
	OldestMS  int64  `json:"oldest_ms"`
}

func (c *serverlessCounts) ledger() api.Ledger {
	return api.Ledger{
		Submitted: c.Added, Queued: c.Waiting, Delayed: c.Deferred, Running: c.Running, Answered: c.OK,
		Failed: c.Failed + c.Abandoned, Cancelled: c.Deleted, Expired: c.Expired, Discarded: c.Aside,
	}
}

// serverlessStats holds the part of serverlessd's statistics that is read.
type serverlessStats struct {
	Ledger    *serverlessCounts `json:"ledger"`
	Imbalance int64             `json:"imbalance"`
	Types     []struct {
		Type string  `json:"type"`
		Lang *string `json:"lang"`
		serverlessCounts
	} `json:"types"`
	AllTypes int `json:"all_types"`
	Journal  struct {
		Bytes int64 `json:"bytes"`
	} `json:"journal"`
	HandsOut bool `json:"handing_out"`
}

// stats returns the statistics of the whole daemon and of up to so many types.
func (s *serverless) stats(r *http.Request, types int) (l serverlessStats, err error) {
	err = s.request(r, http.MethodGet, "/v1/stats?types="+strconv.Itoa(types), nil, &l)
	return l, err
}

func (s *serverless) status(r *http.Request) (any, error) {
	out, err := s.readStatus(r)
	if err != nil {
		return nil, err
	}
	l, err := s.stats(r, 0)
	out.Types, out.StoreBytes, out.Imbalance = l.AllTypes, l.Journal.Bytes, l.Imbalance
	if l.Ledger != nil {
		out.Ledger = l.Ledger.ledger()
	}
	return out, err
}

func (s *serverless) types(r *http.Request) (any, error) {
	if r.URL.Query().Has("cursor") {
		return nil, s.unsupportedError("list of more than 1,000 types", "gloom ls without --limit lists those that need an operator most")
	}
	l, err := s.stats(r, parseLimit(r, 1000))
	out := api.List[api.Type]{Items: []api.Type{}}
	if n := len(l.Types); n < l.AllTypes {
		out.Next = &n
	}
	for i := range l.Types {
		t := &l.Types[i]
		x := api.Type{
			Type: t.Type, Paused: !l.HandsOut, Queued: t.Waiting, Delayed: t.Deferred, Running: t.Running,
			Dead: int(t.Failed + t.Abandoned), OldestSeconds: float64(t.OldestMS) / 1000, Ledger: t.ledger(),
		}
		if t.Lang != nil {
			x.Workers = 1
			if t.Running == 0 {
				x.Idle = 1
			}
		}
		out.Items = append(out.Items, x)
	}
	return &out, err
}

// clientOf returns the client in the name of a type.
func clientOf(jobtype string) string {
	client, _, _ := strings.Cut(jobtype, "-")
	return client
}

// serverlessJob is a job as serverlessd reports it.
type serverlessJob struct {
	ID      string     `json:"id"`
	Type    string     `json:"type"`
	State   string     `json:"state"`
	Due     *time.Time `json:"dt"`
	Created *time.Time `json:"create_dt"`
	Done    *time.Time `json:"done_dt"`
	Lock    string     `json:"lock"`
	Tries   int        `json:"tries"`
	Code    string     `json:"code"`
	Size    int        `json:"payload_bytes"`
	Last    *struct {
		Try    int       `json:"try"`
		At     time.Time `json:"at"`
		TookMS int64     `json:"took_ms"`
		Code   string    `json:"code"`
		Data   string    `json:"data"`
		Stderr string    `json:"stderr"`
	} `json:"last"`
	Runs []run `json:"runs"` // in lists, only the run of a job that succeeded at once
}

func (x *serverlessJob) job() job {
	stateOf := map[string]string{"waiting": "queued", "deferred": "delayed", "ok": "answered", "abandoned": "failed"}
	j := job{created: x.Created, started: x.lastStart(), finished: x.Done, Job: api.Job{
		ID: x.ID, Type: x.Type, State: cmp.Or(stateOf[x.State], x.State), Attempts: x.Tries, Retries: -1, Bytes: x.Size, Runs: toRuns(x.Runs, "daemon"),
	}}
	if x.Code != "ok" {
		j.Reason = x.Code
	}
	if l := x.Last; l != nil && x.State != "ok" {
		j.Reason = cmp.Or(x.Code, l.Code)
		switch text := cmp.Or(strings.TrimSpace(l.Data), strings.TrimSpace(l.Stderr)); {
		case text != "" && j.Reason == "failed":
			j.Reason = text
		case text != "":
			j.Reason += ": " + text
		}
	}
	if x.Lock != "" {
		j.Worker = &api.Peer{Address: "daemon " + x.Lock}
	} else {
		j.due = x.Due
	}
	return j
}

// lastStart returns when the run that ended the job began, nil if that is not known or no run ended it.
func (x *serverlessJob) lastStart() *time.Time {
	n, l := len(x.Runs), x.Last
	switch {
	case x.Done == nil:
	case l != nil && l.Try == x.Tries:
		return new(l.At.Add(-time.Duration(l.TookMS) * time.Millisecond))
	case n > 0 && x.Runs[n-1].N == x.Tries:
		if at, err := time.Parse(time.RFC3339, x.Runs[n-1].StartedAt); err == nil {
			return &at
		}
	}
	return nil
}

func (s *serverless) list(r *http.Request, f *filter, state, after string, reasons bool) (jobs []job, next string, err error) {
	limit := 1000
	if reasons {
		limit = 100
	}
	path, v := "/jobs?", url.Values{"limit": {strconv.Itoa(parseLimit(r, limit))}, "last": {strconv.FormatBool(reasons)}, "state": {state}, "after": {after}}
	client, typ, ok := strings.Cut(f.typ, "-")
	if ok {
		path = "/" + url.PathEscape(client) + path
		v.Set("type", typ)
	} else if f.typ != "" {
		return nil, "", notFound("unknown_type", "types are named CLIENT-TYPE, not %.200q", f.typ)
	}
	var page struct {
		Jobs  []serverlessJob `json:"jobs"`
		After string          `json:"after"`
	}
	err = s.request(r, http.MethodGet, path+v.Encode(), nil, &page)
	for i := range page.Jobs {
		if ok {
			page.Jobs[i].Type = f.typ
		}
		jobs = append(jobs, page.Jobs[i].job())
	}
	return jobs, page.After, err
}

// find looks for a job of any client.
func (s *serverless) find(r *http.Request, id string, body bool) (*job, error) {
	var page struct {
		Jobs []serverlessJob `json:"jobs"`
	}
	if err := s.request(r, http.MethodGet, "/jobs?id="+url.QueryEscape(id), nil, &page); err != nil {
		return nil, err
	}
	if len(page.Jobs) == 0 {
		return nil, notFound("unknown_job", "there is no job %.200q", id)
	}
	x, typ := page.Jobs[0], page.Jobs[0].Type
	client := clientOf(typ)
	if err := s.request(r, http.MethodGet, serverlessPath(client, "get", id), nil, &x); err != nil {
		return nil, err
	}
	x.Type = typ
	j := x.job()
	if !body || j.State == "expired" {
		return &j, nil
	}
	kind := "payload"
	if j.State == "answered" {
		kind = "result"
	}
	var data []byte
	err := s.request(r, http.MethodGet, serverlessPath(client, kind, id), nil, &data)
	if j.Body = toJSON(data); j.State == "answered" {
		j.answerSize = len(data)
	}
	return &j, err
}

func serverlessPath(client, kind, id string) string {
	return "/" + url.PathEscape(client) + "/job/" + kind + "/" + url.PathEscape(id)
}

func (s *serverless) cancel(r *http.Request, id string, running bool) error {
	if running {
		return s.unsupportedError("way to cancel running jobs", "the timeout of the handler ends them")
	}
	j, err := s.find(r, id, false)
	if err != nil {
		return err
	}
	return s.drop(r, j.Type, id)
}

func (s *serverless) drop(r *http.Request, typ, id string) error {
	return s.request(r, http.MethodDelete, serverlessPath(clientOf(typ), "get", id), nil, nil)
}

func (s *serverless) retry(r *http.Request, typ, id string) error {
	return s.request(r, http.MethodPost, serverlessPath(clientOf(typ), "retry", id), nil, nil)
}

// change makes a job due now.
func (s *serverless) change(r *http.Request) (any, error) {
	c, err := parseChange(r)
	if err != nil {
		return nil, err
	}
	if c.Groups != nil || c.Priority != nil || c.DelayMS == nil || *c.DelayMS != 0 {
		return nil, s.unsupportedError("change of a job except --delay 0, which makes it due now", "cancel it, and add another")
	}
	id := api.Name(r.PathValue("id"))
	j, err := s.find(r, id, false)
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.request(r, http.MethodPost, serverlessPath(clientOf(j.Type), "run", id), nil, nil)
}

// bulk applies an action to each job that matches and is in one of the states, or counts them. It
// skips jobs that have left the state since they were listed.
func (s *serverless) bulk(fn func(s *serverless, r *http.Request, typ, id string) error, states ...string) answerFunc {
	return func(r *http.Request) (any, error) {
		f, count, limit, err := s.parseBulk(r)
		if err != nil {
			return nil, err
		}
		in := map[string][]string{"": states, "queued": {"waiting"}, "delayed": {"deferred"}}[f.state]
		var ids []string
		for _, state := range in {
			for after, more := "", true; more; more = after != "" {
				var list []job
				if list, after, err = s.list(r, f, state, after, f.reason != ""); err != nil {
					return nil, err
				}
				for i := range list {
					if f.matches(&list[i]) {
						ids = append(ids, list[i].ID)
					}
				}
			}
		}
		out := api.Many{Before: len(ids)}
		if count {
			return &out, nil
		}
		if slices.Sort(ids); limit > 0 {
			ids = ids[:min(limit, len(ids))] // the oldest jobs, which were counted before
		}
		for _, id := range ids {
			var refused *refusal
			switch err := fn(s, r, f.typ, id); {
			case err == nil:
				out.Done++
			case errors.As(err, &refused) && (refused.status == http.StatusConflict || refused.status == http.StatusNotFound):
				out.After++
			default:
				return nil, WithCount(err, out.Done)
			}
		}
		return &out, nil
	}
}

func (s *serverless) pause(path string) answerFunc {
	return func(r *http.Request) (any, error) {
		var body []byte
		if err := s.request(r, http.MethodPost, path, nil, &body); err != nil {
			return nil, err
		}
		l, err := s.stats(r, 0)
		out := api.Type{Paused: path == "/stop"}
		if l.Ledger != nil {
			out.Queued, out.Running = l.Ledger.Waiting, l.Ledger.Running
		}
		return &out, err
	}
}
