package bridge

import (
	"cmp"
	"context"
	"errors"
	"syscall"

	"gloom/cmd/internal/daemon"
	"gloom/cmd/jobd/bridge/queue"
	"gloom/cmd/jobd/control"
)

// Targets implements control.Daemon.
func (b *Bridge) Targets() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.machine.Status()
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.Name
	}
	return names
}

// Poll implements control.Daemon.
func (b *Bridge) Poll(targets []string) { b.withMachine(func() { b.machine.Poll(targets) }) }

// Pause implements control.Daemon.
func (b *Bridge) Pause(targets []string) { b.withMachine(func() { b.machine.Pause(targets) }) }

// Continue implements control.Daemon.
func (b *Bridge) Continue(targets []string) { b.withMachine(func() { b.machine.Continue(targets) }) }

// Status implements control.Daemon.
func (b *Bridge) Status() control.Status {
	targets, waiting := b.targetStatus()
	s := control.Status{Waiting: waiting}
	for _, t := range targets {
		s.Targets = append(s.Targets, control.TargetStatus{
			Name: t.Name, Paused: t.Paused, Concurrency: t.Concurrency, Length: t.Queued + t.Running,
		})
	}
	return s
}

func (b *Bridge) targetStatus() (targets []queue.Status, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.machine.Status(), len(b.manualWaits)
}

// AddTarget implements control.Daemon.
func (b *Bridge) AddTarget(name string, concurrency int) error {
	err := b.changeTarget(name, concurrency, b.addToMachine)
	if err == nil {
		b.notifyTargetsChanged()
	}
	return err
}

// SetConcurrency implements control.Daemon.
func (b *Bridge) SetConcurrency(name string, concurrency int) error {
	return b.changeTarget(name, concurrency, b.machine.Resize)
}

// changeTarget adds or resizes a target.
func (b *Bridge) changeTarget(name string, concurrency int, apply func(string, int) error) error {
	if concurrency < 1 {
		return control.ErrConcurrency
	}
	concurrency = b.boundConcurrency(concurrency)
	b.mu.Lock()
	defer b.mu.Unlock()
	err := apply(name, concurrency)
	switch {
	case errors.Is(err, queue.ErrExists):
		return control.TargetExistsError(name)
	case errors.Is(err, queue.ErrUnknown):
		return control.TargetUnknownError(name)
	case err == nil && !b.stopping:
		b.startSlots(name, concurrency)
		b.applyEffects()
	}
	return err
}

// notifyTargetsChanged calls the function that OnTargets has set.
func (b *Bridge) notifyTargetsChanged() {
	b.mu.Lock()
	notify := b.onTargetsChanged
	b.mu.Unlock()
	if notify != nil {
		notify()
	}
}

// RemoveTarget implements control.Daemon.
func (b *Bridge) RemoveTarget(name string) error {
	b.mu.Lock()
	err := b.machine.Remove(name)
	if err == nil {
		b.stopSlots(name)
	}
	b.mu.Unlock()
	switch {
	case errors.Is(err, queue.ErrUnknown):
		return control.TargetUnknownError(name)
	case errors.Is(err, queue.ErrBusy):
		return control.ErrTargetBusy
	}
	b.notifyTargetsChanged()
	return nil
}

// OnTargets implements control.Daemon.
func (b *Bridge) OnTargets(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onTargetsChanged = f
}

// SendSignal implements control.Daemon. It reaches only processes of this daemon. Rows that other
// workers run have no process here.
func (b *Bridge) SendSignal(_ context.Context, signals map[int64]syscall.Signal) map[int64]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	sent := make(map[int64]bool, len(signals))
	for id, signal := range signals {
		r := b.rowsInBroker[id]
		switch {
		case r == nil || r.process == nil:
			sent[id] = false
		case signal == 0:
			sent[id] = r.process.Running()
		default:
			sent[id] = r.process.Signal(signal)
		}
	}
	return sent
}

// Health implements control.Daemon.
func (b *Bridge) Health() error {
	b.mu.Lock()
	launch := b.recentLaunchErr()
	b.mu.Unlock()
	return daemon.JoinReasons(cmp.Or(b.database.currentErr(), b.fetchHealth.currentErr()), launch, b.link.Health())
}

// Done implements control.Daemon.
func (b *Bridge) Done() <-chan struct{} { return b.done }

// Err implements control.Daemon.
func (b *Bridge) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
