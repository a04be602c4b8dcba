package server

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"gloom/broker"
	"gloom/broker/hub"
	"gloom/broker/poll"
	"gloom/broker/settings"
	"gloom/wire"
)

// TestBacklogArrivesInOrder: output that has to wait arrives in order, exactly once, whether it was
// copied or not, and however little the socket accepts at a time.
func TestBacklogArrivesInOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := startServer(t, func(o *settings.Options) { o.MaxOutbound = 1 << 30 })
	c, fd := connPair(t, s, wire.SubmitPort)
	if err := unix.SetsockoptInt(c.source.(*socket).fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<10); err != nil {
		t.Fatal(err)
	}
	var want, got []byte
	next, fullWrites := byte(0), 0
	buf := make([]byte, 64<<10)
	unread := func() int {
		_, n, _ := s.hub.Backlog()
		return n
	}
	for len(want) < 20<<20 || unread() > 0 {
		if len(want) < 20<<20 && rng.IntN(3) > 0 {
			stable := rng.IntN(20) == 0
			part := make([]byte, rng.IntN(1+rng.IntN(40_000)))
			if stable {
				part = make([]byte, minBigFrame+rng.IntN(minBigFrame))
			}
			for i := range part {
				part[i], next = next, next*5+1
			}
			want = wire.AppendProgress(want, []byte("a"), part)
			s.hub.Do(func(*broker.Broker, int64) []broker.Effect {
				return []broker.Effect{{Op: broker.OpProgress, Peer: c.hubConn.Peer, ID: []byte("a"), Body: part, StableBody: stable}}
			})
			if !stable {
				clear(part)
			}
		}
		if c.loop.write(); rng.IntN(2) == 0 {
			c.loop.send(c)
		}
		if c.hubConn.UnreadBytes() > 0 {
			fullWrites++
		}
		if sum := unread() + len(got); sum > len(want) {
			t.Fatalf("%d bytes are left and %d have come, of %d", unread(), len(got), len(want))
		}
		n, _ := poll.Receive(fd, buf[:1+rng.IntN(len(buf))])
		got = append(got, buf[:max(n, 0)]...)
	}
	for {
		n, errno := poll.Receive(fd, buf)
		if errno != 0 {
			break
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes came, of %d, or not the same", len(got), len(want))
	}
	if fullWrites == 0 {
		t.Error("the socket was never full: this proves little")
	}
	if n := s.hub.Memory().Unread; n != 0 {
		t.Errorf("%d bytes are unread after all was read", n)
	}
}

// connPair returns a connection on a loop that is not running, and the descriptor of the peer's
// end.
func connPair(t *testing.T, s *Server, port wire.Port) (c *conn, fd int) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	lp := &loop{srv: s, batch: s.newBatch(), conns: make([]*conn, fds[0]+1), parts: make([][]byte, 0, maxParts)}
	lp.sink = s.hub.NewSink(hub.SinkOwner{Wake: func() {}})
	c = lp.newConn(&socket{lp, fds[0]}, port, "test")
	lp.conns[fds[0]] = c
	lp.openConn(c)
	return c, fds[1]
}

// TestReceiveReturnsZeroOnlyAtEOF: Receive returns 0 only at the end of the stream, not on an error.
func TestReceiveReturnsZeroOnlyAtEOF(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	buf := make([]byte, 10)
	if _, errno := poll.Receive(fds[0], buf); errno != unix.EAGAIN {
		t.Errorf("nothing has come yet: %v", errno)
	}
	if n, err := poll.Send(fds[1], []byte("abc")); n != 3 || err != nil {
		t.Errorf("sent %d of 3 bytes: %v", n, err)
	}
	unix.Close(fds[1])
	if n, errno := poll.Receive(fds[0], buf); n != 3 || errno != 0 {
		t.Errorf("%d bytes, %v; want 3", n, errno)
	}
	if n, errno := poll.Receive(fds[0], buf); n != 0 || errno != 0 {
		t.Errorf("%d bytes, %v at the end; want 0", n, errno)
	}
	if _, err := poll.Send(fds[0], []byte("abc")); err == nil || err == unix.EAGAIN {
		t.Errorf("sent to a peer that has closed: %v", err)
	}
}
