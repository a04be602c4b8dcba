package driver

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker"
	"gloom/broker/fleet"
	"gloom/broker/hub"
)

// TestSendDoesNotSleep: event loops send, so they wait for the hub's lock and no longer.
func TestSendDoesNotSleep(t *testing.T) {
	h := hub.New(hub.Config{})
	defer h.Close()
	d := &Driver{hub: h, log: zerolog.Nop(), wake: make(chan struct{}, 1)}
	h.JoinFleet(func(core *broker.Broker, now int64, apply func([]broker.Effect)) hub.Fleet {
		d.machine = fleet.New(fleet.Config{Name: "a", MaxMessage: 256 << 10}, core, now, apply)
		return member{d.machine, d}
	})
	const hold = 200 * time.Millisecond
	locked := make(chan struct{})
	go h.View(func(*broker.Broker, int64) {
		close(locked)
		time.Sleep(hold)
	})
	<-locked
	begun := time.Now()
	member{d.machine, d}.Send()
	if took := time.Since(begun); took > hold+hold/2 {
		t.Errorf("Send took %v while the lock was held for %v", took, hold)
	}
}
