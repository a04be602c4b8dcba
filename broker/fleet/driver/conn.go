package driver

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// natsConn is the NATS client's connection. It needs no goroutines between the client and the hub,
// and so saves the time in which they would wake. Write does not block, so even an event loop may
// call it: a goroutine writes, in order, the bytes that the system does not take at once. Its Read
// first handles the messages that the previous Read has brought.
type natsConn struct {
	*net.TCPConn
	raw    syscall.RawConn
	handle func()
	// afterFunc calls f once this process has run for d.
	afterFunc func(d time.Duration, f func()) *time.Timer
	// isConnected reports that the client is connected. Before that, the client calls Read under its
	// own lock.
	isConnected atomic.Bool
	// timeout is how long NATS may leave waiting bytes unread.
	timeout time.Duration

	mu             sync.Mutex // guards the fields below
	unwrittenBytes []byte     // not yet written
	takenBytes     int        // unwritten bytes that the goroutine has taken
	writerRuns     bool       // the goroutine that writes is running
	err            error      // why nothing more is written
}

const (
	// maxUnwritten bounds the bytes that are not written yet. More are dropped; any message may be
	// lost.
	maxUnwritten = 64 << 20
	// ioTimeout is how long NATS may take to accept the connection, or to read some of what
	// waits.
	ioTimeout = 2 * time.Second
)

var errSlowReader = errors.New("NATS reads too slowly")

// Dial connects the NATS client (nats.CustomDialer).
func (d *Driver) Dial(network, address string) (net.Conn, error) {
	nc, err := net.DialTimeout(network, address, ioTimeout)
	if err != nil {
		return nil, err
	}
	c := &natsConn{TCPConn: nc.(*net.TCPConn), handle: d.handleIncoming, afterFunc: d.hub.After, timeout: ioTimeout}
	if c.raw, err = c.SyscallConn(); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	if previous := d.latestConn.Swap(c); previous != nil {
		_ = previous.Close() // the client leaves it open after an attempt that NATS refused
	}
	return c, nil
}

func (c *natsConn) Read(b []byte) (int, error) {
	if c.isConnected.Load() {
		c.handle()
	}
	return c.TCPConn.Read(b)
}

// Write writes or keeps all of b, or none of it.
func (c *natsConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if c.takenBytes+len(c.unwrittenBytes)+len(b) > maxUnwritten {
		return 0, errSlowReader
	}
	n := 0
	if !c.writerRuns {
		err := c.raw.Write(func(fd uintptr) bool {
			n, _ = unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			return true // the next read reports a failure
		})
		if n = max(n, 0); err != nil || n == len(b) {
			return n, err
		}
	}
	c.unwrittenBytes = append(c.unwrittenBytes, b[n:]...)
	if !c.writerRuns {
		c.writerRuns = true
		go c.writeRest()
	}
	return len(b), nil
}

// pendingBytes returns how many bytes are not yet written.
func (c *natsConn) pendingBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.takenBytes + cap(c.unwrittenBytes))
}

// writeRest writes what is left. It closes the connection if NATS reads none of it for the timeout.
func (c *natsConn) writeRest() {
	const atATime = 256 << 10
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.unwrittenBytes) > 0 {
		b := c.unwrittenBytes
		c.unwrittenBytes, c.takenBytes = nil, len(b)
		c.mu.Unlock()
		var err error
		for len(b) > 0 && err == nil {
			n := min(len(b), atATime)
			timeout := c.afterFunc(c.timeout, func() { _ = c.Close() }) // a deadline would outlive the write
			_, err = c.TCPConn.Write(b[:n])
			timeout.Stop()
			b = b[n:]
		}
		c.mu.Lock()
		c.takenBytes = 0
		if err != nil {
			c.err, c.unwrittenBytes = err, nil
			_ = c.Close()
		}
	}
	c.writerRuns = false
}

// SetWriteDeadline does nothing, since Write does not block.
func (c *natsConn) SetWriteDeadline(time.Time) error { return nil }

// appendPub appends a message in NATS's protocol. reply may be "".
func appendPub(b []byte, subject, reply string, data []byte) []byte {
	b = append(append(b, "PUB "...), subject...)
	if reply != "" {
		b = append(append(b, ' '), reply...)
	}
	b = strconv.AppendInt(append(b, ' '), int64(len(data)), 10)
	b = append(append(b, "\r\n"...), data...)
	return append(b, "\r\n"...)
}
