package hub_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/hub"
	"gloom/wire"
)

// testPeer is a connection that the test owns.
type testPeer struct {
	t       *testing.T
	conn    *hub.Conn
	sink    *hub.Sink
	port    wire.Port
	decoder wire.Decoder
	// namesJobs reports that the worker's frames name their jobs.
	namesJobs bool
	mu        sync.Mutex
	wakeCount int
}

func stateOpen(t *testing.T, h *hub.Hub, port wire.Port) *testPeer {
	s := &testPeer{t: t, port: port, decoder: wire.Decoder{DefaultType: "default"}}
	s.sink = h.NewSink(hub.SinkOwner{Wake: func() {
		s.mu.Lock()
		s.wakeCount++
		s.mu.Unlock()
	}})
	s.conn = h.Open(port, s.sink, s, "test")
	return s
}

// step lets the hub carry out the frames in one step.
func (s *testPeer) step(h *hub.Hub, frames ...string) {
	s.t.Helper()
	decs := make([]wire.Decoder, len(frames))
	cmds := make([]hub.Command, len(frames))
	for i, f := range frames {
		decs[i] = s.decoder
		if err := decs[i].Decode([]byte(f), s.port, s.namesJobs, &cmds[i].Req); err != nil {
			s.t.Fatalf("%s: %v", f, err)
		}
	}
	s.steps(cmds)
}

// steps lets the hub carry out commands in one step.
func (s *testPeer) steps(cmds []hub.Command) {
	for i := range cmds {
		cmds[i].From = s.conn
	}
	s.sink.Step(cmds, nil)
}

// expectOutput takes the output and compares its payloads with the expected payloads.
func (s *testPeer) expectOutput(want ...string) {
	s.t.Helper()
	var got []string
	for _, o := range s.sink.Take() {
		buf := readOutput(o.Conn, 0)
		for len(buf) > 0 {
			p, n, err := wire.SplitFrame(buf, 1<<30)
			if err != nil || n == 0 {
				s.t.Fatalf("output is no frames: %q %v", buf, err)
			}
			got = append(got, string(p))
			buf = buf[n:]
		}
		if o.Close {
			got = append(got, "close")
		}
		if o.Abort {
			got = append(got, "abort")
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		s.t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// unwrittenOutput returns the bytes that c's owner has to write next.
func unwrittenOutput(c *hub.Conn) []byte {
	parts, _ := c.NextParts(make([][]byte, 0, 1000), math.MaxInt)
	return bytes.Join(parts, nil)
}

// readOutput acts as if the peer of c had read the waiting output, except for the last unread
// bytes, and returns the output that was read.
func readOutput(c *hub.Conn, unread int) (got []byte) {
	for c.UnreadBytes() > unread {
		buf := unwrittenOutput(c)
		buf = buf[:min(len(buf), c.UnreadBytes()-unread)]
		got = append(got, buf...)
		c.MarkWritten(len(buf))
	}
	return got
}

func newHub(max int) *hub.Hub {
	return hub.New(hub.Config{Core: broker.Config{Retries: 3, MaxUnusedTypes: 10}, MaxOutbound: max, Clock: func() int64 { return 0 }})
}

// TestFramesComeInOrderOfSteps: whatever causes them, the frames for a peer come in the order of
// steps. An ack comes before the result, an ok before the next job.
func TestFramesComeInOrderOfSteps(t *testing.T) {
	h := newHub(1 << 20)
	defer h.Close()
	s, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	s.step(h, `{"action":"submit","id":"a","body":1}`, `{"action":"submit","id":"b","body":{"x": 2}}`)
	w.step(h, `{"action":"join","type":"default"}`, `{"action":"respond","body":"A"}`)
	w.expectOutput(`{"ok":true}`, `{"action":"job","id":"a","type":"default","body":1}`, `{"ok":true}`,
		`{"action":"job","id":"b","type":"default","body":{"x": 2}}`)
	s.expectOutput(`{"ok":true,"id":"a"}`, `{"ok":true,"id":"b"}`, `{"id":"a","body":"A"}`)
	w.expectOutput()
}

// TestOwnerIsWokenOnce: an owner is woken once for any number of frames until it takes them, and
// not at all for frames that its own commands cause.
func TestOwnerIsWokenOnce(t *testing.T) {
	h := newHub(1 << 20)
	defer h.Close()
	s, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	w.step(h, `{"action":"join","type":"default","prefetch":10}`)
	w.expectOutput(`{"ok":true}`)
	for i := range 3 {
		s.step(h, fmt.Sprintf(`{"action":"submit","id":"%d","body":1}`, i))
	}
	if s.wakeCount != 0 || w.wakeCount != 1 {
		t.Errorf("woken %d and %d times, want 0 and 1", s.wakeCount, w.wakeCount)
	}
	if w.sink.ClaimTake() {
		t.Error("expected although a wake is under way")
	}
	w.sink.Take()
	if !w.sink.ClaimTake() {
		t.Error("not expected although no wake is under way")
	}
	s.step(h, `{"action":"submit","id":"x","body":1}`)
	if w.wakeCount != 1 {
		t.Errorf("woken %d times, want 1: it said that it would come", w.wakeCount)
	}
	w.sink.Take()
	s.step(h, `{"action":"submit","id":"y","body":1}`)
	if w.wakeCount != 2 {
		t.Errorf("woken %d times, want 2", w.wakeCount)
	}
}

// TestStableBodyIsNotCopied: a large body that nobody writes to again is not copied under the lock, and arrives
// whole.
func TestStableBodyIsNotCopied(t *testing.T) {
	h := newHub(1 << 30)
	defer h.Close()
	s, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	body := `"` + strings.Repeat("x", 200_000) + `"`
	big := func(from *testPeer, frame string) {
		t.Helper()
		var c hub.Command
		if err := from.decoder.Decode([]byte(frame), from.port, false, &c.Req); err != nil {
			t.Fatal(err)
		}
		c.StableBody = true
		from.steps([]hub.Command{c})
	}
	wantFrame := func(to *testPeer, want string) {
		t.Helper()
		if outs := to.sink.Take(); len(outs) != 1 {
			t.Fatalf("%d outputs, want one", len(outs))
		}
		parts, _ := to.conn.NextParts(make([][]byte, 0, 9), math.MaxInt)
		if len(parts) != 3 || len(parts[0]) > 200 || len(parts[2]) > 200 {
			t.Fatalf("%d parts, want the body between two that are short", len(parts))
		}
		if got := readOutput(to.conn, 0); !bytes.HasSuffix(got, []byte(want)) {
			t.Errorf("got %.80q, want %.80q at its end", got, want)
		}
	}
	big(s, `{"action":"submit","id":"a","progress":true,"body":`+body+`}`)
	w.step(h, `{"action":"join","type":"default"}`)
	wantFrame(w, `{"action":"job","id":"a","type":"default","body":`+body+`}`)
	s.expectOutput(`{"ok":true,"id":"a"}`)
	big(w, `{"action":"progress","body":`+body+`}`)
	wantFrame(s, `{"id":"a","progress":`+body+`}`)
	big(w, `{"action":"respond","body":`+body+`}`)
	wantFrame(s, `{"id":"a","body":`+body+`}`)
}

// TestSlowReaderIsRefusedThenClosed: above half of its limit, a peer may not submit. Beyond the limit it is
// closed, and its jobs end. One frame of any size always fits.
func TestSlowReaderIsRefusedThenClosed(t *testing.T) {
	h := newHub(4000)
	defer h.Close()
	s, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	big := `"` + strings.Repeat("x", 9000) + `"`
	s.step(h, `{"action":"submit","id":"a","body":`+big+`}`)
	s.expectOutput(`{"ok":true,"id":"a"}`)
	w.step(h, `{"action":"join","type":"default"}`)
	outs := w.sink.Take()
	if len(outs) != 1 || outs[0].Abort {
		t.Fatalf("a job beyond the cap did not fit an empty outbox: %+v", outs)
	}
	readOutput(w.conn, 0)
	bigBody := `"` + strings.Repeat("y", 1200) + `"`
	respond := func() {
		w.step(h, `{"action":"respond","body":`+bigBody+`}`)
		w.sink.Take()
		readOutput(w.conn, 0)
	}
	s.step(h, `{"action":"submit","id":"b","body":1}`, `{"action":"submit","id":"c","body":1}`, `{"action":"submit","id":"d","body":1}`)
	respond()
	respond()
	s.step(h, `{"action":"submit","id":"e","body":1}`)
	respond()
	if st := h.Stats(); st.Overflows != 0 || st.Errors[wire.Overloaded] != 1 {
		t.Fatalf("%+v", st)
	}
	respond()
	s.step(h, `{"action":"ping"}`)
	s.step(h, `{"action":"ping"}`)
	s.expectOutput("abort")
	h.Remove(s.conn)
	if st := h.Stats(); st.Overflows != 1 || st.UndeliveredAnswers != 4 {
		t.Errorf("%+v", st)
	}
	h.View(func(b *broker.Broker, _ int64) {
		if l := b.Totals(); l.Imbalance() != 0 || l.Answered != 4 || b.JobCount() != 0 {
			t.Errorf("%+v", l)
		}
	})
}

// TestOutputCountsUntilWritten: output counts against a connection until the owner reports that it has been
// written.
func TestOutputCountsUntilWritten(t *testing.T) {
	h := newHub(4000)
	defer h.Close()
	s, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	s.step(h, `{"action":"submit","id":"a","body":1}`, `{"action":"submit","id":"b","body":1}`, `{"action":"submit","id":"c","body":1}`, `{"action":"submit","id":"d","body":1}`)
	w.step(h, `{"action":"join","type":"default"}`)
	answer := func(length int) []hub.Output {
		w.step(h, `{"action":"respond","body":"`+strings.Repeat("x", length)+`"}`)
		return s.sink.Take()
	}
	checkCounts := func(outs []hub.Output, unsent int) {
		t.Helper()
		if len(outs) != 1 || outs[0].Abort {
			t.Fatalf("%+v", outs)
		}
		readOutput(s.conn, unsent)
	}
	s.sink.Take()
	readOutput(s.conn, 0)
	checkCounts(answer(9000), 9000)
	readOutput(s.conn, 0)
	checkCounts(answer(9000), 9000)
	readOutput(s.conn, 4000)
	checkCounts(answer(9000), 9000)
	if st := h.Stats(); st.Overflows != 0 {
		t.Fatalf("%+v", st)
	}
	readOutput(s.conn, 4001)
	if outs := answer(1); len(outs) != 1 || !outs[0].Abort {
		t.Errorf("%+v", outs)
	}
	if st := h.Stats(); st.Overflows != 1 {
		t.Errorf("%+v", st)
	}
	if submitters := submitterCount(h); submitters != 0 {
		t.Errorf("the core still has %d submitters", submitters)
	}
}

// TestCreditIsRenewedOnceRead: a worker that has used up its credit is handed more jobs only once
// it has read some of the output, because before that the worker may be lost.
func TestCreditIsRenewedOnceRead(t *testing.T) {
	h := newHub(8000)
	defer h.Close()
	s, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	w.step(h, `{"action":"join","type":"default","prefetch":9}`)
	w.expectOutput(`{"ok":true}`)
	large := func(id string) string {
		return `{"action":"submit","id":"` + id + `","ack":false,"body":"` + strings.Repeat("x", 1500) + `"}`
	}
	out := func(when string, want int) {
		t.Helper()
		h.View(func(b *broker.Broker, _ int64) {
			if n := int(b.Totals().Running); n != want {
				t.Errorf("%s: %d jobs are out, want %d", when, n, want)
			}
		})
	}
	write := func(unsent func(n int) int) {
		w.sink.Take()
		if n := w.conn.UnreadBytes(); unsent(n) == n {
			w.conn.MarkWritten(0)
		}
		readOutput(w.conn, unsent(w.conn.UnreadBytes()))
	}
	s.step(h, large("a"), large("b"))
	write(func(int) int { return 0 })
	s.step(h, large("c"), large("d"))
	out("half of max-outbound was handed out", 3)
	write(func(n int) int { return n })
	out("nothing of it was taken", 3)
	readOutput(w.conn, 1000)
	out("some of it was taken", 4)
}

func submitterCount(h *hub.Hub) (submitters int) {
	h.View(func(b *broker.Broker, _ int64) { submitters, _ = b.Peers() })
	return submitters
}

// TestAnswersAreOwedUntilWritten: an answer counts as owed to its submitter until it is written completely.
func TestAnswersAreOwedUntilWritten(t *testing.T) {
	h := newHub(1 << 20)
	defer h.Close()
	s, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	w.step(h, `{"action":"join","type":"default"}`)
	if n, _, _ := h.Backlog(); n != 0 {
		t.Errorf("%d bytes are owed to submitters, a worker has not been sent its ok", n)
	}
	s.step(h, `{"action":"ping"}`)
	wantOwed := func(when string, want int) {
		t.Helper()
		if n, _, _ := h.Backlog(); n != want {
			t.Errorf("%s: %d bytes are owed, want %d", when, n, want)
		}
	}
	wantOwed("appended", 15)
	s.sink.Take()
	wantOwed("taken", 15)
	readOutput(s.conn, 5)
	wantOwed("written in part", 5)
	readOutput(s.conn, 0)
	wantOwed("written", 0)
}

// TestNothingFollowsClosingError: no frame follows the error with which a worker is closed, and the worker's only
// job fails.
func TestNothingFollowsClosingError(t *testing.T) {
	h := newHub(1 << 20)
	defer h.Close()
	s, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	s.step(h, `{"action":"submit","id":"a","body":1}`, `{"action":"submit","id":"b","body":1}`)
	w.step(h, `{"action":"join","type":"default"}`)
	w.steps([]hub.Command{
		{Refusal: &wire.Error{Code: wire.SizeError, Reason: "too big"}, Close: true},
		{Reply: wire.AppendPing(nil)},
	})
	w.expectOutput(`{"ok":true}`, `{"action":"job","id":"a","type":"default","body":1}`,
		`{"error":"size_error","reason":"too big"}`, "close")
	s.expectOutput(`{"ok":true,"id":"a"}`, `{"ok":true,"id":"b"}`,
		`{"error":"job_failed","reason":"its worker was closed: size_error: too big","id":"a"}`)
	h.Remove(w.conn)
	h.Remove(w.conn)
}

// TestPanicOfCoreStopsHub: when the core panics, the description names the command, and the hub
// does nothing more.
func TestPanicOfCoreStopsHub(t *testing.T) {
	description := ""
	h := hub.New(hub.Config{Core: broker.Config{}, MaxOutbound: 1 << 20, Fatal: func(s string) { description = s }})
	s := stateOpen(t, h, wire.SubmitPort)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		s.steps([]hub.Command{{Req: wire.Request{
			Verb: 99, ID: []byte("culprit"), Body: []byte(`"a secret"`), Headers: []byte(`{"a":"secret"}`), Token: []byte("secret"),
		}}})
	}()
	if !strings.Contains(description, "culprit") || !strings.Contains(description, "verb 99") || !strings.Contains(description, "10 bytes of body") ||
		strings.Contains(description, "secret") || strings.Contains(description, "115 101 99") {
		t.Errorf("said %q", description)
	}
}

// TestTimerTicksIdleCore: the hub ticks the core when a timer is due, even if no command comes.
func TestTimerTicksIdleCore(t *testing.T) {
	h := hub.New(hub.Config{Core: broker.Config{Retries: 0, MaxUnusedTypes: 10}, MaxOutbound: 1 << 20})
	defer h.Close()
	s := stateOpen(t, h, wire.SubmitPort)
	wakes := make(chan struct{}, 1)
	s.sink = h.NewSink(hub.SinkOwner{Wake: func() { wakes <- struct{}{} }})
	s.conn = h.Open(wire.SubmitPort, s.sink, s, "test")
	s.step(h, `{"action":"submit","id":"a","body":1,"expires_ms":60000}`, `{"action":"submit","id":"b","body":1,"expires_ms":20}`)
	s.expectOutput(`{"ok":true,"id":"a"}`, `{"ok":true,"id":"b"}`)
	<-wakes
	s.expectOutput(`{"error":"expired","reason":"its deadline (expires_ms) passed before it could run","id":"b"}`)
}

// TestUnreadOutputIsBounded: the output that all peers together have not read is bounded. The peer
// that has held the most for the longest time is closed, and its output no longer counts.
func TestUnreadOutputIsBounded(t *testing.T) {
	now := int64(time.Second)
	const limit = 1 << 20
	h := hub.New(hub.Config{
		Core: broker.Config{Retries: 3, MaxUnusedTypes: 10}, MaxOutbound: 1 << 30, MaxUnread: limit, Clock: func() int64 { return now },
	})
	defer h.Close()
	w := stateOpen(t, h, wire.WorkerPort)
	w.step(h, `{"action":"join","type":"default"}`)
	var sides []*testPeer
	answers := 0
	leaveUnread := func(s *testPeer, bytes int) {
		t.Helper()
		answers++
		s.step(h, fmt.Sprintf(`{"action":"submit","id":"%d","body":1,"ack":false}`, answers))
		w.step(h, `{"action":"respond","body":"`+strings.Repeat("x", bytes)+`"}`)
		w.sink.Take()
		readOutput(w.conn, 0)
		for _, o := range s.sink.Take() { // the system accepts nothing
			if !o.Abort {
				s.conn.MarkWritten(0)
			}
		}
	}
	isClosed := func(s *testPeer) bool { return h.FindConn(s.conn.Peer) == nil }
	for range 40 {
		s := stateOpen(t, h, wire.SubmitPort)
		sides = append(sides, s)
	}
	hoarder, smallHoarder := sides[0], sides[1]
	leaveUnread(smallHoarder, 100)
	leaveUnread(hoarder, limit/3)
	for _, s := range sides[2:] {
		if m := h.Memory(); m.Unread > limit {
			t.Fatalf("%d bytes are unread, at most %d should be", m.Unread, limit)
		}
		now += int64(time.Second)
		leaveUnread(s, limit/8)
	}
	if !isClosed(hoarder) || isClosed(smallHoarder) || isClosed(sides[len(sides)-1]) {
		t.Errorf("the hoarder is gone: %t; the one with little to read: %t; the last one: %t", isClosed(hoarder), isClosed(smallHoarder), isClosed(sides[len(sides)-1]))
	}
	for _, s := range sides {
		h.Remove(s.conn)
	}
	if m := h.Memory(); m.Unread != 0 {
		t.Errorf("%d bytes are unread after all have gone", m.Unread)
	}
	if st := h.Stats(); st.UndeliveredAnswers != uint64(answers) {
		t.Errorf("%d answers were undelivered, want %d", st.UndeliveredAnswers, answers)
	}
}

// TestUnderestimatedFrameCountsWhole: a frame that turns out longer than estimated counts with its real
// length.
func TestUnderestimatedFrameCountsWhole(t *testing.T) {
	h := newHub(1 << 20)
	defer h.Close()
	s, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	for range 3 {
		s.step(h, `{"action":"submit","id":"a","body":1}`)
		w.step(h, `{"action":"join","type":"default"}`, `{"action":"fail","retry":false,"reason":"`+strings.Repeat(`\"`, 5000)+`"}`)
		w.sink.Take()
		readOutput(w.conn, 0)
		s.sink.Take()
		if m, n := h.Memory(), s.conn.UnreadBytes(); m.Unread < int64(n) || n < 10_000 {
			t.Errorf("%d bytes are unread in %d bytes of memory", n, m.Unread)
		}
		readOutput(s.conn, 0)
		if m := h.Memory(); m.Unread != 0 {
			t.Errorf("%d bytes are unread after all was read", m.Unread)
		}
	}
}

// TestOutputOfClosingConnCounts: while a connection closes once its output is written, that output
// still counts. A closing connection is cut before connections that have little to read.
func TestOutputOfClosingConnCounts(t *testing.T) {
	const limit = 1 << 20
	h := hub.New(hub.Config{Core: broker.Config{MaxUnusedTypes: 10}, MaxOutbound: 1 << 30, MaxUnread: limit})
	defer h.Close()
	w, hoarder, smallHoarder, other := stateOpen(t, h, wire.WorkerPort), stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.SubmitPort)
	w.step(h, `{"action":"join","type":"default"}`)
	w.sink.Take()
	leaveUnread := func(s *testPeer, id string, bytes int) {
		s.step(h, `{"action":"submit","id":"`+id+`","body":1,"ack":false}`)
		w.step(h, `{"action":"respond","body":"`+strings.Repeat("x", bytes)+`"}`)
		w.sink.Take()
		readOutput(w.conn, 0)
		s.sink.Take()
		s.conn.MarkWritten(0) // the system accepts nothing
	}
	leaveUnread(smallHoarder, "s", 100)
	leaveUnread(hoarder, "h", limit-(24<<10))
	h.CloseWith(hoarder.conn, &wire.Error{Code: wire.SizeError, Reason: "too long"})
	hoarder.sink.Take()
	leaveUnread(other, "o", 40<<10) // this output must not reuse the memory of the hoarder's output
	if out := hoarder.sink.Take(); len(out) != 1 || !out[0].Abort {
		t.Errorf("the hoarder, which is being closed, was not cut: %v", out)
	}
	for name, s := range map[string]*testPeer{"who has little to read": smallHoarder, "who came last": other} {
		if h.FindConn(s.conn.Peer) == nil {
			t.Errorf("%s was closed", name)
		}
	}
	for _, s := range []*testPeer{hoarder, smallHoarder, other} {
		h.Remove(s.conn)
	}
	if m := h.Memory(); m.Unread != 0 {
		t.Errorf("%d bytes are unread after all have gone", m.Unread)
	}
}

// TestCallersThatWaitedDoNotSleep: to have waited for the lock is no reason to leave it to others.
func TestCallersThatWaitedDoNotSleep(t *testing.T) {
	const held = 300 * time.Millisecond
	for name, call := range map[string]func(h *hub.Hub){
		"View": func(h *hub.Hub) { h.View(func(*broker.Broker, int64) {}) },
		"Do":   func(h *hub.Hub) { h.Do(func(*broker.Broker, int64) []broker.Effect { return nil }) },
	} {
		took := time.Duration(math.MaxInt64)
		for range 5 { // the best one counts, because the processors may be busy
			h := newHub(0)
			locked, returned := make(chan bool), make(chan time.Time)
			go h.Update(func(int64) { close(locked); time.Sleep(held) })
			<-locked
			begun := time.Now()
			go func() { call(h); returned <- time.Now() }()
			if took = min(took, (<-returned).Sub(begun)); took <= held+held/2 {
				break
			}
		}
		if took > held+held/2 {
			t.Errorf("%s took %v for a lock that was held for %v", name, took, held)
		}
	}
}

// TestCallersGiveWay: a caller that takes the lock again and again leaves it to others for as long as it
// holds it.
func TestCallersGiveWay(t *testing.T) {
	h := newHub(0)
	const pieces, piece = 5, 4 * time.Millisecond
	for name, call := range map[string]func(){
		"View": func() { h.View(func(*broker.Broker, int64) { time.Sleep(piece) }) },
		"Do":   func() { h.Do(func(*broker.Broker, int64) []broker.Effect { time.Sleep(piece); return nil }) },
	} {
		begun := time.Now()
		for range pieces {
			call()
		}
		if took := time.Since(begun); took < 2*pieces*piece {
			t.Errorf("%d calls of %s that hold the lock for %v each took only %v", pieces, name, piece, took)
		}
	}
}
