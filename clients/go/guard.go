package gloom

import (
	"context"
	"sync"
)

// guard is a lock with a way to wait until what it guards changes. A submitter's connections
// share one.
type guard struct {
	sync.Mutex
	door    sync.Mutex // held by callers of until: only one at a time may compete with the reader and the writer
	changed latch      // nil if nobody waits
}

// announce wakes those who wait. The lock must be held.
func (g *guard) announce() {
	g.changed.release()
	g.changed = nil
}

// until calls try with the lock held, now and after each change, while try returns
// ErrNotConnected or ErrWindowFull. Without wait it calls try once. After ctx has ended it
// calls try a last time, and try returns that error.
func (g *guard) until(ctx context.Context, wait bool, try func() error) error {
	for {
		var changed <-chan struct{}
		g.door.Lock()
		g.Lock()
		err := try()
		if err == ErrNotConnected || err == ErrWindowFull {
			changed = g.changed.wait()
		}
		g.Unlock()
		g.door.Unlock()
		if !wait || ctx.Err() != nil || changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
