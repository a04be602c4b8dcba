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

func (s *socket) send(b []byte) (int, error) { return send(s.fd, b) }

// writeTurn is how much of what is held back is written before others get their turn.
const writeTurn = 1 << 20

func (s *socket) drain(out *backlog) error {
	peer, before := s.loop.conns[s.fd].peer, out.n
	peer.Writing(out.n, out.n)
	for turn := 0; out.n > 0; {
		n, err := out.write(s.fd, writeTurn-turn, s.loop.iov[:0])
		if refused(err) {
			return err
		}
		if err == unix.EAGAIN {
			break // it will be told when there is room
		}
		if turn += n; turn >= writeTurn {
			s.again()
			break
		}
	}
	if out.n < before {
		peer.SetHeld(out.n, out.memory)
	} else {
		peer.Writing(out.n, 0) // nothing was taken
	}
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
