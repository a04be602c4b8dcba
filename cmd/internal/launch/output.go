package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
	"unsafe"
)

// chunkSize is the number of bytes that are read at a time, the default capacity of a pipe.
const chunkSize = 64 << 10

var chunkPool = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// stream reads one of the outputs of a process.
type stream struct {
	writer io.Writer
	pipe   *os.File // reading end
	done   chan struct{}
	eof    bool // the pipe has ended; only for the reading goroutine until done is closed

	mu             sync.Mutex // held from a read until the bytes are passed on; guards the fields below
	hasWriteFailed bool       // the writer accepts no more
}

// read passes output on until the pipe ends, or until finish makes it stop.
func (s *stream) read() {
	defer close(s.done)
	conn, err := s.pipe.SyscallConn()
	if err != nil {
		return
	}
	buf := chunkPool.Get().(*[chunkSize]byte)
	defer chunkPool.Put(buf)
	for {
		var n int
		var full bool
		var err error
		waitErr := conn.Read(func(fd uintptr) bool {
			n, full, err = s.readOnce(fd, buf[:])
			return err != syscall.EAGAIN
		})
		switch {
		case waitErr != nil:
			return
		case full:
			s.pipe.Close()
			return
		case err != nil || n == 0:
			s.eof = err == nil
			return
		}
	}
}

// readOnce reads the available output, with at most one read, and passes it on.
func (s *stream) readOnce(fd uintptr, buf []byte) (n int, full bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err = retryInterrupted(func() (int, error) { return syscall.Read(int(fd), buf) })
	if n > 0 && !s.hasWriteFailed {
		_, failed := s.writer.Write(buf[:n])
		s.hasWriteFailed = failed != nil
	}
	return n, s.hasWriteFailed, err
}

// finish reads until the pipe ends, at most until the deadline. It reads all bytes that were
// written by then. It reports whether the pipe is still open: descendants of the process may hold
// it without limit.
func (s *stream) finish(deadline time.Time) (stillOpen bool) {
	s.pipe.SetReadDeadline(deadline)
	<-s.done
	s.flush()
	s.pipe.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.eof && !s.hasWriteFailed
}

// flush reads the output that has been written by now, without waiting. It reads no more than the
// pipe can hold, so that it returns even if a descendant writes as fast as flush reads.
func (s *stream) flush() {
	conn, err := s.pipe.SyscallConn()
	if err != nil {
		return
	}
	buf := chunkPool.Get().(*[chunkSize]byte)
	defer chunkPool.Put(buf)
	conn.Control(func(fd uintptr) {
		for left := pipeSize(fd); left > 0; {
			n, _, err := s.readOnce(fd, buf[:])
			if n <= 0 || err != nil {
				break
			}
			left -= n
		}
	})
}

func retryInterrupted(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// Capture keeps the beginning of what is written to it and drops the rest.
type Capture struct {
	Limit int // bytes

	pieces    [][]byte // all but the last have pieceSize bytes
	size      int      // of all pieces
	truncated bool
}

// pieceSize is the size of the pieces in which an output is kept until it is complete. A single
// growing slice would take several times the output's size, until its earlier arrays are collected.
const pieceSize = 256 << 10

// Write keeps p, as far as there is room. It never fails.
func (c *Capture) Write(p []byte) (int, error) {
	head := p
	if room := c.Limit - c.size; len(p) > room {
		head, c.truncated = p[:room], true
	}
	c.size += len(head)
	for len(head) > 0 {
		last := len(c.pieces) - 1
		switch {
		case last < 0:
			c.pieces = append(c.pieces, nil) // a small output takes no whole piece
			continue
		case len(c.pieces[last]) == pieceSize:
			c.pieces = append(c.pieces, make([]byte, 0, pieceSize))
			continue
		}
		n := min(len(head), pieceSize-len(c.pieces[last]))
		c.pieces[last], head = append(c.pieces[last], head[:n]...), head[n:]
	}
	return len(p), nil
}

// join returns all bytes, and forgets them.
func (c *Capture) join() (data []byte) {
	if len(c.pieces) == 1 {
		data = c.pieces[0]
	} else {
		data = make([]byte, 0, c.size)
		for i, piece := range c.pieces {
			data, c.pieces[i] = append(data, piece...), nil
		}
	}
	c.pieces, c.size = nil, 0
	return data
}

// TakeText returns the output as valid UTF-8 of at most Limit bytes, and whether some of it is missing.
// Then it is cut before a character and ends with a marker that counts towards the limit. The
// capture is empty after that.
func (c *Capture) TakeText() (s string, truncated bool) {
	return validText(c.join(), c.truncated, c.Limit)
}

// validText makes valid UTF-8 of at most limit bytes out of what a process wrote. If some of it is
// missing, the text is cut before a character and ends with a marker that counts towards the limit.
// The text may share its memory with data, which must not be used after that.
func validText(data []byte, lost bool, limit int) (s string, truncated bool) {
	if lost {
		data = data[:runeBoundary(data, len(data))]
	}
	if !utf8.Valid(data) {
		data = bytes.Map(func(r rune) rune { return r }, data) // a byte that is not a character becomes U+FFFD
	}
	if !lost && len(data) <= limit {
		return unsafe.String(unsafe.SliceData(data), len(data)), false
	}
	mark := truncationMark(limit)
	data = append(data[:runeBoundary(data, min(limit-len(mark), len(data)))], mark...)
	return unsafe.String(unsafe.SliceData(data), len(data)), true
}

// truncationMark returns the end of a text that was cut to that many bytes.
func truncationMark(limit int) string {
	for _, mark := range []string{fmt.Sprintf("\n[output cut at %d bytes]", limit), "[cut]"} {
		if len(mark) <= limit/2 {
			return mark
		}
	}
	return ""
}

// runeBoundary returns the last position at or before n that does not split a character.
func runeBoundary(data []byte, n int) int {
	for distance := 1; distance <= utf8.UTFMax && distance <= n; distance++ {
		if c := data[n-distance]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(data[n-distance:n]) {
				return n - distance
			}
			break
		}
	}
	return n
}
