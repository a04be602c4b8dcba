package probe

import (
	"crypto/tls"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// freeze stops the daemon's process for the given time, and calls do meanwhile.
func (d *daemon) freeze(long time.Duration, do func()) {
	d.Signal(syscall.SIGSTOP)
	defer d.Signal(syscall.SIGCONT)
	end := time.Now().Add(long)
	do()
	time.Sleep(time.Until(end))
}

// TestStallBlamesNoWorker: an answer arrives while the daemon's process is stopped. The daemon
// reads the answer before it checks whether the run has timed out, so that no worker is blamed for
// the stall. Runs without an answer time out soon after that.
func TestStallBlamesNoWorker(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	submit, work := freeAddr(t), freeAddr(t)
	b := startTLS(t, append(ca.flags(), "--submit-addr=tcp://"+submit, "--worker-addr=tcp://"+work, "--worker-addr=127.0.0.1:0")...)
	for port, dialled := range map[string]func() *conn{
		"plain": func() *conn { return dial(t, work) },
		"TLS":   func() *conn { return mustDialTLS(t, b.workerAddr, &tls.Config{RootCAs: ca.pool}) },
	} {
		t.Run(port, func(t *testing.T) {
			const workers, spread = 60, 5 * ms
			typ := freshName("stalled")
			s := submitter{dial(t, submit)}
			var stalledWorkers []worker
			for range workers {
				w := worker{dialled()}
				w.t = t
				w.join(typ)
				stalledWorkers = append(stalledWorkers, w)
			}
			for i := range workers {
				// When the daemon stops, some runs have almost no time left, and some have just
				// begun. The test does not wait for acks: on a busy machine, the first timeout
				// might pass during that wait.
				s.sendSubmit(freshName("job"), typ, fmt.Sprint(i), `,"timeout_ms":3000,"retries":0`)
				time.Sleep(spread)
			}
			b.freeze(4*time.Second, func() {
				for _, w := range stalledWorkers[1:] {
					w.send(`{"action":"respond","body":1}`)
				}
			})
			resumedAt := time.Now()
			failures := 0
			for openJobs := workers; openJobs > 0; {
				switch f := s.recv(); f.kind() {
				case "ack":
				case "result":
					openJobs--
				default:
					openJobs--
					failures++
				}
			}
			if failures != 1 {
				t.Errorf("%d of %d jobs failed, want the one that was not answered", failures, workers)
			}
			checkSoonAfter(t, resumedAt, 4000*ms, "the one that was not answered")
		})
	}
}

// TestTokenDuringStallIsNotLate: a token that arrives while the daemon is stopped is not too late.
func TestTokenDuringStallIsNotLate(t *testing.T) {
	t.Parallel()
	b := start(t, "--token-file="+tokenFile(t, tokenLines))
	c := dial(t, b.submitAddr)
	time.Sleep(ms) // enough for the daemon to accept the connection
	b.freeze(11*time.Second, func() { c.send(`{"action":"hello","token":"sub-1"}`) })
	if f := c.recv(); string(f.keys["ok"]) != "true" {
		t.Fatalf("hello: %s", f)
	}
	c.ping()
}

// TestPongsDuringStallCount: a peer that sends nothing but pongs does not count as silent while
// the daemon sends no pings.
func TestPongsDuringStallCount(t *testing.T) {
	t.Parallel()
	b := start(t)
	for range 5 {
		c := dial(t, b.workerAddr)
		c.hello(`,"heartbeat_ms":400`)
		for range 2 {
			wantPing(t, c)
			c.send(`{"action":"pong"}`)
		}
		b.freeze(1500*ms, func() {})
		for range 3 {
			wantPing(t, c)
			c.send(`{"action":"pong"}`)
		}
	}
}

// TestStallMakesNoPeerSilent: after a stop (of a suspended or overloaded machine), the
// daemon must read what has arrived before it considers a peer silent.
func TestStallMakesNoPeerSilent(t *testing.T) {
	t.Parallel()
	b := start(t)
	peers := map[string]*conn{"submit": b.submitter(t).conn, "work": b.worker(t).conn}
	for _, c := range peers {
		c.hello(`,"heartbeat_ms":1500`)
	}
	for _, c := range peers {
		wantPing(t, c)
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
	// Handle all peers in each beat: the daemon may close a peer that sends no pong for three
	// beats.
	for range 3 {
		for _, c := range peers {
			wantPing(t, c)
			c.send(`{"action":"pong"}`)
		}
	}
}
