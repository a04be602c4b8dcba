package admin

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/wire"
)

// filterKeys are the keys of a job filter besides the type.
var filterKeys = []string{"state", "id", "group", "older", "submitter", "worker"}

// readJobFilter reads a job filter from a query. A type in the path takes precedence.
func readJobFilter(r *http.Request, query url.Values) (*broker.JobFilter, error) {
	filter := &broker.JobFilter{State: query.Get("state"), ID: query.Get("id")}
	if filter.State == "dead" {
		return nil, apiError(http.StatusBadRequest, "invalid_value", "failed jobs that are kept are listed by /v1/dead/{type}, not with state=dead")
	}
	if filter.State != "" && !slices.Contains(broker.JobStates, filter.State) {
		return nil, apiError(http.StatusBadRequest, "invalid_value", "state must be one of %s, got %.64q", strings.Join(broker.JobStates, ", "), filter.State)
	}
	var err error
	if typ := cmp.Or(wire.Value(nameIn(r, "type")), query.Get("type")); typ != "" {
		if filter.Type, err = parseName("type", typ); err != nil {
			return nil, err
		}
	}
	if group := query.Get("group"); group != "" {
		if filter.Group, err = parseName("group", group); err != nil {
			return nil, err
		}
	}
	older, err := intParam(query, "older", wire.MaxDurationMS)
	if err != nil {
		return nil, err
	}
	filter.MinAge = time.Duration(older) * time.Millisecond
	submitter, err := intParam(query, "submitter", math.MaxInt64)
	if err != nil {
		return nil, err
	}
	worker, err := intParam(query, "worker", math.MaxInt64)
	filter.Submitter, filter.Worker = broker.Peer(submitter), broker.Peer(worker)
	return filter, err
}

// intParam reads a key of the query; if it is absent, the result is 0.
func intParam(query url.Values, key string, limit int64) (int64, error) {
	s := query.Get(key)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > limit {
		return 0, apiError(http.StatusBadRequest, "invalid_value", "%s must be an integer from 0 to %d, got %.64q", key, limit, s)
	}
	return n, nil
}

// boolParam reads a key of the query; if it is absent, the result is false.
func boolParam(r *http.Request, key string) (bool, error) {
	switch v := r.URL.Query().Get(key); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, apiError(http.StatusBadRequest, "invalid_value", "%s must be true or false, got %.64q", key, v)
	}
}

// readSelection reads which jobs a change applies to: a filter with the keys of a query, and how
// many jobs may be changed, 0 for all. Without any filter the body must have all: true.
func readSelection(r *http.Request, keys ...string) (query url.Values, limit int, err error) {
	b, err := readBody(r, append(keys, "all", "most")...)
	if err != nil {
		return nil, 0, err
	}
	n, err := b.integer("most", 1, math.MaxInt, 0)
	if err != nil {
		return nil, 0, err
	}
	all := false
	if b["all"] != nil {
		if all, err = b.boolean("all"); err != nil {
			return nil, 0, err
		}
	}
	delete(b, "most")
	delete(b, "all")
	if query, err = b.values(); err != nil {
		return nil, 0, err
	}
	narrow := false
	for key := range query {
		narrow = narrow || query.Get(key) != "0" // 0 matches all
	}
	switch {
	case all && narrow:
		return nil, 0, apiError(http.StatusBadRequest, "invalid_value", "give a filter or all: true, not both")
	case !all && !narrow:
		return nil, 0, apiError(http.StatusBadRequest, "missing_field", "the body must select jobs: by a filter (%s) or by all: true", strings.Join(keys, ", "))
	}
	return query, int(n), nil
}

// values turns the keys of a body's filter into those of a query.
func (b body) values() (url.Values, error) {
	query := url.Values{}
	for key, raw := range b {
		s := string(raw)
		if raw[0] == '"' {
			if err := json.Unmarshal(raw, &s); err != nil {
				return nil, invalidError("invalid_type", key, raw, "a string")
			}
		} else if !wholeNumber.Match(raw) {
			return nil, invalidError("invalid_type", key, raw, "a string or an integer")
		}
		if s == "" { // probably an unset variable that was not meant to select all
			return nil, apiError(http.StatusBadRequest, "invalid_value", "%s is empty; leave it out to mean all", key)
		}
		query.Set(key, s)
	}
	return query, nil
}

func (a *API) getJobs(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	filter, err := readJobFilter(r, query)
	if err != nil {
		return err
	}
	if filter.State == "ended" && a.srv.Options().History > 0 {
		endedQuery, err := endedFilter(filter, query)
		if err != nil {
			return err
		}
		return a.listEnded(w, r, endedQuery)
	}
	for _, key := range endedKeys {
		if query.Get(key) != "" {
			return apiError(http.StatusBadRequest, "invalid_value", "%s needs state=ended, and a broker with --history above 0, got state %.64q", key, filter.State)
		}
	}
	return answerListing(a, w, r, "next", func(from, limit int) (items []api.Job, next int) {
		var found []broker.JobInfo
		a.srv.Hub().View(func(core *broker.Broker, now int64) {
			next = core.Jobs(now, from, limit, filter, func(info *broker.JobInfo) { found = append(found, *info) })
		})
		for i := range found {
			items = append(items, a.apiJob(&found[i]))
		}
		return items, next
	})
}

func (a *API) getDemand(w http.ResponseWriter, r *http.Request) error {
	name := nameIn(r, "type")
	var t broker.TypeInfo
	a.srv.Hub().View(func(core *broker.Broker, _ int64) { t, _, _ = core.Type(name) })
	reply(w, http.StatusOK, api.Demand{Demand: t.Queued + t.Running})
	return nil
}

// countJobs counts the matching jobs, one piece at a time.
func (a *API) countJobs(r *http.Request, filter *broker.JobFilter) (n int) {
	for from := 0; from >= 0 && r.Context().Err() == nil; {
		var part int
		a.withBuildLock(func() {
			a.srv.Hub().View(func(core *broker.Broker, now int64) { part, from = core.CountJobs(now, from, filter) })
		})
		n += part
	}
	return n
}

// cancelJobs cancels all matching jobs of a type. It cancels running jobs only if the body selects
// them.
func (a *API) cancelJobs(w http.ResponseWriter, r *http.Request) error {
	query, limit, err := readSelection(r, filterKeys...)
	if err != nil {
		return err
	}
	filter, err := readJobFilter(r, query)
	if err != nil {
		return err
	}
	if filter.State == "ended" {
		return apiError(http.StatusBadRequest, "invalid_value", "state must be delayed, queued or running, got %q: jobs that have ended cannot be cancelled", filter.State)
	}
	filter.OnlyWanted = true
	allowLongAnswer(w)
	return a.handleMany(w, r, "cancelled jobs", query, func() (n int) {
		if filter.State != "" {
			return a.countJobs(r, filter)
		}
		for _, state := range []string{"delayed", "queued"} {
			filter := *filter
			filter.State = state
			n += a.countJobs(r, &filter)
		}
		return n
	}, func(out *api.Many) {
		remaining := cmp.Or(limit, math.MaxInt)
		for from := 0; from >= 0 && remaining > 0 && r.Context().Err() == nil; {
			a.withBuildLock(func() {
				a.srv.Hub().Do(func(core *broker.Broker, now int64) (effects []broker.Effect) {
					var n int
					effects, n, from = core.RevokeJobs(now, from, remaining, filter)
					out.Done, remaining = out.Done+n, remaining-n
					return effects
				})
			})
		}
	})
}

// handleMany changes everything that matches a filter and counts matches before and after, or
// only counts.
func (a *API) handleMany(w http.ResponseWriter, r *http.Request, logText string, filter url.Values, count func() int, walk func(*api.Many)) error {
	countOnly, err := boolParam(r, "count")
	if err != nil {
		return err
	}
	out := api.Many{Before: count()}
	out.After = out.Before
	if !countOnly {
		walk(&out)
		out.After = count()
		// If the client hung up, both counts may be partial and not all jobs were changed.
		a.log.Info().Str("type", wire.Value(nameIn(r, "type"))).Str("filter", filter.Encode()).Str("peer", peerOf(r)).Int("before", out.Before).
			Int("done", out.Done).Int("after", out.After).Bool("cut", r.Context().Err() != nil).Msg("an operator " + logText)
	}
	reply(w, http.StatusOK, out)
	return nil
}

// allowLongAnswer lifts the read and write deadlines for a long answer.
func allowLongAnswer(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_, _ = c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})
}
