package guard

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Crowd bounds the connections of operators. A new connection is always accepted. Beyond
// the limit, the connection that has been idle for longest is closed or, if none is idle, the
// one with the longest request. So clients that read nothing cannot lock others out.
type Crowd struct {
	most   int
	buffer int
	log    zerolog.Logger

	mu sync.Mutex
	of map[net.Conn]standing
}

// NewCrowd returns a crowd of up to most connections. The system may hold buffer bytes
// of an answer to each.
func NewCrowd(most, buffer int, log zerolog.Logger) *Crowd {
	return &Crowd{most: most, buffer: buffer, log: log, of: map[net.Conn]standing{}}
}

// standing is the state of a connection and when it began.
type standing struct {
	state http.ConnState
	since time.Time
}

// before reports whether a connection is closed before one whose standing is o.
func (s standing) before(o standing) bool {
	if busy := s.state == http.StateActive; busy != (o.state == http.StateActive) {
		return !busy
	}
	return s.since.Before(o.since)
}

// Note is for the ConnState of an http.Server.
func (c *Crowd) Note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, known := c.of[conn]; {
	case state == http.StateClosed || state == http.StateHijacked:
		delete(c.of, conn)
	case state == http.StateNew:
		if b, ok := below(conn).(interface{ SetWriteBuffer(int) error }); ok {
			_ = b.SetWriteBuffer(c.buffer)
		}
		c.of[conn] = standing{state, time.Now()}
	case known:
		c.of[conn] = standing{state, time.Now()}
	}
	if len(c.of) <= c.most {
		return
	}
	var first net.Conn
	for other, s := range c.of {
		if other != conn && (first == nil || s.before(c.of[first])) {
			first = other
		}
	}
	if c.of[first].state == http.StateActive {
		c.log.Warn().Int("max_http_conns", c.most).Stringer("peer", first.RemoteAddr()).Msg("closed a connection during its request, to make room for a new one")
	}
	delete(c.of, first)
	// Discard the bytes that it has not read.
	if t, ok := below(first).(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = below(first).Close()
}

// below returns the connection below TLS.
func below(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}
