package peer

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// setUserTimeout limits how long sent data may stay unacknowledged, because keepalive probes are not
// sent meanwhile.
func setUserTimeout(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(stallTimeout.Milliseconds()))
	})
}

const tcpClose = 7 // TCP_CLOSE of <netinet/tcp.h>

func isTCPClosed(sock *net.TCPConn) (closed bool) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		closed = err == nil && info.State == tcpClose
	})
	return closed || err != nil
}
