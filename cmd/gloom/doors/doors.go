// Package doors gives operators one interface to the daemons that have the broker inside or beside
// them: jq-master, serverlessd and jobd-master. For each daemon, a handler here answers the
// requests of the broker's /v1 (broker/admin/api) with the daemon's data.
package doors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

// Door is a daemon that is not a broker. It implements http.RoundTripper for requests to the
// daemon.
type Door struct {
	Name string // of the program

	base, token string
	transport   http.RoundTripper
	mux         *http.ServeMux
}

// Status is a daemon as a whole.
type Status struct {
	api.Status
	Door string `json:"door,omitempty"` // the name of the program; empty for a broker
	// Rates is set if the ledgers of types do not show the rates, because they forget jobs.
	Rates *api.Rates `json:"rates,omitempty"`
}

// readStatus returns what all daemons report about themselves.
func (d *Door) readStatus(r *http.Request) (*Status, error) {
	var s struct {
		Version string           `json:"version"`
		Uptime  float64          `json:"uptime"`
		Limits  map[string]int64 `json:"limits"`
	}
	err := d.request(r, http.MethodGet, "/v1/status", nil, &s)
	return &Status{Door: d.Name, Status: api.Status{Version: s.Version, UptimeSeconds: s.Uptime, Limits: s.Limits}}, err
}

// MaxAnswer bounds an answer, in bytes: four times the most that brokers send.
const MaxAnswer = 64 << 20

// setUpByName maps the name of each daemon to the function that prepares a Door for it.
var setUpByName = map[string]func(*Door){"jq-master": setUpJQ, "serverlessd": setUpServerless, "jobd-master": setUpJobd}

// ForStatus returns the Door of a daemon with this status: nil, nil for a broker.
func ForStatus(status json.RawMessage, transport http.RoundTripper, base, token string) (*Door, error) {
	var reply struct {
		Name   string          `json:"name"`   // name of the daemon; a broker sends none
		Ledger json.RawMessage `json:"ledger"` // only a broker sends it
	}
	_ = json.Unmarshal(status, &reply) // a status that is not JSON has no name
	if setUp := setUpByName[reply.Name]; setUp != nil {
		d := &Door{Name: reply.Name, base: base, token: token, transport: transport, mux: http.NewServeMux()}
		d.handle("GET /v1/findings", d.findings)
		d.unsupported("history of rates", "/metrics has them for Prometheus", "GET /v1/history")
		setUp(d)
		return d, nil
	}
	if reply.Ledger != nil {
		return nil, nil
	}
	return nil, cli.Failf(cli.ExitFailed, "the server is not a gloomd, jq-master, serverlessd or jobd-master: %.60q", status)
}

// answerFunc returns the value that is sent as JSON in reply to a request.
type answerFunc func(r *http.Request) (any, error)

func (d *Door) handle(pattern string, f answerFunc) {
	d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		w.(*reply).value, w.(*reply).err = f(r)
	})
}

// unsupported refuses requests that the daemon does not support. feature names them in the
// error, and hint is its hint.
func (d *Door) unsupported(feature, hint string, patterns ...string) {
	for _, p := range patterns {
		d.handle(p, func(*http.Request) (any, error) { return nil, d.unsupportedError(feature, hint) })
	}
}

func (d *Door) unsupportedError(feature, hint string) error {
	return cli.Usagef("%s has no %s", d.Name, feature).SetHint("%s", hint)
}

// reply carries the result of an answerFunc through the mux.
type reply struct {
	value any
	err   error
}

func (*reply) Header() http.Header         { return http.Header{} }
func (*reply) WriteHeader(int)             {}
func (*reply) Write(p []byte) (int, error) { return len(p), nil } // the mux's own 404

// refusal is the daemon's reply that is not a success.
type refusal struct {
	status int
	body   []byte
}

func (r *refusal) Error() string { return string(r.body) }

// RoundTrip implements http.RoundTripper.
func (d *Door) RoundTrip(r *http.Request) (*http.Response, error) {
	out := reply{err: errNoOperation}
	d.mux.ServeHTTP(&out, r)
	status, body := http.StatusOK, []byte(nil)
	var refused *refusal
	switch {
	case errors.As(out.err, &refused):
		status, body = refused.status, refused.body
	case out.err == errNoOperation:
		return nil, d.unsupportedError("such operation", "its README lists the operations that it has")
	case out.err != nil:
		return nil, out.err
	default:
		var err error
		if body, err = json.Marshal(out.value); err != nil {
			return nil, err
		}
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)),
		Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, nil
}

var errNoOperation = errors.New("the daemon has no such operation")

// request sends a request of the daemon's interface, as part of the answer to r; in and out may be
// nil.
func (d *Door) request(r *http.Request, method, path string, in, out any) error {
	req, err := api.NewRequest(r.Context(), method, d.base+path, d.token, in)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := d.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer))
	switch {
	case err != nil:
		return err
	case resp.StatusCode/100 != 2:
		return &refusal{resp.StatusCode, body}
	case out == nil:
		return nil
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = body
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return cli.Failf(cli.ExitFailed, "cannot decode the answer of %s: %w: %.60q", d.Name, err, body)
	}
	return nil
}

// CutError says that the connection broke during a bulk action. Done jobs were changed before that; the
// daemon may have changed more, which it could not report.
type CutError struct {
	Done int
	Err  error
}

func (e *CutError) Error() string {
	if e.Done == 0 {
		return "some jobs may have been changed before that"
	}
	return "changed before that: " + cli.Plural(e.Done, "job") + ", and perhaps more"
}

func (e *CutError) Unwrap() error { return e.Err }

// WithCount adds to an error how many jobs a bulk action had changed before the error.
func WithCount(err error, done int) error {
	var refused *refusal
	var op *net.OpError
	notSent := errors.As(err, &op) && op.Op == "dial"
	if err == nil || done == 0 && (notSent || errors.As(err, &refused)) {
		return err
	}
	var e api.Error
	if errors.As(err, &refused) && json.Unmarshal(refused.body, &e) == nil && e.Code != "" {
		e.Reason = cmp.Or(e.Reason, e.Code) + "; changed before that: " + cli.Plural(done, "job")
		body, _ := json.Marshal(e)
		return &refusal{refused.status, body}
	}
	return &CutError{done, err}
}

// notFound returns the refusal for an unknown job or type.
func notFound(code, format string, args ...any) error {
	body, _ := json.Marshal(api.Error{Code: code, Reason: fmt.Sprintf(format, args...)})
	return &refusal{http.StatusNotFound, body}
}

// page is a page of a listing of a daemon. If the daemon's cursors are not numbers, Place is the
// cursor of the next page, "" at the end.
type page[T any] struct {
	api.List[T]
	Place string `json:"place,omitempty"`
}

// parsePlace returns the place at which the requested page begins, "" for the first page.
func parsePlace(r *http.Request) string { return r.URL.Query().Get("cursor") }

// parseLimit returns how many items a page may have, up to limit.
func parseLimit(r *http.Request, limit int) int {
	n, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		n = limit
	}
	return max(1, min(n, limit))
}
