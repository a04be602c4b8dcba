package server

import (
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/bench/throwaway"
	"gloom/broker"
	"gloom/broker/hub"
	"gloom/broker/settings"
	"gloom/wire"
)

// TestBytesInAreCountedOnce: each byte that arrives is counted once, however the bytes arrive.
func TestBytesInAreCountedOnce(t *testing.T) {
	ping, submit := frame(`{"action":"ping"}`), frame(`{"action":"submit","id":"j","type":"t","body":"%s"}`, strings.Repeat("x", 30000))
	stream := append(append([]byte{}, ping...), submit...)
	for _, name := range transports {
		s := startServer(t, func(o *settings.Options) {
			if name == "TLS" {
				setCertificate(t, o)
			}
		})
		p := dialTransport(t, s, name)
		_, _ = p.Write(stream[:20000])
		p.wantFrame("ok", true)
		_, _ = p.Write(stream[20000:])
		p.wantFrame("id", "j")
		eventually(t, "all bytes are counted", func() bool { return s.Counts().BytesIn >= uint64(len(stream)) })
		if n := s.Counts().BytesIn; n != uint64(len(stream)) {
			t.Errorf("%s: %d bytes were counted, %d sent", name, n, len(stream))
		}
	}
}

// TestBodyMemoryIsFreed: an idle connection does not hold the memory of big frames that have been
// handled.
func TestBodyMemoryIsFreed(t *testing.T) {
	const n, size = 8, 8 << 20
	s := startServer(t, func(o *settings.Options) { setCertificate(t, o) })
	submitter := dialTLS(t, s.SubmitAddr())
	liveBytes := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := liveBytes()
	body := strings.Repeat("x", size)
	for i := range n {
		worker := dialTLS(t, s.WorkerAddr())
		worker.send(`{"action":"join","type":"t%d"}`, i)
		worker.wantFrame("ok", true)
		submitter.send(`{"action":"submit","id":"j","type":"t%d","body":1}`, i)
		submitter.wantFrame("ok", true)
		worker.wantFrame("id", "j")
		worker.send(`{"action":"respond","body":"%s"}`, body)
		worker.wantFrame("ok", true)
		submitter.wantFrame("id", "j")
	}
	body = ""
	eventually(t, "the bodies are given back", func() bool { return liveBytes()-before < size*n/2 })
}

// TestLongClientNameIsCut: the name that a peer gives itself is cut if it is too long.
func TestLongClientNameIsCut(t *testing.T) {
	s := startServer(t, nil)
	p := dial(t, s.WorkerAddr())
	p.send(`{"action":"hello","client":"%s"}`, strings.Repeat("é", 1<<20))
	p.wantFrame("ok", true)
	var workers []broker.WorkerInfo
	s.Hub().View(func(b *broker.Broker, _ int64) { workers, _ = b.Workers(0, nil, 0, 1) })
	if got, want := s.Hub().FindConn(workers[0].Peer).ClientName(), strings.Repeat("é", maxClientName/2)+"…"; got != want {
		t.Errorf("kept %d bytes: %q", len(got), got)
	}
}

// TestNoPingAfterClose: a connection that closes while its heartbeat is due leaves no timer
// behind that would close it a second time.
func TestNoPingAfterClose(t *testing.T) {
	t.Parallel()
	log := &throwaway.Log{}
	s, err := Start(testOptions(nil), zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const beat = 300 * time.Millisecond
	for range 3 {
		p := dial(t, s.WorkerAddr())
		p.send(`{"action":"hello","heartbeat_ms":%d}`, beat.Milliseconds())
		p.wantFrame("ok", true)
		// First the end of the connection, then the heartbeat, must wait for the hub's lock.
		s.Hub().View(func(*broker.Broker, int64) {
			_ = p.Close()
			time.Sleep(beat + beat/6)
		})
	}
	eventually(t, "all are gone", func() bool { return s.Counts().Conns == 0 })
	time.Sleep(3 * beat) // time for a timer that is left behind
	if text := log.String(); strings.Contains(text, "two beats") {
		t.Errorf("connections that had closed were dropped:\n%s", text)
	}
}

// TestFrameMemoryGrowsWithInput: memory for a frame grows with the bytes that have arrived, not with the
// length that its header announces, and is counted.
func TestFrameMemoryGrowsWithInput(t *testing.T) {
	for _, announcedSize := range []int{minBigFrame + 1, 200_000, 1 << 20, 16 << 20} {
		for _, step := range []int{1, 7, 1000, minBigFrame, 256 << 10} {
			if announcedSize/step > 200_000 {
				continue
			}
			in := input{maxPayload: announcedSize, maxOwnAlloc: math.MaxInt}
			in.feed(binary.BigEndian.AppendUint32(nil, uint32(announcedSize)))
			if payload, _, err := in.nextPayload(); payload != nil || len(in.data) > 0 || err != nil {
				t.Fatalf("of the header %d bytes are left, %v", len(in.data), err)
			}
			if !in.isBig() {
				t.Fatalf("a frame of %d bytes is no big one", announcedSize)
			}
			received := wire.HeaderLen
			for remaining := announcedSize; remaining > 0; {
				// The last step may bring more bytes than the frame has left.
				in.feed(make([]byte, step))
				payload, kept, err := in.nextPayload()
				used := step - len(in.data)
				if used != min(step, remaining) || err != nil {
					t.Fatalf("%d bytes of %d were used, %d are left of the frame: %v", used, step, remaining, err)
				}
				received += used
				remaining -= used
				if remaining == 0 {
					if len(payload) != announcedSize || !kept {
						t.Errorf("%d bytes of %d were assembled, in memory of their own: %t", len(payload), announcedSize, kept)
					}
					if in.heldBytes() != 0 {
						t.Errorf("%d bytes are held after all", in.heldBytes())
					}
					break
				}
				if limit := min(wire.HeaderLen+announcedSize, maxGrowth*received); cap(in.frame) > limit+64 {
					t.Fatalf("of %d bytes %d have come by %d, and %d are allocated", announcedSize, received, step, cap(in.frame))
				}
				if n := in.heldBytes(); n != cap(in.frame)-wire.HeaderLen {
					t.Fatalf("%d bytes are counted, %d allocated", n, cap(in.frame))
				}
			}
		}
	}
	for _, n := range []int{0, 1, minBigFrame} {
		in := input{maxPayload: 1 << 20}
		in.feed(binary.BigEndian.AppendUint32(nil, uint32(n)))
		if _, _, err := in.nextPayload(); in.isBig() || err != nil {
			t.Errorf("a frame of %d bytes is assembled apart, %v", n, err)
		}
	}
	in := input{maxPayload: 1 << 20}
	in.feed([]byte{1, 0, 0})
	if _, _, err := in.nextPayload(); len(in.data) > 0 || in.isBig() || err != nil {
		t.Errorf("of a header that is not whole %d bytes are left: %v", len(in.data), err)
	}
	in.feed([]byte{0})
	if _, _, err := in.nextPayload(); err == nil {
		t.Error("a frame that is too long was begun: its header came in two pieces")
	}
}

// TestSilentPeerIsClosed: a silent peer is closed two and a quarter beats after its last byte, not only
// when the next ping is due.
func TestSilentPeerIsClosed(t *testing.T) {
	t.Parallel()
	s, err := Start(testOptions(nil), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const beat = 800 * time.Millisecond
	p := dial(t, s.WorkerAddr())
	p.send(`{"action":"hello","heartbeat_ms":%d}`, beat.Milliseconds())
	p.wantFrame("ok", true)
	p.wantFrame("action", "ping")
	time.Sleep(beat / 8)
	p.send(`{"action":"pong"}`)
	start := time.Now()
	eventually(t, "it is dropped", func() bool { return s.Counts().Conns == 0 })
	if elapsed := time.Since(start); elapsed < 2*beat || elapsed > 2*beat+3*beat/4 {
		t.Errorf("dropped %v after the last byte, with a beat of %v", elapsed, beat)
	}
}

// TestPausedPeerIsNotSilent: a peer does not count as silent while its frames are not read.
func TestPausedPeerIsNotSilent(t *testing.T) {
	t.Parallel()
	log := &throwaway.Log{}
	s, err := Start(testOptions(nil), zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const beat = time.Second
	p := dial(t, s.WorkerAddr())
	p.send(`{"action":"hello","heartbeat_ms":%d}`, beat.Milliseconds())
	p.wantFrame("ok", true)
	var ownConn *conn
	s.Hub().EachConn(func(c *hub.Conn) { ownConn = c.OwnerData.(*conn) })
	for end := time.Now().Add(3 * beat); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		ownConn.loop.poller.Call(func() { ownConn.readState = readPaused })
	}
	if text := log.String(); strings.Contains(text, "two beats") {
		t.Errorf("dropped in a pause:\n%s", text)
	}
	ownConn.loop.poller.Call(func() { ownConn.resume() })
	eventually(t, "it is dropped for its silence", func() bool { return s.Counts().Conns == 0 })
}
