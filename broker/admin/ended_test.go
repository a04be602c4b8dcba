package admin_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker/settings"
)

// TestEndedJobsAreListed: ended jobs are listed, the latest first, page by page, and shown in full.
func TestEndedJobsAreListed(t *testing.T) {
	w := start(t, nil)
	release := make(chan struct{})
	close(release)
	before := time.Now().Add(-time.Millisecond)
	w.addWorker("run", release)
	for i := range 5 {
		id := fmt.Sprint("r", i)
		w.call("POST", "/v1/jobs", fmt.Sprintf(`{"type":"run","id":%q,"body":"four","groups":["g%d"],"keep_ms":%d}`, id, i%2, i/4*3600000), 202)
		eventually(t, id+" has ended", func() bool { return slices.Contains(w.ids("/v1/jobs?state=ended"), id) })
	}
	w.call("POST", "/v1/jobs", `{"type":"x/y","id":"c","body":1}`, 202)
	w.call("DELETE", "/v1/jobs/c", "", 200)
	since := "&since=" + before.UTC().Format(time.RFC3339Nano)
	for path, want := range map[string]string{
		"/v1/jobs?state=ended": "c r4 r3 r2 r1 r0", "/v1/jobs?state=ended&type=run&group=g1": "r3 r1",
		"/v1/types/run/jobs?state=ended": "r4 r3 r2 r1 r0", "/v1/jobs?state=ended&outcome=cancelled": "c", "/v1/jobs?state=ended&id=4": "r4",
		"/v1/jobs?state=ended&outcome=failed": "", "/v1/jobs?state=ended&since=1h": "c r4 r3 r2 r1 r0", "/v1/jobs?state=ended" + since: "c r4 r3 r2 r1 r0",
		"/v1/jobs?state=ended&since=2100-01-01T00:00:00Z": "", "/v1/jobs?state=ended&submitter=99": "", "/v1/jobs?state=ended&since=3600000": "c r4 r3 r2 r1 r0",
	} {
		if got := strings.Join(w.ids(path), " "); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	// The pages are read while further jobs end.
	var pages []string
	path := "/v1/jobs?state=ended&limit=2"
	for cursor := ""; ; {
		x := w.call("GET", path+cursor, "", 200)
		for _, item := range x["items"].([]any) {
			pages = append(pages, item.(map[string]any)["id"].(string))
		}
		if x["cursor"] == nil {
			break
		}
		cursor = fmt.Sprintf("&cursor=%.0f", x["cursor"])
		w.call("POST", "/v1/jobs", `{"type":"other","id":"later","body":1}`, 202)
		w.call("DELETE", "/v1/jobs/later", "", 200)
	}
	if got := strings.Join(pages, " "); got != "c r4 r3 r2 r1 r0" {
		t.Errorf("in pages: %s", got)
	}
	// A cursor that no answer has returned acts as the nearest one before it.
	for cursor := range int64(500) {
		w.call("GET", fmt.Sprintf("/v1/jobs?state=ended&cursor=%d", cursor), "", 200)
	}
	for _, cursor := range []int64{1 << 18, 1<<18 + 1, 1 << 40, math.MaxInt64} {
		if got := w.ids(fmt.Sprintf("/v1/jobs?state=ended&type=run&cursor=%d", cursor)); len(got) != 5 {
			t.Errorf("from %d on there are %v", cursor, got)
		}
	}
	for id, kept := range map[string]bool{"r0": false, "r4": true} {
		x := w.call("GET", "/v1/jobs/"+id, "", 200)
		runs, _ := x["runs"].([]any)
		if x["state"] != "ended" || x["outcome"] != "answered" || x["size"] != 6.0 || x["attempts"] != 1.0 || x["started_at"] == nil || len(runs) != 1 || (x["keep_ms"] != nil) != kept {
			t.Fatalf("%s: %v", id, x)
		}
		run := runs[0].(map[string]any)
		if run["outcome"] != "answered" || run["n"] != 1.0 || run["worker"].(map[string]any)["address"] == "" || run["started_at"] != x["started_at"] {
			t.Errorf("%s: its run: %v", id, run)
		}
	}
	if x := w.call("GET", "/v1/jobs/c", "", 200); x["outcome"] != "cancelled" || x["started_at"] != nil || x["ran_ms"] != 0.0 || x["reason"] != "cancelled by an operator" || x["runs"] != nil {
		t.Errorf("a cancelled job: %v", x)
	}
	if x := w.call("GET", "/v1/jobs/nobody", "", 404); x["error"] != "unknown_job" || !strings.Contains(x["reason"].(string), "reaches back to the start of the broker") {
		t.Errorf("an unknown job: %v", x)
	}
	for path, want := range map[string]string{
		"/v1/jobs?state=ended&outcome=lost": "outcome must be one of answered, failed, cancelled, expired, discarded", "/v1/jobs?state=ended&since=yesterday": "since must be",
		"/v1/jobs?outcome=failed": "outcome needs state=ended", "/v1/jobs?state=ended&older=1": "older is not for ended jobs", "/v1/jobs?state=ended&limit=1001": "limit must be",
	} {
		if x := w.call("GET", path, "", 400); !strings.Contains(x["reason"].(string), want) {
			t.Errorf("%s: %v, want %q", path, x, want)
		}
	}
}

// TestWithoutHistoryOnlyOutcomesAreListed: without a history, only ended jobs whose outcome is kept are listed.
func TestWithoutHistoryOnlyOutcomesAreListed(t *testing.T) {
	w := start(t, func(o *settings.Options) { o.History = 0 })
	release := make(chan struct{})
	close(release)
	w.addWorker("run", release)
	w.call("POST", "/v1/jobs", `{"type":"run","id":"kept","body":1,"keep_ms":60000}`, 202)
	eventually(t, "its outcome is kept", func() bool { return slices.Equal(w.ids("/v1/jobs?state=ended"), []string{"kept"}) })
	if x := w.call("GET", "/v1/jobs/kept", "", 200); x["outcome"] != "answered" || x["ended_at"] != nil {
		t.Errorf("a kept outcome: %v", x)
	}
	if x := w.call("GET", "/v1/jobs/nobody", "", 404); !strings.Contains(x["reason"].(string), "--history 0") {
		t.Errorf("an unknown job: %v", x)
	}
	w.call("GET", "/v1/jobs?state=ended&outcome=failed", "", 400)
}

// TestRatesOfLastHoursAreServed requests the rates of the last hours, of all types and of one.
func TestRatesOfLastHoursAreServed(t *testing.T) {
	w := start(t, nil)
	release := make(chan struct{})
	close(release)
	w.addWorker("run", release)
	for i := range 3 {
		w.call("POST", "/v1/jobs", fmt.Sprintf(`{"type":"run","id":"r%d","body":1}`, i), 202)
	}
	w.call("POST", "/v1/jobs", `{"type":"x/y","id":"c","body":1}`, 202)
	lastRow := func(path, key string) any {
		x := w.call("GET", path, "", 200)[key].([]any)
		return x[len(x)-1]
	}
	eventually(t, "the jobs are counted", func() bool { return lastRow("/v1/history?type=run", "answered") == 3.0 })
	if submitted, queued := lastRow("/v1/history", "in"), lastRow("/v1/history?type=x/y&since=24h", "queued"); submitted != 4.0 || queued != 1.0 {
		t.Errorf("%v jobs of all types, %v queued of one", submitted, queued)
	}
	if p := lastRow("/v1/history?type=run&since=90m", "run_p95_ms"); p == nil {
		t.Error("nothing is known of the runs")
	}
	for path, n := range map[string]int{"/v1/history": 180, "/v1/history?since=90s": 2, "/v1/history?since=3h": 180, "/v1/history?since=4h": 24, "/v1/history?since=24h&type=nobody": 144} {
		x := w.call("GET", path, "", 200)
		if len(x["in"].([]any)) != n || (x["step_ms"] == 60000.0) != (n == 180 || n == 2) {
			t.Errorf("%s: %d steps of %v ms, want %d", path, len(x["in"].([]any)), x["step_ms"], n)
		}
	}
	if got := lastRow("/v1/history?type=nobody", "in"); got != nil {
		t.Errorf("of a type not known: %v", got)
	}
	for _, since := range []string{"25h", "0s", "-1h", "yesterday"} {
		if x := w.call("GET", "/v1/history?since="+since, "", 400); !strings.Contains(x["reason"].(string), "since must be a duration up to 24h") {
			t.Errorf("%s: %v", since, x)
		}
	}
}
