package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is the source of a connection that the loop reads and writes itself.
type socket struct {
	loop *loop
	fd   int
}

func (s *socket) again() { s.loop.poller.again(s.fd) }

const (
	// writeTurn is how many bytes are written before others get their turn.
	writeTurn = 1 << 20
	// maxParts is how many pieces the system takes in one write (IOV_MAX).
	maxParts = 1024
)

func (s *socket) drain() error {
	c := s.loop.conns[s.fd]
	for turn := 0; turn < writeTurn; {
		parts, n := c.peer.Front(s.loop.parts[:0], writeTurn-turn)
		if n == 0 {
			return nil
		}
		var err error
		if len(parts) == 1 {
			n, err = send(s.fd, parts[0])
		} else if n, err = unix.SendmsgBuffers(s.fd, parts, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != nil {
			n = 0
		}
		clear(parts)
		c.wrote(n)
		if refused(err) {
			return err
		}
		if err == unix.EAGAIN {
			return nil // it will be told when there is room
		}
		turn += n
	}
	s.again()
	return nil
}

func (s *socket) finish() { _ = unix.Shutdown(s.fd, unix.SHUT_WR) }

func (s *socket) close() {
	s.loop.conns[s.fd] = nil
	s.loop.poller.remove(s.fd)
	_ = unix.Close(s.fd)
}

func (s *socket) gone() { s.loop.srv.conns.Add(-1) }

// Most of the server's time is spent in receive and send. They are the
// socket's own, not read and write, which are for files first and reach the
// socket by a longer way. The scheduler is not told of them: they do not block.

// rawMost is the longest send that the scheduler is not told of, in bytes.
const rawMost = 64 << 10

// receive reads what is there. It returns 0 at the end of the stream.
func receive(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// receiveTwo reads into a and, once that is full, into b.
func receiveTwo(fd int, a, b []byte) (int, unix.Errno) {
	iov := [2]unix.Iovec{{Base: unsafe.SliceData(a)}, {Base: unsafe.SliceData(b)}}
	iov[0].SetLen(len(a))
	iov[1].SetLen(len(b))
	n, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 2)
	return int(n), errno
}

// send writes what the socket takes at once.
func send(fd int, b []byte) (int, error) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	var n uintptr
	var errno unix.Errno
	// The calls stand here by name: only then does the compiler keep b in place.
	if len(b) <= rawMost {
		n, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
