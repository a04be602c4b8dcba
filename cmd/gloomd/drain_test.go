package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/server"
	gloom "gloom/clients/go"
)

// lines keeps what is logged.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) wait(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		said := l.buf.String()
		l.mu.Unlock()
		if strings.Contains(said, text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody said %q:\n%s", text, said)
		}
	}
}

// TestStatus: what an error makes of the exit status.
func TestStatus(t *testing.T) {
	option := &server.OptionError{Flag: "loops", Value: "0", Reason: "is too few"}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("unknown flag"), 2},
		{option, 2},
		{&startError{option}, 2},
		{&startError{errors.New("too few files")}, 1},
		{&exitError{exitCut}, 3},
	} {
		if got := status(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

// TestSignals: the second signal stops at once, and so it does when the drain
// was asked for over HTTP: the first signal after that is not the second one.
func TestSignals(t *testing.T) {
	for _, c := range []struct {
		what      string
		signalled bool
		signals   int // until it stops
	}{{"after a signal", true, 1}, {"after a request", false, 2}} {
		t.Run(c.what, func(t *testing.T) {
			opt := server.DefaultOptions()
			opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
			srv, err := server.Start(opt, zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			defer srv.Close()
			jobs, err := gloom.Dial(context.Background(), gloom.Addrs(srv.SubmitAddr().String()))
			if err != nil {
				t.Fatal(err)
			}
			defer jobs.Close()
			job, err := jobs.Submit(context.Background(), gloom.Job{Type: "nobody does it", Body: json.RawMessage(`1`)})
			if err != nil {
				t.Fatal(err)
			}
			if err := job.Ack(context.Background()); err != nil {
				t.Fatal(err)
			}
			said := &lines{}
			signals := make(chan os.Signal, 4)
			done := make(chan error, 1)
			go func() { done <- drain(srv, zerolog.New(said), time.Hour, signals, c.signalled) }()
			said.wait(t, "draining: no new jobs")
			signals <- syscall.SIGHUP
			for range c.signals - 1 {
				signals <- syscall.SIGTERM
				said.wait(t, "draining already")
			}
			select {
			case err := <-done:
				t.Fatalf("stopped too early: %v", err)
			default:
			}
			signals <- syscall.SIGINT
			var exit *exitError
			select {
			case err := <-done:
				if !errors.As(err, &exit) || exit.code != exitCut {
					t.Errorf("stopped with %v, want exit status %d", err, exitCut)
				}
			case <-time.After(20 * time.Second):
				t.Error("still draining")
			}
		})
	}
}
