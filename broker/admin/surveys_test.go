package admin

import (
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker"
	"gloom/broker/server"
	"gloom/broker/settings"
)

// TestSurveysAreShared: requests that wait for a survey at the same time share one that has begun after
// all of them, and it is not kept.
func TestSurveysAreShared(t *testing.T) {
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	const requests = 50
	var all surveys
	var wg sync.WaitGroup
	taken := make([]*broker.Survey, requests)
	srv.Hub().View(func(*broker.Broker, int64) {
		for i := range taken {
			wg.Go(func() { taken[i] = all.take(srv.Hub()) })
		}
		for end := time.Now().Add(10 * time.Second); all.waiting.Load() < requests; {
			if time.Now().After(end) {
				t.Fatal("the requests did not begin")
			}
			time.Sleep(time.Millisecond)
		}
	})
	wg.Wait()
	different := map[*broker.Survey]bool{}
	for _, s := range taken {
		different[s] = true
	}
	if len(different) > 2 {
		t.Errorf("%d surveys for %d requests at once", len(different), requests)
	}
	if all.last != nil {
		t.Error("a survey is kept")
	}
}

// TestSlowSnapshotIsShared: requests that wait for a snapshot share it, even if it takes longer than the
// longest period between two snapshots.
func TestSlowSnapshotIsShared(t *testing.T) {
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	a := &API{srv: srv}
	var wg sync.WaitGroup
	takenAt := make([]time.Time, 10)
	srv.Hub().View(func(*broker.Broker, int64) {
		for i := range takenAt {
			wg.Go(func() { a.withSnapshot(func(snap *snapshot) { takenAt[i] = snap.takenAt }) })
		}
		time.Sleep(maxSnapshotPeriod + maxSnapshotPeriod/4)
	})
	wg.Wait()
	different := map[time.Time]bool{}
	for _, at := range takenAt {
		different[at] = true
	}
	if len(different) > 1 {
		t.Errorf("%d snapshots for %d requests at once", len(different), len(takenAt))
	}
}
