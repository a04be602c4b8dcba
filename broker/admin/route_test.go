package admin_test

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"gloom/broker/admin"
)

// TestUnknownKeysAreRefused: every operation refuses unknown keys and then changes nothing.
func TestUnknownKeysAreRefused(t *testing.T) {
	w := start(t, nil)
	w.call("POST", "/v1/jobs", `{"type":"x","id":"x","body":1,"headers":{"u":"?a=1&b=<2>"}}`, 202)
	fill := strings.NewReplacer("{type}", "x", "{id}", "x", "{pattern}", "x")
	for op, keys := range admin.Operations() {
		method, path, _ := strings.Cut(op, " ")
		body := ""
		if method != "GET" {
			body = `{"all":true}`
		}
		x := w.call(method, fill.Replace(path)+"?cout=true", body, 400)
		reason := x["reason"].(string)
		if x["error"] != "invalid_value" || !strings.Contains(reason, `"cout"`) || len(keys) > 0 && !strings.Contains(reason, keys[0]) {
			t.Errorf("%s: %v", op, x)
		}
	}
	w.call("GET", "/v1/jobs?id=%zz", "", 400)
	// Texts from clients are returned unchanged.
	if data := string(httpGet(t, w.url+"/v1/jobs/x?body=true")); !strings.Contains(data, `"?a=1&b=<2>"`) {
		t.Errorf("the job: %s", data)
	}
}

// TestRefusalShowsPath: a refusal shows the path as it was asked for, escapes included.
func TestRefusalShowsPath(t *testing.T) {
	w := start(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
	}{{"GET", "/v1/types/%2F/x", 404}, {"GET", "/v1/types/a%2fb/x", 404}, {"GET", "/v1/types/a%00%C3%A9/x", 404}, {"POST", "/v1/types/%2F", 405}} {
		x := w.call(c.method, c.path+"?a=1", `{}`, c.status)
		if reason := x["reason"].(string); !strings.Contains(reason, " "+c.path+";") {
			t.Errorf("%s: %s", c.path, reason)
		}
	}
}

// TestOperatorActionsAreLogged: the log names an operator's action and its jobs.
func TestOperatorActionsAreLogged(t *testing.T) {
	w := start(t, nil)
	var log bytes.Buffer
	h := admin.New(w.srv, zerolog.New(&log).Level(zerolog.InfoLevel))
	request := func(method, path, body string, headers ...string) {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		got := httptest.NewRecorder()
		h.ServeHTTP(got, r)
		if got.Code/100 != 2 {
			t.Errorf("%s %s: %d %s", method, path, got.Code, got.Body)
		}
	}
	for _, c := range []struct{ method, path, body, want string }{
		{"PATCH", "/v1/jobs/j", `{"priority":7,"groups":["a"]}`, `"id":"j","changes":{"groups":["a"],"priority":7}`},
		{"POST", "/v1/types/t/jobs/cancel", `{"id":"report-1","older":60000}`, `"type":"t","filter":"id=report-1&older=60000"`},
		{"POST", "/v1/dead/t/retry", `{"reason":"401 no"}`, `"filter":"reason=401+no"`},
		{"POST", "/v1/dead/t/discard", `{"all":true}`, `"filter":""`},
	} {
		request("POST", "/v1/jobs", `{"type":"t","id":"j","body":1}`)
		if log.Len() > 0 {
			t.Errorf("a job from a program is told: %s", &log)
		}
		request(c.method, c.path, c.body)
		if !strings.Contains(log.String(), c.want) {
			t.Errorf("%s %s is told as %s, want %s", c.method, c.path, &log, c.want)
		}
		log.Reset()
		request("DELETE", "/v1/jobs/j", "")
		log.Reset()
	}
	request("POST", "/v1/jobs", `{"type":"t","id":"test","body":1}`, "Origin", "http://localhost", "Sec-Fetch-Site", "same-origin")
	if !strings.Contains(log.String(), `"id":"test","type":"t","peer":`) {
		t.Errorf("a job from the page is told as %q", &log)
	}
}
