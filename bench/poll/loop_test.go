package poll

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// recorder keeps the bytes that arrive, and consumes them in units of a given size.
type recorder struct {
	unit      int
	got       []byte
	calls     int
	closeErrs chan error
}

func newRecorder(unit int) *recorder { return &recorder{unit: unit, closeErrs: make(chan error, 1)} }

func (r *recorder) Data(_ *Conn, in []byte, _ int64) int {
	r.calls++
	used := len(in) / r.unit * r.unit
	r.got = append(r.got, in[:used]...)
	return used
}

func (r *recorder) Closed(_ *Conn, err error) { r.closeErrs <- err }

func startLoop(t *testing.T, step func(int64) int64) *Loop {
	t.Helper()
	l, err := New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if step == nil {
		step = func(int64) int64 { return -1 }
	}
	runErr := make(chan error, 1)
	go func() { runErr <- l.Run(step) }()
	t.Cleanup(func() {
		l.Stop()
		if err := <-runErr; err != nil {
			t.Error(err)
		}
	})
	return l
}

// echoServer returns all bytes that it gets, and closes when its peer does.
func echoServer(t *testing.T, network, addr string) string {
	t.Helper()
	lis, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return lis.Addr().String()
}

// eventually polls a condition on the loop's thread.
func eventually(t *testing.T, l *Loop, name string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(45 * time.Second); time.Now().Before(deadline); {
		ok := false
		if !l.Do(func() { ok = cond() }) {
			t.Fatal("the loop has stopped")
		}
		if ok {
			return
		}
	}
	t.Fatalf("no %s within 45 s", name)
}

func TestEveryByteIsEchoed(t *testing.T) {
	tcp := echoServer(t, "tcp", "127.0.0.1:0")
	socket := "unix:" + echoServer(t, "unix", filepath.Join(t.TempDir(), "s"))
	for _, c := range []struct {
		addr string
		unit int
		size int
	}{
		{tcp, 1, 10}, {tcp, 7, 7 * 1000}, {socket, 7, 7 * 1000},
		{tcp, 1 << 20, 8 << 20}, // units much larger than one read: parts of frames are kept
		{tcp, 4096, 32 << 20},   // more than the socket takes at once: writing waits for room
	} {
		l := startLoop(t, nil)
		r := newRecorder(c.unit)
		want := make([]byte, c.size)
		for i := range want {
			want[i] = byte(i * 7 >> 3)
		}
		l.Do(func() {
			conn, err := l.Dial(c.addr, r)
			if err != nil {
				t.Error(err)
				return
			}
			conn.SetOut(append(conn.Out(), want...))
		})
		eventually(t, l, "echo", func() bool { return len(r.got) == c.size })
		if !bytes.Equal(r.got, want) {
			t.Errorf("unit %d, %d bytes to %s: came back different", c.unit, c.size, c.addr)
		}
		if l.BytesIn != int64(c.size) || l.BytesOut != int64(c.size) {
			t.Errorf("counted %d in and %d out of %d", l.BytesIn, l.BytesOut, c.size)
		}
	}
}

func TestRefusedConnectionIsClosed(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := lis.Addr().String()
	lis.Close()
	l := startLoop(t, nil)
	r := newRecorder(1)
	var dialErr error
	l.Do(func() { _, dialErr = l.Dial(addr, r) })
	if dialErr != nil {
		return // reported at once
	}
	select {
	case err := <-r.closeErrs:
		if err == nil {
			t.Error("closed without an error")
		}
	case <-time.After(45 * time.Second):
		t.Error("not told within 45 s")
	}
}

func TestHalfFrameAtTheEnd(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	go func() {
		c, err := lis.Accept()
		if err == nil {
			_, _ = c.Write([]byte("12345"))
			c.Close()
		}
	}()
	l := startLoop(t, nil)
	r := newRecorder(4)
	l.Do(func() {
		if _, err := l.Dial(lis.Addr().String(), r); err != nil {
			t.Error(err)
		}
	})
	select {
	case err := <-r.closeErrs:
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("closed with %v", err)
		}
	case <-time.After(45 * time.Second):
		t.Fatal("not told within 45 s")
	}
}

// Without events, the loop calls step at the time that step returned, and not before.
func TestStepWhenDue(t *testing.T) {
	const after = int64(3 * time.Millisecond)
	called := make(chan int64, 1)
	due := int64(-1)
	startLoop(t, func(now int64) int64 {
		if due < 0 {
			due = now + after
		}
		if now >= due {
			select {
			case called <- now - due:
			default:
			}
			return -1
		}
		return due
	})
	select {
	case lateness := <-called:
		if lateness < 0 {
			t.Errorf("called %d ns too early", -lateness)
		}
	case <-time.After(45 * time.Second):
		t.Error("not called within 45 s")
	}
}

func TestDoAfterStop(t *testing.T) {
	l, err := New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = l.Run(func(int64) int64 { return -1 }) }()
	l.Stop()
	if l.Do(func() { t.Error("ran") }) {
		t.Error("Do says it ran on a stopped loop")
	}
}

// TestAdoptedConnectionIsServed: a connection that was accepted elsewhere is served like a
// connection that the loop dialled.
func TestAdoptedConnectionIsServed(t *testing.T) {
	l := startLoop(t, nil)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	peer, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	nc, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(1)
	l.Do(func() {
		var c *Conn
		if c, err = l.Adopt(nc, r); err == nil {
			c.SetOut([]byte("hello"))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	peer.SetDeadline(time.Now().Add(45 * time.Second))
	greeting := make([]byte, 5)
	if _, err := io.ReadFull(peer, greeting); err != nil || string(greeting) != "hello" {
		t.Fatalf("%q %v", greeting, err)
	}
	if _, err := peer.Write([]byte("and back")); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	if err := <-r.closeErrs; err != nil || string(r.got) != "and back" {
		t.Fatalf("%q %v", r.got, err)
	}
}
