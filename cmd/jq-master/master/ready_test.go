package master

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/jq-master/store"
)

// unreadableStore is a store that cannot be read.
type unreadableStore struct{ *store.Memory }

func (unreadableStore) Load(context.Context, store.LoadHandlers) error {
	return errors.New("the disk is on fire")
}

// TestReadyNamesTheFault: a master that starts again and again after a fault says which one.
func TestReadyNamesTheFault(t *testing.T) {
	m := Open(Options{Limits: DefaultLimits(), Store: unreadableStore{store.NewMemory()}, Log: zerolog.Nop()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	deadline := time.Now().Add(10 * time.Second)
	for err := m.Ready(); !strings.Contains(err.Error(), "the disk is on fire"); err = m.Ready() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
