package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/bench/throwaway"
	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
)

func sendSignal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		t.Fatal(err)
	}
}

// TestSecondSignalStopsAtOnce: the second signal stops at once. After a drain over HTTP, the first
// signal counts as the first request to stop, not as the second.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	for _, c := range []struct {
		name      string
		signalled bool
		signals   int // until it stops
	}{{"after a signal", true, 1}, {"after a request", false, 2}} {
		t.Run(c.name, func(t *testing.T) {
			opt := settings.Default()
			opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
			log := &throwaway.Log{}
			srv, err := server.Start(opt, zerolog.New(log))
			if err != nil {
				t.Fatal(err)
			}
			defer srv.Close()
			submitUnserved(t, srv)
			hangups := make(chan bool, 1)
			signals := daemon.Notify(func() { hangups <- true })
			defer signals.Close()
			if c.signalled {
				sendSignal(t, syscall.SIGTERM)
				<-signals.Stop.Done()
			}
			done := make(chan error, 1)
			go func() { done <- drain(srv, zerolog.New(log), time.Hour, signals) }()
			if err := log.Await("draining: no new jobs; waiting up to 1h0m0s for 1 queued job; a second signal stops at once"); err != nil {
				t.Fatal(err)
			}
			sendSignal(t, syscall.SIGHUP)
			<-hangups
			for range c.signals - 1 {
				sendSignal(t, syscall.SIGTERM)
				if err := log.Await("already draining"); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case err := <-done:
				t.Fatalf("stopped too early: %v", err)
			default:
			}
			sendSignal(t, syscall.SIGINT)
			var exit *cli.Fault
			select {
			case err := <-done:
				if !errors.As(err, &exit) || exit.Code != cli.ExitAborted {
					t.Errorf("stopped with %v, want exit status %d", err, cli.ExitAborted)
				}
			case <-time.After(45 * time.Second):
				t.Error("still draining")
			}
			if err := log.Await("stopped at once; lost: 1 queued job"); err != nil {
				t.Error(err)
			}
			<-srv.Done()
			if strings.Contains(log.String(), "timeout has passed") {
				t.Errorf("logged a timeout of an hour:\n%s", log)
			}
		})
	}
}

// TestDrainIsLogged: the log says when a drain has nothing to wait for. When a drain's time is
// over, the log names the jobs that were given up.
func TestDrainIsLogged(t *testing.T) {
	for left, want := range map[int][]string{
		0: {"draining: no new jobs\"", "gloomd has stopped"},
		2: {"draining: no new jobs; waiting up to 10ms for 2 queued jobs", "given up: 2 queued jobs", "gloomd has stopped"},
	} {
		log := &throwaway.Log{}
		opt := settings.Default()
		opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
		srv, err := server.Start(opt, zerolog.New(log))
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		for range left {
			submitUnserved(t, srv)
		}
		signals := daemon.Notify(func() {})
		defer signals.Close()
		if err := drain(srv, zerolog.New(log), 10*time.Millisecond, signals); err != nil {
			t.Error(err)
		}
		for _, line := range want {
			if err := log.Await(line); err != nil {
				t.Error(err)
			}
		}
		if given := strings.Contains(log.String(), "given up"); given != (left > 0) {
			t.Errorf("with %d jobs:\n%s", left, log)
		}
	}
}

// submitUnserved submits a job that nobody does.
func submitUnserved(t *testing.T, srv *server.Server) {
	t.Helper()
	jobs, err := gloom.Dial(context.Background(), gloom.Addrs(srv.SubmitAddr().String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { jobs.Close() })
	job, err := jobs.Submit(context.Background(), gloom.Job{Type: "nobody does it", Body: json.RawMessage(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Ack(context.Background()); err != nil {
		t.Fatal(err)
	}
}
