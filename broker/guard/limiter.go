package guard

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// ConnLimiter bounds the connections of operators. A new connection is always accepted. Beyond the
// limit, the connection that has been idle longest is closed or, if no connection is idle, the
// connection with the longest request. So clients that read nothing cannot lock others out.
type ConnLimiter struct {
	max    int
	buffer int
	log    zerolog.Logger

	mu    sync.Mutex
	conns map[net.Conn]connState
}

// NewConnLimiter returns a limiter that allows maxConns connections. buffer is the number of bytes
// of an answer that the system may hold for each connection.
func NewConnLimiter(maxConns, buffer int, log zerolog.Logger) *ConnLimiter {
	return &ConnLimiter{max: maxConns, buffer: buffer, log: log, conns: map[net.Conn]connState{}}
}

// connState is the state of a connection and when the state began.
type connState struct {
	state http.ConnState
	since time.Time
}

// closesBefore reports whether a connection in state s is closed before one in state o.
func (s connState) closesBefore(o connState) bool {
	if busy := s.state == http.StateActive; busy != (o.state == http.StateActive) {
		return !busy
	}
	return s.since.Before(o.since)
}

// OnState must be set as the ConnState of the http.Server.
func (c *ConnLimiter) OnState(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, known := c.conns[conn]; {
	case state == http.StateClosed || state == http.StateHijacked:
		delete(c.conns, conn)
	case state == http.StateNew:
		if b, ok := netConn(conn).(interface{ SetWriteBuffer(int) error }); ok {
			_ = b.SetWriteBuffer(c.buffer)
		}
		c.conns[conn] = connState{state, time.Now()}
	case known:
		c.conns[conn] = connState{state, time.Now()}
	}
	if len(c.conns) <= c.max {
		return
	}
	var first net.Conn
	for other, s := range c.conns {
		if other != conn && (first == nil || s.closesBefore(c.conns[first])) {
			first = other
		}
	}
	if c.conns[first].state == http.StateActive {
		c.log.Warn().Int("max_http_conns", c.max).Stringer("peer", first.RemoteAddr()).Msg("closed a connection during its request, to make room for a new one")
	}
	delete(c.conns, first)
	// Discard the bytes that the client has not read.
	if t, ok := netConn(first).(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = netConn(first).Close()
}

// netConn returns the connection that a TLS connection wraps, or conn itself.
func netConn(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}
