package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"gloom/cmd/serverlessd/store"
)

// TestHeadChangesNothing: a request with HEAD changes nothing.
func TestHeadChangesNothing(t *testing.T) {
	for _, path := range []string{"/start", "/stop", "/quit"} {
		w := httptest.NewRecorder()
		new(Web).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodHead, path, http.NoBody))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, POST" {
			t.Errorf("%s: status %d, %v", path, w.Code, w.Header())
		}
	}
}

// TestNamesInPaths: a name may have the mark that pages and clients put before "." and "/".
func TestNamesInPaths(t *testing.T) {
	for segment, name := range map[string]string{"%FF.": ".", "%FF..": "..", "%FF%2F": "/", "%2F": "/", "a%2Fb": "a/b"} {
		r := &request{Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/acme/schedule/"+segment, http.NoBody)}
		if a := route(r); a != oneSchedule || r.name != name {
			t.Errorf("%s is the schedule %q", segment, r.name)
		}
	}
}

// TestUnknownPaths: a path that the documentation does not have is no request of a client.
func TestUnknownPaths(t *testing.T) {
	for _, path := range []string{
		"/acme/handler/get/x/", "/acme/handler/versions/x/", "/acme/handler/add/x/", "/acme/handler/del/x/",
		"/acme/handler/get/x/get", "/acme/handler/del/x/del", "/acme/handler/add/x/add/", "/acme/job/get/x/", "/acme/job/x/add/", "/acme/state/",
		"/acme/jobs/", "/acme/retry/", "/acme/", "/acme", "//job/x", "/state/", "/add/", "/v1/stats/",
	} {
		if a := route(&request{Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)}); a != nil {
			t.Errorf("%s is an action", path)
		}
	}
}

// failingQueue is a queue whose store goes away after this many calls.
type failingQueue struct {
	Queue
	calls int
}

func (p *failingQueue) RetryAll(context.Context, store.Query) (int, bool, error) {
	if p.calls--; p.calls < 0 {
		return 0, true, store.ErrAway
	}
	return 3, false, nil
}

// TestRetryAllPartly: if the store goes away during a bulk retry, the answer says how many jobs
// already run again.
func TestRetryAllPartly(t *testing.T) {
	for calls, want := range []string{"", `{"affected":3,"more":true}`, `{"affected":6,"more":false}`} {
		s, w := &Web{queue: &failingQueue{calls: calls}}, httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/acme/retry", http.NoBody)
		err := s.retryAll(&request{Request: r, w: w, client: "acme", query: url.Values{"all": {"true"}}})
		if got := strings.TrimSpace(w.Body.String()); got != want || (err == nil) != (want != "") {
			t.Errorf("after %d calls: %s, %v", calls, got, err)
		}
	}
}
