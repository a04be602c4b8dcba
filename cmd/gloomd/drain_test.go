package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
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

func send(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		t.Fatal(err)
	}
}

// TestSignals: the second signal stops at once. After a drain over HTTP, the first
// signal does not count as the second one.
func TestSignals(t *testing.T) {
	for _, c := range []struct {
		name      string
		signalled bool
		signals   int // until it stops
	}{{"after a signal", true, 1}, {"after a request", false, 2}} {
		t.Run(c.name, func(t *testing.T) {
			opt := settings.Default()
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
			log := &throwaway.Log{}
			hangups := make(chan bool, 1)
			signals := daemon.Notify(func() { hangups <- true })
			defer signals.Close()
			if c.signalled {
				send(t, syscall.SIGTERM)
				<-signals.Stop.Done()
			}
			done := make(chan error, 1)
			go func() { done <- drain(srv, zerolog.New(log), time.Hour, signals) }()
			if err := log.Await("draining: no new jobs"); err != nil {
				t.Fatal(err)
			}
			send(t, syscall.SIGHUP)
			<-hangups
			for range c.signals - 1 {
				send(t, syscall.SIGTERM)
				if err := log.Await("already draining"); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case err := <-done:
				t.Fatalf("stopped too early: %v", err)
			default:
			}
			send(t, syscall.SIGINT)
			var exit *cli.Fault
			select {
			case err := <-done:
				if !errors.As(err, &exit) || exit.Code != cli.ExitCut {
					t.Errorf("stopped with %v, want exit status %d", err, cli.ExitCut)
				}
			case <-time.After(45 * time.Second):
				t.Error("still draining")
			}
		})
	}
}
