package admin_test

import (
	"testing"
	"time"

	"gloom/broker"
)

// TestKept: a job that outlives its connection is shown to its end, and its
// outcome until it is forgotten.
func TestKept(t *testing.T) {
	w := start(t, nil)
	var worker broker.Peer
	w.srv.Hub().Do(func(b *broker.Broker, now int64) []broker.Effect {
		s := b.AddSubmitter()
		b.Submit(now, s, &broker.Submission{ID: []byte("kept"), Type: []byte("t"), Body: []byte("1"), Keep: time.Hour})
		b.Gone(now, s)
		worker = b.AddWorker()
		return nil
	})
	if j := w.call("GET", "/v1/jobs/kept", "", 200); j["state"] != "queued" || j["keep_ms"] != 3600e3 || j["submitter"] != nil {
		t.Errorf("after its submitter went: %v", j)
	}
	w.srv.Hub().Do(func(b *broker.Broker, now int64) []broker.Effect {
		b.Join(now, worker, &broker.Joining{Type: []byte("t")})
		b.Respond(now, worker, nil, []byte("1"), false)
		return nil
	})
	if j := w.call("GET", "/v1/jobs/kept", "", 200); j["state"] != "ended" || j["keep_ms"] != 3600e3 {
		t.Errorf("after its end: %v", j)
	}
	kept := func() (n, bytes float64) {
		_, f := scrape(t, w)
		return value(f, "gloom_kept_outcomes"), value(f, "gloom_kept_outcome_bytes")
	}
	if n, bytes := kept(); n != 1 || bytes <= 0 {
		t.Errorf("%v outcomes of %v bytes are kept, want 1", n, bytes)
	}
	if x := w.call("DELETE", "/v1/jobs/kept", "", 200); x["state"] != "forgotten" {
		t.Errorf("forgotten: %v", x)
	}
	w.call("GET", "/v1/jobs/kept", "", 404)
	w.call("DELETE", "/v1/jobs/kept", "", 404)
	if n, bytes := kept(); n != 0 || bytes != 0 {
		t.Errorf("%v outcomes of %v bytes are kept, want none", n, bytes)
	}
}
