// Package controltest contains an Engine that needs neither a database nor processes, for tests of
// code that uses an Engine.
package controltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/overview"
	"gloom/cmd/jobd/store"
)

// Job is a row of the fake's table.
type Job struct {
	Target    string
	Status    string // RunManual accepts it
	Outcome   control.JobResult
	IsRunning bool          // it gets signals
	Hold      chan struct{} // unless nil, the job ends when the channel is closed
}

// Engine is a fake. It records its calls in order.
type Engine struct {
	mu           sync.Mutex
	targets      []control.TargetStatus
	jobs         map[int64]*Job
	awaitedIDs   map[int64]bool
	calls        []string
	changed      func()
	done         chan struct{}
	endErr       error
	failErr      error
	shutdownGate chan struct{}
}

// New returns an engine that serves these targets with concurrency 1, 2, and
// so on.
func New(targets ...string) *Engine {
	e := &Engine{jobs: make(map[int64]*Job), awaitedIDs: make(map[int64]bool), done: make(chan struct{})}
	for i, t := range targets {
		e.targets = append(e.targets, control.TargetStatus{Name: t, Concurrency: i + 1})
	}
	return e
}

// Put adds a job or replaces it.
func (e *Engine) Put(id int64, j Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs[id] = &j
}

// SetQueueLength sets the reported length of a target's queue.
func (e *Engine) SetQueueLength(target string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.targets[e.indexOf(target)].Length = n
}

// Calls returns the calls of the engine, and forgets them.
func (e *Engine) Calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	calls := e.calls
	e.calls = nil
	return calls
}

func (e *Engine) recordCall(format string, args ...any) {
	e.calls = append(e.calls, fmt.Sprintf(format, args...))
}

func (e *Engine) indexOf(target string) int {
	return slices.IndexFunc(e.targets, func(t control.TargetStatus) bool { return t.Name == target })
}

// SetError sets the error of RunManual, Recover and Health; nil: none.
func (e *Engine) SetError(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failErr = err
}

// HoldShutdown keeps a Shutdown from ending until the channel is closed.
func (e *Engine) HoldShutdown(gate chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shutdownGate = gate
}

// End makes the engine end by itself.
func (e *Engine) End(err error) {
	e.endErr = err
	close(e.done)
}

// Targets implements control.Daemon.
func (e *Engine) Targets() (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.targets {
		names = append(names, t.Name)
	}
	return names
}

// Poll implements control.Daemon.
func (e *Engine) Poll(targets []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recordCall("poll %v", targets)
}

// Pause implements control.Daemon.
func (e *Engine) Pause(targets []string) { e.setPaused("pause", targets, true) }

// Continue implements control.Daemon.
func (e *Engine) Continue(targets []string) { e.setPaused("continue", targets, false) }

func (e *Engine) setPaused(verb string, targets []string, paused bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recordCall("%s %v", verb, targets)
	for i := range e.targets {
		if targets == nil || slices.Contains(targets, e.targets[i].Name) {
			e.targets[i].Paused = paused
		}
	}
}

// Status implements control.Daemon.
func (e *Engine) Status() control.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return control.Status{Targets: slices.Clone(e.targets), Waiting: len(e.awaitedIDs)}
}

// AddTarget implements control.Daemon.
func (e *Engine) AddTarget(name string, concurrency int) error {
	return e.changeTargets(func() error {
		if e.indexOf(name) >= 0 {
			return control.TargetExistsError(name)
		}
		e.targets = append(e.targets, control.TargetStatus{Name: name, Concurrency: concurrency})
		return nil
	})
}

// SetConcurrency implements control.Daemon.
func (e *Engine) SetConcurrency(name string, concurrency int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.indexOf(name)
	if i < 0 {
		return control.TargetUnknownError(name)
	}
	e.targets[i].Concurrency = concurrency
	return nil
}

// RemoveTarget implements control.Daemon.
func (e *Engine) RemoveTarget(name string) error {
	return e.changeTargets(func() error {
		i := e.indexOf(name)
		switch {
		case i < 0:
			return control.TargetUnknownError(name)
		case e.targets[i].Length > 0:
			return control.ErrTargetBusy
		}
		e.targets = slices.Delete(e.targets, i, i+1)
		return nil
	})
}

func (e *Engine) changeTargets(fn func() error) error {
	e.mu.Lock()
	err, changed := fn(), e.changed
	e.mu.Unlock()
	if err == nil && changed != nil {
		changed()
	}
	return err
}

// RunManual implements control.Daemon.
func (e *Engine) RunManual(ctx context.Context, ids []int64) (map[int64]control.JobResult, map[int64]string, error) {
	e.mu.Lock()
	e.recordCall("run-manual %v", ids)
	if e.failErr != nil {
		e.mu.Unlock()
		return nil, nil, e.failErr
	}
	for _, id := range ids {
		if e.awaitedIDs[id] {
			e.mu.Unlock()
			return nil, nil, control.JobAwaited(id)
		}
	}
	outcomes, errs := make(map[int64]control.JobResult), make(map[int64]string)
	var heldJobs []*Job
	for _, id := range ids {
		j := e.jobs[id]
		switch {
		case j == nil:
			errs[id] = control.UnknownJobText(id)
		case j.Status != "manual":
			errs[id] = control.NotManualText(j.Status)
		case e.indexOf(j.Target) < 0:
			errs[id] = control.UnknownTargetText(j.Target, id)
		default:
			outcomes[id] = j.Outcome
			e.awaitedIDs[id] = true
			heldJobs = append(heldJobs, j)
		}
	}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for id := range outcomes {
			delete(e.awaitedIDs, id)
		}
	}()
	for _, j := range heldJobs {
		if j.Hold == nil {
			continue
		}
		select {
		case <-j.Hold:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	return outcomes, errs, nil
}

// SendSignal implements control.Daemon.
func (e *Engine) SendSignal(_ context.Context, signals map[int64]syscall.Signal) map[int64]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	sent := make(map[int64]bool)
	for id, signal := range signals {
		j := e.jobs[id]
		sent[id] = j != nil && j.IsRunning
		e.recordCall("signal %d %d", id, int(signal))
	}
	slices.Sort(e.calls)
	return sent
}

// Recover implements control.Daemon.
func (e *Engine) Recover(context.Context) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recordCall("recover")
	return 3, e.failErr
}

// Overview implements control.Daemon.
func (e *Engine) Overview() (l overview.Daemon) {
	for _, t := range e.Status().Targets {
		l.Targets = append(l.Targets, overview.Target{Target: t.Name, Paused: t.Paused, Concurrency: t.Concurrency, Running: t.Length})
	}
	if err := e.Health(); err != nil {
		l.Trouble = err.Error()
	}
	return l
}

// Rows implements control.Daemon.
func (e *Engine) Rows() (store.Reader, error) { return nil, errors.New("there is no table") }

// OnTargets implements control.Daemon.
func (e *Engine) OnTargets(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changed = f
}

// Health implements control.Daemon.
func (e *Engine) Health() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failErr
}

// Shutdown implements control.Daemon.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	e.recordCall("shutdown")
	gate := e.shutdownGate
	e.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	close(e.done)
	return nil
}

// Done implements control.Daemon.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err implements control.Daemon.
func (e *Engine) Err() error { return e.endErr }
