package server

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"gloom/bench/throwaway"
	"gloom/broker/settings"
	"gloom/wire"
)

// TestSystemdSocketsReplaceAddresses: sockets that systemd hands over replace the configured addresses, and are
// served like sockets that the broker opens.
func TestSystemdSocketsReplaceAddresses(t *testing.T) {
	tcp := func(addr string) net.Listener {
		t.Helper()
		var lc net.ListenConfig
		lc.SetMultipathTCP(false)
		l, err := lc.Listen(context.Background(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	file := filepath.Join(t.TempDir(), "socket")
	local, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for _, c := range []struct {
		listeners map[string][]net.Listener
		set       func(o *settings.Options)
		wantError string
	}{
		{map[string][]net.Listener{"submit": {tcp("127.0.0.1:0")}, "worker": {local}, "http": {tcp("[::1]:0")}}, nil, ""},
		{map[string][]net.Listener{"gloomd.socket": {tcp("127.0.0.1:0")}}, nil, `has the name "gloomd.socket"`},
		{map[string][]net.Listener{"submit": {tcp("127.0.0.1:0"), tcp("127.0.0.1:0")}}, nil, ""},
		{map[string][]net.Listener{"submit": {tcp("0.0.0.0:0")}}, nil, "can be reached from other hosts"},
		{map[string][]net.Listener{"submit": {tcp("0.0.0.0:0")}}, func(o *settings.Options) { o.Insecure = true }, ""},
		{map[string][]net.Listener{"submit": {tcp("0.0.0.0:0")}}, func(o *settings.Options) { o.TokenFile = "t" }, ""},
		{map[string][]net.Listener{"plain-submit": {tcp("0.0.0.0:0")}}, func(o *settings.Options) { o.TLSClientCA = "c" }, "other hosts"},
	} {
		s := &Server{options: testOptions(c.set), log: zerolog.Nop()}
		err := s.bindAddresses(c.listeners)
		s.closeListeners()
		if c.wantError == "" && err != nil || c.wantError != "" && (err == nil || !strings.Contains(err.Error(), c.wantError)) {
			t.Errorf("%v: %v, want %q", c.listeners, err, c.wantError)
		}
	}
}

// TestConfiguredAddressesAreBound: exactly the configured addresses are bound.
func TestConfiguredAddressesAreBound(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "own", "submit.sock")
	log := &throwaway.Log{}
	s, err := Start(testOptions(func(o *settings.Options) {
		setCertificate(t, o)
		o.SubmitAddr = "unix:" + filepath.Join(dir, "s") + ",tcp://127.0.0.1:0,tls://127.0.0.1:0"
		o.SubmitSocket, o.WorkerSocket = path, filepath.Join(dir, "none", "at", "all")
		o.WorkerAddr, o.Insecure = "0.0.0.0:0", true
	}), zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	addrs := s.Addrs(wire.SubmitPort)
	if len(addrs) != 4 || addrs[3].String() != path {
		t.Fatalf("submitters connect at %v", addrs)
	}
	for i, a := range addrs {
		p := dial(t, a)
		if i == 0 {
			p = dialTLS(t, a)
		}
		p.send(`{"action":"ping"}`)
		p.wantFrame("ok", true)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want a socket for its user alone", fi, err)
	}
	if n := len(s.Addrs(wire.WorkerPort)); n != 1 || !strings.Contains(log.String(), "none/at/all") {
		t.Errorf("%d addresses for workers, want 1 and a line about the other:\n%s", n, log.String())
	}
	_, port, _ := net.SplitHostPort(s.WorkerAddr().String())
	if nc, err := net.Dial("tcp6", net.JoinHostPort("::1", port)); err == nil {
		_ = nc.Close()
		t.Error("0.0.0.0 is reached over IPv6")
	}
}

// TestGonePeerIsClosed: the system closes a connection whose peer is gone after a while, whichever
// listener has accepted it.
func TestGonePeerIsClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial(t, l.Addr())
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	setSocketOptions(nc)
	rc, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []struct {
		name                string
		level, option, want int
	}{
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30},
		{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
		{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
		{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 60000},
	} {
		_ = rc.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptInt(int(fd), o.level, o.option); err != nil || got != o.want {
				t.Errorf("%s is %d, %v; want %d", o.name, got, err, o.want)
			}
		})
	}
}
