package launch

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"
)

// chunk is how much is read at a time, and what a pipe holds by default.
const chunk = 64 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// stream reads what a process writes to one of its outputs, keeps the
// beginning and lets the rest go by.
type stream struct {
	limit int      // bytes kept
	pipe  *os.File // reading end
	ended chan struct{}

	kept []byte
	lost bool // there was more than is kept
}

// open makes the pipe of a stream and returns the end that the process gets.
func (s *stream) open() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.pipe, s.ended = r, make(chan struct{})
	return w, nil
}

// read collects until the pipe ends or finish asks it to stop.
func (s *stream) read() {
	defer close(s.ended)
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	for {
		n, err := s.pipe.Read(buf[:])
		s.keep(buf[:n])
		if err != nil {
			return
		}
	}
}

func (s *stream) keep(data []byte) {
	if room := s.limit - len(s.kept); len(data) > room {
		data, s.lost = data[:room], true
	}
	s.kept = append(s.kept, data...)
}

// finish takes in what the process had written when it ended, closes the pipe
// and returns the text. It does not wait for the pipe's end: descendants of the
// process may hold it open for as long as they like.
func (s *stream) finish() string {
	s.pipe.SetReadDeadline(time.Unix(1, 0))
	<-s.ended
	s.pipe.SetReadDeadline(time.Time{})
	s.drain()
	s.pipe.Close()
	return text(s.kept, s.lost, s.limit)
}

// drain empties the pipe without waiting. A descendant that writes as fast as
// we read must not hold us up, so it takes no more than the pipe can hold.
func (s *stream) drain() {
	conn, err := s.pipe.SyscallConn()
	if err != nil {
		return
	}
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	conn.Read(func(fd uintptr) bool {
		left, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0)
		if err != nil {
			left = chunk
		}
		for left > 0 {
			n, err := ignoringInterrupts(func() (int, error) { return syscall.Read(int(fd), buf[:]) })
			if n <= 0 || err != nil {
				break
			}
			s.keep(buf[:n])
			left -= n
		}
		return true
	})
}

func ignoringInterrupts(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// text makes valid UTF-8 of at most limit bytes out of what a process wrote.
// When something is missing, the text is cut before a character and ends with
// a marker that counts towards the limit.
func text(data []byte, lost bool, limit int) string {
	if lost {
		data = data[:border(data, len(data))]
	}
	if !utf8.Valid(data) {
		data = valid(data)
	}
	if !lost && len(data) <= limit {
		return unsafe.String(unsafe.SliceData(data), len(data))
	}
	mark := marker(limit)
	return string(data[:border(data, min(limit-len(mark), len(data)))]) + mark
}

// marker is what a cut text of that many bytes ends with.
func marker(limit int) string {
	for _, mark := range []string{fmt.Sprintf("\n[output cut at %d bytes]", limit), "[cut]"} {
		if len(mark) <= limit/2 {
			return mark
		}
	}
	return ""
}

// border is the last position at or before n where no character is torn.
func border(data []byte, n int) int {
	for back := 1; back <= utf8.UTFMax && back <= n; back++ {
		if c := data[n-back]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(data[n-back:n]) {
				return n - back
			}
			break
		}
	}
	return n
}

// valid replaces every byte that belongs to no character.
func valid(data []byte) []byte {
	clean := make([]byte, 0, len(data)+len(data)/8)
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		clean = utf8.AppendRune(clean, r)
		data = data[size:]
	}
	return clean
}
