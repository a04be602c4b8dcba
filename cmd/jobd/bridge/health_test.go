package bridge

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gloom/cmd/internal/testing/storetest"
	"gloom/cmd/jobd/bridge/queue"
	"gloom/cmd/jobd/store"

	"github.com/rs/zerolog"
)

// fullStore reads and renews, but does not write while it is full, like a database with a
// full disk.
type fullStore struct {
	store.Store
	isFull   atomic.Bool
	renewals atomic.Int64
}

func (s *fullStore) Write(ctx context.Context, b store.Batch) (store.WriteResult, error) {
	if s.isFull.Load() && len(b.FinishRows) > 0 {
		return store.WriteResult{}, &store.AwayError{Err: errors.New("table is full")}
	}
	return s.Store.Write(ctx, b)
}

func (s *fullStore) Renew(ctx context.Context) error {
	s.renewals.Add(1)
	return s.Store.Renew(ctx)
}

// lockedBuffer is a buffer that several goroutines may use.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) countText(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.String(), text)
}

// TestReadOnlyDatabaseCountsAsAway: a database counts as away until it accepts the writes that it
// has refused. This holds however many leases are renewed and other rows written meanwhile. The
// outage is logged once.
func TestReadOnlyDatabaseCountsAsAway(t *testing.T) {
	cfg := configFor(t, "a=2")
	cfg.Lease = testLease / 5
	writeLauncher(t, &cfg, "echo $id")
	table, log := storetest.NewTable(), new(lockedBuffer)
	s := &fullStore{Store: table.Open(cfg.Name, cfg.Lease, store.Process{})}
	b, err := open(t.Context(), cfg, zerolog.New(log), nil, s)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	f := &fixture{t: t, table: table, Bridge: b}
	s.isFull.Store(true)
	f.insert(store.Waiting, "a", 1, 2)
	f.Poll(nil)
	eventually(t, "the daemon is ill", func() bool { return f.Health() != nil })
	for before := s.renewals.Load(); s.renewals.Load() < before+2; {
		if f.Health() == nil {
			t.Fatalf("it is healthy, and row 1 is %s:\n%s", f.rowStatus(1), log)
		}
	}
	s.isFull.Store(false)
	f.await(store.Done, 1, 2)
	eventually(t, "the daemon is well", func() bool { return f.Health() == nil })
	if awayCount, backCount := log.countText("the database is away"), log.countText("the database is back"); awayCount != 1 || backCount != 1 {
		t.Errorf("%d times away, %d times back", awayCount, backCount)
	}
}

// hangingStore is a store whose Renew gets no answer.
type hangingStore struct {
	store.Store
	isRenewing chan struct{}
}

func (s hangingStore) Renew(ctx context.Context) error {
	close(s.isRenewing)
	<-ctx.Done()
	return &store.AwayError{Err: ctx.Err()}
}

// TestStopIsNoOutage: a statement that a stop has cancelled is not told as an outage of the database.
func TestStopIsNoOutage(t *testing.T) {
	cfg, log := configFor(t), new(lockedBuffer)
	cfg.Lease = time.Hour
	s := hangingStore{storetest.NewTable().Open(cfg.Name, cfg.Lease, store.Process{}), make(chan struct{})}
	b, err := open(t.Context(), cfg, zerolog.New(log), nil, s)
	if err != nil {
		t.Fatal(err)
	}
	<-s.isRenewing
	if err := b.Shutdown(t.Context()); err != nil || log.countText("away") > 0 {
		t.Errorf("%v\n%s", err, log)
	}
}

// lockedTable is a store whose table is locked: Accept waits until its context ends.
type lockedTable struct{ store.Store }

func (lockedTable) Accept(ctx context.Context, _ []store.AcceptRequest, _ int) (store.Page, error) {
	<-ctx.Done()
	return store.Page{}, ctx.Err()
}

// TestSlowFetchIsTold: while a fetch waits a long time for a locked table, the daemon reports that
// rows cannot be fetched.
func TestSlowFetchIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bridge{
			log: zerolog.Nop(), store: lockedTable{}, metrics: newMetrics(), fetches: make(chan []queue.FetchRequest, 1),
			fetchHealth: health{condition: "rows cannot be fetched"},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.fetchLoop(ctx)
		}()
		b.fetches <- []queue.FetchRequest{{Target: "a"}}
		time.Sleep(slowFetch - time.Second)
		if err := b.fetchHealth.currentErr(); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		if err := b.fetchHealth.currentErr(); !errors.Is(err, errSlowFetch) || !strings.Contains(err.Error(), "rows cannot be fetched for 2s") {
			t.Error(err)
		}
		cancel()
		<-ended
		if err := b.fetchHealth.currentErr(); errors.Is(err, errSlowFetch) {
			t.Error("the outcome of the fetch is not noted:", err)
		}
	})
}
