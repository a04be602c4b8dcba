package driver

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestRecheckAfterClose: if the connection is closed while NATS refuses a subject, a refusal on the next
// connection is checked again as well.
func TestRecheckAfterClose(t *testing.T) {
	nc, err := nats.Connect("nats://127.0.0.1:1", nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	d := &Driver{subjectRefused: true, recheckScheduled: true}
	d.nc.Store(nc)
	d.recheckSubjects()
	for deadline := time.Now().Add(5 * recheckAfter); ; time.Sleep(10 * time.Millisecond) {
		d.mu.Lock()
		scheduled := d.recheckScheduled
		d.mu.Unlock()
		if !scheduled {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no check comes any more, although one is said to be scheduled")
		}
	}
}
