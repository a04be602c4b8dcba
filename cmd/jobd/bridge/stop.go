package bridge

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

const (
	// termTimeout is the time between SIGTERM and SIGKILL for processes.
	termTimeout  = 5 * time.Second
	leaveTimeout = 5 * time.Second
	stopPoll     = 5 * time.Millisecond
)

// Shutdown implements control.Daemon.
func (b *Bridge) Shutdown(ctx context.Context) error {
	if b.isStopping() {
		<-b.done
		return b.Err()
	}
	b.stopAccepting()

	// Rows that have not begun are given back at once; running rows get time.
	stopCtx, cancel := context.WithTimeout(ctx, b.cfg.ShutdownTimeout)
	b.waitUntil(stopCtx, b.isIdle)
	cancel()
	b.endRunning(ctx)
	err := b.waitUntil(ctx, func() bool { return b.writer.unsafeChanges() == 0 && b.isIdle() })
	unwritten, _ := b.writer.backlog()
	if err != nil {
		err = fmt.Errorf("stopped with %d rows running and %d changes unwritten: %w", b.runningCount(), unwritten, context.Cause(ctx))
	} else if unwritten > 0 {
		b.log.Warn().Int("rows", unwritten).Msg("results that the database refuses stay in the spool for the next start")
	}
	b.disconnect(err)
	return err
}

// answerWaiting answers all RunManual calls that still wait; b.mu is held.
func (b *Bridge) answerWaiting() {
	for id, wait := range b.manualWaits {
		b.sendResult(wait, manualResult{reason: fmt.Sprintf("it is not known how job %d ended: the daemon has stopped", id)})
	}
}

func (b *Bridge) isStopping() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopping
}

// stopAccepting gives back the rows that have not begun.
func (b *Bridge) stopAccepting() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopping = true
	for _, r := range b.rowsInBroker {
		if r.isTaken || r.isGivenBack {
			continue
		}
		r.isGivenBack = true
		b.sendResult(r.wait, manualResult{reason: fmt.Sprintf("job %d was not started: the daemon is stopping", r.ID)})
		ch := b.writer.enqueue(&change{kind: changeGiveBack, id: r.ID})
		b.rowTasks.Go(func() {
			<-ch
			b.leaveBroker(r, "returned", manualResult{})
			if b.guard != nil {
				close(r.writtenCh)
			}
		})
	}
	b.machine.Stop()
	b.applyEffects()
}

// isIdle reports whether no row is running or being fetched.
func (b *Bridge) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rowsInBroker) == 0 && !b.fetchInProgress && b.manualCalls == 0
}

func (b *Bridge) runningCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rowsInBroker)
}

// waitUntil waits until ok returns true or ctx ends.
func (b *Bridge) waitUntil(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// endRunning sends SIGTERM to running processes, then SIGKILL.
func (b *Bridge) endRunning(ctx context.Context) {
	if b.isIdle() {
		return
	}
	b.log.Warn().Int("rows", b.runningCount()).Msg("shutdown_timeout has passed: running jobs are told to end")
	b.cancelSubmits()
	b.mu.Lock()
	for _, r := range b.rowsInBroker {
		if b.guard == nil && r.pending != nil {
			p := r.pending
			b.rowTasks.Go(func() { p.Cancel(b.ctx) })
		}
	}
	b.mu.Unlock()
	b.signalAll(syscall.SIGTERM)
	stopCtx, cancel := context.WithTimeout(ctx, termTimeout)
	defer cancel()
	b.waitUntil(stopCtx, b.hasNoProcess)
	b.signalAll(syscall.SIGKILL)
}

func (b *Bridge) hasNoProcess() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rowsInBroker {
		if r.isLaunching || r.process != nil && r.process.Running() {
			return false
		}
	}
	return true
}

// signalAll signals all processes, including those that are being started.
func (b *Bridge) signalAll(signal syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastSignal = signal
	for _, r := range b.rowsInBroker {
		if r.process != nil {
			r.process.SignalGroup(signal)
		}
	}
}

// disconnect leaves the broker and the database.
func (b *Bridge) disconnect(err error) {
	b.cancel()
	b.signalAll(syscall.SIGKILL)
	b.tearDown()
	b.leave()
	b.store.Close()
	b.mu.Lock()
	b.err = err
	b.answerWaiting()
	b.mu.Unlock()
	close(b.done)
}

// leave gives the lease up, so that others may settle the remaining rows at once.
func (b *Bridge) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := b.store.Leave(ctx); err != nil {
		b.log.Warn().Err(err).Msg("the lease could not be given up; it will expire")
	}
}
