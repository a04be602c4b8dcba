package push

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dialError is an error that occurred before anything was sent.
type dialError struct{ error }

// dial connects to a worker that registered from host. name is the one in its certificate, "" without
// TLS.
func (c *Client) dial(addr, host, name string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	dialer := net.Dialer{KeepAlive: 30 * time.Second, ControlContext: func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(resolved)
		if err == nil {
			err = c.check(at.Addr(), host)
		}
		return err
	}}
	nc, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, &dialError{err}
	}
	to := &conn{}
	if to.raw, err = nc.(*net.TCPConn).SyscallConn(); err == nil && name != "" {
		secure := tls.Client(nc, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12})
		err = secure.HandshakeContext(ctx)
		nc = secure
	}
	if err != nil {
		_ = nc.Close()
		return nil, &dialError{err}
	}
	to.Conn = nc
	to.in.Reset(nc)
	return to, nil
}

// errClosed means that a worker has closed an idle connection.
var errClosed = errors.New("the worker has closed the connection")

// conn is a connection that is checked before each further use: if the worker has already closed
// the connection, a request on it would still count as sent. It skips interim responses (1xx),
// which say nothing about the job.
type conn struct {
	net.Conn
	raw            syscall.RawConn
	in             bufio.Reader
	reused         bool
	responseWanted bool // a request was sent, and its answer has not begun
	broken         bool // a request could not be written whole, so that there can be no further one
}

// Write implements net.Conn. It returns no error, because a busy worker may answer before it has
// read the whole request, and then read no more. Its answer is then read; if there is none, reading
// fails.
func (c *conn) Write(b []byte) (int, error) {
	if c.broken {
		return len(b), nil
	}
	_, err := c.Conn.Write(b)
	c.broken = err != nil
	return len(b), nil
}

// SetWriteDeadline implements net.Conn. It is called before each request.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.reused && c.closed() {
		return errClosed
	}
	c.reused, c.responseWanted = true, true
	return c.Conn.SetWriteDeadline(t)
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	for c.responseWanted {
		start, err := c.in.Peek(len("HTTP/1.1 1"))
		if err != nil || !bytes.HasPrefix(start, []byte("HTTP/1.")) || start[len(start)-1] != '1' {
			c.responseWanted = false
			break
		}
		if err := c.skipHead(); err != nil {
			return 0, err
		}
	}
	return c.in.Read(b)
}

// skipHead reads up to and including the next empty line.
func (c *conn) skipHead() error {
	for whole := true; ; {
		line, err := c.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if whole && len(bytes.TrimRight(line, "\r\n")) == 0 {
			return nil
		}
		whole = err == nil
	}
}

// closed reports whether the connection cannot be used again: the peer has closed it, has sent
// unexpected bytes, or has not read the last request.
func (c *conn) closed() bool {
	if c.broken || c.in.Buffered() > 0 {
		return true
	}
	var buf [1]byte
	open := false
	err := c.raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), buf[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		open = errors.Is(err, unix.EAGAIN)
	})
	return err != nil || !open
}
