package daemon

import (
	"syscall"
	"testing"
	"time"
)

// TestEarlyHangup: a SIGHUP that comes before the daemon can reload waits until it can.
func TestEarlyHangup(t *testing.T) {
	Hold()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for over := time.Now().Add(time.Minute); len(early) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(over) {
			t.Fatal("the signal has not come")
		}
	}
	reopened := make(chan struct{}, 1)
	s := Notify(func() { reopened <- struct{}{} })
	defer s.Close()
	select {
	case <-reopened:
	case <-time.After(time.Minute):
		t.Error("the signal was lost")
	}
}
