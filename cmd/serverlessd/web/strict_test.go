package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"gloom/cmd/internal/door"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

// callRecorder is a queue that records the calls that change it.
type callRecorder struct {
	awayQueue
	calls []string
}

func (a *callRecorder) PutHandler(context.Context, *job.Handler) error {
	a.calls = append(a.calls, "put handler")
	return nil
}

func (a *callRecorder) DeleteHandler(context.Context, string) (int, error) {
	a.calls = append(a.calls, "delete handler")
	return 1, nil
}

func (a *callRecorder) RetryAll(_ context.Context, q store.Query) (int, bool, error) {
	a.calls = append(a.calls, "retry "+q.Type+" "+string(q.State))
	return 1, false, nil
}

func (a *callRecorder) Jobs(context.Context, store.Query) ([]store.Record, job.ID, error) {
	a.calls = append(a.calls, "list")
	return nil, "", nil
}

func (a *callRecorder) Stop() { a.calls = append(a.calls, "stop") }

func (*callRecorder) IsUnhandled(string) bool { return true }

// TestUnknownParameters: an unknown parameter, or a body where none is read, is refused with an
// error that has the known names, and nothing is done.
func TestUnknownParameters(t *testing.T) {
	d, err := door.Listen(door.Options{Addr: "127.0.0.1:0"}, zerolog.Nop(), true, ScopeNames...)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Shutdown(t.Context())
	const asJSON = "application/json"
	for _, c := range []struct{ method, path, kind, body, status, text string }{
		{"POST", "/a/job/x?delays=5m", "", "1", "400", `has no parameter "delays"; it accepts delay, dt, wait`},
		{"POST", "/a/job/x?delay=5m&delay=6m", "", "1", "400", "delay is given 2 times"},
		{"POST", "/add?jobtype=x&clients=a", "", "1", "400", "it accepts jobtype, client, delay, dt, wait"},
		{"POST", "/a/job/x", "", "1", "200", `"handlers":0`},
		{"POST", "/a/handler/add/x?Lang=sh", "", "true", "400", "it accepts lang, method"},
		{"POST", "/a/handler/add/x?lang=sh", "", "true", "200", "put handler"},
		{"POST", "/a/handler/add/x?lang=sh", asJSON, `{"lang":"sh","body":"true"}`, "400", "has its language in lang"},
		{"POST", "/a/handler/add/x", asJSON, `{"lang":"sh","body":"true","Before":"x"}`, "400", `a handler has no key "Before"; its keys are lang, body, before`},
		{"POST", "/a/handler/add/x", asJSON, `{"lang":"http","body":"http://x","method":"PUT"}`, "400", "?method=PUT"},
		{"POST", "/a/handler/add/x", asJSON, `{"lang":"sh","body":"true","options":{"retries":3}}`, "400", `no option "retries"; the options are batch`},
		{"DELETE", "/a/handler/del/x?version=1", "", "", "400", "it accepts none"},
		{"DELETE", "/a/handler/del/x", "", `{"id":"1"}`, "400", "accepts no body"},
		{"DELETE", "/a/handler/del/x", "", "", "200", "delete handler"},
		{"POST", "/a/retry?typ=x", "", "", "400", "it accepts type, state, after, limit, all"},
		{"POST", "/a/retry", "", `{"type":"x"}`, "400", "accepts no body"},
		{"POST", "/a/retry", "", "", "400", "all=true"},
		{"POST", "/a/retry?type=&state=", "", "", "400", "all=true"},
		{"POST", "/a/retry?limit=5", "", "", "400", "all=true"},
		{"POST", "/a/retry?all=yes", "", "", "400", "must be true or false"},
		{"POST", "/a/retry?all=true", "", "", "200", "retry  failed"},
		{"POST", "/a/retry?type=x", "", "", "200", "retry x failed"},
		{"POST", "/retry?all=true", "", "", "200", "retry  failed"},
		{"POST", "/retry", "", "", "400", "all=true"},
		{"POST", "/retry?type=x", "", "", "400", "it accepts state, after, limit, all"}, // of which client?
		{"POST", "/a/retry?state=failed", "", "", "200", "retry  failed"},
		{"GET", "/a/jobs?stat=failed", "", "", "400", "it accepts type, state, after, limit, last"},
		{"GET", "/a/jobs?last=true", "", "", "200", "list"},
		{"GET", "/a/jobs?last=true&limit=101", "", "", "400", "from 1 to 100"},
		{"GET", "/jobs?client=a", "", "", "400", "id, state, after, limit, last"},
		{"GET", "/jobs?last=true&state=failed", "", "", "200", "list"},
		{"GET", "/jobs?id=1m817brr7-rseydg-00000&limit=1", "", "", "400", "id names one job"},
		{"GET", "/handlers?limit=0", "", "", "400", "from 1 to 1000"},
		{"GET", "/schedules?after=x", "", "", "400", "limit, cursor"},
		{"GET", "/v1/stats?types=1001", "", "", "400", "from 0 to 1000"},
		{"GET", "/v1/stats?part=" + strings.Repeat("x", 194), "", "", "400", "at most 193"},
		{"POST", "/stop?client=a", "", "", "400", "it accepts none"},
		{"POST", "/stop", "", "", "200", "stop"},
	} {
		q := &callRecorder{}
		s := New(q, d, Options{MaxBody: 1 << 20, MaxLineBytes: 1 << 20, MaxLines: 10, MaxBodies: 2})
		r, w := httptest.NewRequest(c.method, "http://"+d.Addr().String()+c.path, strings.NewReader(c.body)), httptest.NewRecorder()
		if c.body == "" {
			r.Body, r.ContentLength = http.NoBody, 0
		}
		r.Header.Set("Content-Type", c.kind)
		s.ServeHTTP(w, r)
		calls := strings.Join(q.calls, ", ")
		text := w.Body.String() + calls
		if w.Code != int(c.status[0]-'0')*100 || !strings.Contains(text, c.text) && !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), c.text) || w.Code != 200 && calls != "" {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, w.Code, text)
		}
	}
}

// TestCompressedBodyIsRefused: a compressed body is refused, because its bytes would be taken for
// lines or a source.
func TestCompressedBodyIsRefused(t *testing.T) {
	d, err := door.Listen(door.Options{Addr: "127.0.0.1:0"}, zerolog.Nop(), true, ScopeNames...)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Shutdown(t.Context())
	for _, path := range []string{"/a/job/x", "/a/handler/add/x?lang=sh"} {
		for encoding, status := range map[string]int{"": 200, "Identity": 200, "gzip": 415, "br": 415} {
			q := &callRecorder{}
			s := New(q, d, Options{MaxBody: 1 << 20, MaxLineBytes: 1 << 20, MaxLines: 10, MaxBodies: 2})
			r, w := httptest.NewRequest("POST", "http://"+d.Addr().String()+path, strings.NewReader("true")), httptest.NewRecorder()
			r.Header.Set("Content-Encoding", encoding)
			s.ServeHTTP(w, r)
			if w.Code != status || status == 415 && (len(q.calls) > 0 || !strings.Contains(w.Body.String(), "must not be encoded")) {
				t.Errorf("%s %q: %d %s %v", path, encoding, w.Code, w.Body, q.calls)
			}
		}
	}
}
