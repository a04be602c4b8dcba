package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

// TestSeveralDaemons: several daemons use one store at the same time. Every job ends once,
// whichever daemon runs it, and the counts are right whatever has happened.
func TestSeveralDaemons(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() Store) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		const daemons, jobs = 3, 60
		var mu sync.Mutex
		ended := make(map[job.ID]int)
		var wg sync.WaitGroup
		for d := range daemons {
			s := open()
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(d)))
				owner := fmt.Sprintf("%ddaemo", d)
				ids := job.NewIDSource(owner, time.Now)
				ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
				defer cancel()
				// repeatWhileAway repeats an action that failed because of other daemons.
				repeatWhileAway := func(f func() error) {
					for {
						err := f()
						if err == nil {
							return
						}
						if !errors.Is(err, ErrAway) || ctx.Err() != nil {
							t.Error(err)
							return
						}
					}
				}
				var entries []journal.Entry
				for i := range jobs {
					entries = append(entries, journal.Entry{ID: ids.Next(1), Jobtype: fmt.Sprintf("a-%d", i%3), Payload: []byte("p"), Accepted: time.Now(), End: int64(i + 1)})
				}
				for at := 0; at < jobs; at += 30 {
					repeatWhileAway(func() error {
						_, err := s.Ingest(ctx, journal.Range{Segment: owner, From: int64(at), To: int64(at + 30)}, entries[at:at+30], time.Now)
						return err
					})
				}
				for ctx.Err() == nil {
					mu.Lock()
					left := daemons*jobs - len(ended)
					mu.Unlock()
					if left == 0 {
						return
					}
					var taken []TakenJob
					repeatWhileAway(func() (err error) {
						taken, err = s.Take(ctx, TakeRequest{Sysid: owner, Jobtype: fmt.Sprintf("a-%d", r.IntN(3)), N: 1 + r.IntN(9), TTL: testTTL})
						return err
					})
					var ends []RunEnd
					for _, j := range taken {
						e := RunEnd{Run: j.Run, Action: EndArchive, Code: job.CodeOK, Status: 200}
						switch r.IntN(6) {
						case 0:
							e = RunEnd{Run: j.Run, Action: EndRetry, Code: job.CodeError, Status: 500}
						case 1:
							e = RunEnd{Run: j.Run, Action: EndGiveBack}
						}
						ends = append(ends, e)
					}
					var counted []bool
					repeatWhileAway(func() (err error) {
						counted, err = s.End(ctx, owner, ends)
						return err
					})
					mu.Lock()
					for i, e := range ends {
						if e.Action == EndArchive && i < len(counted) && counted[i] {
							ended[e.ID]++
						}
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for id, n := range ended {
			if n != 1 {
				t.Errorf("%s ended %d times", id, n)
			}
		}
		var sum Counts
		s := open()
		for i := range 3 {
			c := counts(t, s, fmt.Sprintf("a-%d", i))
			sum.Added, sum.OK = sum.Added+c.Added, sum.OK+c.OK
		}
		checkEqual(t, "counts", sum, Counts{Added: daemons * jobs, OK: daemons * jobs})
		checkEqual(t, "the counts are off by", sweep(t, s, laxSweep).Imbalance, 0)
	})
}

// testTimeout bounds every wait, even on a busy machine.
const testTimeout = 45 * time.Second

// TestStoppedServerIsAway: a server that is stopped, is killed or hangs counts as away. When it is
// back, it has everything that was written.
func TestStoppedServerIsAway(t *testing.T) {
	server, err := mariadbtest.Start(mariadbtest.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	s, err := Open(address(t, server))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ingest(t, s, entry("a-x", "1"))
	for name, outage := range map[string]struct{ begin, end func() }{
		"stopped": {server.Stop, func() { launch(t, server) }},
		"killed":  {server.Kill, func() { launch(t, server) }},
		"frozen":  {server.Freeze, server.Thaw},
	} {
		outage.begin()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := s.Take(ctx, TakeRequest{Sysid: testSysid, Jobtype: "a-x", N: 1, TTL: testTTL})
		cancel()
		if !errors.Is(err, ErrAway) {
			t.Errorf("%s: %v", name, err)
		}
		outage.end()
		for deadline := time.Now().Add(testTimeout); ; time.Sleep(10 * time.Millisecond) {
			if _, err = s.Counts(t.Context(), ""); err == nil {
				break
			} else if !errors.Is(err, ErrAway) || time.Now().After(deadline) {
				t.Fatalf("%s, and then: %v", name, err)
			}
		}
	}
	checkEqual(t, "counts", counts(t, s, "a-x").Added, 1)
}

func launch(t *testing.T, server *mariadbtest.Server) {
	t.Helper()
	if err := server.Launch(); err != nil {
		t.Fatal(err)
	}
}
