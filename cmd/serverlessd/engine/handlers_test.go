package engine

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"gloom/cmd/internal/launch"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// withStores returns an engine with these stores. The engine's loops do not run.
func withStores(t *testing.T, n int) *Engine {
	t.Helper()
	e := &Engine{log: zerolog.New(io.Discard), metrics: newMetrics(prometheus.NewRegistry()), wake: make(chan struct{}, 1), ids: job.NewIDSource(job.NewSysid(), time.Now)}
	e.ctx, e.cancel = context.WithCancel(t.Context())
	var err error
	if e.guard, err = launch.NewGuard("engine-" + e.ids.Sysid()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.guard.Close)
	e.events = openEvents(filepath.Join(t.TempDir(), "events.log"), e.log)
	t.Cleanup(e.events.Close)
	e.handlers = newHandlers(e)
	for range n {
		s, err := store.Open("sqlite:" + filepath.Join(t.TempDir(), "jobs.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		e.backends = append(e.backends, newBackend(e, s))
	}
	return e
}

func putHandler(t *testing.T, b *backend, jobtype, body string) {
	t.Helper()
	h := &job.Handler{ID: b.engine.ids.Next(1).String(), Jobtype: jobtype, Source: job.Source{Lang: job.Shell, Body: body}}
	if err := b.store.PutHandler(t.Context(), h); err != nil {
		t.Fatal(err)
	}
}

// TestHandlersOfSeveralStores: a handler that one store lacks is still found in another store.
func TestHandlersOfSeveralStores(t *testing.T) {
	e := withStores(t, 2)
	putHandler(t, e.backends[1], "a-x", "old")
	putHandler(t, e.backends[0], "a-x", "new")
	putHandler(t, e.backends[0], "a-y", "one")
	for range 2 {
		if err := e.handlers.refreshAll(); err != nil {
			t.Fatal(err)
		}
	}
	for jobtype, want := range map[string]string{"a-x": "new", "a-y": "one"} {
		if h := e.handlers.newest(jobtype); h == nil || h.Body != want {
			t.Errorf("%s: %+v, want %s", jobtype, h, want)
		}
		if h, err := e.Handler(t.Context(), jobtype, ""); err != nil || h.Body != want {
			t.Errorf("asked for %s: %+v, %v, want %s", jobtype, h, err, want)
		}
	}
}

// TestSweepKnowsHandlers: jobs that waited for longer than --retry-for while the daemon
// was down are not abandoned when it starts, unless they have no handler.
func TestSweepKnowsHandlers(t *testing.T) {
	e := withStores(t, 2)
	e.cfg.KeepDone, e.cfg.KeepUnrun = time.Hour, time.Hour
	e.cfg.RetryFor = time.Nanosecond
	b := e.backends[0]
	putHandler(t, b, "a-x", "body")
	jobs := []journal.Entry{
		{ID: e.ids.Next(1), Jobtype: "a-x", Payload: []byte("1"), Accepted: time.Now().Add(-time.Minute), End: 1},
		{ID: e.ids.Next(1), Jobtype: "a-y", Payload: []byte("2"), Accepted: time.Now().Add(-time.Minute), End: 2},
	}
	if _, err := b.store.Ingest(t.Context(), journal.Range{Segment: "s", To: 2}, jobs, time.Now); err != nil {
		t.Fatal(err)
	}
	states := func(want ...job.State) {
		t.Helper()
		b.sweepOnce()
		for i, j := range jobs {
			if rec, err := b.store.Job(t.Context(), j.ID); err != nil || rec.State != want[i] {
				t.Errorf("%s: %+v, %v, want it %s", j.Jobtype, rec, err, want[i])
			}
		}
	}
	states(job.Waiting, job.Waiting) // the other store may have a handler
	if err := e.handlers.refresh(e.backends[1]); err != nil {
		t.Fatal(err)
	}
	states(job.Waiting, job.Abandoned)
}

// TestHandlerWithoutStore: while the store is away, a handler is refused for this reason, although
// the guard kills the compiler that checks it.
func TestHandlerWithoutStore(t *testing.T) {
	s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	e := startEngine(t, t.TempDir(), s)
	defer e.Shutdown(context.Background())
	waitUntil(t, "the store is available", e.Health)
	s.isAway.Store(true)
	waitUntil(t, "the store is away", func() error {
		if e.backends[0].checkReachable() == nil {
			return errors.New("not yet")
		}
		return nil
	})
	e.guard.SetDeadline(time.Now().Add(-time.Second))
	for range 20 {
		err := e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "true"}})
		if !errors.Is(err, store.ErrAway) {
			t.Fatal(err)
		}
	}
}
