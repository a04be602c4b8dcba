package poll

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The sockets never block, so their system calls need not inform the scheduler: the raw form of
// each saves two atomic operations and the possible loss of the processor.

func readFD(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func writeFD(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)),
		unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// epollWait waits with nanosecond resolution, which pacing needs; plain epoll_wait has
// milliseconds only.
func epollWait(ep int, events []unix.EpollEvent, wait time.Duration) (int, error) {
	ts := unix.NsecToTimespec(int64(wait))
	call := unix.Syscall6
	if wait == 0 {
		call = unix.RawSyscall6
	}
	n, _, errno := call(unix.SYS_EPOLL_PWAIT2, uintptr(ep), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
