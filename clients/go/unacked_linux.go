package gloom

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unackedTimeout is how long the broker's host may leave data unacknowledged before the
// connection ends; keepalive does not probe while there is such data.
const unackedTimeout = 60 * time.Second

func init() {
	dialer.Control = func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { // it fails on unix sockets, where nothing is unacknowledged
			ms := int(unackedTimeout.Milliseconds())
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms)
		})
	}
}
