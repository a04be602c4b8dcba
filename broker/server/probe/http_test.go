package probe

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func TestHealthIsReportedOverHTTP(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("healthz answers 200", func(t *testing.T) {
		if status, body, err := b.get("/healthz"); err != nil || status != http.StatusOK {
			t.Fatalf("status %d, body %q, error %v", status, body, err)
		}
	})
	t.Run("an unknown path is 404", func(t *testing.T) {
		if status, _, err := b.get("/no/such/path"); err != nil || status != http.StatusNotFound {
			t.Fatalf("status %d, error %v", status, err)
		}
	})
}

func TestCountersMoveByWhatHappened(t *testing.T) {
	t.Parallel()
	b := start(t)
	typ := freshName("metric")
	s := b.submitter(t)
	before, err := b.readSamples()
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 7
	for range jobs {
		s.submitFresh(typ, `1`)
	}
	w := b.servingWorker(t, typ)
	for range jobs {
		id, _ := w.nextJob()
		w.respond(`2`)
		s.wantResult(id, `2`)
	}
	s.send(`{"action":"frobnicate"}`)
	s.wantError("unknown_action")

	t.Run("lint", func(t *testing.T) {
		_, text, err := b.get("/metrics")
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "gloom_") {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	})
	t.Run("prefix", func(t *testing.T) {
		own := 0
		samples, err := b.readSamples()
		if err != nil {
			t.Fatal(err)
		}
		for k := range samples {
			family, _, _ := strings.Cut(k, "{")
			switch {
			case strings.HasPrefix(family, "gloom_"):
				own++
			case strings.HasPrefix(family, "go_"), strings.HasPrefix(family, "process_"), strings.HasPrefix(family, "promhttp_"):
			default:
				t.Errorf("%s has no prefix gloom_", family)
			}
		}
		if own == 0 {
			t.Error("no gloom_ metric at all")
		}
	})
	t.Run("counters move by what happened", func(t *testing.T) {
		after, err := b.readSamples()
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"submitted", "dispatched", "answered"} {
			// the test does not know the names of the metrics: one whose name contains the
			// event must have changed by exactly the number of events
			moved := map[string]float64{}
			hit := false
			for k, v := range after {
				if strings.HasPrefix(k, "gloom_") && strings.Contains(k, part) {
					moved[k] = v - before[k]
					hit = hit || moved[k] == jobs
				}
			}
			if !hit {
				t.Errorf("no gloom_ sample with %q moved by %d: %v", part, jobs, moved)
			}
		}
		if before, after := frameErrors(before), frameErrors(after); after != before+1 {
			t.Errorf("frame errors unknown_action went from %v to %v, want one more", before, after)
		}
	})
	t.Run("ledger balanced", func(t *testing.T) {
		if err := b.checkLedger(); err != nil {
			t.Fatal(err)
		}
	})
}

func frameErrors(samples map[string]float64) float64 {
	for k, v := range samples {
		if strings.HasPrefix(k, "gloom_") && strings.Contains(k, `"unknown_action"`) {
			return v
		}
	}
	return 0
}

// TestMetricLabelsAreBounded: only a bounded number of types become labels.
func TestMetricLabelsAreBounded(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.submitter(t)
	const types = 5000
	var batch []byte
	for i := range types {
		batch = append(batch, packFrame(fmt.Sprintf(`{"action":"submit","id":"label-%d","type":"label-%d","body":1}`, i, i))...)
	}
	s.writeRaw(batch)
	for i := range types {
		s.wantAck(fmt.Sprintf("label-%d", i))
	}
	samples, err := b.readSamples()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]bool{}
	for k := range samples {
		if _, rest, has := strings.Cut(k, `type="`); has && strings.HasPrefix(k, "gloom_") {
			value, _, _ := strings.Cut(rest, `"`)
			labels[value] = true
		}
	}
	if len(labels) > 2000 {
		t.Errorf("%d types became labels", len(labels))
	}
	if len(labels) > 0 && !labels["other"] {
		t.Errorf("%d type labels and none is other", len(labels))
	}
	waitFor(t, "ledger balanced after the submitter is gone", func() error {
		s.close()
		return b.checkLedger()
	})
}

func TestHTTPCanBeOff(t *testing.T) {
	t.Parallel()
	b := start(t, "--http-addr=")
	if b.httpAddr != "" {
		t.Errorf("http_addr is %q with --http-addr=", b.httpAddr)
	}
	b.checkAlive(t)
}
