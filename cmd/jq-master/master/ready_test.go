package master

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// unreadableStore is a store that cannot be read.
type unreadableStore struct{ *store.Memory }

func (unreadableStore) Load(context.Context, store.LoadHandlers) error {
	return errors.New("the disk is on fire")
}

// watchedStore is a store that goes away and comes back when its test says so.
type watchedStore struct {
	unreadableStore
	watch chan func(awayErr error)
}

func (s watchedStore) Watch(changed func(awayErr error)) { s.watch <- changed }

// TestOutageIsLogged: the log says that the store is away, why, and that it is back.
func TestOutageIsLogged(t *testing.T) {
	var log bytes.Buffer
	s := watchedStore{unreadableStore{store.NewMemory()}, make(chan func(error), 1)}
	m := Open(Options{Limits: DefaultLimits(), Store: s, Log: zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.WarnLevel)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	changed := <-s.watch
	changed(errors.New("connection refused"))
	changed(nil)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, want := range []string{`"error":"connection refused","message":"the store is away;`, "the store is back"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in the log: %s", want, log.String())
		}
	}
}

// TestReadyNamesTheFault: a master that starts again and again after a fault names the fault.
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

// TestReadyNamesAllFaults: a master says everything that keeps it from working.
func TestReadyNamesAllFaults(t *testing.T) {
	m := Open(Options{Limits: DefaultLimits(), Store: store.NewMemory(), Log: zerolog.Nop()})
	keepAlive(m)
	var broker error
	m.broker = &brokerConn{broker: Broker{Health: func() error { return broker }}}
	m.machine.workersMayGetJobs = true
	if err := m.Ready(); err != nil {
		t.Fatal(err)
	}
	broker, m.machine.workersMayGetJobs, m.machine.awayErr = errors.New("the broker is gone"), false, errors.New("the store is gone")
	want := "store_unavailable: the store is gone; starting: the broker is gone"
	var first *job.Fault
	if err := m.Ready(); err == nil || err.Error() != want || !errors.As(err, &first) || first.Code != job.StoreUnavailable {
		t.Errorf("it says %v, want %v", err, want)
	}
}
