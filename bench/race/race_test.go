package race

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gloom/bench/brokers"
	"gloom/bench/relay"
	"gloom/bench/result"
	"gloom/bench/shape"
)

// fake returns a kind whose server is a relay in this process.
func fake(name string) *brokers.Kind {
	return brokers.NewKind(name, name, func(context.Context, brokers.Settings) (*brokers.Server, error) {
		r, err := relay.Start("127.0.0.1:0", "127.0.0.1:0", true)
		if err != nil {
			return nil, err
		}
		return &brokers.Server{Protocol: brokers.Relay, SubmitAddr: r.SubmitAddr(), WorkerAddr: r.WorkerAddr(), Shutdown: r.Close}, nil
	})
}

// Rounds are interleaved and each begins with another server. A server that fails in an event is
// left out of this event alone, and the reason is kept.
func TestOrderAndFailures(t *testing.T) {
	var order []string
	failure := errors.New("out of luck")
	event := func(name string, fail string) *Event {
		o := shape.Defaults()
		o.Jobs = 10
		return &Event{Name: name, Options: o, Run: func(_ context.Context, s *brokers.Server, _ shape.Options) (*result.Round, error) {
			order = append(order, s.Kind+name)
			if s.Kind == fail {
				return nil, failure
			}
			return &result.Round{Jobs: 10, Faults: map[string]int64{"lost": 1}}, nil
		}}
	}
	brokenKind := brokers.NewKind("d", "d", func(context.Context, brokers.Settings) (*brokers.Server, error) { return nil, failure })
	p := &Plan{Kinds: []*brokers.Kind{fake("a"), fake("b"), fake("c"), brokenKind}, Events: []*Event{event("1", ""), event("2", "b")}, Rounds: 2}
	ended := 0
	p.OnEnd = func(int, *brokers.Kind, *Event, *result.Round, error) { ended++ }
	runs, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, " "), "a1 a2 b1 b2 c1 c2 b1 c1 c2 a1 a2"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	for _, r := range runs {
		name := r.Server.Kind + r.Shape
		want := 2
		if name == "b2" || name == "d1" || name == "d2" {
			want = 0
			if !strings.Contains(r.Skipped, "out of luck") {
				t.Errorf("%s: skipped %q", name, r.Skipped)
			}
		}
		if len(r.Rounds) != want {
			t.Errorf("%s: %d rounds, want %d", name, len(r.Rounds), want)
		}
	}
	if n := Faults(runs); n != 10 {
		t.Errorf("%d faults, want 10", n)
	}
	if ended != 13 { // all eight once, and then the five that did not fail
		t.Errorf("Ended was told %d times, want 13", ended)
	}
}

func TestInterruptedRace(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := shape.Defaults()
	p := &Plan{Kinds: []*brokers.Kind{fake("a")}, Rounds: 5, Events: []*Event{{Name: "x", Options: o,
		Run: func(context.Context, *brokers.Server, shape.Options) (*result.Round, error) {
			cancel()
			return &result.Round{}, nil
		}}}}
	if _, err := p.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestSweepSetsItsParameter(t *testing.T) {
	for _, s := range sweepParameters {
		p, err := Sweep([]*brokers.Kind{fake("a")}, s.name, []int{16, 32}, shape.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []float64{16, 32} {
			params := p.Events[i].Options.Params()
			if got, ok := params.Value(s.name); !ok || got != want {
				t.Errorf("%s is %v, %v in event %s, want %v", s.name, got, ok, p.Events[i].Name, want)
			}
		}
		if got, want := p.Events[1].Name, fmt.Sprintf("%s 32", s.name); got != want {
			t.Errorf("event is called %q, want %q", got, want)
		}
	}
	if names := strings.Split(SweepParameterNames(), ", "); len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(sweepParameters) {
		t.Errorf("parameters %v", names)
	}
}
