package probe

import (
	"syscall"
	"testing"
	"time"
)

// A daemon that stood still for a while (a suspended machine, a starved one)
// must read what came meanwhile before it calls a peer silent.
func TestHeartbeatOfAStalledDaemon(t *testing.T) {
	t.Parallel()
	b := start(t)
	peers := map[string]*conn{"submit": b.submitter(t).conn, "work": b.worker(t).conn}
	for _, c := range peers {
		c.hello(`,"heartbeat_ms":1500`)
	}
	for _, c := range peers {
		beat(t, c)
		c.send(`{"action":"pong"}`)
	}
	b.Signal(syscall.SIGSTOP)
	defer b.Signal(syscall.SIGCONT)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * ms) {
		for _, c := range peers {
			c.send(`{"action":"pong"}`)
		}
	}
	b.Signal(syscall.SIGCONT)
	for port, c := range peers {
		t.Run(port, func(t *testing.T) {
			c.t = t
			for range 3 {
				beat(t, c)
				c.send(`{"action":"pong"}`)
			}
		})
	}
}
