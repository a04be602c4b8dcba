package probe

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestFramesMayArriveInAnySegments(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("byte by byte", func(t *testing.T) {
		typ := freshName("bytes")
		s, w := b.submitter(t), b.worker(t)
		id := freshName("job")
		trickle := func(c *conn, payload string) {
			for _, octet := range packFrame(payload) {
				c.writeRaw([]byte{octet})
			}
		}
		trickle(w.conn, fmt.Sprintf(`{"action":"join","type":%q}`, typ))
		w.wantOK()
		trickle(s.conn, fmt.Sprintf(`{"action":"submit","id":%q,"type":%q,"body":"é"}`, id, typ))
		s.wantAck(id)
		w.wantJob(id)
		trickle(w.conn, `{"action":"respond","body":"😀"}`)
		w.wantOK()
		s.wantResult(id, `"😀"`)
	})
	t.Run("cut at every offset", func(t *testing.T) {
		typ := freshName("cuts")
		s := b.submitter(t)
		payload := fmt.Sprintf(`{"action":"submit","id":"%%d-%s","type":%q,"body":1}`, typ, typ)
		for cut := 1; ; cut++ {
			framed := packFrame(fmt.Sprintf(payload, cut))
			if cut >= len(framed) {
				break
			}
			s.writeRaw(framed[:cut])
			if cut%8 == 0 {
				time.Sleep(time.Millisecond) // so that some of the first halves arrive alone
			}
			s.writeRaw(framed[cut:])
			s.wantAck(fmt.Sprintf("%d-%s", cut, typ))
		}
	})
	t.Run("a half frame gets no reply", func(t *testing.T) {
		typ := freshName("half")
		s := b.submitter(t)
		id := freshName("job")
		framed := packFrame(fmt.Sprintf(`{"action":"submit","id":%q,"type":%q,"body":1}`, id, typ))
		for _, cut := range []int{1, 4, len(framed) - 1} {
			s := b.submitter(t)
			s.writeRaw(framed[:cut])
			s.wantSilence(50 * time.Millisecond)
			s.close()
		}
		s.submit(id, typ, `1`) // none of the halves has used the id
	})
	t.Run("a thousand frames in one segment", func(t *testing.T) {
		typ := freshName("segment")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		var batch []byte
		for i := range 1000 {
			batch = append(batch, packFrame(fmt.Sprintf(`{"action":"submit","id":"%s-%d","type":%q,"body":%d}`, typ, i, typ, i))...)
		}
		s.writeRaw(batch)
		for i := range 1000 {
			s.wantAck(fmt.Sprintf("%s-%d", typ, i))
		}
		for i := range 3 {
			w.wantJob(fmt.Sprintf("%s-%d", typ, i))
			w.respond(`0`)
		}
	})
	t.Run("random segments", func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 2))
		typ := freshName("random")
		s := b.submitter(t)
		var batch []byte
		for i := range 500 {
			body := quote(strings.Repeat("x", r.IntN(300)))
			batch = append(batch, packFrame(fmt.Sprintf(`{"action":"submit","id":"%s-%d","type":%q,"body":%s}`, typ, i, typ, body))...)
		}
		for len(batch) > 0 {
			n := min(len(batch), 1+r.IntN(700))
			s.writeRaw(batch[:n])
			batch = batch[n:]
		}
		for i := range 500 {
			s.wantAck(fmt.Sprintf("%s-%d", typ, i))
		}
	})
	t.Run("join and respond ahead of time", func(t *testing.T) {
		typ := freshName("ahead")
		s := b.submitter(t)
		id := s.submitFresh(typ, `1`)
		w := b.worker(t)
		w.writeRaw(append(packFrame(fmt.Sprintf(`{"action":"join","type":%q}`, typ)), packFrame(`{"action":"respond","body":"blind"}`)...))
		w.wantOK()
		w.wantJob(id)
		w.wantOK()
		s.wantResult(id, `"blind"`)
	})
	t.Run("a big frame and a small one behind it", func(t *testing.T) {
		typ := freshName("big")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		big := quote(strings.Repeat("y", 3<<20))
		id1, id2 := freshName("job"), freshName("job")
		s.writeRaw(append(packFrame(fmt.Sprintf(`{"action":"submit","id":%q,"type":%q,"body":%s}`, id1, typ, big)),
			packFrame(fmt.Sprintf(`{"action":"submit","id":%q,"type":%q,"body":2}`, id2, typ))...))
		s.wantAck(id1)
		s.wantAck(id2)
		if got, body := w.nextJob(); got != id1 || body != big {
			t.Fatalf("job %q of %d bytes, want %q of %d", got, len(body), id1, len(big))
		}
		w.respond(big)
		w.wantJob(id2)
		s.wantResult(id1, big)
	})
}

// submitOf returns a frame with a submit whose payload has exactly n bytes.
func submitOf(n int, id, typ string) []byte {
	empty := fmt.Sprintf(`{"action":"submit","id":%q,"type":%q,"body":""}`, id, typ)
	return packFrame(strings.Replace(empty, `"body":""`, `"body":"`+strings.Repeat("z", n-len(empty))+`"`, 1))
}

func TestFrameSizeIsLimited(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	b := start(t, "--max-frame=64KiB")
	typ := freshName("size")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	t.Run("exactly the limit", func(t *testing.T) {
		s.writeRaw(submitOf(limit, "exact", typ))
		s.wantAck("exact")
		// the job frame may be longer than the longest submit, but it must be sent
		w.wantJob("exact")
		answer := `{"action":"respond","body":""}`
		body := quote(strings.Repeat("a", limit-len(answer)))
		w.respond(body)
		s.wantResult("exact", body)
	})
	t.Run("a byte too many", func(t *testing.T) {
		rogue := b.submitter(t)
		rogue.writeRaw(submitOf(limit+1, "over", typ))
		rogue.wantError("size_error")
		rogue.wantEOF()
		checkServes(t, s, w, typ)
	})
	t.Run("the reason names the limit", func(t *testing.T) {
		rogue := b.worker(t)
		rogue.writeRaw(announceFrame(limit + 1))
		f := rogue.wantError("size_error")
		if reason := strings.ReplaceAll(f.text("reason"), ",", ""); !strings.Contains(reason, "65536") && !strings.Contains(reason, "64KiB") && !strings.Contains(reason, "64 KiB") {
			t.Errorf("reason %q", f.text("reason"))
		}
		rogue.wantEOF()
	})
	t.Run("frames before it are served", func(t *testing.T) {
		rogue := b.submitter(t)
		rogue.writeRaw(append(packFrame(fmt.Sprintf(`{"action":"submit","id":"before","type":%q,"body":1}`, freshName("x"))), announceFrame(limit+1)...))
		rogue.wantAck("before")
		rogue.wantError("size_error")
		rogue.wantEOF()
	})
	t.Run("nothing behind it is served", func(t *testing.T) {
		rogue := b.submitter(t)
		rogue.writeRaw(append(announceFrame(limit+1), packFrame(`{"action":"frobnicate"}`)...))
		rogue.wantError("size_error")
		rogue.wantEOF()
	})
	t.Run("the default limit is 16 MiB", func(t *testing.T) {
		b := shared(t)
		typ := freshName("size")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := freshName("big")
		s.writeRaw(submitOf(16<<20, id, typ))
		s.wantAck(id)
		w.wantJob(id)
		w.respond(`1`)
		s.wantResult(id, `1`)
		rogue := b.submitter(t)
		rogue.writeRaw(announceFrame(16<<20 + 1))
		rogue.wantError("size_error")
		rogue.wantEOF()
	})
	// a client that is still writing when the broker closes the connection must be able to read
	// why
	t.Run("error readable by a peer in the middle of its frame", func(t *testing.T) {
		for range 5 {
			rogue := b.submitter(t)
			_ = rogue.write(submitOf(1<<20, "over", typ)) // the write fails if the broker closes first
			rogue.wantError("size_error")
			rogue.wantEOF()
		}
	})
}

func TestAnnouncedLengthsAreLimited(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, n := range []uint32{16<<20 + 1, 1 << 30, 0x7fffffff, 0x80000000, 0xffffffff} {
		for _, port := range []string{"submit", "idle worker", "unjoined worker"} {
			t.Run(fmt.Sprintf("%s %#x", port, n), func(t *testing.T) {
				var rogue *conn
				switch port {
				case "submit":
					rogue = b.submitter(t).conn
				case "idle worker":
					rogue = b.servingWorker(t, freshName("huge")).conn
				default:
					rogue = b.worker(t).conn
				}
				rogue.writeRaw(announceFrame(n))
				rogue.wantError("size_error")
				rogue.wantEOF()
			})
		}
	}
}

// TestGarbageHarmsOnlyItsSender: rubbish harms only the peer that sends it, however much it is.
func TestGarbageHarmsOnlyItsSender(t *testing.T) {
	t.Parallel()
	b := start(t)
	typ := freshName("bystander")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	runParallel(t, 8, func(f *parallelT, i int) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		seeds := []string{
			`{"action":"submit","id":"g","type":"garbage","body":{"a":[1,2.5e3,"x\u00e9"]},"priority":5}`,
			`{"action":"join","type":"garbage"}`, `{"action":"respond","body":[null,true]}`,
		}
		for n := range 60 {
			addr := b.submitAddr
			if n%2 == 1 {
				addr = b.workerAddr
			}
			c := dial(f, addr)
			for range 20 {
				payload := []byte(seeds[r.IntN(len(seeds))])
				for range r.IntN(4) {
					payload[r.IntN(len(payload))] = byte(r.Uint32())
				}
				wire := packFrame(string(payload))
				if r.IntN(10) == 0 {
					wire[r.IntN(4)] = byte(r.Uint32())
				}
				if c.write(wire) != nil {
					break
				}
			}
			if r.IntN(2) == 0 {
				c.reset()
			} else {
				c.close()
			}
		}
	})
	checkServes(t, s, w, typ)
	b.checkAlive(t)
	if text := b.Log.String(); bytes.Contains([]byte(text), []byte("panic")) {
		t.Errorf("the log speaks of a panic:\n%s", b.tail())
	}
}
