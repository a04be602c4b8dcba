package gloom

import (
	"cmp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unackedTimeout is how long the broker's host may leave data unacknowledged before the
// connection ends; keepalive does not probe while there is such data.
const unackedTimeout = 60 * time.Second

func limitUnacked(network, _ string, c syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedTimeout.Milliseconds()))
	})
	return cmp.Or(failed, err)
}
