package daemon

import (
	"syscall"
	"testing"
	"time"
)

// TestEarlyHangupWaits: a SIGHUP that comes before the daemon can reload waits until the daemon
// can.
func TestEarlyHangupWaits(t *testing.T) {
	HoldHangup()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(beforeNotify) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
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

// TestDaemonWithHangingReopenCanStop: a daemon whose files cannot be read again can still be stopped.
func TestDaemonWithHangingReopenCanStop(t *testing.T) {
	hangs, release := make(chan struct{}), make(chan struct{})
	s := Notify(func() { close(hangs); <-release })
	defer s.Close()
	defer close(release)
	for _, v := range []struct {
		sig  syscall.Signal
		done <-chan struct{}
	}{{syscall.SIGHUP, hangs}, {syscall.SIGTERM, s.Stop.Done()}, {syscall.SIGTERM, s.Kill.Done()}} {
		if err := syscall.Kill(syscall.Getpid(), v.sig); err != nil {
			t.Fatal(err)
		}
		select {
		case <-v.done:
		case <-time.After(10 * time.Second):
			t.Fatalf("%v is not noticed", v.sig)
		}
	}
}

// TestTwoSignalsAtOnceAreOneStop: two signals at once, as coreutils' timeout sends them, are one
// stop.
func TestTwoSignalsAtOnceAreOneStop(t *testing.T) {
	s := Notify(func() {})
	defer s.Close()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM} {
		s.incoming <- sig
	}
	<-s.Stop.Done()
	if s.Kill.Err() != nil {
		t.Fatal("the second signal counts")
	}
	s.incoming <- syscall.SIGTERM
	<-s.Kill.Done()
}
