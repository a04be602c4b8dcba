package gloom

import (
	"context"
	"sync"
)

// condMutex is a lock with a way to wait until the guarded state changes. A submitter's connections
// share one.
type condMutex struct {
	sync.Mutex
	waiters sync.Mutex // held by callers of waitFor: only one at a time may compete with the reader and the writer
	changed doneChan
}

// wakeAll wakes those who wait. The lock must be held.
func (m *condMutex) wakeAll() {
	m.changed.close()
	m.changed = doneChan{}
}

// waitFor calls try with the lock held, now and after each change, while try returns
// ErrNotConnected or ErrWindowFull. Without wait it calls try once. After ctx has ended it
// calls try a last time, and try returns that error.
func (m *condMutex) waitFor(ctx context.Context, wait bool, attempt func() error) error {
	for {
		var changed <-chan struct{}
		m.waiters.Lock()
		m.Lock()
		err := attempt()
		if err == ErrNotConnected || err == ErrWindowFull {
			changed = m.changed.wait()
		}
		m.Unlock()
		m.waiters.Unlock()
		if !wait || ctx.Err() != nil || changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
