package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// TestStoreErrorMeansAway: only an error of the store itself means that it is away.
func TestStoreErrorMeansAway(t *testing.T) {
	e := withStores(t, 1)
	b := e.backends[0]
	if _, _, err := e.Jobs(t.Context(), store.Query{Client: "a", Limit: 1}); err != nil || b.checkReachable() != nil {
		t.Fatalf("%v, %v", err, b.checkReachable())
	}
	cancelledCtx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ask := range map[string]func() error{
		"jobs":    func() error { _, _, err := e.Jobs(cancelledCtx, store.Query{Client: "a", Limit: 1}); return err },
		"handler": func() error { _, err := e.Handler(cancelledCtx, "a-x", ""); return err },
		"delete":  func() error { _, err := e.DeleteHandler(cancelledCtx, "a-x"); return err },
	} {
		if err := ask(); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := b.checkReachable(); err != nil {
			t.Errorf("after %s whose client is gone: %v", name, err)
		}
	}
	b.noteRequest(t.Context(), store.ErrAway)
	if !errors.Is(b.checkReachable(), store.ErrAway) {
		t.Error("the store is away, but reachable")
	}
}

// TestNoTurnAtStoreThatIsAway: a request that gets no turn because all turns wait for a store that
// is away is told this, and not that there are too many requests.
func TestNoTurnAtStoreThatIsAway(t *testing.T) {
	e := withStores(t, 1)
	b := e.backends[0]
	b.store = busyStore{Store: b.store}
	query := func() error { _, _, err := e.Jobs(t.Context(), store.Query{Client: "a", Limit: 1}); return err }
	b.noteAnswer(nil)
	if err := query(); !errors.Is(err, store.ErrBusy) || b.checkReachable() != nil {
		t.Errorf("the store answers: %v, %v", err, b.checkReachable())
	}
	b.noteAnswer(fmt.Errorf("%w: frozen", store.ErrAway))
	if err := query(); errors.Is(err, store.ErrBusy) || !errors.Is(err, store.ErrAway) {
		t.Errorf("the store is away: %v", err)
	}
}

// busyStore has no turns left for requests.
type busyStore struct{ store.Store }

func (busyStore) Jobs(context.Context, store.Query) ([]store.Record, job.ID, error) {
	return nil, "", fmt.Errorf("%w: %w", store.ErrBusy, context.DeadlineExceeded)
}

// TestChangeOfUnstoredJob: a request to change a job that no store takes does not wait forever.
func TestChangeOfUnstoredJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := job.NewIDSource(job.NewSysid(), time.Now)
		j, err := openJournal(t.TempDir(), nil, journal.Options{IDs: ids, Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		e := &Engine{ctx: t.Context(), journal: j, ids: ids, metrics: newMetrics(prometheus.NewRegistry())}
		id := add(t, e, "a-x", "1")[0]
		for name, change := range map[string]func(context.Context, job.ID) error{"delete": e.Delete, "hasten": e.Hasten} {
			if err := change(t.Context(), id); !errors.Is(err, store.ErrAway) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestCountsAtStoreThatGoesAway: a count that waited for another one, meanwhile the store went away,
// does not ask the store.
func TestCountsAtStoreThatGoesAway(t *testing.T) {
	e := withStores(t, 1)
	b := e.backends[0]
	gated := &gatedStore{Store: b.store, counting: newGate()}
	b.store = gated
	b.noteAnswer(nil)
	if err := b.transit.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	counted := make(chan error, 1)
	go func() {
		_, err := e.State(t.Context(), "a")
		counted <- err
	}()
	time.Sleep(50 * time.Millisecond) // it waits
	b.noteAnswer(store.ErrAway)
	b.transit.Release(1)
	select {
	case err := <-counted:
		if !errors.Is(err, store.ErrAway) {
			t.Error(err)
		}
	case <-gated.counting.reached:
		t.Error("the store was asked")
	}
}

// TestLostSysidWithoutJobs: the log does not say that jobs are stopped if there are no jobs.
func TestLostSysidWithoutJobs(t *testing.T) {
	for _, jobs := range []int{0, 2} {
		e := withStores(t, 1)
		e.cfg.Dir = t.TempDir()
		b := e.backends[0]
		var log bytes.Buffer
		b.log = zerolog.New(&log)
		sysid := e.ids.Sysid()
		ctx, cancel := context.WithCancelCause(t.Context())
		for range jobs {
			r := &run{sysid: sysid, batch: &batch{ctx: ctx, cancel: cancel}}
			b.runsInHand[e.ids.Next(1)] = r
		}
		b.loseSysid(sysid)
		if text := log.String(); strings.Contains(text, "run again") != (jobs > 0) || jobs > 0 != strings.Contains(text, `"jobs":2`) || context.Cause(ctx) != nil != (jobs > 0) {
			t.Errorf("with %d jobs: %s, %v", jobs, text, context.Cause(ctx))
		}
		cancel(nil)
	}
}

// TestLogOfWrongCounts: the log tells the types whose counts are wrong at first, ever fewer times after
// that, and again once they have been right.
func TestLogOfWrongCounts(t *testing.T) {
	e := withStores(t, 1)
	b := e.backends[0]
	var log bytes.Buffer
	b.log = zerolog.New(&log)
	b.store = &miscountedStore{Store: b.store, wrong: true}
	told := func() int { return strings.Count(log.String(), "counts of jobs are wrong") }
	for range 20 {
		b.sweepOnce()
	}
	if told() != 5 || !strings.Contains(log.String(), `"types":["a-x"]`) {
		t.Errorf("told %d times: %s", told(), &log)
	}
	for _, wrong := range []bool{false, true} {
		b.store.(*miscountedStore).wrong = wrong
		b.sweepOnce()
	}
	if told() != 6 {
		t.Errorf("told %d times after they were right", told())
	}
}

// miscountedStore finds the counts of a-x wrong while wrong is set.
type miscountedStore struct {
	store.Store

	wrong bool
}

func (s *miscountedStore) Sweep(context.Context, store.SweepOptions) (r store.SweepResult, err error) {
	if s.wrong {
		r.Miscounted, r.Imbalance = []string{"a-x"}, 1
	}
	return r, nil
}

// TestLogOfUnsteadyStore: the log says once that a store is away, also at the start. The log says
// that the store is available after the store has answered for a while without an error.
func TestLogOfUnsteadyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := &Engine{cfg: Config{}, log: zerolog.New(&log), wake: make(chan struct{}, 1)}
		e.ctx, e.cancel = context.WithCancel(t.Context())
		defer e.cancel()
		logLines := func() (lines []string) {
			for line := range strings.Lines(log.String()) {
				_, line, _ = strings.Cut(line, `"message":"the store is `)
				line, _, _ = strings.Cut(line, `"`)
				lines = append(lines, line)
			}
			log.Reset()
			return lines
		}
		check := func(label string, want ...string) {
			t.Helper()
			if got := logLines(); strings.Join(got, ", ") != strings.Join(want, ", ") {
				t.Errorf("%s: the log says %q, want %q", label, got, want)
			}
		}
		const away, available = "away; jobs are waiting", "available"
		s, err := store.Open("sqlite:" + filepath.Join(t.TempDir(), "store.db"))
		if err != nil {
			t.Fatal(err)
		}
		b := newBackend(e, s)
		b.noteAnswer(store.ErrAway)
		b.noteAnswer(store.ErrAway)
		check("away at the start", away)
		for range 100 {
			b.noteAnswer(nil)
			time.Sleep(steadyTime / 2)
			b.noteAnswer(nil)
			b.noteAnswer(store.ErrAway)
		}
		check("unsteady")
		b.noteAnswer(nil)
		time.Sleep(steadyTime)
		b.noteAnswer(nil)
		check("steady", available)
		b.noteAnswer(store.ErrAway)
		check("away again", away)

		b = newBackend(e, s)
		b.noteAnswer(nil)
		check("available at the start", available)
	})
}
