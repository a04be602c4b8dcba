package daemon

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// patience is how long a line waits for a reader that has just stopped reading. Later lines
	// do not wait at all until it reads again.
	patience = 100 * time.Millisecond
	// piece is how many bytes a pipe or socket that is ready takes without blocking.
	piece = 4096
)

// console writes lines to a file that may be a pipe or a terminal whose reader has stopped reading.
// It loses lines then: the daemon must not stand still because nobody reads its log.
type console struct {
	file *os.File
	conn syscall.RawConn
	lost *atomic.Int64 // lines since the last one that was written

	mu   sync.Mutex
	torn bool // the last line was written in part
}

// unblocked returns a writer that does not wait for a reader, and counts the lines lost.
func unblocked(to io.Writer, lost *atomic.Int64) io.Writer {
	file, ok := to.(*os.File)
	if !ok {
		return to
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return to
	}
	return &console{file: file, conn: conn, lost: lost}
}

// Write implements io.Writer. A lost line is not an error.
func (c *console) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := patience
	if c.lost.Load() > 0 {
		wait = 0
	}
	left := line
	if c.torn {
		left = append([]byte{'\n'}, line...)
	}
	for began := false; len(left) > 0; began = true {
		if !c.ready(wait) {
			c.torn = c.torn || began
			c.lost.Add(1)
			return len(line), nil
		}
		n, err := c.file.Write(left[:min(piece, len(left))])
		if err != nil {
			return 0, err
		}
		left = left[n:]
		wait = patience
	}
	c.torn = false
	c.lost.Store(0)
	return len(line), nil
}

// ready reports whether the file takes a piece at once. It waits for that, at most for a time.
func (c *console) ready(wait time.Duration) bool {
	n, err := 0, error(nil)
	failed := c.conn.Control(func(fd uintptr) {
		for end := time.Now().Add(wait); ; {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(max(0, time.Until(end)).Milliseconds()))
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	// An error is left to the write that follows.
	return failed != nil || err != nil || n > 0
}
