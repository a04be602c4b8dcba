package store_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gloom/cmd/internal/unique"
	. "gloom/cmd/serverlessd/store"
)

// TestRequestsLeaveRoom: while many requests change the store, a daemon still renews its locks soon.
func TestRequestsLeaveRoom(t *testing.T) {
	s, err := Open("sqlite:" + filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	own := OwnCalls(t.Context())
	if err := s.Reserve(own, testSysid, testTTL); err != nil {
		t.Fatal(err)
	}
	var requests sync.WaitGroup
	defer requests.Wait()
	for range 300 {
		line := keyedLine("a-x", string(ids.Next(1)))
		requests.Go(func() {
			_, _ = s.AddUnique(t.Context(), []KeyedEntry{line}, unique.Request{}, func() time.Time {
				time.Sleep(20 * time.Millisecond)
				return time.Now()
			})
		})
	}
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	for range 3 {
		if _, err := s.Renew(own, testSysid, testTTL, nil); err != nil {
			t.Fatal(err)
		}
	}
	if elapsed := time.Since(start); elapsed > 3*time.Second {
		t.Errorf("three renewals took %v", elapsed)
	}
}
