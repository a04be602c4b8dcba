package shape_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"gloom/bench/shape"
)

func smallOptions() shape.Options {
	o := shape.Defaults()
	o.Submitters, o.Window, o.Workers, o.Jobs, o.Grace, o.StepTimeout = 2, 4, 3, 200, 300*time.Millisecond, time.Second
	return o
}

// TestServerFaults: each fault of a server is found, counted exactly, and reported under its name.
func TestServerFaults(t *testing.T) {
	type faults = map[string]int64
	for name, c := range map[string]struct {
		liar *liar
		want faults
		jobs int64 // right answers
	}{
		"honest": {&liar{}, nil, 200},
		"lost": {&liar{onAnswer: func(n int, id, body string) []string {
			if n%100 == 0 {
				return nil
			}
			return []string{answer(id, body)}
		}}, faults{"lost": 2}, 198},
		"doubled": {&liar{onAnswer: func(n int, id, body string) []string {
			if n == 50 {
				return []string{answer(id, body), answer(id, body)}
			}
			return []string{answer(id, body)}
		}}, faults{"doubled": 1}, 200},
		"damaged": {&liar{onAnswer: func(n int, id, body string) []string {
			if n == 7 {
				return []string{answer(id, strings.Replace(body, "fox", "cat", 1))}
			}
			return []string{answer(id, body)}
		}}, faults{"damaged": 1}, 200},
		"spelt anew": {&liar{onAnswer: func(n int, id, body string) []string {
			if n == 7 { // this answer has the same value as the body, but other bytes
				return []string{answer(id, strings.Replace(body, `\u00e9`, "é", 1))}
			}
			return []string{answer(id, body)}
		}}, faults{"damaged": 1}, 200},
		"unknown": {&liar{onAnswer: func(n int, id, body string) []string {
			if n == 9 {
				return []string{answer("no-such-job", body), answer(id, body)}
			}
			return []string{answer(id, body)}
		}}, faults{"unknown": 1}, 200},
		"no ack": {&liar{onSubmit: func(ack string) []string {
			return nil
		}}, faults{"unacked": 200}, 200},
		"two acks": {&liar{onSubmit: func(ack string) []string {
			return []string{ack, ack}
		}}, faults{"doubled": 200}, 200},
		"refused": {&liar{onAnswer: func(n int, id, body string) []string {
			if n == 20 {
				return []string{`{"error":"job_failed","reason":"no reason","id":"` + id + `"}`}
			}
			return []string{answer(id, body)}
		}}, faults{"refused": 1}, 199},
		"no frame of the protocol": {&liar{onAnswer: func(n int, id, body string) []string {
			if n == 20 {
				return []string{`{"hello":"world"}`, `[1,2]`, `{`, answer(id, body)}
			}
			return []string{answer(id, body)}
		}}, faults{"misbehaved": 3}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startLiar(t, c.liar)
			r, err := shape.Steady(context.Background(), srv, smallOptions())
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(r.Faults, c.want) {
				t.Errorf("faults %v, want %v; %q", r.Faults, c.want, r.FaultSamples)
			}
			if r.Jobs != c.jobs {
				t.Errorf("%d jobs answered, want %d", r.Jobs, c.jobs)
			}
		})
	}
}

// If the server sends no ok, each worker gets its next job too early, and at the end all oks are
// missing.
func TestWorkersWithoutOK(t *testing.T) {
	srv := startLiar(t, &liar{onOK: func() []string { return nil }})
	r, err := shape.Steady(context.Background(), srv, smallOptions())
	if err != nil {
		t.Fatal(err)
	}
	if r.Faults["unacked"] != 200 || r.Faults["misbehaved"] < 190 || len(r.Faults) != 2 {
		t.Errorf("faults %v", r.Faults)
	}
}

// Two answers with exchanged bodies count as two swapped answers.
func TestSwappedAnswers(t *testing.T) {
	o := smallOptions()
	o.Submitters, o.Workers = 1, 2
	var first []string
	srv := startLiar(t, &liar{onAnswer: func(n int, id, body string) []string {
		switch n {
		case 30:
			first = []string{id, body}
			return nil
		case 31:
			return []string{answer(id, first[1]), answer(first[0], body)}
		}
		return []string{answer(id, body)}
	}})
	r, err := shape.Steady(context.Background(), srv, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Faults["swapped"] != 2 || len(r.Faults) != 1 {
		t.Errorf("faults %v, want 2 swapped; %q", r.Faults, r.FaultSamples)
	}
}

// A server that hangs up is a fault, and its outstanding answers are lost.
func TestServerHangsUp(t *testing.T) {
	o := smallOptions()
	o.Submitters = 1
	srv := startLiar(t, &liar{hangUp: 50})
	r, err := shape.Steady(context.Background(), srv, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Faults["disconnected"] != 1 || r.Faults["lost"] == 0 {
		t.Errorf("faults %v, want 1 disconnected and some lost", r.Faults)
	}
}

// A timed round at a fixed rate finds faults, too.
func TestLossesAtFixedRate(t *testing.T) {
	o := smallOptions()
	o.Jobs, o.Rate, o.Duration, o.Warmup = 0, 1000, 200*time.Millisecond, 50*time.Millisecond
	srv := startLiar(t, &liar{onAnswer: func(n int, id, body string) []string {
		if n == 60 {
			return nil
		}
		return []string{answer(id, body)}
	}})
	r, err := shape.Steady(context.Background(), srv, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Faults["lost"] != 1 || len(r.Faults) != 1 {
		t.Errorf("faults %v, want 1 lost", r.Faults)
	}
	// Jobs outstanding when the measurement began or ended may or may not be counted.
	if r.Latency == nil || r.Latency.Count != r.Jobs {
		t.Fatalf("%d jobs with %+v", r.Jobs, r.Latency)
	}
	if latenessMS := r.Latency.Max / 1e6; r.Jobs < 150-latenessMS || r.Jobs > 210+latenessMS {
		t.Errorf("%d jobs with %+v in %.3f s at 1000 per second", r.Jobs, r.Latency, r.Seconds)
	}
}
