package admin_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"gloom/broker"
	"gloom/broker/settings"
)

// TestCountersMonotonic: while types are created, forgotten and created again, no counter ever
// falls or disappears, and the counts of a label stay with it. The test compares with a
// model that counts each type by its name.
func TestCountersMonotonic(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const maxTypes = 120 // remembered types, of which a hundred are never forgotten
	w := start(t, func(o *settings.Options) { o.MaxTypes, o.DeadLetters = maxTypes, 0 })
	names := []string{"other"}
	for i := range 400 {
		names = append(names, fmt.Sprintf("type-%d", i))
	}
	model := map[string]float64{} // submitted, by type
	var typeNames []string        // types in the order of creation
	before := map[string]float64{}
	id, rounds := 0, 30
	if testing.Short() {
		rounds = 12
	}
	for range rounds {
		for range 50 + r.IntN(100) {
			name := names[r.IntN(1+r.IntN(len(names)))]
			if model[name]++; model[name] == 1 {
				typeNames = append(typeNames, name)
			}
			id++
			runJob(w, id, name, r.IntN(2) == 0)
		}
		_, f := scrape(t, w)
		after := counters(f)
		for series, v := range before {
			if got, ok := after[series]; !ok || got < v {
				t.Fatalf("%s was %v, now it is %v", series, v, got)
			}
		}
		before = after
		want := map[string]float64{"other": 0}
		for i, name := range typeNames {
			if i >= 100 {
				name = "other"
			}
			want[name] += model[typeNames[i]]
		}
		for name, n := range want {
			for _, got := range []float64{
				metricSum(f, "gloom_jobs_submitted_total", "type", name), metricSum(f, "gloom_jobs_dispatched_total", "type", name),
				metricSum(f, "gloom_jobs_ended_total", "type", name), metricSum(f, "gloom_wait_seconds", "type", name), metricSum(f, "gloom_run_seconds", "type", name),
			} {
				if got != n {
					t.Fatalf("%s counts %v jobs, want %v", name, got, n)
				}
			}
		}
	}
	if len(typeNames) < 3*maxTypes/2 {
		t.Errorf("%d types came: none had to be forgotten", len(typeNames))
	}
}

// runJob submits a job, runs it, and disconnects both peers.
func runJob(w *world, id int, name string, fails bool) {
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		s, k := core.AddSubmitter(), core.AddWorker()
		core.Submit(now, s, &broker.Submission{ID: fmt.Append(nil, id), Type: []byte(name), Body: []byte("1"), Detach: true})
		core.Join(now, k, &broker.JoinRequest{Type: []byte(name)})
		if fails {
			core.Fail(now, k, &broker.Failure{Reason: "no", Delay: -1})
		} else {
			core.Respond(now, k, nil, []byte("1"), false)
		}
		core.RemovePeer(now, k)
		core.RemovePeer(now, s)
		return nil
	})
}

// counters are all series that may only grow, by name and labels.
func counters(f map[string]*dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for name, family := range f {
		if !strings.HasPrefix(name, "gloom_") {
			continue
		}
		for _, m := range family.Metric {
			series := fmt.Sprint(name, m.Label)
			switch {
			case m.Counter != nil:
				out[series] = m.Counter.GetValue()
			case m.Histogram != nil:
				out[series+"count"] = float64(m.Histogram.GetSampleCount())
				out[series+"sum"] = m.Histogram.GetSampleSum()
				for _, b := range m.Histogram.Bucket {
					out[fmt.Sprint(series, b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return out
}
