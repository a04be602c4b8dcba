package result

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"

	"gloom/bench/proc"
)

func sample(t *testing.T) *File {
	t.Helper()
	h := hdrhistogram.New(1, 6e11, 3)
	for i := range int64(10_000) {
		if err := h.RecordValue(1000 + i*i); err != nil {
			t.Fatal(err)
		}
	}
	lat, err := NewLatency(h)
	if err != nil {
		t.Fatal(err)
	}
	return &File{
		Format: Format, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: []string{"gloom-bench", "race"},
		Host: Host{CPU: "c", Processors: 2, Kernel: "k", OS: "o", Memory: 1 << 34}, Build: Build{Commit: "abc", Go: "go1"},
		Runs: []*Run{{
			Shape: "backlog", Server: Server{Kind: "gloomd", Title: "gloomd", Command: "gloomd -x", Build: &Build{Go: "go1"}},
			Params: Params{Submitters: 4, Workers: 32, Types: 1, Priorities: 1, BodySize: 100, Jobs: 1000, Loops: 1, Seed: 1,
				Churn: &Churn{Workers: 1, Steady: 2}},
			Rounds: []*Round{{Seconds: 0.5, Jobs: 1000, ServerCPU: 7_000_000, GeneratorCPU: 6_000_000, BytesIn: 5, BytesOut: 6,
				Server: &proc.Usage{RSS: 1 << 20, Descriptors: 40, Threads: 5}, Latency: lat,
				Backlog: &Backlog{FillSeconds: 0.01, FillCPU: 500_000, RSSEmpty: 1000, RSSFull: 251_000},
				Idle:    &Idle{Workers: 10, RSSBefore: 100, RSSAfter: 1100}, Samples: []Sample{{At: 1, Jobs: 2}},
				Faults: map[string]int64{"lost": 2}, FaultSamples: []string{"lost: 2"}}},
		}, {Shape: "backlog", Server: Server{Kind: "nats"}, Skipped: "no queue"}},
	}
}

func TestFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "r.json")
	want := sample(t)
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("read differs from written:\n%s", d)
	}
	if leftover, _ := filepath.Glob(path + "*"); len(leftover) != 1 {
		t.Errorf("left behind: %v", leftover)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON": "{", "another format": `{"format":99,"runs":[{}]}`, "no format": `{"runs":[{}]}`, "no runs": `{"format":1,"runs":[]}`,
	} {
		path := filepath.Join(t.TempDir(), "f.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The stored histogram returns every quantile with three correct digits.
func TestLatencyRoundTrip(t *testing.T) {
	run := sample(t).Runs[0]
	lat := run.Rounds[0].Latency
	h, err := run.Latency()
	if err != nil {
		t.Fatal(err)
	}
	if h.TotalCount() != lat.Count {
		t.Errorf("%d values, want %d", h.TotalCount(), lat.Count)
	}
	for q, want := range map[float64]int64{50: lat.P50, 90: lat.P90, 99: lat.P99, 99.9: lat.P999, 99.99: lat.P9999} {
		if got := h.ValueAtQuantile(q); got != want {
			t.Errorf("p%v is %d, want %d", q, got, want)
		}
	}
	if exact := int64(1000 + 5000*5000); lat.P50 < exact*999/1000 || lat.P50 > exact*1001/1000 {
		t.Errorf("p50 is %d, should be near %d", lat.P50, exact)
	}
	run.Rounds = append(run.Rounds, run.Rounds[0], &Round{})
	if h, err = run.Latency(); err != nil || h.TotalCount() != 2*lat.Count {
		t.Errorf("two rounds together: %v", err)
	}
}

func TestMetricValuesOfRound(t *testing.T) {
	r := sample(t).Runs[0].Rounds[0]
	for m, want := range map[*Metric]float64{
		Rate: 2000, ServerCPU: 7000, GeneratorCPU: 6000, Fill: 100_000, FillCPU: 500, JobMemory: 250, IdleMemory: 100,
		RSS: 1 << 20, Traffic: 0.011, Max: float64(r.Latency.Max),
	} {
		if got, ok := m.Value(r); !ok || got != want {
			t.Errorf("%s is %v, %v, want %v", m.Name, got, ok, want)
		}
	}
	seen := map[string]bool{}
	for _, m := range Metrics() {
		if seen[m.Name] {
			t.Errorf("two metrics are called %s", m.Name)
		}
		seen[m.Name] = true
		if v, ok := m.Value(&Round{}); ok && m != Noise {
			t.Errorf("%s of an empty round is %v", m.Name, v)
		}
	}
}
