package poll

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Conn is one non-blocking socket of a loop. It must be used only on the loop's thread.
type Conn struct {
	loop        *Loop
	handler     Handler
	fd          int    // -1 once closed
	in          []byte // bytes read and not yet consumed
	out         []byte // bytes to be written
	awaitsFlush bool   // in the loop's list of sockets to flush
	blocked     bool   // connecting, or the kernel took only a part of the bytes
}

// Dial starts connecting to a TCP address ("host:port") or a unix socket ("unix:/path")
// and adds the socket to the loop. A later refusal is reported to Closed, like any lost
// connection; output may be queued at once.
func (l *Loop) Dial(addr string, h Handler) (*Conn, error) {
	sa, family, err := sockaddr(addr)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	if family != unix.AF_UNIX {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	c := &Conn{loop: l, handler: h, fd: fd}
	var events uint32 = unix.EPOLLIN | unix.EPOLLRDHUP
	if err == nil {
		err = unix.Connect(fd, sa)
		if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
			c.blocked, err = true, nil
			events |= unix.EPOLLOUT
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return l.add(c, events)
}

// Adopt adds the socket of a connection that other code has accepted, and closes that connection.
func (l *Loop) Adopt(nc net.Conn, h Handler) (*Conn, error) {
	defer nc.Close()
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%T has no socket", nc)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := raw.Control(func(at uintptr) { fd, err = unix.FcntlInt(at, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	return l.add(&Conn{loop: l, handler: h, fd: fd}, unix.EPOLLIN|unix.EPOLLRDHUP)
}

// add adds a socket; if that fails it closes the socket.
func (l *Loop) add(c *Conn, events uint32) (*Conn, error) {
	ev := unix.EpollEvent{Events: events, Fd: int32(c.fd)}
	if err := unix.EpollCtl(l.epollFD, unix.EPOLL_CTL_ADD, c.fd, &ev); err != nil {
		unix.Close(c.fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	for len(l.conns) <= c.fd {
		l.conns = append(l.conns, nil)
	}
	l.conns[c.fd] = c
	return c, nil
}

func sockaddr(addr string) (unix.Sockaddr, int, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok && path != "" {
		return &unix.SockaddrUnix{Name: path}, unix.AF_UNIX, nil
	}
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, 0, fmt.Errorf("address %q: %w", addr, err)
	}
	if ip := tcp.IP.To4(); ip != nil {
		return &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(ip)}, unix.AF_INET, nil
	}
	return &unix.SockaddrInet6{Port: tcp.Port, Addr: [16]byte(tcp.IP.To16())}, unix.AF_INET6, nil
}

// Out returns the buffer of bytes that are sent at the end of this round; append to it and pass it
// to SetOut.
func (c *Conn) Out() []byte { return c.out }

// SetOut replaces the output buffer by an extended one.
func (c *Conn) SetOut(out []byte) {
	c.out = out
	if !c.awaitsFlush && c.fd >= 0 {
		c.awaitsFlush = true
		c.loop.toFlush = append(c.loop.toFlush, c)
	}
}

// Flush writes queued bytes at once, for peers that must not collect them.
func (c *Conn) Flush() {
	if c.fd >= 0 && !c.blocked {
		c.write()
	}
}

// Pending returns how many bytes wait to be written.
func (c *Conn) Pending() int { return len(c.out) }

// IsOpen reports whether the socket is still in use.
func (c *Conn) IsOpen() bool { return c.fd >= 0 }

// Close ends the connection with a FIN. Unwritten bytes are dropped.
func (c *Conn) Close() {
	if c.fd < 0 {
		return
	}
	c.loop.conns[c.fd] = nil
	unix.Close(c.fd)
	c.fd, c.in, c.out = -1, nil, nil
}

// Reset ends the connection with a reset (RST).
func (c *Conn) Reset() {
	if c.fd >= 0 {
		_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		c.Close()
	}
}

func (c *Conn) fail(err error) {
	c.Close()
	c.handler.Closed(c, err)
}

func (c *Conn) read() {
	buf, keptBytes := c.loop.readBuffer, 0
	if len(c.in) > 0 {
		if cap(c.in)-len(c.in) < minFree {
			newBuf := make([]byte, len(c.in), 2*len(c.in)+2*minFree)
			copy(newBuf, c.in)
			c.in = newBuf
		}
		buf, keptBytes = c.in[:cap(c.in)], len(c.in)
	}
	n, errno := readFD(c.fd, buf[keptBytes:])
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return
	case errno != 0:
		c.fail(errno)
		return
	case n == 0:
		if keptBytes > 0 {
			c.fail(io.ErrUnexpectedEOF)
		} else {
			c.fail(nil)
		}
		return
	}
	c.loop.BytesIn += int64(n)
	data := buf[:keptBytes+n]
	used := c.handler.Data(c, data, c.loop.Now())
	if c.fd < 0 {
		return
	}
	rest := data[used:]
	switch {
	case len(rest) > 0 && keptBytes > 0:
		c.in = data[:copy(data, rest)]
	case len(rest) > 0:
		c.in = append(c.in[:0], rest...)
	case cap(c.in) > maxIdleBuffer:
		c.in = nil
	default:
		c.in = c.in[:0]
	}
}

func (c *Conn) write() {
	if len(c.out) > 0 {
		n, errno := writeFD(c.fd, c.out)
		if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
			c.fail(errno)
			return
		}
		c.loop.BytesOut += int64(n)
		c.out = c.out[:copy(c.out, c.out[n:])]
	}
	if blocked := len(c.out) > 0; blocked != c.blocked {
		c.blocked = blocked
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(c.fd)}
		if blocked {
			ev.Events |= unix.EPOLLOUT
		}
		if err := unix.EpollCtl(c.loop.epollFD, unix.EPOLL_CTL_MOD, c.fd, &ev); err != nil {
			c.fail(err)
			return
		}
	}
	if len(c.out) == 0 && cap(c.out) > maxIdleBuffer {
		c.out = nil
	}
}
