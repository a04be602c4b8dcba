package hub_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/hub"
	"gloom/wire"
)

// TestIDOfWrittenOutcomeIsReusable: while a kept outcome is being written, its id can be reused only if
// the peer may have read the whole frame.
func TestIDOfWrittenOutcomeIsReusable(t *testing.T) {
	for _, v := range []struct {
		name string
		// writing is the owner's work after it has taken the outcome.
		writing func(c *hub.Conn, wait func(time.Duration))
		free    bool
	}{
		{"taken", func(*hub.Conn, func(time.Duration)) {}, true},
		{"its last part is written", func(c *hub.Conn, _ func(time.Duration)) {
			c.NextParts(make([][]byte, 0, 1), c.UnreadBytes()-100)
			c.MarkWritten(c.UnreadBytes() - 100)
			c.NextParts(make([][]byte, 0, 1), 100)
		}, true},
		{"a part in front of it is written", func(c *hub.Conn, _ func(time.Duration)) {
			c.NextParts(make([][]byte, 0, 1), c.UnreadBytes()/2)
		}, false},
		{"the peer does not read", func(c *hub.Conn, wait func(time.Duration)) {
			c.NextParts(make([][]byte, 0, 1), c.UnreadBytes())
			wait(time.Second)
		}, false},
		{"it is held back", func(c *hub.Conn, _ func(time.Duration)) {
			c.MarkWritten(0)
		}, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			now := int64(time.Hour)
			h := hub.New(hub.Config{Core: broker.Config{MaxUnusedTypes: 10}, MaxOutbound: 1 << 20, Clock: func() int64 { return now }})
			defer h.Close()
			s, w, other := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort), stateOpen(t, h, wire.SubmitPort)
			s.step(h, `{"action":"submit","id":"a","body":1,"keep_ms":60000}`)
			w.step(h, `{"action":"join","type":"default"}`, `{"action":"respond","body":"`+strings.Repeat("A", 200)+`"}`)
			s.sink.Take()
			v.writing(s.conn, func(d time.Duration) { now += int64(d) })
			other.step(h, `{"action":"submit","id":"a","body":2}`)
			other.sink.Take()
			got := string(readOutput(other.conn, 0))
			if free := strings.Contains(got, `{"ok":true,"id":"a"}`); free != v.free || !free && !strings.Contains(got, "id_exists") {
				t.Errorf("a submit under its id got %q, want it accepted: %t", got, v.free)
			}
		})
	}
}

// TestOneWriteHasSomeOutcomes: if many outcomes wait, one write has only some of them, because
// other connections are delayed while the core forgets the written outcomes.
func TestOneWriteHasSomeOutcomes(t *testing.T) {
	h := hub.New(hub.Config{Core: broker.Config{MaxUnusedTypes: 10}, MaxOutbound: 1 << 20, Clock: func() int64 { return 0 }})
	defer h.Close()
	s, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	w.step(h, `{"action":"join","type":"default"}`)
	const jobs, limit = 2000, 512
	for i := range jobs {
		s.step(h, fmt.Sprintf(`{"action":"submit","id":"%d","body":1,"keep_ms":60000,"ack":false}`, i))
		w.step(h, `{"action":"respond","body":1}`)
	}
	s.sink.Take()
	for writtenOutcomes := 0; writtenOutcomes < jobs; {
		buf := unwrittenOutput(s.conn)
		n := bytes.Count(buf, []byte(`"body"`))
		if n == 0 || n > limit {
			t.Fatalf("%d outcomes are written at once, want 1 to %d", n, limit)
		}
		hasMore := s.conn.MarkWritten(len(buf))
		writtenOutcomes += n
		h.View(func(b *broker.Broker, _ int64) {
			if kept, _ := b.Outcomes(); kept != jobs-writtenOutcomes {
				t.Fatalf("%d outcomes are kept after %d of %d were written", kept, writtenOutcomes, jobs)
			}
		})
		if hasMore != (writtenOutcomes < jobs) {
			t.Fatalf("more outcomes wait: %t, after %d of %d", hasMore, writtenOutcomes, jobs)
		}
	}
}
