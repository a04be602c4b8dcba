package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/cmd/serverlessd/job"

	"github.com/rs/zerolog"
)

// broker starts a broker for several daemons.
func broker(t *testing.T, tokens string) *server.Server {
	t.Helper()
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
	opt.TokenFile = filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(opt.TokenFile, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestBrokerAway: a daemon whose broker is away still runs its own handlers. Jobs for Gloom workers
// wait until the broker is back, or until another daemon that reaches a broker runs them.
func TestBrokerAway(t *testing.T) {
	path, file := filepath.Join(t.TempDir(), "jobs.db"), filepath.Join(t.TempDir(), "go")
	s := broker(t, "secret submit,work\n")
	a := startEngineAs(t, t.TempDir(), func(c *Config) { c.Broker.SubmitAddr, c.Broker.Token = s.SubmitAddr().String(), "secret" }, sqlite(t, path))
	defer a.Shutdown(context.Background())
	addBlockingHandler(t, a, "a-x", file)
	first := add(t, a, "a-x", "1")[0]
	awaitState(t, a, first, job.Running)
	s.Close()
	waitUntil(t, "the daemon notices the outage", func() error {
		if a.link.Health() == nil {
			return errors.New("all is well")
		}
		return nil
	})
	if err := a.Health(); err != nil {
		t.Errorf("no handler needs the broker: %v", err)
	}
	second := add(t, a, "a-x", "2")[0]
	awaitState(t, a, second, job.Running)
	waitUntil(t, "there is a handler", func() error {
		return a.PutHandler(t.Context(), &job.Handler{Jobtype: "a-g", Source: job.Source{Lang: job.Gloom, Body: "-"}})
	})
	if err := a.Health(); err == nil {
		t.Error("Health returned no error, although a handler needs the broker")
	}
	gloomJob := add(t, a, "a-g", "3")[0]
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []job.ID{first, second} {
		if rec := awaitState(t, a, id, job.Succeeded); rec.Tries != 1 {
			t.Errorf("%+v", rec)
		}
	}
	if rec, err := a.Job(t.Context(), gloomJob); err != nil || rec.State != job.Waiting || rec.Tries != 0 {
		t.Errorf("%+v, %v", rec, err)
	}
	b := startEngine(t, t.TempDir(), sqlite(t, path))
	defer b.Shutdown(context.Background())
	connectWorker(t, b, &gloom.Worker{Type: "a-g", Handler: echoHandler})
	if rec := awaitState(t, b, gloomJob, job.Succeeded); rec.Tries != 1 {
		t.Errorf("%+v", rec)
	}
}

// TestLostDuringTake: if the sysid is lost while jobs are being taken, the jobs are given back.
func TestLostDuringTake(t *testing.T) {
	s, file := sqlite(t, filepath.Join(t.TempDir(), "jobs.db")), filepath.Join(t.TempDir(), "go")
	s.taking = newGate()
	e := startEngine(t, t.TempDir(), s)
	defer e.Shutdown(context.Background())
	addBlockingHandler(t, e, "a-x", file)
	id := add(t, e, "a-x", "1")[0]
	awaitClosed(t, "the job is taken", s.taking.reached)
	b := e.backends[0]
	lostSysid := b.currentSysid()
	b.loseSysid(lostSysid)
	close(s.taking.open)
	waitUntil(t, "it runs with another sysid", func() error {
		rec, err := e.Job(t.Context(), id)
		if err == nil && (rec.State != job.Running || rec.Lock == lostSysid) {
			err = errors.New(rec.Lock + " " + string(rec.State))
		}
		return err
	})
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if rec := awaitState(t, e, id, job.Succeeded); rec.Tries != 1 {
		t.Errorf("%+v", rec)
	}
	if text, err := os.ReadFile(file + ".tries"); err != nil || string(text) != "1\n" {
		t.Errorf("tries %q, %v", text, err)
	}
}
