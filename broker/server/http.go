package server

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

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
		ConnState: (&crowd{most: s.opt.MaxHTTPConns, since: map[net.Conn]time.Time{}}).note,
		ErrorLog:  guard.ErrorLog(s.log),
	}
	s.wg.Go(func() {
		if err := s.httpSrv.Serve(s.httpLn); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error().Err(err).Msg("the HTTP side has stopped")
		}
	})
}

// crowd bounds the connections of operators. Who comes is always let in: where
// there are too many, the one goes that has been at the same request, or without
// one, for longest. So whoever reads nothing keeps nobody out.
type crowd struct {
	most int

	mu    sync.Mutex
	since map[net.Conn]time.Time // when its state last changed
}

// note is a ConnState of http.Server.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, known := c.since[conn]; {
	case state == http.StateClosed || state == http.StateHijacked:
		delete(c.since, conn)
	case state == http.StateNew:
		if b, ok := socket(conn).(interface{ SetWriteBuffer(int) error }); ok {
			_ = b.SetWriteBuffer(httpBuffer)
		}
		c.since[conn] = time.Now()
	case known:
		c.since[conn] = time.Now()
	}
	if len(c.since) <= c.most {
		return
	}
	var oldest net.Conn
	for other, t := range c.since {
		if oldest == nil || t.Before(c.since[oldest]) {
			oldest = other
		}
	}
	delete(c.since, oldest)
	// What it has not read is thrown away.
	if t, ok := socket(oldest).(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = socket(oldest).Close()
}

// socket is what is below TLS.
func socket(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}
