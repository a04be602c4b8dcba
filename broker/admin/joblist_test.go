package admin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func toString(v any) string { return fmt.Sprint(v) }

// ids returns the ids of all pages of a listing.
func (w *world) ids(path string) (ids []string) {
	w.t.Helper()
	for cursor := ""; ; {
		x := w.call("GET", path+cursor, "", 200)
		for _, item := range x["items"].([]any) {
			ids = append(ids, item.(map[string]any)["id"].(string))
		}
		next, hasNext := x["next"]
		if !hasNext {
			return ids
		}
		cursor = fmt.Sprintf("&cursor=%.0f", next)
	}
}

// TestJobsAreListedByFilter lists jobs by state, id, group, age and peer, page by page.
func TestJobsAreListedByFilter(t *testing.T) {
	w := start(t, nil)
	release := make(chan struct{})
	w.addWorker("run", release)
	for _, job := range []string{
		`{"type":"a","id":"a1","body":1}`, `{"type":"a","id":"a2","body":1,"groups":["acme","x"]}`,
		`{"type":"a","id":"late","body":1,"delay_ms":3600000}`, `{"type":"b/c","id":"b\"1","body":1,"age_ms":600000}`,
		`{"type":"run","id":"r1","body":"hold"}`, `{"type":"run","id":"r2","body":"hold","keep_ms":600000}`,
	} {
		w.call("POST", "/v1/jobs", job, 202)
	}
	running := func() int { return len(w.ids("/v1/jobs?state=running")) }
	eventually(t, "both run", func() bool { return running() == 2 })
	var busy map[string]any
	for _, x := range w.call("GET", "/v1/workers?type=run", "", 200)["items"].([]any) {
		x := x.(map[string]any)
		if x["serves"].([]any)[0] != "run" || x["unread_bytes"] != 0.0 {
			t.Errorf("a worker: %v", x)
		}
		if x["out"] == 1.0 && x["jobs"].([]any)[0] == "r1" {
			busy = x
		}
	}
	if x := w.call("GET", "/v1/workers?type=none", "", 200)["items"].([]any); len(x) != 0 {
		t.Errorf("workers of a type that nobody serves: %v", x)
	}
	for _, c := range []struct{ path, want string }{
		{"/v1/jobs?", `a1 a2 b"1 late r1 r2`},
		{"/v1/jobs?limit=1", `a1 a2 b"1 late r1 r2`},
		{"/v1/types/a/jobs?limit=2", `a1 a2 late`},
		{"/v1/types/a/jobs?state=queued", `a1 a2`},
		{"/v1/types/a/jobs?state=delayed", `late`},
		{"/v1/types/b%2Fc/jobs?", `b"1`},
		{"/v1/jobs?type=b/c", `b"1`},
		{"/v1/jobs?id=1", `a1 b"1 r1`},
		{"/v1/jobs?id=%221", `b"1`},
		{"/v1/jobs?group=acme", `a2`},
		{"/v1/jobs?group=acm", ``},
		{"/v1/jobs?older=599000", `b"1`},
		{"/v1/jobs?state=running&older=0", `r1 r2`},
		{"/v1/jobs?state=ended", ``},
		{"/v1/types/none/jobs?", ``},
		{fmt.Sprintf("/v1/jobs?worker=%.0f", busy["number"]), `r1`},
		{"/v1/jobs?submitter=1", ``},
	} {
		got := w.ids(c.path)
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s lists %q, want %s", c.path, got, c.want)
		}
	}
	// A request for all jobs must say so.
	for _, path := range []string{"/v1/types/a/jobs/cancel", "/v1/dead/a/retry", "/v1/dead/a/discard"} {
		for body, want := range map[string]string{
			``: "or by all: true", `{}`: "or by all: true", `{"all":false}`: "or by all: true", `{"most":7}`: "or by all: true", `{"older":0}`: "or by all: true", `{"id":null}`: "or by all: true",
			`{"id":""}`: "id is empty", `{"all":true,"id":"a"}`: "give a filter or all: true", `{"all":1}`: "all must be true or false",
		} {
			if x := w.call("POST", path, body, 400); !strings.Contains(x["reason"].(string), want) {
				t.Errorf("%s %s: %v, want %q", path, body, x, want)
			}
		}
	}
	if x := w.call("GET", "/v1/types/a/demand", "", 200); x["demand"] != 2.0 {
		t.Errorf("demand of a: %v", x)
	}
	if x := w.call("GET", "/v1/types/none/demand", "", 200); x["demand"] != 0.0 {
		t.Errorf("demand of an unknown type: %v", x)
	}
	for path, want := range map[string]string{
		"/v1/jobs?state=dead": "/v1/dead/{type}", "/v1/jobs?state=lost": "delayed, queued, running, ended", "/v1/jobs?older=1s": "older must be an integer",
		"/v1/jobs?group=%ff": "group must be UTF-8", "/v1/jobs?limit=0": "limit must be", "/v1/jobs?worker=-1": "worker must be", "/v1/jobs/a1?body=yes": "body must be true or false",
		"/v1/jobs?state=queued&state=running": "state is given 2 times",
		"/v1/jobs?cursor=x":                   "cursor must be", "/v1/dead/a?older=x": "older must be", "/v1/workers?type=" + strings.Repeat("x", 2000): "type must be",
	} {
		if x := w.call("GET", path, "", 400); !strings.Contains(x["reason"].(string), want) {
			t.Errorf("%s: %v, want %q", path, x, want)
		}
	}
	// A running job is cancelled only if the request says so.
	if x := w.call("DELETE", "/v1/jobs/r2", "", 409); x["error"] != "running" {
		t.Errorf("delete of a running job: %v", x)
	}
	if x := w.call("DELETE", "/v1/jobs/r1?running=true", "", 200); x["state"] != "unwanted" {
		t.Errorf("delete of a running job: %v", x)
	}
	if x := w.call("POST", "/v1/types/run/jobs/cancel?count=true", `{"state":"running"}`, 200); x["before"] != 1.0 || x["done"] != 0.0 {
		t.Errorf("counted: %v", x)
	}
	if x := w.call("POST", "/v1/types/run/jobs/cancel", `{"state":"running","id":"r2"}`, 200); x["done"] != 1.0 || x["after"] != 0.0 {
		t.Errorf("cancelled: %v", x)
	}
	close(release)
	eventually(t, "its outcome is kept", func() bool { return slices.Equal(w.ids("/v1/jobs?state=ended&id=r2"), []string{"r2"}) })
	if x := w.call("GET", "/v1/jobs/r2?body=true", "", 200); x["outcome"] != "cancelled" || x["reason"] != "cancelled by an operator" || x["body"] != nil {
		t.Errorf("the outcome: %v", x)
	}
}

// TestCancelManySelectsExactly: all matching jobs and no others are cancelled, and they are counted before and
// after.
func TestCancelManySelectsExactly(t *testing.T) {
	w := start(t, nil)
	for i := range 210 {
		w.call("POST", "/v1/jobs", fmt.Sprintf(`{"type":"%c","id":"j%d","body":1,"delay_ms":%d}`, "ab"[i%2], i, i%3*3600000), 202)
	}
	cancel := func(path, filter string, before, done, after float64) {
		t.Helper()
		x := w.call("POST", "/v1/types/a/jobs/cancel"+path, filter, 200)
		if x["before"] != before || x["done"] != done || x["after"] != after {
			t.Errorf("%s %s: %v, want %v, %v, %v", path, filter, x, before, done, after)
		}
	}
	cancel("?count=true", `{"all":true}`, 105, 0, 105)
	cancel("", `{"id":"j10","most":2}`, 6, 2, 4)
	cancel("", `{"id":"j10"}`, 4, 4, 0)
	cancel("", `{"state":"queued","older":3600000}`, 0, 0, 0)
	cancel("", `{"state":"queued"}`, 33, 33, 0)
	cancel("", `{"all":true}`, 66, 66, 0)
	for body, want := range map[string]string{
		`{"state":"ended"}`: "ended", `{"state":7}`: "state", `{"older":"x"}`: "older", `{"typ":"a"}`: "typ", `{"most":0}`: "most must be an integer from 1", `{"id":["x"]}`: "id must be a string",
	} {
		if x := w.call("POST", "/v1/types/a/jobs/cancel", body, 400); !strings.Contains(x["reason"].(string), want) {
			t.Errorf("%s: %v, want %q", body, x, want)
		}
	}
	if n := len(w.ids("/v1/jobs?limit=1000")); n != 105 {
		t.Errorf("%d jobs are left, want the 105 of the other type", n)
	}
}

// TestDeadManySelectsExactly: all matching failed jobs are retried or discarded.
func TestDeadManySelectsExactly(t *testing.T) {
	w := start(t, nil)
	w.addWorker("t", nil)
	for i := range 20 {
		w.call("POST", "/v1/jobs", fmt.Sprintf(`{"type":"t","id":"d%d","body":"fail"}`, i), 202)
	}
	deadIDs := func(query string) []string { return w.ids("/v1/dead/t?" + query) }
	eventually(t, "all have failed", func() bool { return len(deadIDs("limit=7")) == 20 })
	if got := deadIDs("id=d1&reason=number"); len(got) != 11 {
		t.Errorf("failed with d1 in the id: %q", got)
	}
	if got := deadIDs("older=600000"); len(got) != 0 {
		t.Errorf("failed long ago: %q", got)
	}
	changeMany := func(path, filter string, before, done, after float64) {
		t.Helper()
		x := w.call("POST", "/v1/dead/t/"+path, filter, 200)
		if x["before"] != before || x["done"] != done || x["after"] != after && after >= 0 {
			t.Errorf("%s %s: %v, want %v, %v, %v", path, filter, x, before, done, after)
		}
	}
	changeMany("discard?count=true", `{"id":"d1"}`, 11, 0, 11)
	changeMany("discard", `{"id":"d1","most":4}`, 11, 4, 7)
	changeMany("discard", `{"id":"d1"}`, 7, 7, 0)
	changeMany("retry?count=true", `{"all":true,"id":null}`, 9, 0, 9)
	w.call("POST", "/v1/types/t/pause", "", 200)
	changeMany("retry", `{"reason":"such"}`, 9, 9, 0)
	if got := w.ids("/v1/types/t/jobs?"); len(got) != 9 {
		t.Errorf("retried: %q", got)
	}
}
