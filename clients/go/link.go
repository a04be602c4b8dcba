package gloom

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"gloom/wire"
)

const (
	// frameSlack is how much larger than its largest request a broker's frames
	// can be: it puts an id and a type around a body, each with escapes.
	frameSlack = 2*6*wire.MaxName + 1024
	// maxUnsent is how many bytes may wait to be written before callers wait.
	maxUnsent = 1 << 20
	// keepBuffer is the largest buffer kept after a large frame has gone through.
	keepBuffer = 256 << 10
	readBuffer = 8 << 10
	// lastWords is how long a connection that cannot be written to is still read:
	// the broker may have said why.
	lastWords = 250 * time.Millisecond
	// deadBeats is how many beats may pass without a byte from the broker.
	deadBeats = 3
)

var (
	errGone = errors.New("connection has gone")
	errHTTP = errors.New("this is an HTTP server")
)

// link is one socket: a goroutine that writes what others append to a buffer, so
// that many frames leave in one call, and a loop that reads frames.
type link struct {
	addr  string
	nc    net.Conn
	maxIn int
	beat  time.Duration // 0: none asked for
	wake  chan struct{} // to the writer: there is something to write
	done  chan struct{} // closed when the link has failed

	// beforeWrite, if set, is called with mu held when the writer is about to take
	// out, and may append to it.
	beforeWrite func()

	mu     sync.Mutex // guards what follows
	out    []byte     // whole frames, not yet written
	spare  []byte     // the writer's other buffer
	kicked bool       // wake has been sent and not been acted on
	room   chan struct{}
	err    error // why the link failed; nothing may be appended after that
}

func (l *link) init(c *config, addr string, nc net.Conn) {
	l.addr, l.nc = addr, nc
	l.maxIn, l.beat = c.maxFrame+frameSlack, c.heartbeat
	l.wake, l.done = make(chan struct{}, 1), make(chan struct{})
}

// kick makes the writer look at out. It is called with mu held.
func (l *link) kick() {
	if !l.kicked {
		l.kicked = true
		l.wake <- struct{}{} // has room: kicked says that it is empty
	}
}

// fail ends the link, once; the first cause stays.
func (l *link) fail(cause error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = cause
		l.out, l.spare = nil, nil
		close(l.done)
	}
	l.mu.Unlock()
	if first {
		l.nc.Close() // over TLS this may wait for the peer
	}
}

// full returns nil when there is room for another frame, else a channel that is
// closed when there may be. It is called with mu held.
func (l *link) full() <-chan struct{} {
	if len(l.out) < maxUnsent {
		return nil
	}
	if l.room == nil {
		l.room = make(chan struct{})
	}
	return l.room
}

// await waits for a channel of full.
func (l *link) await(ctx context.Context, room <-chan struct{}) error {
	select {
	case <-room:
		return nil
	case <-l.done:
		return errGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *link) writeLoop() {
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		for {
			buf := l.take()
			if buf == nil {
				break
			}
			if _, err := l.nc.Write(buf); err != nil {
				select {
				case <-time.After(lastWords):
					l.fail(err)
				case <-l.done:
				}
				return
			}
			l.giveBack(buf)
		}
	}
}

// take returns what is to be written, or nil.
func (l *link) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && l.beforeWrite != nil {
		l.beforeWrite()
	}
	if len(l.out) == 0 {
		l.kicked = false
		return nil
	}
	buf := l.out
	l.out, l.spare = l.spare, nil
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
	return buf
}

func (l *link) giveBack(buf []byte) {
	if cap(buf) > keepBuffer {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if l.out == nil {
		l.out = buf[:0]
	} else {
		l.spare = buf[:0]
	}
}

// readLoop hands each frame's payload to handle, until reading or handle fails.
// The buffer grows with what has arrived, not with what was announced.
func (l *link) readLoop(handle func(payload []byte) error) error {
	buf := make([]byte, readBuffer)
	start, end := 0, 0 // what is in buf and not yet handled
	for {
		if l.beat > 0 {
			l.nc.SetReadDeadline(time.Now().Add(deadBeats * l.beat))
		}
		n, err := l.nc.Read(buf[end:])
		end += n
		for {
			payload, used, tooLarge := wire.SplitFrame(buf[start:end], l.maxIn)
			if tooLarge != nil {
				if bytes.HasPrefix(buf[start:end], []byte("HTTP")) {
					return errHTTP
				}
				return &ProtocolError{Reason: tooLarge.Reason}
			}
			if used == 0 {
				break
			}
			start += used
			if err := handle(payload); err != nil {
				return err
			}
		}
		if err != nil {
			if l.beat > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("nothing came for %v: %w", deadBeats*l.beat, err)
			}
			return err
		}
		switch {
		case start == end:
			start, end = 0, 0
			if len(buf) > keepBuffer {
				buf = make([]byte, readBuffer)
			}
		case end == len(buf):
			buf = makeRoom(buf, start, end)
			start, end = 0, end-start
		}
	}
}

// makeRoom moves the unhandled bytes to the front of buf, or of a larger buffer
// when they fill more than half of it.
func makeRoom(buf []byte, start, end int) []byte {
	held := end - start
	to := buf
	if held > len(buf)/2 {
		size := 2 * len(buf)
		if held >= wire.HeaderLen {
			size = min(size, wire.HeaderLen+int(binary.BigEndian.Uint32(buf[start:])))
		}
		to = make([]byte, max(size, held+readBuffer))
	}
	copy(to, buf[start:end])
	return to
}
