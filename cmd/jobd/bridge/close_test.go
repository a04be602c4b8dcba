package bridge

import "syscall"

// Close stops at once and kills processes. Rows that are not written yet are left to be settled
// like those of a dead daemon.
func (b *Bridge) Close() error {
	b.mu.Lock()
	first := !b.stopping
	b.stopping = true
	b.mu.Unlock()
	if !first {
		<-b.done
		return nil
	}
	b.cancel()
	b.signalAll(syscall.SIGKILL)
	b.tearDown()
	b.store.Close()
	b.mu.Lock()
	b.answerWaiting()
	b.mu.Unlock()
	close(b.done)
	return nil
}
