package server

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/guard"
)

// httpBuffer is how many bytes of an answer the system may hold.
const httpBuffer = 256 << 10

// ServeHTTP serves operators with h on the HTTP address, if there is one.
func (s *Server) ServeHTTP(h http.Handler) {
	if s.httpLn == nil {
		return
	}
	s.httpSrv = &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ConnState: (&crowd{most: s.opt.MaxHTTPConns, log: s.log, of: map[net.Conn]standing{}}).note,
		ErrorLog:  guard.ErrorLog(s.log),
	}
	s.httpSrv.RegisterOnShutdown(sync.OnceFunc(func() { close(s.httpEnds) }))
	s.wg.Go(func() {
		if err := s.httpSrv.Serve(s.httpLn); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error().Err(err).Msg("the HTTP side has stopped")
		}
	})
}

// HTTPEnds is closed when requests that would go on for as long as their clients
// are there should end.
func (s *Server) HTTPEnds() <-chan struct{} { return s.httpEnds }

// crowd bounds the connections of operators. Who comes is always let in: where
// there are too many, the one goes that has been without a request for longest, or
// else at the same one. So whoever reads nothing keeps nobody out.
type crowd struct {
	most int
	log  zerolog.Logger

	mu sync.Mutex
	of map[net.Conn]standing
}

// standing is the state of a connection, and since when.
type standing struct {
	state http.ConnState
	since time.Time
}

// before tells that a connection is to go before one that stands as o does.
func (s standing) before(o standing) bool {
	if busy := s.state == http.StateActive; busy != (o.state == http.StateActive) {
		return !busy
	}
	return s.since.Before(o.since)
}

// note is a ConnState of http.Server.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, known := c.of[conn]; {
	case state == http.StateClosed || state == http.StateHijacked:
		delete(c.of, conn)
	case state == http.StateNew:
		if b, ok := below(conn).(interface{ SetWriteBuffer(int) error }); ok {
			_ = b.SetWriteBuffer(httpBuffer)
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
		c.log.Warn().Int("max_http_conns", c.most).Stringer("peer", first.RemoteAddr()).Msg("closed a connection in the middle of its request, for another one")
	}
	delete(c.of, first)
	// What it has not read is thrown away.
	if t, ok := below(first).(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = below(first).Close()
}

// below is what is below TLS.
func below(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}
