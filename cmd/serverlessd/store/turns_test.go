package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/cmd/internal/unique"
	. "gloom/cmd/serverlessd/store"
)

// TestRequestsLeaveRoom: while many requests change the store, a daemon still renews its locks soon,
// and a request that waits too long is told that there are many.
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.AddUnique(ctx, []KeyedEntry{keyedLine("a-x", string(ids.Next(1)))}, unique.Request{}, time.Now); !errors.Is(err, ErrBusy) || !errors.Is(err, ErrAway) || strings.Contains(err.Error(), "away") {
		t.Errorf("a request that gets no turn: %v", err)
	}
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
