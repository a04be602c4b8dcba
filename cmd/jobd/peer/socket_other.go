//go:build !linux

package peer

import (
	"net"
	"syscall"
)

func setUserTimeout(_, _ string, _ syscall.RawConn) error { return nil }

func isTCPClosed(*net.TCPConn) bool { return false }
