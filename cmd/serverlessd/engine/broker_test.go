package engine

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gloom/bench/throwaway"
	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/cmd/serverlessd/job"

	"github.com/rs/zerolog"
)

// broker is one that several daemons share.
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

// TestBrokerAway: a daemon whose broker is away goes on with what runs, and leaves
// everything else to others, whose broker is not.
func TestBrokerAway(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for _, whole := range []bool{true, false} {
		t.Run(map[bool]string{true: "whole", false: "for workers"}[whole], func(t *testing.T) {
			path, file := filepath.Join(t.TempDir(), "jobs.db"), filepath.Join(t.TempDir(), "go")
			s := broker(t, "secret submit,work\n")
			a := runningAs(t, t.TempDir(), func(c *Config) {
				c.Broker.SubmitAddr, c.Broker.WorkerAddr, c.Broker.Token = s.SubmitAddr().String(), s.WorkerAddr().String(), "secret"
				if !whole {
					c.Broker.WorkerAddr = nobody.Addr().String()
				}
			}, sqlite(t, path))
			defer a.Shutdown(context.Background())
			waits(t, a, "a-x", file)
			until(t, "there is a handler", func() error {
				return a.PutHandler(t.Context(), &job.Handler{Jobtype: "a-y", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
			})
			var first []job.ID
			if whole {
				first = add(t, a, "a-x", "1")
				reaches(t, a, first[0], job.Running)
				s.Close()
			}
			second := add(t, a, "a-y", slices.Repeat([]string{"2"}, 20)...)
			until(t, "it is noticed", func() error {
				if a.link.Health() == nil {
					return errors.New("all is well")
				}
				return nil
			})
			b := running(t, t.TempDir(), sqlite(t, path))
			defer b.Shutdown(context.Background())
			for _, id := range second {
				if rec := reaches(t, b, id, job.Succeeded); rec.Tries != 1 {
					t.Errorf("%+v", rec)
				}
			}
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, id := range first {
				if rec := reaches(t, b, id, job.Succeeded); rec.Tries != 1 {
					t.Errorf("what ran: %+v", rec)
				}
			}
		})
	}
}

// TestManySlots: a daemon may have more slots than a broker gives jobs to one connection.
func TestManySlots(t *testing.T) {
	s := broker(t, "secret submit,work\n")
	e := runningAs(t, t.TempDir(), func(c *Config) {
		c.Broker.SubmitAddr, c.Broker.WorkerAddr, c.Broker.Token = s.SubmitAddr().String(), s.WorkerAddr().String(), "secret"
		c.Concurrency = 2000
	}, sqlite(t, filepath.Join(t.TempDir(), "jobs.db")))
	defer e.Shutdown(context.Background())
	until(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-y", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
	})
	for _, id := range add(t, e, "a-y", "1", "2") {
		reaches(t, e, id, job.Succeeded)
	}
	if err := e.link.Health(); err != nil {
		t.Error(err)
	}
}

// TestLostDuringTake: what is taken with a sysid that is lost meanwhile is given
// back.
func TestLostDuringTake(t *testing.T) {
	s, file := sqlite(t, filepath.Join(t.TempDir(), "jobs.db")), filepath.Join(t.TempDir(), "go")
	s.taking = newGate()
	e := running(t, t.TempDir(), s)
	defer e.Shutdown(context.Background())
	waits(t, e, "a-x", file)
	id := add(t, e, "a-x", "1")[0]
	closed(t, "it is taken", s.taking.reached)
	b := e.backends[0]
	lost := b.current()
	b.lose(lost)
	close(s.taking.open)
	until(t, "it runs with another sysid", func() error {
		rec, err := e.Job(t.Context(), id)
		if err == nil && (rec.State != job.Running || rec.Lock == lost) {
			err = errors.New(rec.Lock + " " + string(rec.State))
		}
		return err
	})
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if rec := reaches(t, e, id, job.Succeeded); rec.Tries != 1 {
		t.Errorf("%+v", rec)
	}
	if text, err := os.ReadFile(file + ".tries"); err != nil || string(text) != "1\n" {
		t.Errorf("tries %q, %v", text, err)
	}
}

// TestWorkerOfAllTypes: one that answers batches is told of in the log, and their
// jobs run all the same.
func TestWorkerOfAllTypes(t *testing.T) {
	var log throwaway.Log
	e := runningTo(t, &log, t.TempDir(), func(*Config) {}, sqlite(t, filepath.Join(t.TempDir(), "jobs.db")))
	defer e.Shutdown(context.Background())
	until(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
	})
	stop := works(t, e, &gloom.Worker{Types: []string{"*"}, Concurrency: 10, Handler: echo})
	var ids []job.ID
	until(t, "it is told", func() error {
		ids = append(ids, add(t, e, "a-x", "1")...)
		if !strings.Contains(log.String(), "must leave out @*") {
			return errors.New(log.String())
		}
		return nil
	})
	stop()
	for _, id := range ids {
		reaches(t, e, id, job.Succeeded)
	}
}
