package admin_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gloom/broker"
	"gloom/broker/settings"
)

func scrape(t *testing.T, w *world) (string, map[string]*dto.MetricFamily) {
	t.Helper()
	resp, err := http.Get(w.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %v %s", resp.StatusCode, err, data)
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data), families
}

// metricSum sums a family's metrics whose labels include all of want.
func metricSum(f map[string]*dto.MetricFamily, name string, want ...string) float64 {
	sum := 0.0
	for _, m := range f[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		match := true
		for i := 0; i+1 < len(want); i += 2 {
			match = match && labels[want[i]] == want[i+1]
		}
		if match {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// TestMetricsAreRight: lint finds no error, and the metrics have the values of the core.
func TestMetricsAreRight(t *testing.T) {
	w := start(t, nil)
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		s, k := core.AddSubmitter(), core.AddWorker()
		for i := range 5 {
			core.Submit(now, s, &broker.Submission{ID: fmt.Append(nil, i), Type: []byte("mail"), Body: []byte("1"), Retries: 0})
		}
		core.Join(now, k, &broker.JoinRequest{Type: []byte("mail")})
		core.Respond(now, k, nil, []byte("1"), false)
		core.Fail(now, k, &broker.Failure{Reason: "no", Delay: -1})
		return nil
	})
	text, f := scrape(t, w)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "gloom_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{5, "gloom_jobs_submitted_total", []string{"type", "mail"}},
		{3, "gloom_jobs_dispatched_total", []string{"type", "mail"}},
		{1, "gloom_jobs_ended_total", []string{"type", "mail", "outcome", "answered"}},
		{1, "gloom_jobs_ended_total", []string{"type", "mail", "outcome", "failed"}},
		{2, "gloom_jobs", []string{"type", "mail", "state", "queued"}},
		{1, "gloom_jobs", []string{"type", "mail", "state", "running"}},
		{1, "gloom_workers", []string{"type", "mail", "state", "busy"}},
		{1, "gloom_dead_letters", []string{"type", "mail"}},
		{3, "gloom_wait_seconds", []string{"type", "mail"}},
		{2, "gloom_run_seconds", []string{"type", "mail"}},
		{1, "gloom_connections", []string{"port", "submit"}},
		{0, "gloom_ledger_imbalance", nil},
		{1, "gloom_types", nil},
	} {
		if f[c.name] == nil {
			t.Errorf("%s is missing", c.name)
		} else if got := metricSum(f, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v = %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

// TestTypeLabelsAreBounded: with 100,000 types there are few labels, sums stay right, and a
// scrape delays no other client.
func TestTypeLabelsAreBounded(t *testing.T) {
	const types = 100_000
	w := start(t, func(o *settings.Options) { o.MaxTypes = types })
	for from := 0; from < types; from += 1000 {
		w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
			s := core.AddSubmitter()
			for i := from; i < from+1000; i++ {
				core.Submit(now, s, &broker.Submission{ID: fmt.Append(nil, i), Type: fmt.Appendf(nil, "type-%d", i), Body: []byte("1")})
			}
			return nil
		})
	}
	done := make(chan time.Duration)
	stop := make(chan struct{})
	go func() { // shows how long the lock is held, as another client notices it
		longest := time.Duration(0)
		for {
			select {
			case <-stop:
				done <- longest
				return
			default:
			}
			at := time.Now()
			w.srv.Hub().View(func(*broker.Broker, int64) {})
			longest = max(longest, time.Since(at))
		}
	}()
	_, f := scrape(t, w)
	close(stop)
	t.Logf("longest wait for the lock during the scrape: %v", <-done)
	if n := len(f["gloom_jobs_submitted_total"].Metric); n > 101 {
		t.Errorf("%d types have a label", n)
	}
	if got := metricSum(f, "gloom_jobs_submitted_total"); got != types {
		t.Errorf("submitted adds up to %v, want %d", got, types)
	}
	if got := metricSum(f, "gloom_types"); got != types {
		t.Errorf("gloom_types = %v", got)
	}
	if got := metricSum(f, "gloom_jobs_submitted_total", "type", "other"); got != types-100 {
		t.Errorf("other = %v", got)
	}
}

// TestSnapshotMemoryIsCounted: the memory of the snapshot of all types is counted.
func TestSnapshotMemoryIsCounted(t *testing.T) {
	const types = 1000
	w := start(t, nil)
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		s := core.AddSubmitter()
		for i := range types {
			core.Submit(now, s, &broker.Submission{ID: fmt.Append(nil, i), Type: fmt.Appendf(nil, "type-%d", i), Body: []byte("1")})
		}
		return nil
	})
	eventually(t, "a snapshot with all types is counted", func() bool {
		w.call("GET", "/v1/types?sort=queued&limit=1", "", 200)
		_, f := scrape(t, w)
		n := metricSum(f, "gloom_memory_bytes", "part", "snapshot")
		return n > 500*types && n < 1500*types // measured on the heap: 740 bytes each
	})
}

// TestMemoryOfEachPart: each part shows the bytes that it holds, and zero once they are released.
func TestMemoryOfEachPart(t *testing.T) {
	w := start(t, nil)
	part := func(name string) float64 {
		_, f := scrape(t, w)
		return metricSum(f, "gloom_memory_bytes", "part", name)
	}
	body := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	var submitter broker.Peer
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		submitter = core.AddSubmitter()
		for i := range 20 {
			core.Submit(now, submitter, &broker.Submission{ID: fmt.Append(nil, i), Type: []byte("t"), Body: body})
		}
		return nil
	})
	for name, least := range map[string]float64{"jobs": 20 << 20, "records": 1, "index": 1, "queues": 1, "types": 1, "peers": 1} {
		if got := part(name); got < least || got > least+(8<<20) {
			t.Errorf("with 20 MiB of jobs %s takes %v bytes", name, got)
		}
	}
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect { return core.RemovePeer(now, submitter) })
	eventually(t, "what a submitter left is given back", func() bool { return part("jobs") < 8<<20 })
	makeDeadLetter(w, "dead", body)
	if got := part("dead"); got < 1<<20 || got > 2<<20 {
		t.Errorf("with a dead letter of 1 MiB dead takes %v bytes", got)
	}

	// A connection sends half a frame.
	c, err := net.Dial("tcp", w.srv.SubmitAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	bigFrame := frame(`{"action":"submit","id":"half","type":"u","body":%s}`, body)
	if _, err := c.Write(bigFrame[:512<<10]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "half a frame is shown", func() bool { return part("input") >= 512<<10-4 })
}
