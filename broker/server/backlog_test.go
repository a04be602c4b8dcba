package server

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBacklog: whatever is held back arrives in order, once, whether it was
// copied or not, and however little the socket takes at a time.
func TestBacklog(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<10); err != nil {
		t.Fatal(err)
	}
	var b backlog
	var want, got []byte
	next, full := byte(0), 0
	buf := make([]byte, 64<<10)
	for len(want) < 20<<20 || b.n > 0 {
		if len(want) < 20<<20 && rng.IntN(3) > 0 {
			part := make([]byte, rng.IntN(1+rng.IntN(40_000)))
			for i := range part {
				part[i], next = next, next*5+1
			}
			want = append(want, part...)
			if rng.IntN(2) == 0 {
				b.refer(part)
			} else {
				b.add(part, rng.IntN(2) == 0)
				clear(part)
			}
		}
		if b.n > 0 {
			before := b.n
			most := 1 + rng.IntN(50_000)
			n, err := b.write(fds[0], most, nil)
			if n > most {
				t.Fatalf("%d bytes were written, at most %d should be", n, most)
			}
			if refused(err) {
				t.Fatal(err)
			}
			if err != nil {
				full++
			}
			if b.n != before-n {
				t.Fatalf("%d of %d bytes were written, %d are left", n, before, b.n)
			}
		}
		n, _ := receive(fds[1], buf[:1+rng.IntN(len(buf))])
		got = append(got, buf[:max(n, 0)]...)
	}
	for {
		n, errno := receive(fds[1], buf)
		if errno != 0 {
			break
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes came, of %d, or not the same", len(got), len(want))
	}
	if full == 0 {
		t.Error("the socket was never full: this proves little")
	}
}

// TestReceiveAtTheEnd: 0 is the end of the stream, an error is not.
func TestReceiveAtTheEnd(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	buf := make([]byte, 10)
	if _, errno := receive(fds[0], buf); errno != unix.EAGAIN {
		t.Errorf("nothing has come yet: %v", errno)
	}
	if n, err := send(fds[1], []byte("abc")); n != 3 || err != nil {
		t.Errorf("sent %d of 3 bytes: %v", n, err)
	}
	unix.Close(fds[1])
	if n, errno := receive(fds[0], buf); n != 3 || errno != 0 {
		t.Errorf("%d bytes, %v; want 3", n, errno)
	}
	if n, errno := receive(fds[0], buf); n != 0 || errno != 0 {
		t.Errorf("%d bytes, %v at the end; want 0", n, errno)
	}
	if _, err := send(fds[0], []byte("abc")); !refused(err) {
		t.Errorf("sent to a peer that has closed: %v", err)
	}
}
