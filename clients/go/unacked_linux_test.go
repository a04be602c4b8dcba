package gloom

import (
	"context"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnackedDataEndsConnection: keepalive alone does not end a connection with unacknowledged data.
func TestUnackedDataEndsConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := dialer.DialContext(context.Background(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	rc, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ms int
	controlErr := rc.Control(func(fd uintptr) {
		ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	})
	if controlErr != nil || err != nil || ms != 60000 {
		t.Fatalf("TCP_USER_TIMEOUT is %d ms, %v, %v; want 60000", ms, controlErr, err)
	}
}
