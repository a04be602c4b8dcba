package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/broker/container"
	"gloom/broker/hub"
	"gloom/broker/settings"
	"gloom/wire"
)

// TestSplittingInputChangesNoReply: the replies on a connection do not depend on how the bytes of the requests were
// split on the way, and the memory of an unfinished frame is proportional to the bytes that
// have arrived.
func TestSplittingInputChangesNoReply(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var stream []byte
	for i := range 120 {
		switch rng.IntN(10) {
		case 0:
			stream = append(stream, 0, 0, 0, 0)
		case 1:
			stream = append(stream, frame("{")...)
		case 2:
			stream = append(stream, frame(`{"action":"ping"}`)...)
		case 3:
			stream = append(stream, frame(`{"action":"submit","id":"%d","body":"%s"}`, i, strings.Repeat("b", minBigFrame-100+rng.IntN(200)))...)
		default:
			stream = append(stream, frame(`{"action":"submit","id":"%d","body":"%s"}`, i, strings.Repeat("s", rng.IntN(3000)))...)
		}
	}
	cut := 0
	answers := func(limit int) []byte {
		s := startServer(t, nil)
		lp := &loop{srv: s, batch: s.newBatch()}
		lp.sink = s.hub.NewSink(hub.SinkOwner{Wake: func() {}})
		p := lp.newConn(nullSource{}, wire.SubmitPort, "test")
		p.input.maxOwnAlloc = math.MaxInt
		lp.openConn(p)
		var out []byte
		for remaining := stream; len(remaining) > 0; {
			n := min(1+rng.IntN(limit), len(remaining))
			if limit == len(stream) {
				n = limit
			}
			// Half of the turns have no time left when they begin.
			lp.batch.turnFrames, lp.batch.turnEnd = 0, s.hub.Now()+rng.Int64N(2)*int64(maxTurnTime)
			p.handleInput(remaining[:n])
			remaining = remaining[n:]
			// More bytes may arrive before the earlier frames are carried out, unless these
			// were the last bytes.
			for ; p.readState == readAtNextTurn && (len(remaining) == 0 || rng.IntN(3) > 0); cut++ {
				lp.batch.turnFrames, lp.batch.turnEnd = 0, 0 // the turn is over as soon as it begins
				p.handleInput(nil)
			}
			if cap(p.input.frame) > max(container.MaxBuffer, maxGrowth*len(p.input.frame)) {
				t.Fatalf("%d bytes are kept for %d of a frame that have arrived", cap(p.input.frame), len(p.input.frame))
			}
			if cap(p.input.rest) > max(container.MaxBuffer, 2*len(p.input.rest)) {
				t.Fatalf("%d bytes are kept for %d that wait", cap(p.input.rest), len(p.input.rest))
			}
			// The requests in the frames before restAt have been carried out, so their memory does
			// not count.
			want := int64(max(0, cap(p.input.frame)-wire.HeaderLen))
			if !p.input.isBig() {
				want = int64(min(cap(p.input.frame), 2*len(p.input.frame)))
			}
			want += int64(min(cap(p.input.rest), 2*(len(p.input.rest)-p.input.restAt)))
			if n := s.Counts().InboundBytes; n != want {
				t.Fatalf("%d bytes of unfinished frames are counted, there are %d", n, want)
			}
			lp.runBatch()
			for _, o := range lp.sink.Take() {
				parts, _ := o.Conn.NextParts(make([][]byte, 0, 100), math.MaxInt)
				output := bytes.Join(parts, nil)
				out = append(out, output...)
				o.Conn.MarkWritten(len(output))
			}
		}
		return out
	}
	want := answers(len(stream))
	if n := bytes.Count(want, []byte(`"ok":true`)); n < 50 {
		t.Fatalf("%d frames were accepted: this proves nothing", n)
	}
	for _, limit := range []int{2, 7, 500, 5000, 100_000} {
		if got := answers(limit); !bytes.Equal(got, want) {
			t.Errorf("in pieces of 1 to %d bytes: %d bytes of answers, %d in one piece", limit, len(got), len(want))
		}
	}
	if cut == 0 {
		t.Error("no turn was cut: this proves less than it should")
	}
}

// nullSource is a source for connections whose input and output the test handles itself.
type nullSource struct{ source }

func (nullSource) requestTurn() {}

// TestHalfClosedPeerGetsReplies: a peer that closes its sending side still gets the replies to its last
// frames.
func TestHalfClosedPeerGetsReplies(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for range 50 {
		p := dial(t, s.SubmitAddr())
		p.send(`{"action":"ping"}`)
		if err := p.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		p.wantFrame("ok", true)
		_ = p.SetReadDeadline(time.Now().Add(patience))
		if n, err := p.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("%d bytes, %v: the connection should have ended", n, err)
		}
	}
	eventually(t, "all are gone", func() bool { return s.Counts().Conns == 0 })
}

// TestLongInputIsReadWhole: if a peer sends more than one read can take, everything is read.
func TestLongInputIsReadWhole(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	p := dial(t, s.SubmitAddr())
	body := strings.Repeat("x", 3*readBufSize)
	for range 20 {
		p.send(`{"action":"submit","id":"j","type":"t","body":"%s"}`, body)
		p.wantFrame("ok", true)
		p.send(`{"action":"cancel","id":"j"}`)
		p.wantFrame("ok", true)
	}
}

// TestBigFramesAreAnsweredInOrder: frames that are decoded outside the loop are answered in order with the frames
// before and after them, and meanwhile other peers are served. A frame that is still being
// decoded when its connection closes does no harm.
func TestBigFramesAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	giant := strings.Repeat("x", 2<<20)
	var senders sync.WaitGroup
	for i := range 3 {
		p, worker := dial(t, s.SubmitAddr()), dial(t, s.WorkerAddr())
		worker.send(`{"action":"join","type":"t%d"}`, i)
		worker.wantFrame("ok", true)
		var stream []byte
		const n = 3
		for k := range n {
			stream = append(stream, frame(`{"action":"submit","id":"%d-%d","type":"t%d","body":"%s"}`, i, k, i, giant)...)
			stream = append(stream, frame(`{"action":"cancel","id":"no-%d"}`, k)...)
			stream = append(stream, frame(`{"action":"submit","id":"bad","body":"%s}`, giant)...)
		}
		senders.Go(func() { _, _ = p.Write(stream) })
		var replies sync.WaitGroup
		replies.Go(func() {
			var order []string
			for results := 0; results < n || len(order) < 3*n; {
				m, err := p.next()
				if err != nil {
					t.Errorf("after %d replies and %d results: %v", len(order), results, err)
					return
				}
				switch {
				case m["ok"] == true:
					order = append(order, m["id"].(string))
				case m["error"] == "invalid_json":
					order = append(order, "bad")
				case m["error"] != nil:
					order = append(order, m["id"].(string))
				case m["body"] != giant:
					t.Errorf("another result: %.80v", m)
				default:
					results++
				}
			}
			for k := range n {
				if got, want := fmt.Sprint(order[3*k:3*k+3]), fmt.Sprintf("[%d-%d no-%d bad]", i, k, k); got != want {
					t.Errorf("replied in the order %s, want %s", got, want)
				}
			}
		})
		for k := range n {
			worker.wantFrame("id", fmt.Sprintf("%d-%d", i, k))
			worker.send(`{"action":"respond","body":"%s"}`, giant)
			worker.wantFrame("ok", true)
		}
		replies.Wait()
		// Some peers close the connection right after their frame.
		for range 5 {
			c := dial(t, s.SubmitAddr())
			_, _ = c.Write(frame(`{"action":"submit","id":"gone-%d","type":"none","body":"%s"}`, i, giant))
			_ = c.Close()
		}
	}
	senders.Wait()
	eventually(t, "those that left are gone", func() bool { return s.Counts().Conns == 6 && s.Counts().InboundBytes == 0 })
	if s.Leftovers().Jobs() > 0 {
		t.Error("jobs are held")
	}
}

// TestLargestFrameFits: a single frame of the largest size fits, however small the bound on
// unfinished frames is, and more frames may follow at once.
func TestLargestFrameFits(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	s := startServer(t, func(o *settings.Options) { o.MaxFrame, o.MaxInbound = limit, limit })
	p := dial(t, s.SubmitAddr())
	head, tail := `{"action":"submit","id":"j","type":"t","body":"`, `"}`
	giant := frame("%s%s%s", head, strings.Repeat("x", limit-len(head)-len(tail)), tail)
	end := frame(`{"action":"cancel","id":"j"}`)
	for range 5 {
		for _, piece := range [][]byte{giant[:3], giant[3:1000], giant[1000 : limit/3], giant[limit/3:], end[:2], end[2:]} {
			if _, err := p.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		p.wantFrame("ok", true)
		p.wantFrame("ok", true)
	}
}

// TestManyFramesAreAnsweredInOrder: a peer that sends more frames at once than one turn handles
// gets all answers in order, even if it then sends nothing.
func TestManyFramesAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	for _, name := range transports {
		s := startServer(t, func(o *settings.Options) {
			if name == "TLS" {
				setCertificate(t, o)
			}
		})
		p := dialTransport(t, s, name)
		const n = 20 * maxTurnFrames
		go func() {
			var stream []byte
			for i := range n {
				stream = append(stream, frame(`{"action":"cancel","id":"%d"}`, i)...)
			}
			_, _ = p.Write(stream)
		}()
		reader := bufio.NewReader(p)
		_ = p.SetReadDeadline(time.Now().Add(2 * patience))
		for i := range n {
			var head [4]byte
			_, _ = io.ReadFull(reader, head[:])
			payload := make([]byte, binary.BigEndian.Uint32(head[:]))
			if _, err := io.ReadFull(reader, payload); err != nil || !bytes.Contains(payload, fmt.Appendf(nil, `"id":"%d"`, i)) {
				t.Fatalf("%s: answer %d is %.200q, %v", name, i, payload, err)
			}
		}
	}
}
