package poll

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// A server spends most of its time in Receive and Send. They use recvfrom and sendto, because
// read and write take longer. They bypass the Go scheduler, because they do not block.

// maxRawSend is the longest send, in bytes, that bypasses the scheduler.
const maxRawSend = 64 << 10

// Receive reads what has arrived. It returns 0 at the end of the stream.
func Receive(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// ReceiveTwo reads into a and, once that is full, into b.
func ReceiveTwo(fd int, a, b []byte) (int, unix.Errno) {
	iov := [2]unix.Iovec{{Base: unsafe.SliceData(a)}, {Base: unsafe.SliceData(b)}}
	iov[0].SetLen(len(a))
	iov[1].SetLen(len(b))
	n, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 2)
	return int(n), errno
}

// Send writes as much as the socket accepts without blocking.
func Send(fd int, b []byte) (int, error) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	var n uintptr
	var errno unix.Errno
	// Call each function by its name, not through a variable: otherwise b would escape to the
	// heap.
	if len(b) <= maxRawSend {
		n, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
