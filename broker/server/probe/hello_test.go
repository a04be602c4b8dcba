package probe

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// onBoth runs a check on a fresh connection to either port.
func onBoth(t *testing.T, b *daemon, do func(t *testing.T, c *conn)) {
	t.Helper()
	for _, port := range []struct{ name, addr string }{{"submit", b.submitAddr}, {"work", b.workerAddr}} {
		t.Run(port.name, func(t *testing.T) {
			t.Parallel()
			do(t, dial(t, port.addr))
		})
	}
}

func TestHelloIsAnswered(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("reply", func(t *testing.T) {
		onBoth(t, b, func(t *testing.T, c *conn) {
			f := c.hello(`,"client":"probe/1.0"`)
			if f.sortedKeys() != "limits ok server" {
				t.Errorf("keys of %s", f)
			}
			if !strings.HasPrefix(f.text("server"), "gloomd/") {
				t.Errorf("server %q", f.text("server"))
			}
			var l map[string]json.Number
			if err := json.Unmarshal(f.keys["limits"], &l); err != nil {
				t.Fatalf("limits of %s: %v", f, err)
			}
			if l["max_frame"] != "16777216" || l["max_id"] != "1024" {
				t.Errorf("limits %v", l)
			}
			if n, err := l["max_prefetch"].Int64(); err != nil || n < 1 {
				t.Errorf("limits %v", l)
			}
		})
	})
	t.Run("says --max-frame", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-frame=64KiB")
		if l := helloLimits(t, b); l["max_frame"] != 65536 {
			t.Errorf("limits %v", l)
		}
	})
	for _, fields := range []string{``, `,"token":null,"client":null,"heartbeat_ms":null`, `,"heartbeat_ms":0`,
		`,"client":""`, `,"client":"é\ud83d\ude00"`, `,"token":"ignored without tokens"`, `,"id":5,"type":[],"body":{},"extra":1`} {
		t.Run("accepted"+fields, func(t *testing.T) {
			onBoth(t, b, func(t *testing.T, c *conn) { c.hello(fields); c.wantQuiet() })
		})
	}
	t.Run("twice", func(t *testing.T) {
		onBoth(t, b, func(t *testing.T, c *conn) {
			c.hello(``)
			c.send(`{"action":"hello"}`)
			checkReason(t, c.wantError("invalid_state"), "hello_not_first")
			c.ping()
		})
	})
	for _, first := range []string{`{"action":"ping"}`, `{"action":"pong"}`, `{"action":"frobnicate"}`, `{}`, `[]`} {
		t.Run("after "+first, func(t *testing.T) {
			onBoth(t, b, func(t *testing.T, c *conn) {
				c.writeRaw(packFrame(first))
				if !strings.Contains(first, "pong") {
					c.recv()
				}
				c.send(`{"action":"hello"}`)
				checkReason(t, c.wantError("invalid_state"), "hello_not_first")
				c.ping()
			})
		})
	}
	t.Run("after a submit and a join", func(t *testing.T) {
		typ := freshName("hello")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		checkServes(t, s, w, typ)
		for _, c := range []*conn{s.conn, w.conn} {
			c.send(`{"action":"hello"}`)
			checkReason(t, c.wantError("invalid_state"), "hello_not_first")
		}
		checkServes(t, s, w, typ)
	})
	t.Run("refused, then again", func(t *testing.T) {
		onBoth(t, b, func(t *testing.T, c *conn) {
			for _, badHello := range []struct{ fields, code, names string }{
				{`,"token":5`, "invalid_type", "token"},
				{`,"token":{}`, "invalid_type", "token"},
				{`,"client":[]`, "invalid_type", "client"},
				{`,"client":1`, "invalid_type", "client"},
				{`,"heartbeat_ms":"often"`, "invalid_type", "heartbeat_ms"},
				{`,"heartbeat_ms":1000.0`, "invalid_type", "heartbeat_ms"},
				{`,"heartbeat_ms":true`, "invalid_type", "heartbeat_ms"},
				{`,"heartbeat_ms":1e3`, "invalid_type", "heartbeat_ms"},
				{`,"heartbeat_ms":1`, "invalid_value", "heartbeat_ms"},
				{`,"heartbeat_ms":99`, "invalid_value", "heartbeat_ms"},
				{`,"heartbeat_ms":3600001`, "invalid_value", "3600000"},
				{`,"heartbeat_ms":-1`, "invalid_value", "heartbeat_ms"},
				{`,"heartbeat_ms":99999999999999999999`, "invalid_value", "heartbeat_ms"},
			} {
				c.send(`{"action":"hello"%s}`, badHello.fields)
				checkReason(t, c.wantError(badHello.code), badHello.names)
			}
			c.hello(`,"heartbeat_ms":3600000`)
			c.wantSilence(50 * ms)
		})
	})
}

func TestPingIsAnsweredAnyTime(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("any time", func(t *testing.T) {
		typ := freshName("ping")
		s, w := b.submitter(t), b.worker(t)
		s.ping()
		w.ping()
		w.join(typ)
		w.ping()
		id := s.submitFresh(typ, `1`)
		s.ping()
		w.wantJob(id)
		w.ping()
		w.send(`{"action":"ping","id":5,"body":[],"type":7}`)
		w.wantOK()
		w.respond(`1`)
		s.wantResult(id, `1`)
		w.ping()
	})
	t.Run("pong has no reply, and anyone may send it", func(t *testing.T) {
		onBoth(t, b, func(t *testing.T, c *conn) {
			for range 5 {
				c.send(`{"action":"pong"}`)
			}
			c.send(`{"action":"pong","id":5,"reason":[]}`)
			c.ping()
			c.wantQuiet()
		})
	})
	t.Run("a thousand pipelined", func(t *testing.T) {
		onBoth(t, b, func(t *testing.T, c *conn) {
			c.writeRaw([]byte(strings.Repeat(string(packFrame(`{"action":"ping"}`))+string(packFrame(`{"action":"pong"}`)), 1000)))
			for range 1000 {
				c.wantOK()
			}
			c.wantQuiet()
		})
	})
}

// wantPing reads the next frame, which must be exactly a ping.
func wantPing(t *testing.T, c *conn) {
	t.Helper()
	if f := c.want("ping"); f.sortedKeys() != "action" {
		t.Fatalf("got %s", f)
	}
}

// TestHeartbeat: in cases in which a peer must stay connected, two beats (heartbeat_ms) are
// longer than any stall of the test's process.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("answered", func(t *testing.T) {
		onBoth(t, b, func(t *testing.T, c *conn) {
			begin := time.Now()
			c.hello(`,"heartbeat_ms":2000`)
			for range 3 {
				wantPing(t, c)
				c.send(`{"action":"pong"}`)
			}
			checkNotBefore(t, begin, 5000*ms, "three beats of 2 s")
			checkSoonAfter(t, begin, 6000*ms, "three beats of 2 s")
		})
	})
	t.Run("not answered", func(t *testing.T) {
		onBoth(t, b, func(t *testing.T, c *conn) {
			begin := time.Now()
			c.hello(`,"heartbeat_ms":150`)
			for {
				f, err := c.next(patience)
				if err != nil {
					if !isEnd(err) {
						t.Fatalf("read: %v", err)
					}
					break
				}
				if f.kind() != "ping" {
					t.Fatalf("dropped with %s, want no frame", f)
				}
			}
			checkNotBefore(t, begin, 300*ms, "dropped")
			checkSoonAfter(t, begin, 450*ms, "dropped")
		})
	})
	t.Run("any byte will do", func(t *testing.T) {
		onBoth(t, b, func(t *testing.T, c *conn) {
			c.hello(`,"heartbeat_ms":2000`)
			begin := time.Now()
			for _, octet := range packFrame(`{"action":"ping"}`) {
				c.writeRaw([]byte{octet}) // the 21 bytes of the frame arrive over much more than two beats
				time.Sleep(220 * ms)
			}
			checkNotBefore(t, begin, 4400*ms, "trickled")
			for {
				f := c.recv()
				if f.kind() == "ok" {
					break
				}
				if f.kind() != "ping" {
					t.Fatalf("got %s", f)
				}
			}
		})
	})
	t.Run("whatever else is sent", func(t *testing.T) {
		onBoth(t, b, func(t *testing.T, c *conn) {
			c.hello(`,"heartbeat_ms":2000`)
			pings, oks := 0, 0
			begin := time.Now()
			for time.Since(begin) < 7000*ms {
				c.send(`{"action":"ping"}`)
				for {
					f := c.recv()
					if f.kind() == "ok" {
						oks++
						break
					}
					if f.kind() != "ping" {
						t.Fatalf("got %s", f)
					}
					pings++
				}
				time.Sleep(5 * ms)
			}
			if d := time.Since(begin); pings < 2 || pings > int(d/(2000*ms))+1 {
				t.Errorf("%d pings among %d oks in %v of beats of 2 s", pings, oks, d)
			}
		})
	})
	t.Run("at work", func(t *testing.T) {
		t.Parallel()
		typ := freshName("beat")
		w, s := b.worker(t), b.submitter(t)
		w.hello(`,"heartbeat_ms":2000`)
		w.join(typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		for range 3 {
			wantPing(t, w.conn)
			w.send(`{"action":"pong"}`)
		}
		w.send(`{"action":"respond","body":2}`)
		for {
			f := w.recv()
			if f.kind() == "ok" {
				break
			}
			if f.kind() != "ping" {
				t.Fatalf("got %s", f)
			}
		}
		s.wantResult(id, `2`)
	})
	t.Run("a silent worker is lost", func(t *testing.T) {
		t.Parallel()
		typ := freshName("beat")
		w, s := b.worker(t), b.submitter(t)
		w.hello(`,"heartbeat_ms":2000`)
		w.join(typ)
		id := s.submitFresh(typ, `1`)
		f := w.recv()
		for f.kind() == "ping" {
			f = w.recv()
		}
		if f.text("id") != id {
			t.Fatalf("got %s", f)
		}
		successor := b.servingWorker(t, typ)
		successor.wantJob(id)
		successor.respond(`1`)
		s.wantResult(id, `1`)
	})
	t.Run("a worker that does not answer a ping gets no jobs until it does", func(t *testing.T) {
		t.Parallel()
		typ := freshName("beat")
		w, other, s := b.worker(t), b.worker(t), b.submitter(t)
		w.hello(`,"heartbeat_ms":2000`)
		w.join(typ) // it will have been idle longest
		other.join(typ)
		wantPing(t, w.conn)
		time.Sleep(500 * ms) // more than an eighth of a beat, and much less than two beats
		other.wantJob(s.submitFresh(typ, `1`))
		w.send(`{"action":"pong"}`)
		w.wantJob(s.submitFresh(typ, `2`))
	})
	t.Run("a silent submitter is gone", func(t *testing.T) {
		t.Parallel()
		s := b.submitter(t)
		s.hello(`,"heartbeat_ms":2000`)
		id := freshName("beat")
		s.sendSubmit(id, freshName("beat"), `1`, `,"ack":false`)
		b.waitState(t, id, "queued")
		b.waitState(t, id, "")
	})
	t.Run("who did not ask is never pinged, nor dropped", func(t *testing.T) {
		onBoth(t, b, func(t *testing.T, c *conn) {
			c.hello(`,"heartbeat_ms":0`)
			c.wantSilence(500 * ms)
			c.ping()
		})
	})
	t.Run("many", func(t *testing.T) {
		t.Parallel()
		runParallel(t, 100, func(f *parallelT, i int) {
			c := dial(f, []string{b.submitAddr, b.workerAddr}[i%2])
			c.hello(fmt.Sprintf(`,"heartbeat_ms":%d`, 2000+i))
			for range 3 {
				if fr := c.recv(); fr.kind() != "ping" {
					f.Fatalf("got %s", fr)
				}
				c.send(`{"action":"pong"}`)
			}
			c.close()
		})
	})
}
