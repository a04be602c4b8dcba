package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gloom/broker"
)

// TestKeptJobAndItsOutcomeAreShown: a job that outlives its connection is shown until its end. Then
// its outcome is shown until the outcome is forgotten.
func TestKeptJobAndItsOutcomeAreShown(t *testing.T) {
	w := start(t, nil)
	var worker broker.Peer
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		s := core.AddSubmitter()
		core.Submit(now, s, &broker.Submission{ID: []byte("kept"), Type: []byte("t"), Body: []byte("1"), Keep: time.Hour})
		core.RemovePeer(now, s)
		worker = core.AddWorker()
		return nil
	})
	if j := w.call("GET", "/v1/jobs/kept", "", 200); j["state"] != "queued" || j["keep_ms"] != 3600e3 || j["submitter"] != nil {
		t.Errorf("after its submitter went: %v", j)
	}
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		core.Join(now, worker, &broker.JoinRequest{Type: []byte("t")})
		core.Respond(now, worker, nil, []byte("1"), false)
		return nil
	})
	if j := w.call("GET", "/v1/jobs/kept", "", 200); j["state"] != "ended" || j["keep_ms"] != 3600e3 {
		t.Errorf("after its end: %v", j)
	}
	kept := func() (n, bytes float64) {
		_, f := scrape(t, w)
		return metricSum(f, "gloom_kept_outcomes"), metricSum(f, "gloom_kept_outcome_bytes")
	}
	if n, bytes := kept(); n != 1 || bytes <= 0 {
		t.Errorf("%v outcomes of %v bytes are kept, want 1", n, bytes)
	}
	w.call("PATCH", "/v1/jobs/kept", `{"priority":1}`, 404)
	if x := w.call("DELETE", "/v1/jobs/kept", "", 200); x["state"] != "forgotten" {
		t.Errorf("forgotten: %v", x)
	}
	if x := w.call("GET", "/v1/jobs/kept", "", 200); x["state"] != "ended" || x["keep_ms"] != nil {
		t.Errorf("remembered, but not kept: %v", x)
	}
	w.call("DELETE", "/v1/jobs/kept", "", 404)
	w.call("PATCH", "/v1/jobs/kept", `{"priority":1}`, 404)
	if n, bytes := kept(); n != 0 || bytes != 0 {
		t.Errorf("%v outcomes of %v bytes are kept, want none", n, bytes)
	}
}

// TestChangeIsAllOrNothing: either all named fields of a waiting job are changed, or none.
func TestChangeIsAllOrNothing(t *testing.T) {
	w := start(t, nil)
	var worker broker.Peer
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		s := core.AddSubmitter()
		for _, id := range []string{"first", "a/b*"} {
			core.Submit(now, s, &broker.Submission{ID: []byte(id), Type: []byte("t"), Body: []byte("1"), Priority: 1})
		}
		worker = core.AddWorker()
		return nil
	})
	const path = "/v1/jobs/a%2Fb%2A"
	if x := w.call("PATCH", path, `{"priority":9}`, 200); x["state"] != "queued" || x["id"] != "a/b*" {
		t.Errorf("priority: %v", x)
	}
	if j := w.call("GET", path, "", 200); j["priority"] != 9.0 || j["ahead"] != 0.0 {
		t.Errorf("after a change of its priority: %v", j)
	}
	if x := w.call("PATCH", path, `{"delay_ms":3600000,"priority":null}`, 200); x["state"] != "delayed" {
		t.Errorf("delay: %v", x)
	}
	for body, want := range map[string]string{
		`{}`:                               "priority",
		``:                                 "priority",
		`{"priority":null}`:                "priority",
		`{"priority":"high"}`:              "high",
		`{"priority":1.5}`:                 "1.5",
		`{"delay_ms":-1}`:                  "-1",
		`{"delay_ms":31536000001}`:         "31536000001",
		`{"priority":3,"delay_ms":[]}`:     "delay_ms",
		`{"priority":3,"id":"first"}`:      "id",
		`{"priority":3,"action":"cancel"}`: "action",
	} {
		if e := w.call("PATCH", path, body, 400); !strings.Contains(fmt.Sprint(e["reason"]), want) {
			t.Errorf("%s: %v does not name %s", body, e, want)
		}
	}
	if j := w.call("GET", path, "", 200); j["state"] != "delayed" || j["priority"] != 9.0 {
		t.Errorf("after refused changes: %v", j)
	}
	if x := w.call("PATCH", path, `{"delay_ms":0}`, 200); x["state"] != "queued" {
		t.Errorf("ready: %v", x)
	}
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		core.Join(now, worker, &broker.JoinRequest{Type: []byte("t")})
		return nil
	})
	if e := w.call("PATCH", path, `{"priority":1}`, 409); e["error"] != "running" {
		t.Errorf("running: %v", e)
	}
	if e := w.call("PATCH", "/v1/jobs/nobody", `{"priority":1}`, 404); e["error"] != "unknown_id" {
		t.Errorf("unknown: %v", e)
	}
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		core.Release(now, worker, &broker.ReleaseRequest{Delay: time.Hour})
		return nil
	})
	if j := w.call("GET", path, "", 200); j["state"] != "delayed" || j["releases"] != 1.0 || j["attempts"] != 0.0 {
		t.Errorf("given back: %v", j)
	} else if runs := j["runs"].([]any); len(runs) != 1 || runs[0].(map[string]any)["outcome"] != "released" || runs[0].(map[string]any)["error"] != "given back" || runs[0].(map[string]any)["n"] != 1.0 {
		t.Errorf("its runs: %v", runs)
	}
	if _, f := scrape(t, w); metricSum(f, "gloom_releases_total") != 1 {
		t.Error("the release is not counted")
	}
}
