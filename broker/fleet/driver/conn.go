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

// cable is the NATS client's connection. It needs no goroutines between the client and the hub,
// which saves the time that each of them takes to wake. Its Write does not block, so even an
// event loop may call it: a goroutine writes, in order, what the system does not take at once.
// Its Read first handles the messages of the last Read.
type cable struct {
	*net.TCPConn
	raw    syscall.RawConn
	takeIn func()
	// after calls f once this process has run for d.
	after func(d time.Duration, f func()) *time.Timer
	// live: the client is connected. Before, it calls Read under its own lock.
	live atomic.Bool
	// patience is how long NATS may leave waiting bytes unread.
	patience time.Duration

	mu   sync.Mutex // guards the fields below
	rest []byte     // not yet written
	held int        // unwritten bytes that the goroutine has taken
	busy bool       // the goroutine is writing
	err  error      // why nothing more is written
}

const (
	// maxRest bounds the bytes that are not written yet. More are dropped; any message may be
	// lost.
	maxRest = 64 << 20
	// patience is how long NATS may take to accept the connection, or to read something.
	patience = 2 * time.Second
)

var errBehind = errors.New("NATS reads too slowly")

// Dial connects the NATS client (nats.CustomDialer).
func (d *Driver) Dial(network, address string) (net.Conn, error) {
	nc, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return nil, err
	}
	c := &cable{TCPConn: nc.(*net.TCPConn), takeIn: d.takeIn, after: d.hub.After, patience: patience}
	if c.raw, err = c.SyscallConn(); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	d.dialled.Store(c)
	return c, nil
}

func (c *cable) Read(b []byte) (int, error) {
	if c.live.Load() {
		c.takeIn()
	}
	return c.TCPConn.Read(b)
}

// Write writes or keeps all of b, or none of it.
func (c *cable) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	n := 0
	if !c.busy {
		err := c.raw.Write(func(fd uintptr) bool {
			n, _ = unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			return true // the next read reports a failure
		})
		if n = max(n, 0); err != nil || n == len(b) {
			return n, err
		}
	}
	if c.held+len(c.rest)+len(b) > maxRest {
		return 0, errBehind
	}
	c.rest = append(c.rest, b[n:]...)
	if !c.busy {
		c.busy = true
		go c.writeOn()
	}
	return len(b), nil
}

// waiting returns how many bytes are not yet written.
func (c *cable) waiting() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.held + cap(c.rest))
}

// writeOn writes what is left. If NATS reads none of it, it closes the connection.
func (c *cable) writeOn() {
	const atATime = 256 << 10
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.rest) > 0 {
		b := c.rest
		c.rest, c.held = nil, len(b)
		c.mu.Unlock()
		var err error
		for len(b) > 0 && err == nil {
			k := min(len(b), atATime)
			late := c.after(c.patience, func() { _ = c.Close() }) // a deadline would outlive the write
			_, err = c.TCPConn.Write(b[:k])
			late.Stop()
			b = b[k:]
		}
		c.mu.Lock()
		if c.held = 0; err != nil {
			c.err, c.rest = err, nil
			_ = c.Close()
		}
	}
	c.busy = false
}

// SetWriteDeadline does nothing, since Write does not block.
func (c *cable) SetWriteDeadline(time.Time) error { return nil }

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
