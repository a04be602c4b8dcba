package control_test

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/internal/testing/controltest"
	"gloom/cmd/internal/testing/peertest"
	"gloom/cmd/jobd/control"
)

// fakeMaster accepts connections of links, and reads and writes bytes.
type fakeMaster struct {
	t *testing.T
	net.Listener
}

// masterSide is the master's end of a link.
type masterSide struct {
	t    *testing.T
	sock net.Conn
	in   *bufio.Reader
}

func newMaster(t *testing.T) fakeMaster {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return fakeMaster{t, l}
}

func (m fakeMaster) accept() masterSide {
	m.t.Helper()
	_ = m.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(45 * time.Second))
	sock, err := m.Accept()
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { sock.Close() })
	return masterSide{m.t, sock, bufio.NewReader(sock)}
}

func (s masterSide) read() string {
	s.t.Helper()
	_ = s.sock.SetReadDeadline(time.Now().Add(45 * time.Second))
	message, err := s.in.ReadString(4)
	if err != nil {
		s.t.Fatalf("the link says nothing: %v", err)
	}
	return strings.TrimSuffix(message, "\x04")
}

func (s masterSide) write(text string) {
	s.t.Helper()
	if _, err := s.sock.Write([]byte(strings.ReplaceAll(text, "|", "\x04"))); err != nil {
		s.t.Fatal(err)
	}
}

// readRegistration reads a registration, and returns its number and what follows the type.
func (s masterSide) readRegistration() (number, rest string) {
	s.t.Helper()
	message := s.read()
	number, rest, ok := strings.Cut(strings.TrimPrefix(message, `[0,{"no":`), `,"type":"register-worker",`)
	if !ok {
		s.t.Fatalf("no registration: %s", message)
	}
	return number, rest
}

func (s masterSide) expectRegistration(want string) (number string) {
	s.t.Helper()
	number, got := s.readRegistration()
	if got != want {
		s.t.Fatalf("got registration %s, want %s", got, want)
	}
	return number
}

func startLink(t *testing.T, m fakeMaster, e *controltest.Engine, password string, ping time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l := control.MasterLink{Host: "127.0.0.1", Port: m.Addr().(*net.TCPAddr).Port, Name: "probe-w1", Password: password,
		MaxPause: 20 * time.Millisecond, PingInterval: ping, Log: zerolog.Nop()}
	go func() {
		defer close(done)
		l.Run(ctx, e)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func TestLinkRegisters(t *testing.T) {
	m, e := newMaster(t), controltest.New("b", "a")
	stop := startLink(t, m, e, "pass", time.Hour)
	s := m.accept()
	number := s.expectRegistration(`"data":{"targets":["b","a"],"name":"probe-w1"},"password":"pass"}]`)

	// The master's requests are served even before it has accepted the registration, and need no
	// password.
	s.write(`[0,{"no":1,"type":"poll","data":{"targets":["a"]}}]|`)
	if got := s.read(); got != `[1,{"no":1,"data":"ok"}]` {
		t.Error(got)
	}
	s.write(`[2]|`)
	if got := s.read(); got != `[3]` {
		t.Error(got)
	}
	s.write(`[1,{"no":` + number + `,"data":"ok"}]|[0,{"no":2,"type":"pause"}]|`)
	if got := s.read(); got != `[1,{"no":2,"data":"ok"}]` {
		t.Error(got)
	}
	if got := strings.Join(e.Calls(), ","); got != "poll [a],pause []" {
		t.Errorf("engine was asked %s", got)
	}

	// Changed targets are sent on the same connection, without repeating the password.
	if err := e.AddTarget("new", 1); err != nil {
		t.Fatal(err)
	}
	number = s.expectRegistration(`"data":{"targets":["b","a","new"],"name":"probe-w1"}}]`)
	s.write(`[1,{"no":` + number + `,"data":"ok"}]|`)
	if err := e.RemoveTarget("b"); err != nil {
		t.Fatal(err)
	}
	number = s.expectRegistration(`"data":{"targets":["a","new"],"name":"probe-w1"}}]`)

	// If a poll names a target that was just removed, the other targets are polled
	// nevertheless.
	s.write(`[1,{"no":` + number + `,"data":"ok"}]|[0,{"no":3,"type":"poll","data":{"targets":["b","a"]}}]|`)
	if got := s.read(); got != `[1,{"no":3,"error":"invalid target 'b'"}]` {
		t.Error(got)
	}
	if got := strings.Join(e.Calls(), ","); got != "poll [a]" {
		t.Errorf("engine was asked %s", got)
	}
	stop()
}

func TestWorkerRegistersAgain(t *testing.T) {
	m, e := newMaster(t), controltest.New("a")
	startLink(t, m, e, "", time.Hour)
	for i := range 3 {
		s := m.accept()
		number := s.expectRegistration(`"data":{"targets":["a"],"name":"probe-w1"}}]`)
		s.write(`[1,{"no":` + number + `,"data":"ok"}]|`)
		// Polls may have been lost while the master was stopped or could not reach us.
		if i > 0 {
			peertest.WaitUntil(t, "all targets are polled", func() bool { return strings.Join(e.Calls(), ",") == "poll []" })
		}
		s.sock.Close()
	}
	s := m.accept() // the master refuses this registration, but the daemon tries again
	number, _ := s.readRegistration()
	s.write(`[1,{"no":` + number + `,"error":"invalid password"}]|`)
	s.sock.Close()
	m.accept().readRegistration()
}

// TestSilentMaster: the connection stays open, but there are no answers.
func TestSilentMaster(t *testing.T) {
	m, e := newMaster(t), controltest.New("a")
	startLink(t, m, e, "", 100*time.Millisecond)
	s := m.accept()
	number, _ := s.readRegistration()
	s.write(`[1,{"no":` + number + `,"data":"ok"}]|`)
	for range 5 { // more pings than may stay unanswered
		if got := s.read(); got != "[2]" {
			t.Fatal(got)
		}
		s.write("[3]|")
	}
	m.accept().readRegistration()
}

func TestLinkEndsWithoutTargets(t *testing.T) {
	m, e := newMaster(t), controltest.New()
	startLink(t, m, e, "", time.Hour)
	if err := e.AddTarget("first", 1); err != nil {
		t.Fatal(err)
	}
	s := m.accept()
	number := s.expectRegistration(`"data":{"targets":["first"],"name":"probe-w1"}}]`)
	s.write(`[1,{"no":` + number + `,"data":"ok"}]|`)
	// Masters refuse an empty list, so the connection ends.
	if err := e.RemoveTarget("first"); err != nil {
		t.Fatal(err)
	}
	_ = s.sock.SetReadDeadline(time.Now().Add(45 * time.Second))
	if rest, err := s.in.ReadString(4); err == nil {
		t.Fatalf("still connected: %s", rest)
	}
	if err := e.AddTarget("second", 1); err != nil {
		t.Fatal(err)
	}
	m.accept().expectRegistration(`"data":{"targets":["second"],"name":"probe-w1"}}]`)
}
