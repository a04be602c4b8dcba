package engine

import (
	"context"
	"os"
	"time"
)

// Start lets the daemon hand out jobs again.
func (e *Engine) Start() { e.setStopped(false) }

// Stop makes the daemon hand out no jobs until Start. Running jobs continue, and new jobs are
// accepted and ingested as before.
func (e *Engine) Stop() { e.setStopped(true) }

func (e *Engine) setStopped(stopped bool) {
	e.mu.Lock()
	e.stopped = stopped
	e.mu.Unlock()
	e.wakePick()
}

// isHandingOut reports whether jobs may begin.
func (e *Engine) isHandingOut() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.stopped && !e.leaving
}

func (e *Engine) isLeaving() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leaving
}

// checkIdle closes idleCh if the daemon is leaving and no batch is left. The caller holds the lock.
func (e *Engine) checkIdle() {
	if e.leaving && !e.isPicking && len(e.batches) == 0 {
		select {
		case <-e.idleCh:
		default:
			close(e.idleCh)
		}
	}
}

// lastWriteTime bounds the last writes to the stores, and the wait for killed processes.
const lastWriteTime = 5 * time.Second

// Shutdown ends the engine. Running jobs have time until ctx is done or the drain time is over. All
// others are given back, and the sysids are released.
func (e *Engine) Shutdown(ctx context.Context) {
	e.mu.Lock()
	e.leaving = true
	e.checkIdle()
	e.mu.Unlock()
	drain, cancel := context.WithTimeout(ctx, e.cfg.Drain)
	defer cancel()
	if !e.waitIdle(drain) {
		e.log.Warn().Stringer("drain", e.cfg.Drain).Msg("jobs are still running: they are stopped and given back")
		e.mu.Lock()
		for t := range e.batches {
			t.cancel(errStopping)
		}
		e.mu.Unlock()
		writeCtx, cancel := context.WithTimeout(context.Background(), lastWriteTime)
		defer cancel()
		if !e.waitIdle(writeCtx) {
			e.runner.Kill()
		}
	}
	e.release()
	e.close()
}

func (e *Engine) waitIdle(ctx context.Context) bool {
	select {
	case <-e.idleCh:
		return true
	case <-ctx.Done():
		return false
	}
}

// release waits for the last writes and releases the sysids. If a store is away now, the next start
// releases its sysid.
func (e *Engine) release() {
	end := time.Now().Add(lastWriteTime)
	left := true
	for _, b := range e.backends {
		for !b.allWritten() && b.checkReachable() == nil && time.Now().Before(end) && e.sleep(time.Millisecond) {
		}
		written := b.allWritten()
		close(b.leaving)
		<-b.keeperDone
		b.mu.Lock() // nothing is left if the store has no sysid of this daemon or of an earlier process
		left = left && written && b.sysid == "" && len(b.oldSysids) == 0
		b.mu.Unlock()
	}
	if left {
		_ = os.Remove(e.sysidFile())
	}
}

// allWritten reports whether all endings have been written.
func (b *backend) allWritten() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) == 0
}
