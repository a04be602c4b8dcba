package race

import (
	"context"
	"errors"

	"gloom/bench/brokers"
	"gloom/bench/proc"
	"gloom/bench/result"
	"gloom/bench/shape"
)

// Event is one shape of load in the race.
type Event struct {
	Name    string // the shape's name in the result file
	Options shape.Options
	Run     func(ctx context.Context, s *brokers.Server, o shape.Options) (*result.Round, error)
}

// Plan says what a race measures.
type Plan struct {
	Kinds    []*brokers.Kind
	Events   []*Event
	Rounds   int
	Settings brokers.Settings
	// OnStart is called before each measurement, and OnEnd is called after it. Both may be nil.
	// OnEnd gets the round or, if it failed, the error.
	OnStart func(round int, kind *brokers.Kind, event *Event)
	OnEnd   func(round int, kind *brokers.Kind, event *Event, r *result.Round, err error)
}

// Run runs the plan. In each round it measures every server in every event; the server that goes
// first rotates from round to round. A server that fails is left out of that event for the rest of
// the race; its run says why.
func (p *Plan) Run(ctx context.Context) ([]*result.Run, error) {
	var files uint64
	for _, e := range p.Events {
		files = max(files, shape.FilesNeeded(&e.Options))
	}
	if err := proc.RaiseFileLimit(files); err != nil {
		return nil, err
	}
	runs := make(map[eventAndKind]*result.Run)
	var order []*result.Run
	for _, e := range p.Events {
		for _, k := range p.Kinds {
			r := &result.Run{Shape: e.Name, Server: result.Server{Kind: k.Name, Title: k.Title}, Params: e.Options.Params()}
			runs[eventAndKind{e, k}] = r
			order = append(order, r)
		}
	}
	for i := range p.Rounds {
		for j := range p.Kinds {
			k := p.Kinds[(i+j)%len(p.Kinds)]
			if err := p.measureLap(ctx, i, k, runs); err != nil {
				return order, err
			}
		}
	}
	return order, nil
}

type eventAndKind struct {
	event *Event
	kind  *brokers.Kind
}

// measureLap measures one server in every event. It starts the server again for each event, so that
// the remains of one event (memory, jobs taken and not yet deleted) do not affect the next event.
func (p *Plan) measureLap(ctx context.Context, round int, k *brokers.Kind, runs map[eventAndKind]*result.Run) error {
	for _, e := range p.Events {
		run := runs[eventAndKind{e, k}]
		if run.Skipped != "" {
			continue
		}
		if p.OnStart != nil {
			p.OnStart(round, k, e)
		}
		r, err := p.measure(ctx, k, e, run)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			run.Skipped = reason(err)
		} else {
			run.Rounds = append(run.Rounds, r)
		}
		if p.OnEnd != nil {
			p.OnEnd(round, k, e, r, err)
		}
	}
	return nil
}

func (p *Plan) measure(ctx context.Context, k *brokers.Kind, e *Event, run *result.Run) (*result.Round, error) {
	settings := p.Settings
	settings.BodySize, settings.Unix = e.Options.BodySize, e.Options.Unix
	srv, err := k.Start(ctx, settings)
	if err != nil {
		return nil, err
	}
	run.Server.Version, run.Server.Command, run.Server.Build = srv.Version, srv.Command, srv.Build
	r, err := e.Run(ctx, srv, e.Options)
	return r, errors.Join(err, srv.Stop())
}

// LacksFeature reports whether the server did not fail but lacks a feature of the event.
func LacksFeature(err error) bool { return errors.As(err, new(brokers.Unsupported)) }

func reason(err error) string {
	if lack := brokers.Unsupported(""); errors.As(err, &lack) {
		return lack.Error()
	}
	return err.Error()
}

// Faults counts the faults in all rounds.
func Faults(runs []*result.Run) (total int64) {
	for _, run := range runs {
		for _, r := range run.Rounds {
			for _, n := range r.Faults {
				total += n
			}
		}
	}
	return total
}
