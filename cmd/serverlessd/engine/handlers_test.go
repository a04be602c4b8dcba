package engine

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"

	"github.com/rs/zerolog"
)

// withStores is an engine of stores alone: none of its loops run.
func withStores(t *testing.T, n int) *Engine {
	t.Helper()
	e := &Engine{log: zerolog.New(io.Discard), wake: make(chan struct{}, 1), ids: job.NewIDs(job.NewSysid(), time.Now)}
	e.life, e.end = context.WithCancel(t.Context())
	e.handlers = newHandlers(e)
	for range n {
		s, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "jobs.db"))
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
	h := &job.Handler{ID: b.e.ids.Next(1).String(), Jobtype: jobtype, Source: job.Source{Lang: job.Shell, Body: body}}
	if err := b.store.PutHandler(t.Context(), h); err != nil {
		t.Fatal(err)
	}
}

// TestHandlersOfSeveralStores: a store that lacks some takes none away.
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
		if h, err := e.Handler(t.Context(), jobtype); err != nil || h.Body != want {
			t.Errorf("asked for %s: %+v, %v, want %s", jobtype, h, err, want)
		}
	}
}
