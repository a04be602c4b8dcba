package control

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/peer"
)

// Routes returns the requests that a worker serves.
func Routes(engine Engine) peer.Routes {
	s := server{engine: engine}
	return peer.Routes{
		"poll":                   {Handle: s.poll},
		"pause":                  {Handle: s.handleTargets(Engine.Pause)},
		"continue":               {Handle: s.handleTargets(Engine.Continue)},
		"status":                 {Handle: s.getStatus},
		"add-target":             {Handle: s.addTarget},
		"set-target-concurrency": {Handle: s.setConcurrency},
		"remove-target":          {Handle: s.removeTarget},
		"run-manual":             {Handle: s.runManual, Waits: true},
		"send-signal":            {Handle: s.sendSignal, Waits: true},
		// Other implementations do not know the requests below.
		"recover": {Handle: s.recoverRows, Waits: true},
		"look":    {Handle: s.getOverview},
		"waiting": {Handle: s.countWaiting, Waits: true},
		"rows":    {Handle: s.getRows, Waits: true},
		"row":     {Handle: s.getRow, Waits: true},
	}
}

// server answers the requests to a worker with the help of its engine.
type server struct{ engine Engine }

// poll refuses a list with an unknown target. The master may learn late that a target was removed,
// so in its lists the other targets are polled nevertheless.
func (s server) poll(_ context.Context, c *peer.Conn, data json.RawMessage) (any, error) {
	_, known, err := s.readTargets(data)
	if err == nil || c.Dialled() && len(known) > 0 {
		s.engine.Poll(known)
	}
	if err != nil {
		return nil, err
	}
	return peer.OK, nil
}

// handleTargets returns a handler that calls a method with the request's targets, nil for all.
func (s server) handleTargets(apply func(Engine, []string)) peer.Handler {
	return func(_ context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
		targets, _, err := s.readTargets(data)
		if err != nil {
			return nil, err
		}
		apply(s.engine, targets)
		return peer.OK, nil
	}
}

// readTargets reads a list of targets, and returns all of them and those that exist. The error names
// the first target that does not exist.
func (s server) readTargets(data json.RawMessage) (names, known []string, err error) {
	names, err = peer.Targets(data)
	if err != nil || names == nil {
		return nil, nil, err
	}
	served := make(map[string]bool)
	for _, t := range s.engine.Targets() {
		served[t] = true
	}
	for _, t := range names {
		if served[t] {
			known = append(known, t)
		} else if err == nil {
			err = fmt.Errorf("invalid target '%s'", t)
		}
	}
	return names, known, err
}

func (s server) getStatus(context.Context, *peer.Conn, json.RawMessage) (any, error) {
	return statusJSON(s.engine.Status())
}

var (
	targetField      = eot.Field{Name: "target", Types: "s", Required: true}
	concurrencyField = eot.Field{Name: "concurrency", Types: "i", Required: true}
)

func (s server) addTarget(_ context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	return s.changeConcurrency(data, s.engine.AddTarget)
}

func (s server) setConcurrency(_ context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	return s.changeConcurrency(data, s.engine.SetConcurrency)
}

func (s server) changeConcurrency(data json.RawMessage, apply func(string, int) error) (any, error) {
	args, err := peer.Args(data, targetField, concurrencyField)
	if err != nil {
		return nil, err
	}
	n, _ := eot.Integer(args.Get("concurrency"))
	if n < 1 || n > math.MaxInt32 {
		return nil, ErrConcurrency
	}
	if err := apply(eot.String(args.Get("target")), int(n)); err != nil {
		return nil, err
	}
	return peer.OK, nil
}

func (s server) removeTarget(_ context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	args, err := peer.Args(data, targetField)
	if err != nil {
		return nil, err
	}
	if err := s.engine.RemoveTarget(eot.String(args.Get("target"))); err != nil {
		return nil, err
	}
	return peer.OK, nil
}

func (s server) recoverRows(ctx context.Context, _ *peer.Conn, _ json.RawMessage) (any, error) {
	n, err := s.engine.Recover(ctx)
	if err != nil {
		return nil, err
	}
	return struct {
		Recovered int `json:"recovered"`
	}{n}, nil
}
