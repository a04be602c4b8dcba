package bridge

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gloom/cmd/internal/testing/storetest"
	"gloom/cmd/jobd/store"

	"github.com/rs/zerolog"
)

// fullStore reads and renews, but does not write while it is full, like a database with a
// full disk.
type fullStore struct {
	store.Store
	full     atomic.Bool
	renewals atomic.Int64
}

func (s *fullStore) Write(ctx context.Context, b store.Batch) (store.WriteResult, error) {
	if s.full.Load() && len(b.Finish) > 0 {
		return store.WriteResult{}, &store.AwayError{Err: errors.New("table is full")}
	}
	return s.Store.Write(ctx, b)
}

func (s *fullStore) Renew(ctx context.Context) error {
	s.renewals.Add(1)
	return s.Store.Renew(ctx)
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.String(), text)
}

// TestReadOnlyDatabase: a database counts as away until it accepts the writes that it has
// refused, however many leases are renewed and other rows written meanwhile, and the outage is
// logged once.
func TestReadOnlyDatabase(t *testing.T) {
	cfg := configFor(t, "a=2")
	cfg.Lease = testLease / 5
	script(t, &cfg, "echo $id")
	table, log := storetest.NewTable(), new(lockedBuffer)
	s := &fullStore{Store: table.Open(cfg.Name, cfg.Lease, store.Process{})}
	b, err := open(t.Context(), cfg, zerolog.New(log), nil, s)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	f := &fixture{t: t, table: table, Bridge: b}
	s.full.Store(true)
	f.insert(store.Waiting, "a", 1, 2)
	f.Poll(nil)
	eventually(t, "the daemon is ill", func() bool { return f.Health() != nil })
	for before := s.renewals.Load(); s.renewals.Load() < before+2; {
		if f.Health() == nil {
			t.Fatalf("it is healthy, and row 1 is %s:\n%s", f.status(1), log)
		}
	}
	s.full.Store(false)
	f.await(store.Done, 1, 2)
	eventually(t, "the daemon is well", func() bool { return f.Health() == nil })
	if away, back := log.count("the database is away"), log.count("the database is back"); away != 1 || back != 1 {
		t.Errorf("%d times away, %d times back", away, back)
	}
}
