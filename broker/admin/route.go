package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gloom/broker/admin/api"
	"gloom/broker/guard"
	"gloom/broker/server"
)

// handler serves a request. If it returns an error, that becomes the reply.
type handler func(a *API, w http.ResponseWriter, r *http.Request) error

// route is one operation of /v1.
type route struct {
	pattern string // of http.ServeMux
	serve   handler
	query   []string // the keys that a query may have
}

// submitPattern is the pattern of the operation that submits jobs.
const submitPattern = "POST /v1/jobs"

var (
	pageKeys  = []string{"limit", "cursor"}
	peerKeys  = []string{"type", "limit", "cursor"}
	countKeys = []string{"count"}
	noKeys    = []string{"no"}
)

var routes = []route{
	{"GET /v1/status", (*API).getStatus, []string{"type"}},
	{"GET /v1/events", (*API).getEvents, nil},
	{"GET /v1/findings", (*API).getFindings, []string{"subject", "cause", "limit"}},
	{"GET /v1/history", (*API).getHistory, []string{"type", "since"}},
	{"GET /v1/types", (*API).getTypes, []string{"sort", "filter", "limit", "cursor"}},
	{"GET /v1/types/{type}", (*API).getType, nil},
	{"PUT /v1/types/{type}", (*API).putType, nil},
	{"DELETE /v1/types/{type}", (*API).deleteType, []string{"jobs"}},
	{"POST /v1/types/{type}/pause", (*API).pauseType, nil},
	{"POST /v1/types/{type}/resume", (*API).resumeType, nil},
	{"PUT /v1/types/{type}/limits", (*API).putLimits, nil},
	{"GET /v1/types/{type}/demand", (*API).getDemand, nil},
	{"GET /v1/types/{type}/jobs", (*API).getJobs, slices.Concat(filterKeys, endedKeys, pageKeys)},
	{"POST /v1/types/{type}/jobs/cancel", (*API).cancelJobs, countKeys},
	{"GET /v1/jobs", (*API).getJobs, slices.Concat(filterKeys, endedKeys, peerKeys)},
	{submitPattern, (*API).postJob, rawKeys},
	{"GET /v1/jobs/{id}", (*API).getJob, []string{"body"}},
	{"PATCH /v1/jobs/{id}", (*API).patchJob, nil},
	{"DELETE /v1/jobs/{id}", (*API).deleteJob, []string{"running"}},
	{"GET /v1/groups", (*API).getGroups, []string{"type", "limit", "lately"}},
	{"PUT /v1/groups/{pattern}", (*API).putRule, nil},
	{"GET /v1/groups/{pattern}", (*API).getRule, nil},
	{"DELETE /v1/groups/{pattern}", (*API).deleteRule, nil},
	{"GET /v1/workers", (*API).getWorkers, peerKeys},
	{"GET /v1/submitters", (*API).getSubmitters, peerKeys},
	{"GET /v1/dead", (*API).findDead, []string{"id"}},
	{"GET /v1/dead/{type}", (*API).getDead, slices.Concat(deadJobKeys, pageKeys)},
	{"GET /v1/dead/{type}/{id}", (*API).getDeadJob, noKeys},
	{"POST /v1/dead/{type}/retry", (*API).retryAllDead, countKeys},
	{"POST /v1/dead/{type}/discard", (*API).discardAllDead, countKeys},
	{"DELETE /v1/dead/{type}/{id}", (*API).discardDead, noKeys},
	{"POST /v1/dead/{type}/{id}/retry", (*API).retryDead, noKeys},
	{"GET /v1/fleet", (*API).getFleet, nil},
	{"POST /v1/drain", (*API).drain, nil},
}

func apiError(status int, code, format string, args ...any) *api.Error {
	return &api.Error{Status: status, Code: code, Reason: fmt.Sprintf(format, args...)}
}

// withAuthorization authorizes requests and turns errors into replies.
func (a *API) withAuthorization(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		grant, err := a.checkAccess(r)
		if err == nil {
			err = rt.checkQuery(r)
		}
		if err == nil {
			err = rt.readNames(r)
		}
		if err == nil {
			err = rt.serve(a, w, r.WithContext(context.WithValue(r.Context(), grantKey{}, grant)))
		}
		if err == nil {
			return
		}
		var e *api.Error
		if !errors.As(err, &e) {
			e = apiError(http.StatusInternalServerError, "internal", "%v", err)
		}
		if e.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="gloom"`)
		}
		reply(w, e.Status, e)
	}
}

// checkQuery returns an error for unknown keys of the query, keys that are given twice, and values
// that are not UTF-8. Otherwise a misspelt filter could select everything, or a wrong job.
func (rt *route) checkQuery(r *http.Request) error {
	if rt.pattern == "" { // not in /v1
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return apiError(http.StatusBadRequest, "invalid_value", "the query is malformed: %v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(rt.query, key) {
			return apiError(http.StatusBadRequest, "invalid_value", "the query has the unknown key %.64q; this path takes %s", key, cmp.Or(strings.Join(rt.query, ", "), "none"))
		}
		if n := len(query[key]); n > 1 && !(key == "group" && rt.pattern == submitPattern) {
			return apiError(http.StatusBadRequest, "invalid_value", "%s is given %d times; it may be given once", key, n)
		}
		for _, v := range query[key] {
			if !utf8.ValidString(v) {
				return apiError(http.StatusBadRequest, "invalid_value", "%s must be UTF-8, not %.64q", key, v)
			}
		}
	}
	return nil
}

// readNames checks the names in the path and gives them their canonical form.
func (rt *route) readNames(r *http.Request) error {
	for _, key := range []string{"type", "id", "pattern"} {
		if !strings.Contains(rt.pattern, "{"+key+"}") {
			continue
		}
		name, err := parseName(key, api.Name(r.PathValue(key)))
		if err != nil {
			return err
		}
		r.SetPathValue(key, string(name))
	}
	return nil
}

func (a *API) notFound(w http.ResponseWriter, r *http.Request) {
	e := apiError(http.StatusNotFound, "not_found", "no such path for %s: %.200s; /openapi.json lists all paths", r.Method, guard.AskedPath(r))
	// The path may exist for other methods.
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = m
		if _, p := a.mux.Handler(probe); p != "" && p != "/" {
			methods = append(methods, m)
		}
	}
	if len(methods) > 0 {
		allow := strings.Join(methods, ", ")
		e = apiError(http.StatusMethodNotAllowed, "method_not_allowed", "%s is not allowed on %.200s; these methods are: %s", r.Method, guard.AskedPath(r), allow)
		w.Header().Set("Allow", allow)
	}
	reply(w, e.Status, e)
}

// grantKey is the key of a request's grant in its context.
type grantKey struct{}

// grantOf returns the grant of the request; nil allows everything.
func grantOf(r *http.Request) *guard.Grant {
	grant, _ := r.Context().Value(grantKey{}).(*guard.Grant)
	return grant
}

// checkAccess checks the token, and that the request was not sent by a browser for a page of another
// origin: such a page could not read the answer, but the request would take effect.
func (a *API) checkAccess(r *http.Request) (*guard.Grant, error) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	scope := server.ScopeAdmin
	switch {
	case r.Pattern == submitPattern:
		scope = server.ScopeSubmit
	case reads && strings.HasPrefix(r.URL.Path, "/v1/"):
		scope = server.ScopeWatch
	}
	token := guard.Bearer(r.Header.Get("Authorization"))
	grant, known := a.srv.Authorize(r.Context(), token, r.RemoteAddr)
	if !known {
		return nil, apiError(http.StatusUnauthorized, "unauthorized", "%s; send Authorization: Bearer TOKEN", guard.WhyTokenRefused(token))
	}
	if !grant.Has(scope) {
		want := map[guard.Scope]string{server.ScopeSubmit: "submit", server.ScopeAdmin: "admin", server.ScopeWatch: "watch, or admin"}
		return nil, apiError(http.StatusForbidden, "forbidden", "this token lacks the scope %s", want[scope])
	}
	if reads {
		if guard.IsCrossSite(r) {
			return nil, apiError(http.StatusForbidden, "forbidden_origin", "requests from pages of another origin are refused")
		}
		return grant, nil
	}
	if err := crossOrigin.Check(r); err != nil {
		return nil, apiError(http.StatusForbidden, "forbidden_origin", "changes from pages of another origin (%.200q) are refused", r.Header.Get("Origin"))
	}
	ct := r.Header.Get("Content-Type")
	if r.Method == http.MethodDelete && ct == "" && guard.HasNoBody(r) {
		return grant, nil
	}
	mt, _, err := mime.ParseMediaType(ct)
	if err != nil || mt != "application/json" && !(mt == "text/plain" && isRawBody(r)) {
		return nil, apiError(http.StatusUnsupportedMediaType, "content_type", "Content-Type must be application/json, got %.200q", ct)
	}
	return grant, nil
}

// peerOf describes the client for the log: its address and its token.
func peerOf(r *http.Request) string {
	if grant := grantOf(r); grant != nil {
		return fmt.Sprintf("%s, token %x…", r.RemoteAddr, grant.Hash[:4])
	}
	return r.RemoteAddr
}

// crossOrigin refuses requests that a browser sends for a page of another origin. Browsers also
// send a preflight before they send JSON across origins; together the two checks cover old
// browsers, too.
var crossOrigin = http.NewCrossOriginProtection()

const (
	defaultPage = 100
	maxPage     = 1000
)

// pageParams reads the start and the length of the requested page of a listing.
func pageParams(r *http.Request) (from, limit int, err error) {
	limit = defaultPage
	query := r.URL.Query()
	if v := query.Get("limit"); v != "" {
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > maxPage {
			return 0, 0, apiError(http.StatusBadRequest, "invalid_value", "limit must be an integer from 1 to %d, got %.64q", maxPage, v)
		}
	}
	if v := query.Get("cursor"); v != "" {
		if from, err = strconv.Atoi(v); err != nil || from < 0 {
			return 0, 0, apiError(http.StatusBadRequest, "invalid_value", "cursor must be the value of next on the last page, got %.64q", v)
		}
	}
	return from, limit, nil
}

// Operations returns the operations of /v1 as METHOD PATH, each with the keys of its query.
func Operations() map[string][]string {
	out := map[string][]string{}
	for _, r := range routes {
		out[r.pattern] = slices.Clone(r.query)
	}
	return out
}
