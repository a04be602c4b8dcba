package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/peer"
)

// workerRef is a snapshot of a worker.
type workerRef struct {
	conn              *peer.Conn
	ready             <-chan struct{}
	name              string
	targets           []string
	since             time.Time
	isWithoutOverview *atomic.Bool
}

func (m *Master) workerRefs() []workerRef {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]workerRef, len(m.workers))
	for i, w := range m.workers {
		list[i] = workerRef{w.conn, w.ready, w.name, w.targets, w.since, w.isWithoutOverview}
	}
	return list
}

// workerCall is one request to one worker, and its result.
type workerCall struct {
	worker   workerRef
	data     any
	answer   json.RawMessage
	err      error
	timedOut bool // there was no answer in time
}

// callAll makes all calls concurrently and waits for their answers, but no longer than timeout
// unless that is 0.
func (m *Master) callAll(ctx context.Context, typ string, timeout time.Duration, calls []workerCall) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var wg sync.WaitGroup
	for i := range calls {
		c := &calls[i]
		wg.Go(func() {
			select {
			case <-c.worker.ready:
				c.answer, c.err = c.worker.conn.Call(ctx, typ, c.data)
			case <-ctx.Done():
				c.err = ctx.Err()
			case <-c.worker.conn.Done():
				c.err = peer.ErrClosed
			}
			if errors.Is(c.err, context.DeadlineExceeded) {
				c.timedOut = true
				c.err = fmt.Errorf("no answer within %v", timeout)
			}
		})
	}
	wg.Wait()
}

// job is one job of a request, with its id as JSON writes it.
type job struct {
	id     string
	target string
	signal json.RawMessage
}

var jobFields = []eot.Field{{Name: "id", Types: "i", Required: true}, {Name: "target", Types: "s", Required: true}}
var signalFields = []eot.Field{jobFields[0], {Name: "signal", Types: "i", Required: true}, jobFields[1]}

// readJobs reads the jobs of a request, each id once.
func readJobs(data json.RawMessage, fields []eot.Field) ([]job, error) {
	raw := eot.Object(eot.Members(data)).Get("jobs")
	if !eot.IsArray(raw) {
		return nil, errors.New("jobs must be array")
	}
	var list []job
	seen := make(map[string]bool)
	for _, e := range eot.Elements(raw) {
		o, err := eot.ParseObject(e, fields...)
		if err != nil {
			return nil, err
		}
		id := idText(o.Get("id"))
		if !seen[id] {
			seen[id] = true
			list = append(list, job{id, eot.String(o.Get("target")), o.Get("signal")})
		}
	}
	return list, nil
}

// idText returns an id as JSON writes it, exactly if it has 64 bits.
func idText(raw json.RawMessage) string {
	if id, ok := eot.Int64(raw); ok {
		return strconv.FormatInt(id, 10)
	}
	id, _ := eot.Integer(raw)
	return id.String()
}

// workersOfTargets returns the indexes of the workers that serve each target of jobs.
func workersOfTargets(workers []workerRef, jobs []job) map[string][]int {
	asked := make(map[string]bool)
	for _, j := range jobs {
		asked[j.target] = true
	}
	byTarget := make(map[string][]int)
	for i, w := range workers {
		for t := range toSet(intersect(w.targets, asked)) {
			byTarget[t] = append(byTarget[t], i)
		}
	}
	return byTarget
}

func unservedError(target string) string {
	return fmt.Sprintf("worker serving target '%s' not found", target)
}

// onRunManual waits for all jobs, however long they take.
func (m *Master) onRunManual(ctx context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	list, err := readJobs(data, jobFields)
	if err != nil {
		return nil, err
	}
	results, errs, _ := m.runManual(ctx, list, 0)
	var out jsonObject
	if len(results.members) > 0 {
		out.set("jobs", results.encodeSorted())
	}
	if len(errs.members) > 0 {
		out.set("errors", errs.encodeSorted())
	}
	return out.encode(), nil
}

// runManual gives every job to a worker that serves the job's target. It chooses the worker at
// random. It waits until the jobs have ended, at most for timeout unless timeout is 0. running
// holds the ids of the jobs that are still running at the end of the wait.
func (m *Master) runManual(ctx context.Context, list []job, timeout time.Duration) (results, errs jsonObject, running []string) {
	workers := m.workerRefs()
	byTarget := workersOfTargets(workers, list)
	assigned := make(map[int][]string) // ids by worker
	for _, j := range list {
		if at := byTarget[j.target]; len(at) > 0 {
			i := at[rand.IntN(len(at))]
			assigned[i] = append(assigned[i], j.id)
		} else {
			errs.setText(j.id, unservedError(j.target))
		}
	}
	var calls []workerCall
	var ids [][]string
	for i, assignedIDs := range assigned {
		calls = append(calls, workerCall{worker: workers[i], data: idsData(assignedIDs)})
		ids = append(ids, assignedIDs)
	}
	m.callAll(ctx, "run-manual", timeout, calls)
	for i, c := range calls {
		answer := eot.Object(eot.Members(c.answer))
		results.merge(answer.Get("jobs"))
		errs.merge(answer.Get("errors"))
		for _, id := range ids[i] {
			switch {
			case c.timedOut:
				running = append(running, id)
			case c.err != nil:
				errs.setText(id, c.err.Error())
			case results.get(id) == nil && errs.get(id) == nil:
				errs.setText(id, "worker has answered without a result for job "+id)
			}
		}
	}
	return results, errs, running
}

func idsData(ids []string) json.RawMessage {
	out := []byte(`{"ids":[`)
	for i, id := range ids {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, id...)
	}
	return append(out, "]}"...)
}

// onSendSignal asks every worker that serves a job's target, because any of them may run the job.
func (m *Master) onSendSignal(ctx context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	list, err := readJobs(data, signalFields)
	if err != nil {
		return nil, err
	}
	workers := m.workerRefs()
	byTarget := workersOfTargets(workers, list)
	var sentByID, errs jsonObject
	assigned := make([]jsonObject, len(workers))
	for _, j := range list {
		if len(byTarget[j.target]) == 0 {
			errs.setText(j.id, unservedError(j.target))
			continue
		}
		sentByID.set(j.id, json.RawMessage("false"))
		for _, i := range byTarget[j.target] {
			assigned[i].set(j.id, j.signal)
		}
	}
	var calls []workerCall
	var ids []jsonObject
	for i, w := range workers {
		if len(assigned[i].members) > 0 {
			var arg jsonObject
			arg.set("jobs", assigned[i].encode())
			calls = append(calls, workerCall{worker: w, data: arg.encode()})
			ids = append(ids, assigned[i])
		}
	}
	m.callAll(ctx, "send-signal", m.options.WorkerTimeout, calls)
	var lostDaemons jsonObject
	for i, c := range calls {
		var answer jsonObject
		answer.merge(c.answer)
		for _, requested := range ids[i].members {
			if eot.IsTruthy(answer.get(requested.Name)) {
				sentByID.set(requested.Name, json.RawMessage("true"))
			}
			if c.err != nil {
				lostDaemons.setText(requested.Name, c.err.Error())
			}
		}
	}
	// A missing answer of a worker is an error only if no other worker has the job.
	var out jsonObject
	for _, m := range sentByID.sortedMembers() {
		if reason := lostDaemons.get(m.Name); reason != nil && !eot.IsTruthy(m.Value) {
			errs.set(m.Name, reason)
		} else {
			out.set(m.Name, m.Value)
		}
	}
	if len(errs.members) > 0 {
		out.set("errors", errs.encodeSorted())
	}
	return out.encode(), nil
}
