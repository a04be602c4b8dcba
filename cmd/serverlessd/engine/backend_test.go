package engine

import (
	"context"
	"errors"
	"testing"

	"gloom/cmd/serverlessd/store"
)

// TestStoreErrorMeansAway: only an error of the store itself means that it is away.
func TestStoreErrorMeansAway(t *testing.T) {
	e := withStores(t, 1)
	b := e.backends[0]
	if _, _, err := e.Jobs(t.Context(), store.Query{Client: "a", Limit: 1}); err != nil || b.checkReachable() != nil {
		t.Fatalf("%v, %v", err, b.checkReachable())
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ask := range map[string]func() error{
		"jobs":    func() error { _, _, err := e.Jobs(gone, store.Query{Client: "a", Limit: 1}); return err },
		"handler": func() error { _, err := e.Handler(gone, "a-x", ""); return err },
		"delete":  func() error { _, err := e.DeleteHandler(gone, "a-x"); return err },
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
