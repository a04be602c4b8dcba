package probe

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

// dialSlowReader connects with a small receive buffer, so that the broker soon notices when the
// peer does not read.
func dialSlowReader(t tb, addr string) *conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
	}}
	c, err := d.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatalf("dial %s: %v", addr, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &conn{t, c, bufio.NewReader(c)}
}

// flood writes the same frame again and again, until the broker closes the connection.
func flood(t *testing.T, c *conn, wire func(n int) []byte, limit int) {
	t.Helper()
	end := time.Now().Add(2 * patience)
	for n := range limit {
		_ = c.net.SetWriteDeadline(time.Now().Add(patience))
		if _, err := c.net.Write(wire(n)); err != nil {
			if !isEnd(err) {
				t.Fatalf("after %d frames: %v, want the connection closed", n, err)
			}
			t.Logf("closed after %d frames", n)
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	// all frames are written; the close may still be on its way
	waitFor(t, "the connection of a peer that never reads is closed", func() error {
		if _, err := c.net.Write(wire(limit)); err == nil {
			return fmt.Errorf("still open after %d frames", limit)
		}
		return nil
	})
}

// TestSlowReadersAreClosed: the output that waits for a peer that does not read is bounded. At the bound
// the peer is closed; other peers are not affected.
func TestSlowReadersAreClosed(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	big := quote(strings.Repeat("s", 64<<10))
	for _, c := range []struct {
		name string
		do   func(t *testing.T, b *daemon)
	}{
		{"submitter that never reads its results", func(t *testing.T, b *daemon) {
			typ := freshName("slow")
			w := b.servingWorker(t, typ)
			finished := make(chan struct{})
			go func() {
				defer close(finished)
				for {
					f, err := w.next(2 * patience)
					if err != nil {
						return
					}
					if f.kind() == "job" && w.write(packFrame(`{"action":"respond","body":`+big+`}`)) != nil {
						return
					}
				}
			}()
			flood(t, dialSlowReader(t, b.submitAddr), func(n int) []byte {
				return packFrame(fmt.Sprintf(`{"action":"submit","id":"slow-%d","type":%q,"body":%s}`, n, typ, big))
			}, 4000)
			w.close()
			<-finished
		}},
		{"submitter that never reads its errors", func(t *testing.T, b *daemon) {
			batch := []byte(strings.Repeat(string(packFrame(`{"action":"frobnicate"}`)), 2000))
			flood(t, dialSlowReader(t, b.submitAddr), func(int) []byte { return batch }, 3000)
		}},
		{"worker that never reads its oks", func(t *testing.T, b *daemon) {
			batch := []byte(strings.Repeat(string(packFrame(`{"action":"join","type":"slow"}`)), 2000))
			flood(t, dialSlowReader(t, b.workerAddr), func(int) []byte { return batch }, 3000)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// The limit on jobs must not be reached before the limit on output.
			b := start(t, "--max-outbound=1MiB", "--max-bytes=64MiB")
			otherType := freshName("other")
			s, w := b.submitter(t), b.servingWorker(t, otherType)
			checkServes(t, s, w, otherType)
			base := b.usage().RSS
			stop := make(chan struct{})
			watched := make(chan int64, 1)
			go func() {
				f := &parallelT{t}
				peak := int64(0)
				defer func() { watched <- peak }()
				s, w := submitter{&conn{f, s.net, s.in}}, worker{&conn{f, w.net, w.in}}
				for {
					select {
					case <-stop:
						return
					default:
					}
					begin := time.Now()
					checkServes(f, s, w, otherType)
					if d := time.Since(begin); d > stallTime {
						f.Errorf("a bystander's round took %s", d)
					}
					peak = max(peak, b.usage().RSS)
					time.Sleep(10 * time.Millisecond)
				}
			}()
			c.do(t, b)
			close(stop)
			peak := <-watched
			t.Logf("resident: %d MiB before, %d MiB at the peak", base/mib, peak/mib)
			if limit := base + 192*mib; !throwaway.Race && peak > limit {
				t.Errorf("resident memory rose to %d MiB, more than %d", peak/mib, limit/mib)
			}
			if t.Failed() {
				return
			}
			checkServes(t, s, w, otherType)
			b.checkAlive(t)
		})
	}
}

// TestUnreadWorkerDelaysOnlyItsJob: a worker that has stopped reading delays only its own job.
func TestUnreadWorkerDelaysOnlyItsJob(t *testing.T) {
	t.Parallel()
	b := start(t)
	typ, otherType := freshName("unread"), freshName("other")
	w := worker{dialSlowReader(t, b.workerAddr)}
	w.join(typ)
	s := b.submitter(t)
	body := quote(strings.Repeat("d", 8<<20))
	id := s.submitFresh(typ, body) // one frame is always sent, however big it is
	w2, s2 := b.servingWorker(t, otherType), b.submitter(t)
	for range 100 {
		checkServes(t, s2, w2, otherType)
	}
	// the worker reads at last: nothing is missing
	if got, gotBody := w.nextJob(); got != id || gotBody != body {
		t.Fatalf("job %q of %d bytes", got, len(gotBody))
	}
	w.respond(`1`)
	s.wantResult(id, `1`)
	// if the worker dies, another worker gets the job
	id = s.submitFresh(typ, body)
	successor := b.servingWorker(t, typ)
	w.reset()
	successor.wantJob(id)
	successor.respond(`2`)
	s.wantResult(id, `2`)
}

// TestBulkyJobsArriveAsRead: a worker whose jobs exceed the bound on its output gets them as it reads.
// A worker that never reads is closed after a time, and others get its jobs.
func TestBulkyJobsArriveAsRead(t *testing.T) {
	t.Parallel()
	const jobs = 100 // 100 jobs of 256 KiB are 25 MiB; max-outbound is 16 MiB
	body := quote(strings.Repeat("p", 256<<10))
	b := start(t, "--max-outbound=16MiB")
	for _, c := range []struct {
		name  string
		reads bool
	}{{"reads late", true}, {"never reads", false}} {
		t.Run(c.name, func(t *testing.T) {
			typ := freshName("bulky")
			w := worker{dialSlowReader(t, b.workerAddr)}
			fields := ""
			if !c.reads {
				fields = `,"heartbeat_ms":500`
			}
			w.hello(fields)
			w.joinWith(typ, fmt.Sprintf(`,"prefetch":%d`, jobs))
			s := b.submitter(t)
			want := map[string]bool{}
			for range jobs {
				want[s.submitFresh(typ, body)] = true
			}
			if !c.reads {
				w = b.workerWithPrefetch(t, typ, fmt.Sprint(jobs))
			} else if out := b.readLedger(t, typ)["running"]; out == 0 || out >= jobs {
				t.Errorf("%d jobs are out on a worker that has not read them, want some of %d", out, jobs)
			}
			for len(want) > 0 {
				id, got := w.nextJob()
				if got != body || !want[id] {
					t.Fatalf("job %q of %d bytes", id, len(got))
				}
				delete(want, id)
			}
			w.ping()
			w.close()
		})
	}
}
