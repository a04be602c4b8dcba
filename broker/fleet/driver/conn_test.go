package driver

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"gloom/broker/hub"
)

// silentServer returns a connection to a NATS that reads nothing, and NATS's end of it.
func silentServer(t *testing.T, timeout time.Duration) (*natsConn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := hub.New(hub.Config{})
	t.Cleanup(h.Close)
	c, err := (&Driver{hub: h}).Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	c.(*natsConn).timeout = timeout
	return c.(*natsConn), peer
}

// fillConn writes messages of 1 MiB until no more are accepted, and returns how many were.
func fillConn(t *testing.T, c *natsConn) (writtenBytes int) {
	t.Helper()
	for ; writtenBytes <= 4*maxUnwritten>>20; writtenBytes++ {
		switch n, err := c.Write(testMessage(writtenBytes)); {
		case errors.Is(err, errSlowReader) && n == 0:
			return writtenBytes
		case err != nil || n != 1<<20:
			t.Fatalf("message %d: %d bytes, %v", writtenBytes, n, err)
		}
	}
	t.Fatal("there is no bound")
	return 0
}

func testMessage(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 1<<20) }

// TestWritesDoNotWaitForNATS writes to a NATS that does not read; no write waits for it.
func TestWritesDoNotWaitForNATS(t *testing.T) {
	t.Run("what was taken arrives, in order", func(t *testing.T) {
		c, peer := silentServer(t, time.Hour)
		writtenBytes := fillConn(t, c)
		if writtenBytes < maxUnwritten>>20 {
			t.Fatalf("%d MiB were taken, want %d at least", writtenBytes, maxUnwritten>>20)
		}
		got := make([]byte, 1<<20)
		for i := range writtenBytes {
			if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, testMessage(i)) {
				t.Fatalf("message %d is another one, or %v", i, err)
			}
		}
		if n, err := c.Write(got[:1]); n != 1 || err != nil {
			t.Fatalf("what comes next: %d bytes, %v", n, err)
		}
	})
	t.Run("that goes on ends the connection", func(t *testing.T) {
		c, _ := silentServer(t, time.Millisecond)
		for range maxUnwritten >> 20 {
			_, _ = c.Write(testMessage(0))
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("reading from it: %v, want that it is closed", err)
		}
		if n, err := c.Write(testMessage(0)); n != 0 || err == nil {
			t.Fatalf("writing to it: %d bytes, %v", n, err)
		}
	})
}

// TestTooLongWriteIsDroppedWhole: of more than may wait, nothing is written, because a part of it
// would spoil what comes next.
func TestTooLongWriteIsDroppedWhole(t *testing.T) {
	c, peer := silentServer(t, time.Hour)
	if n, err := c.Write(make([]byte, maxUnwritten+1)); n != 0 || !errors.Is(err, errSlowReader) {
		t.Errorf("%d bytes are written, %v", n, err)
	}
	if n, err := c.Write([]byte("next")); n != 4 || err != nil {
		t.Fatalf("what comes next: %d bytes, %v", n, err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(peer, got); err != nil || string(got) != "next" {
		t.Errorf("NATS gets %q, %v, want what comes next", got, err)
	}
}

// TestRefusedConnectionIsClosed: the NATS client does not close a connection on which NATS refused it. The next
// attempt closes it.
func TestRefusedConnectionIsClosed(t *testing.T) {
	c, _ := silentServer(t, time.Hour)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := &Driver{hub: hub.New(hub.Config{})}
	t.Cleanup(d.hub.Close)
	d.latestConn.Store(c)
	next, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading from the connection before: %v, want that it is closed", err)
	}
	if n, err := next.Write(testMessage(0)); n != 1<<20 || err != nil {
		t.Errorf("writing to the new one: %d bytes, %v", n, err)
	}
}
