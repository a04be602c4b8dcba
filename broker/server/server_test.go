package server

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"gloom/bench/throwaway"
	"gloom/broker/settings"
	"gloom/wire"
)

// TestFailedStartReleasesAddresses: if the last step of Start fails, no address stays bound.
func TestFailedStartReleasesAddresses(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	rlimit := limit
	rlimit.Cur = 200
	addrs := make([]string, 3)
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addrs[i] = l.Addr().String()
		_ = l.Close()
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &rlimit); err != nil {
		t.Fatal(err)
	}
	_, err := Start(testOptions(func(o *settings.Options) {
		o.Loops = 256 // two descriptors each
		o.SubmitAddr, o.WorkerAddr, o.HTTPAddr = addrs[0], addrs[1], addrs[2]
	}), zerolog.Nop())
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); e != nil {
		t.Fatal(e)
	}
	if err == nil || !strings.Contains(err.Error(), "event loops") {
		t.Fatalf("the start gave %v, want no event loops", err)
	}
	for _, a := range addrs {
		l, err := net.Listen("tcp", a)
		if err != nil {
			t.Error(err)
			continue
		}
		_ = l.Close()
	}
}

// lateListener accepts one connection while it is being closed.
type lateListener struct {
	net.Listener
	closed   chan struct{}
	lateConn net.Conn
}

func (l *lateListener) Accept() (net.Conn, error) {
	<-l.closed
	if nc := l.lateConn; nc != nil {
		l.lateConn = nil
		time.Sleep(200 * time.Millisecond) // during this time the broker closes everything else
		return nc, nil
	}
	return nil, net.ErrClosed
}

func (l *lateListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return l.Listener.Close()
}

// TestLateConnectionDoesNotDelayClose: a connection that is accepted at the last moment does not delay
// Close.
func TestLateConnectionDoesNotDelayClose(t *testing.T) {
	s := startServer(t, nil)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial(t, inner.Addr())
	nc, err := inner.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{&lateListener{inner, make(chan struct{}), nc}, wire.SubmitPort, false}
	s.listeners = append(s.listeners, l)
	s.acceptLoops.Go(func() { s.accept(l) })
	closed := make(chan struct{})
	go func() {
		_ = s.Close()
		s.acceptLoops.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("Close hangs")
	}
	if n := s.Counts().Conns; n != 0 {
		t.Errorf("%d connections are counted after all", n)
	}
}

// TestDrainWaitsForReaders: a submitter that reads slowly can read an answer that was given during a
// drain until the drain's time limit has passed.
func TestDrainWaitsForReaders(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	submitter, worker := dial(t, s.SubmitAddr()).shrinkBuffers(), dial(t, s.WorkerAddr())
	submitter.send(`{"action":"submit","id":"j","type":"t","body":1}`)
	submitter.wantFrame("ok", true)
	worker.send(`{"action":"join","type":"t"}`)
	worker.wantFrame("ok", true)
	worker.wantFrame("id", "j")
	worker.send(`{"action":"respond","body":"%s"}`, strings.Repeat("x", 14<<20))
	worker.wantFrame("ok", true)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan struct{})
	go func() {
		_ = s.Shutdown(ctx)
		close(done)
	}()
	select {
	case <-done:
		t.Error("the drain was over before the answer was read")
	case <-time.After(lingerTimeout + time.Second):
	}
	submitter.wantFrame("id", "j")
	_, _ = submitter.Close(), worker.Close()
	select {
	case <-done:
	case <-time.After(patience / 2):
		t.Error("the drain continues although everything is read")
	}
	if n := s.Hub().Stats().UndeliveredAnswers; n != 0 {
		t.Errorf("%d answers were undelivered", n)
	}
}

// TestHTTPErrorsAreLogged: the messages of the HTTP server about its clients appear in the log.
func TestHTTPErrorsAreLogged(t *testing.T) {
	log := &throwaway.Log{}
	s, err := Start(testOptions(func(o *settings.Options) {
		setCertificate(t, o)
		o.HTTPAddr = "127.0.0.1:0"
	}), zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.ServeHTTP(nil)
	_, _ = dial(t, s.HTTPAddr()).Write([]byte("GET / HTTP/1.0\r\n\r\n"))
	eventually(t, "a line about it", func() bool {
		return strings.Contains(log.String(), `"from":"http"`) && strings.Contains(log.String(), "TLS handshake error")
	})
}
