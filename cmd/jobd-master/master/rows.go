package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/overview"
)

// ErrUnserved means that no worker serves a target or knows its rows.
var ErrUnserved = errors.New("no worker serves the target or knows its rows")

// maxAskedWorkers is the maximum number of workers that are tried one after the other.
const maxAskedWorkers = 3

// Rows asks a worker to read rows of a target, and returns them.
func (m *Master) Rows(ctx context.Context, q overview.Query) (json.RawMessage, error) {
	return m.askServing(ctx, q.Target, "rows", q)
}

// rowArg is the data of a request about one row.
type rowArg struct {
	ID int64 `json:"id"`
}

// Row returns a row of a target with the end of its output, nil if there is no such row.
func (m *Master) Row(ctx context.Context, target string, id int64) (json.RawMessage, error) {
	return m.askServing(ctx, target, "row", rowArg{id})
}

// Find returns the rows with this id. There may be one in each table.
func (m *Master) Find(ctx context.Context, id int64) []json.RawMessage {
	var calls []workerCall
	for _, w := range m.Snapshot().tableWorkers {
		calls = append(calls, workerCall{worker: w, data: rowArg{id}})
	}
	m.callAll(ctx, "row", m.options.WorkerTimeout, calls)
	found := []json.RawMessage{}
	for _, c := range calls {
		if c.err == nil && c.answer != nil {
			found = append(found, c.answer)
		}
	}
	return found
}

// askServing asks a worker that serves a target, and another such worker if the first fails. If no
// worker serves the target, it asks workers that know the tables.
func (m *Master) askServing(ctx context.Context, target, typ string, data any) (answer json.RawMessage, err error) {
	var candidates []workerRef
	for _, w := range m.workerRefs() {
		if slices.Contains(w.targets, target) && !w.isWithoutOverview.Load() && len(candidates) < maxAskedWorkers {
			candidates = append(candidates, w)
		}
	}
	served := candidates != nil
	if !served {
		snapshot := m.Snapshot()
		if candidates = snapshot.tableWorkers; snapshot.reporters[target].conn != nil {
			candidates = []workerRef{snapshot.reporters[target]}
		}
	}
	err = ErrUnserved
	for _, w := range candidates[:min(maxAskedWorkers, len(candidates))] {
		calls := []workerCall{{worker: w, data: data}}
		m.callAll(ctx, typ, m.options.WorkerTimeout, calls)
		answer, err = calls[0].answer, calls[0].err
		if err == nil && (served || answer != nil) {
			return answer, nil
		}
		if err != nil {
			err = fmt.Errorf("worker '%s' (%v): %w", w.name, w.conn.Remote(), err)
		}
	}
	return answer, err
}

// ManualResults holds the outcomes of rows that were run by hand.
type ManualResults struct {
	Jobs    map[string]ManualResult `json:"jobs"`
	Errors  map[string]string       `json:"errors"`
	Running []string                `json:"running"` // jobs that have not ended yet and continue
}

// ManualResult says how a row has ended. Its output is in the row.
type ManualResult struct {
	Result string  `json:"result"`
	Code   *int    `json:"code"`
	Signal *string `json:"signal"`
}

// Run runs rows of a target by hand. It waits until they have ended, but no longer than wait.
func (m *Master) Run(ctx context.Context, target string, ids []int64, wait time.Duration) ManualResults {
	list := make([]job, len(ids))
	for i, id := range ids {
		list[i] = job{id: strconv.FormatInt(id, 10), target: target}
	}
	results, errs, running := m.runManual(ctx, list, wait)
	out := ManualResults{make(map[string]ManualResult), make(map[string]string), append([]string{}, running...)}
	for _, r := range results.members {
		var o ManualResult
		_ = json.Unmarshal(r.Value, &o)
		out.Jobs[r.Name] = o
	}
	for _, e := range errs.members {
		out.Errors[e.Name] = eot.String(e.Value)
	}
	return out
}

// Pause stops the workers that serve a target from starting its rows.
func (m *Master) Pause(ctx context.Context, target string) error {
	return m.broadcastTo(ctx, "pause", target)
}

// Resume lets the workers that serve a target start its rows again.
func (m *Master) Resume(ctx context.Context, target string) error {
	return m.broadcastTo(ctx, "continue", target)
}

func (m *Master) broadcastTo(ctx context.Context, verb, target string) error {
	n, err := m.broadcast(ctx, verb, []string{target})
	if n == 0 {
		return ErrUnserved
	}
	m.snapshots.hasChanged.Store(true)
	return err
}

// Poke pokes a target, as clients do. It reports whether a worker serves the target; otherwise the
// poke is remembered.
func (m *Master) Poke(target string) (served bool, err error) {
	err = m.poke([]string{target})
	m.snapshots.hasChanged.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isServed(target), err
}
