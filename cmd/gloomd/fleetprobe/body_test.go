package fleetprobe

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"gloom/broker/admin/api"
)

func TestLentBodiesAreKept(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		w, s := newWorker(t, b, `"type":`+quote(typ)), newSubmitter(t, a)
		for i, body := range []string{
			`null`, `true`, `false`, `0`, `-0.0`, `1e400`, `123456789012345678901234567890.5E-7`, `""`, `"\u00e9\ud83d\ude00 é \u0000"`, `[]`, `{}`,
			`{"b":1,"a":2,"b":3}`, `[ 1 ,	2 ]`, `{"id":"x","error":"y","action":"cancel","body":null}`, `"` + strings.Repeat("x", 5000) + `"`,
			strings.Repeat("[", 500) + strings.Repeat("]", 500),
		} {
			id := fmt.Sprint("body", i)
			s.wantOK(`{"action":"submit","id":"%s","type":%s,"body":%s}`, id, quote(typ), body)
			if f := w.nextJob(); string(f.raw) != fmt.Sprintf(`{"action":"job","id":"%s","type":%s,"body":%s}`, id, quote(typ), body) {
				t.Errorf("the worker got %s, want the body %s", f, body)
			}
			w.wantOK(`{"action":"respond","body":%s}`, body)
			if f := s.wantEnd(id, ""); string(f.raw) != fmt.Sprintf(`{"id":"%s","body":%s}`, id, body) {
				t.Errorf("the submitter got %s, want the body %s", f, body)
			}
		}
	})
}

func TestHostileNamesCrossFleet(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		long := strings.Repeat("n", 1000-len(typeOfTest(t))) // with the name of the type, at most 1024 bytes
		for _, name := range []string{
			".", "..", ">", "*", "a.>", "*.b", " ", "a b", "\t", "\r\nPUB x 0\r\n", "\x00", "$SYS.>", "_INBOX.x", `"`, `\`, "/", "é", "😀", "\u2028", "%2e", long,
			"gloom", "gloom.a.b", "{}", "null",
		} {
			typ := typeOfTest(t) + name
			w, s := newWorker(t, b, `"type":`+quote(typ)), newSubmitter(t, a)
			s.wantOK(`{"action":"submit","id":%s,"type":%s,"body":1}`, quote(name), quote(typ))
			if f := w.nextJob(); f.ID != name || f.Type != typ {
				t.Errorf("%q: the worker got %s", name, f)
			}
			w.wantOK(`{"action":"respond","body":2}`)
			s.wantEnd(name, "")
			w.close()
			s.close()
		}
		// Two spellings of a name (as JSON) are the same name.
		typ := typeOfTest(t) + "-é"
		w, s := newWorker(t, b, `"type":"`+typ[:len(typ)-2]+`\u00e9"`), newSubmitter(t, a)
		s.wantOK(`{"action":"submit","id":"\u00e9","type":%s,"body":1}`, quote(typ))
		s.wantRefusal("id_exists", `{"action":"submit","id":"é","type":%s,"body":1}`, quote(typ))
		w.nextJob()
		w.wantOK(`{"action":"respond","body":2}`)
		s.wantEnd("é", "")
	})
}

func TestBigBodiesAreLent(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		w, s := newWorker(t, b, `"prefetch":3,"type":`+quote(typ)), newSubmitter(t, a)
		r := rand.New(rand.NewChaCha8([32]byte{1}))
		const mib = 1 << 20
		sizes := []int{100_000, 256 << 10, mib - 200, mib - 1, mib, mib + 1, 4 * mib, 16*mib - 200}
		if testing.Short() {
			sizes = []int{256 << 10, mib, 16*mib - 200}
		}
		for _, n := range sizes {
			text := make([]byte, n-2)
			for i := range text {
				text[i] = byte('0' + r.IntN(75))
				if text[i] == '\\' {
					text[i] = '/'
				}
			}
			body := `"` + string(text) + `"`
			want := sha256.Sum256([]byte(body))
			s.wantOK(`{"action":"submit","id":"big","type":%s,"body":%s}`, quote(typ), body)
			s.wantOK(`{"action":"submit","id":"small","type":%s,"body":1}`, quote(typ))
			for oks := 0; oks < 2; {
				f := w.next()
				if f.OK {
					oks++
					continue
				}
				if f.Action != "job" || f.ID == "big" && sha256.Sum256(f.Body) != want {
					t.Fatalf("%d bytes: the worker got %d, %s", n, len(f.Body), f)
				}
				w.send(`{"action":"respond","id":%s,"body":%s}`, quote(f.ID), f.Body)
			}
			for range 2 {
				f := s.next()
				if !f.isResult() || f.ID == "big" && sha256.Sum256(f.Body) != want {
					t.Fatalf("%d bytes: the end is %s", n, f)
				}
			}
		}
	})
}

// More bodies than NATS buffers for a slow connection are lent in parts.
func TestHeavyBurstIsLentInParts(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		const n, size = 500, 256 << 10
		body := quote(strings.Repeat("h", size))
		if err := a.ask("POST", "/v1/types/"+typ+"/pause", struct{}{}, nil); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			s.wantOK(`{"action":"submit","id":"heavy%d","type":%s,"body":%s,"retries":0}`, i, quote(typ), body)
		}
		for range 8 {
			w := newWorker(t, b, `"prefetch":70,"type":`+quote(typ))
			go func() {
				for f := range w.in {
					if f.Action == "job" && string(f.Body) == body {
						w.write(`{"action":"respond","id":"` + f.ID + `","body":1}`)
					}
				}
			}()
		}
		awaitWants(t, a, "b", typ)
		if err := a.ask("POST", "/v1/types/"+typ+"/resume", struct{}{}, nil); err != nil {
			t.Fatal(err)
		}
		for range n {
			if f := s.next(); !f.isResult() {
				t.Fatal(f)
			}
		}
		awaitCounts(t, a, typ, api.Ledger{Submitted: n, Answered: n})
	})
}

func TestLentHeadersAreKept(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		header := `{ "traceparent":"00-1-2-01","x":[1, 2.50] ,"pad":"` + strings.Repeat("p", 3900) + `"}`
		s := newSubmitter(t, a)
		w := newWorker(t, b, `"headers":true,"type":`+quote(typ))
		s.wantOK(`{"action":"submit","id":"h1","type":%s,"body":1,"headers":%s,"progress":true,"retries":1}`, quote(typ), header)
		if f := w.nextJob(); string(f.Header) != header {
			t.Errorf("headers %s", f)
		}
		w.wantOK(`{"action":"progress","id":"h1","body":5}`)
		if f := s.next(); string(f.raw) != `{"id":"h1","progress":5}` {
			t.Errorf("progress %s", f)
		}
		w.wantOK(`{"action":"leave"}`)
		w.wantOK(`{"action":"fail","reason":"again"}`)
		w2 := newWorker(t, c, `"type":`+quote(typ)) // it does not ask for headers
		if f := w2.nextJob(); f.Header != nil {
			t.Errorf("headers that nobody asked for: %s", f)
		}
		w2.wantOK(`{"action":"respond","body":2}`)
		if f := s.wantEnd("h1", ""); string(f.raw) != `{"id":"h1","body":2}` {
			t.Errorf("result %s", f)
		}
	})
}

// The fleet's figures while one job is lent, and after.
func TestFiguresWhileJobIsLent(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"type":`+quote(typ))
		s.wantOK(`{"action":"submit","id":"n","type":%s,"body":1}`, quote(typ))
		w.nextJob()
		v, err := a.fleet()
		if err != nil || !v.Member || v.Alone || v.Name != "a" || v.NATS == nil || !v.NATS.Connected || v.Lent < 1 || v.Lends < 1 || len(v.Brokers) != 2 {
			t.Errorf("at home %+v, %v", v, err)
		}
		v, err = b.fleet()
		if err != nil || v.Borrowed < 1 || v.Borrows < 1 {
			t.Errorf("at the borrower %+v, %v", v, err)
		}
		var text string
		if err := a.ask("GET", "/metrics", nil, &text); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			"gloom_fleet_connected 1", "gloom_fleet_peers", "gloom_fleet_wants", "gloom_fleet_lent ", "gloom_fleet_borrowed ", "gloom_fleet_lends_total",
			"gloom_fleet_borrows_total", "gloom_fleet_returned_total", "gloom_fleet_lost_total", "gloom_fleet_late_total", "gloom_fleet_round_trip_seconds",
			"gloom_fleet_batch_items", "gloom_fleet_messages_total", "gloom_fleet_bytes_total", "gloom_fleet_gaps_total", "gloom_fleet_garbage_total",
		} {
			if !bytes.Contains([]byte(text), []byte("\n"+name)) {
				t.Errorf("/metrics has no %q", name)
			}
		}
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("n", "")
	})
}
