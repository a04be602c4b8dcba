package gloom

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"gloom/wire"
)

// TestRequestAfterCloseEnds: a request that is sent after Close, but before its connection has ended
// its requests, is told so. Close ends the life of connections without their lock.
func TestRequestAfterCloseEnds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s, err := Dial(context.Background(), Addrs(ln.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	callErr := make(chan error, 1)
	s.mu.Lock() // the connection waits for this before it ends its requests
	sess := s.current
	s.cancelCtx(ErrClosed)
	sess.send(wire.AppendPing(nil), request{verb: wire.Ping, done: func(err error) { callErr <- err }})
	s.mu.Unlock()
	defer func() { <-sess.ended }()
	select {
	case err := <-callErr:
		if !errors.Is(err, ErrLost) || !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it is never told")
	}
}

// TestPoolKeepsNoLargeBuffer: the pool of buffers for frames keeps no large buffer, because the memory
// of such a buffer would never be freed while the pool is in use.
func TestPoolKeepsNoLargeBuffer(t *testing.T) {
	s, err := NewSubmitter(Addrs("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 10 {
		s.TrySubmit(Job{Body: slices.Repeat([]byte("1"), 4*maxKeptBuffer)})
		for range 3 {
			runtime.GC()
			s.TrySubmit(Job{})
		}
		buf := frameBuffers.Get().(*[]byte)
		if n := cap(*buf); n > maxKeptBuffer {
			t.Fatalf("%d bytes are kept", n)
		}
		frameBuffers.Put(buf)
	}
}
