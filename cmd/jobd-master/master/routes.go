package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/peer"
)

// Routes returns the requests that a master serves.
func (m *Master) Routes() peer.Routes {
	return peer.Routes{
		"register-worker": {Handle: m.onRegister},
		"poke":            {Handle: m.onPoke},
		"pause":           {Handle: m.onVerb("pause")},
		"continue":        {Handle: m.onVerb("continue")},
		"status":          {Handle: m.onStatus, Waits: true},
		"run-manual":      {Handle: m.onRunManual, Waits: true},
		"send-signal":     {Handle: m.onSendSignal, Waits: true},
	}
}

var errNoTargets = errors.New("missing required field targets")

func (m *Master) onRegister(_ context.Context, c *peer.Conn, data json.RawMessage) (any, error) {
	targets, err := peer.Targets(data)
	if err != nil {
		return nil, err
	}
	if targets == nil {
		return nil, errNoTargets
	}
	name := eot.Object(eot.Members(data)).Get("name")
	if name != nil && eot.TypeOf(name) != "string" {
		return nil, errors.New("name is missing or invalid")
	}
	onAnswered, err := m.registerWorker(c, eot.String(name), targets)
	if err != nil {
		return nil, err
	}
	return peer.DeferredReply{Data: peer.OK, Do: onAnswered}, nil
}

func (m *Master) onPoke(_ context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	targets, err := peer.Targets(data)
	if err != nil {
		return nil, err
	}
	if targets == nil {
		return nil, errNoTargets
	}
	if err := m.poke(targets); err != nil {
		return nil, err
	}
	return peer.OK, nil
}

// onVerb handles pause and continue: it sends the verb to the workers, and answers when all of them
// have answered or the time is over. The error names those that failed. The route does not set
// Waits, so the requests of a client are handled in order: a continue that was sent after a pause
// reaches the workers after the pause.
func (m *Master) onVerb(verb string) peer.Handler {
	return func(ctx context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
		targets, err := peer.Targets(data)
		if err != nil {
			return nil, err
		}
		if _, err := m.broadcast(ctx, verb, targets); err != nil {
			return nil, err
		}
		return peer.OK, nil
	}
}

// broadcast passes a verb on to the workers that serve the targets, or to all workers if targets is
// nil. It returns how many workers these are.
func (m *Master) broadcast(ctx context.Context, verb string, targets []string) (int, error) {
	wanted := toSet(targets)
	var calls []workerCall
	for _, w := range m.workerRefs() {
		served := intersect(w.targets, wanted)
		if targets == nil || len(served) > 0 {
			calls = append(calls, workerCall{worker: w, data: targetsArg{served}})
		}
	}
	m.callAll(ctx, verb, m.options.WorkerTimeout, calls)
	var failed []string
	for _, c := range calls {
		if c.err != nil {
			m.log.Warn().Stringer("peer", c.worker.conn.Remote()).Err(c.err).Msg("worker did not " + verb)
			failed = append(failed, fmt.Sprintf("worker '%s' (%v) did not %s: %v", c.worker.name, c.worker.conn.Remote(), verb, c.err))
		}
	}
	if failed != nil {
		return len(calls), errors.New(strings.Join(failed, "; "))
	}
	return len(calls), nil
}

// workerInfo describes a worker in the answer to status.
type workerInfo struct {
	RemoteAddr        string          `json:"remoteAddr"`
	RemotePort        uint16          `json:"remotePort"`
	Targets           []string        `json:"targets"`
	Name              string          `json:"name"`
	WorkerStatus      json.RawMessage `json:"workerStatus,omitempty"`
	WorkerStatusError string          `json:"workerStatusError,omitempty"`
}

func (m *Master) onStatus(ctx context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	workers := m.workerRefs()
	calls := make([]workerCall, len(workers))
	for i, w := range workers {
		calls[i].worker = w
	}
	pollWorkers := eot.IsTruthy(eot.Object(eot.Members(data)).Get("poll_workers"))
	if pollWorkers {
		m.callAll(ctx, "status", m.options.WorkerTimeout, calls)
	}
	infos := make([]workerInfo, len(workers))
	for i, w := range workers {
		infos[i] = workerInfo{
			RemoteAddr: w.conn.Remote().Addr().String(), RemotePort: w.conn.Remote().Port(),
			Targets: w.targets, Name: w.name, WorkerStatus: calls[i].answer,
		}
		if calls[i].err != nil {
			infos[i].WorkerStatusError = calls[i].err.Error()
		}
	}
	return struct {
		Workers     []workerInfo `json:"workers"`
		MemoryUsage peer.Memory  `json:"memoryUsage"`
	}{infos, peer.MemoryUsage()}, nil
}
