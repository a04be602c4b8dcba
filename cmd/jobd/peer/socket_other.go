//go:build !linux

package peer

import (
	"net"
	"syscall"
)

func userTimeout(_, _ string, _ syscall.RawConn) error { return nil }

func tcpClosed(*net.TCPConn) bool { return false }
