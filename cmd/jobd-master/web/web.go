// Package web is the HTTP interface of jobd-master for operators: the page, and /v1, from which it
// gets all data. A request to /v1 needs what a request on the control port needs: the password, or
// always_allow_localhost. Without a password the package serves only this host.
package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/admin/api"
	"gloom/broker/admin/moments"
	"gloom/broker/guard"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/door"
	"gloom/cmd/internal/replies"
	"gloom/cmd/jobd-master/master"
	"gloom/cmd/jobd-master/page"
	"gloom/cmd/jobd/overview"
)

// Scopes are the scopes that the password grants.
var Scopes = []string{"admin"}

const mayAdmin guard.Scope = 1

// Config is the configuration of a Server.
type Config struct {
	Master *master.Master
	Door   *door.Door
	// Probes serves /metrics, /healthz and /readyz.
	Probes http.Handler
	Log    zerolog.Logger
}

// Server answers requests.
type Server struct {
	Config
	mux       *http.ServeMux
	startedAt time.Time

	momentRing  moments.Ring
	lastRequest atomic.Int64            // when the statistics were last asked for, in Unix nanoseconds
	replyCache  replies.Cache[struct{}] // the statistics
}

// New returns a Server that handles all requests.
func New(c Config) *Server {
	s := &Server{Config: c, mux: http.NewServeMux(), startedAt: time.Now()}
	for _, p := range []string{"/metrics", "/healthz", "/readyz"} {
		s.servePublic(p, c.Probes.ServeHTTP)
	}
	for _, p := range page.Site.Paths() {
		s.servePublic(p, page.Site.ServeHTTP)
	}
	s.servePublic("/{$}", s.servePage)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.serveMethods(w, r, nil) })
	for pattern, methods := range map[string]methods{
		"/v1/rows/{id}":                  {"GET": {run: s.findRows}},
		"/v1/status":                     {"GET": {run: s.getStatus}},
		"/v1/stats":                      {"GET": {run: s.getStats}},
		"/v1/findings":                   {"GET": {run: s.getFindings, query: []string{"subject", "cause", "limit"}}},
		"/v1/moments":                    {"GET": {run: s.getMoments}},
		"/v1/workers":                    {"GET": {run: s.getWorkers, query: []string{"limit", "cursor", "part"}}},
		"/v1/targets":                    {"GET": {run: s.getTargets, query: []string{"limit", "cursor", "part"}}},
		"/v1/targets/{target}":           {"GET": {run: s.getTarget}},
		"/v1/targets/{target}/pause":     {"POST": {run: s.pauseTarget}},
		"/v1/targets/{target}/resume":    {"POST": {run: s.resumeTarget}},
		"/v1/targets/{target}/poke":      {"POST": {run: s.pokeTarget}},
		"/v1/targets/{target}/run":       {"POST": {run: s.runRows}},
		"/v1/targets/{target}/rows":      {"GET": {run: s.getRows, query: []string{"status", "result", "limit", "cursor"}}},
		"/v1/targets/{target}/rows/{id}": {"GET": {run: s.getRow}},
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serveMethods(w, r, methods) })
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := r.URL.EscapedPath(); p != path.Clean(p) {
		s.serveMethods(w, r, nil) // the mux would redirect it
		return
	}
	s.mux.ServeHTTP(w, api.MarkSlashes(r))
}

// servePublic serves a path that reveals nothing about rows to any client.
func (s *Server) servePublic(pattern string, handler http.HandlerFunc) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.Door.Admit(w, r, door.Requirements{Methods: []string{http.MethodGet}, Public: true}); err != nil {
			refuse(w, err)
			return
		}
		handler(w, r)
	})
}

// servePage serves the page to clients that accept HTML.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	switch {
	case !strings.Contains(r.Header.Get("Accept"), "text/html"):
		refuse(w, &door.Refusal{Status: http.StatusNotFound, Code: "not_found", Reason: "\"/\" is only the page, which is served to clients that accept text/html"})
	case s.Door.RequiresToken(r):
		page.Site.Index(w, r, []byte(`{"guarded":true}`))
	default:
		page.Site.Visit(w, r, s, map[string]string{"status": "/v1/status", "look": "/v1/stats", "history": "/v1/moments"})
	}
}

// operation describes what a method does on a path. The reply is the value that run returns, as
// JSON; nil means no body.
type operation struct {
	run   func(r *http.Request) (any, error)
	query []string // known parameters
}

// methods are the operations on a path, by HTTP method.
type methods map[string]operation

func (s *Server) serveMethods(w http.ResponseWriter, r *http.Request, m methods) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	methods := make([]string, 0, len(m))
	for name := range m {
		methods = append(methods, name)
	}
	if _, err := s.Door.Admit(w, r, door.Requirements{Methods: methods, Scope: mayAdmin}); err != nil {
		refuse(w, err)
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	op := m[method]
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		refuse(w, invalidError("the query is malformed: %v", err))
		return
	}
	for name, values := range query {
		if !slices.Contains(op.query, name) {
			refuse(w, invalidError("there is no parameter %.60q here", name))
			return
		}
		if len(values) > 1 {
			refuse(w, invalidError("%s is given %d times; it may be given once", name, len(values)))
			return
		}
	}
	out, err := op.run(r)
	if err != nil {
		refuse(w, err)
		return
	}
	if method != http.MethodGet {
		s.Log.Info().Str("peer", r.RemoteAddr).Str("deed", method+" "+r.URL.EscapedPath()).Msg("an operator has changed something")
	}
	if out == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	reply(w, http.StatusOK, out)
}

func reply(w http.ResponseWriter, status int, v any) {
	body, ok := v.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(v); err != nil {
			status, body = http.StatusInternalServerError, []byte(`{"error":"internal","reason":"the reply cannot be written"}`)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// refuse replies with an error.
func refuse(w http.ResponseWriter, err error) {
	var r *door.Refusal
	switch {
	case errors.As(err, &r):
	case errors.Is(err, master.ErrUnserved):
		r = &door.Refusal{Status: http.StatusNotFound, Code: "not_found", Reason: err.Error()}
	default: // a worker has refused the request, or has not answered
		r = &door.Refusal{Status: http.StatusBadGateway, Code: "worker", Reason: err.Error()}
	}
	reply(w, r.Status, struct {
		Error  string `json:"error"`
		Reason string `json:"reason"`
	}{r.Code, r.Reason})
}

func invalidError(format string, args ...any) *door.Refusal {
	return &door.Refusal{Status: http.StatusBadRequest, Code: "invalid_value", Reason: fmt.Sprintf(format, args...)}
}

// targetOf returns the target in the path.
func targetOf(r *http.Request) string { return api.Name(r.PathValue("target")) }

// readNumber returns a parameter that is an integer from low to high, or def if there is none.
func readNumber(q url.Values, name string, low, high, def int64) (int64, error) {
	if !q.Has(name) {
		return def, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < low || n > high {
		return 0, invalidError("%s must be from %d to %d, not %.40q", name, low, high, q.Get(name))
	}
	return n, nil
}

// maxIDs limits the rows that a request may run. runTime limits how long the request waits for
// them.
const (
	maxIDs  = 1000
	runTime = 5 * time.Second
	maxBody = 64 << 10
)

func (s *Server) runRows(r *http.Request) (any, error) {
	var body struct {
		IDs []int64 `json:"ids"`
	}
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		return nil, invalidError("the body must be {\"ids\": [1, …]}: %v", err)
	}
	if len(body.IDs) == 0 || len(body.IDs) > maxIDs {
		return nil, invalidError("ids must be from 1 to %d ids, not %d", maxIDs, len(body.IDs))
	}
	return s.Master.Run(r.Context(), targetOf(r), body.IDs, runTime), nil
}

func (s *Server) pauseTarget(r *http.Request) (any, error) {
	return nil, s.Master.Pause(r.Context(), targetOf(r))
}
func (s *Server) resumeTarget(r *http.Request) (any, error) {
	return nil, s.Master.Resume(r.Context(), targetOf(r))
}

func (s *Server) pokeTarget(r *http.Request) (any, error) {
	served, err := s.Master.Poke(targetOf(r))
	return struct {
		Served bool `json:"served"` // otherwise the poke is remembered
	}{served}, err
}

func (s *Server) getRows(r *http.Request) (any, error) {
	query := r.URL.Query()
	q := overview.Query{Target: targetOf(r), Status: query.Get("status"), Result: query.Get("result")}
	if values := []string{"waiting", "manual", "accepted", "running", "done", "ignored"}; !slices.Contains(values, q.Status) {
		return nil, invalidError("status must be one of %s, not %.40q", strings.Join(values, ", "), q.Status)
	}
	if values := []string{"", "ok", "fail"}; !slices.Contains(values, q.Result) {
		return nil, invalidError("result must be ok or fail, not %.40q", q.Result)
	}
	limit, err := readNumber(query, "limit", 1, overview.MaxRows, 50)
	if err != nil {
		return nil, err
	}
	q.Limit = int(limit)
	if q.From, err = readNumber(query, "cursor", 1, math.MaxInt64, 0); err != nil {
		return nil, err
	}
	return rawResult(s.Master.Rows(r.Context(), q))
}

func (s *Server) getRow(r *http.Request) (any, error) {
	id, err := rowID(r)
	if err != nil {
		return nil, err
	}
	out, err := s.Master.Row(r.Context(), targetOf(r), id)
	if err == nil && out == nil {
		return nil, &door.Refusal{Status: http.StatusNotFound, Code: "not_found", Reason: fmt.Sprintf("there is no row %d in the table of %.100q", id, targetOf(r))}
	}
	return rawResult(out, err)
}

// findRows finds rows by id in all tables.
func (s *Server) findRows(r *http.Request) (any, error) {
	id, err := rowID(r)
	if err != nil {
		return nil, err
	}
	return list[json.RawMessage]{Items: s.Master.Find(r.Context(), id)}, nil
}

func rowID(r *http.Request) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, invalidError("the id of a row must be a number, not %.40q", r.PathValue("id"))
	}
	return id, nil
}

// rawResult returns JSON as received.
func rawResult(v json.RawMessage, err error) (any, error) { return []byte(v), err }

func (s *Server) getStatus(r *http.Request) (any, error) {
	return struct {
		Name    string   `json:"name"` // the program's name
		Version string   `json:"version"`
		Uptime  float64  `json:"uptime"` // seconds
		Scopes  []string `json:"scopes"`
	}{"jobd-master", cli.Version(), time.Since(s.startedAt).Seconds(), Scopes}, nil
}
