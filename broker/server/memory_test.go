package server

import (
	"fmt"
	"testing"

	"gloom/broker"
	"gloom/broker/settings"
)

// TestHistoryShrinks: the history of ended jobs shrinks to make room for waiting jobs, and
// may grow again once they are gone.
func TestHistoryShrinks(t *testing.T) {
	const mib = 1 << 20
	s := startServer(t, func(o *settings.Options) { o.MaxMemory, o.MaxBytes, o.History = 64*mib, 0, 16*mib })
	memory := func() (m broker.Memory) {
		s.trim()
		s.Hub().View(func(core *broker.Broker, _ int64) { m = core.Memory() })
		return m
	}
	end := func(n int) {
		s.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
			p := core.AddSubmitter()
			for i := range n {
				id := []byte(fmt.Sprint("end", i))
				core.Submit(now, p, &broker.Submission{ID: id, Type: []byte("t"), Body: []byte("1")})
				core.Cancel(now, p, id)
			}
			return nil
		})
	}
	if end(200_000); memory().History < 15*mib {
		t.Fatalf("%d bytes of history, want 16 MiB", memory().History)
	}
	var p broker.Peer
	s.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		p = core.AddSubmitter()
		body := make([]byte, 64<<10)
		for i := range 700 { // 44 MiB
			core.Submit(now, p, &broker.Submission{ID: []byte(fmt.Sprint("waits", i)), Type: []byte("t"), Body: body})
		}
		return nil
	})
	if m := memory(); m.History > 4*mib || m.Total() > 64*mib*3/4+mib {
		t.Errorf("%d bytes of history beside %d of all", m.History, m.Total())
	}
	s.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect { return core.RemovePeer(now, p) })
	for memory().Jobs() > 20*mib { // the jobs are freed in slices
	}
	memory() // sets the limit of the history again, now that all slices are freed
	if end(200_000); memory().History < 15*mib {
		t.Errorf("%d bytes of history once there is room again, want 16 MiB", memory().History)
	}
}
