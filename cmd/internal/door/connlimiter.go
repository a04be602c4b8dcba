package door

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// SpareConns connections are accepted beyond the limit, for health checks and for the answer
// that there are too many.
const SpareConns = 64

// connLimiter bounds the connections of a listener. If there are too many connections, it closes a
// connection that has made no request for long. Such a connection is idle, is in the middle of a
// handshake or of the head of a request, or does not read the answer to a request that anybody may
// make (Requirements.Public). If all SpareConns are used, too, it closes the connection among them
// that has waited longest, however short its wait. So a health check gets its answer during a flood
// of connections.
type connLimiter struct {
	net.Listener
	max  int
	open atomic.Int64

	mu            sync.Mutex
	admittedCount int       // number of connections within the limit
	waitingConns  list.List // list of *limitedConn within the limit, sorted by since
	spareConns    list.List // the connections beyond the limit, sorted by since
}

// limitedConn is a connection that the limiter has accepted.
type limitedConn struct {
	net.Conn
	isOverLimit bool // accepted beyond the limit
	// Guarded by the limiter's mutex.
	element    *list.Element // nil while an admitted request is answered
	since      time.Time     // when the connection was accepted, or last began or ended a request
	isIdle     bool          // its last request has ended
	isReplaced bool          // another connection has taken its place
}

// A connection must have been without a request for minIdle before it may be closed to make room
// for another connection. If it were closed earlier, a client that is about to use it could lose a
// request.
const minIdle = time.Second

// Accept implements net.Listener.
func (c *connLimiter) Accept() (net.Conn, error) {
	for {
		nc, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if m := c.add(nc); m != nil {
			return m, nil
		}
		_ = nc.Close()
	}
}

// add returns the connection with its place, or nil if there are too many.
func (c *connLimiter) add(nc net.Conn) *limitedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.admittedCount == c.max {
		hasRoom := c.closeOldest(&c.waitingConns, minIdle) || c.closeOldest(&c.spareConns, minIdle)
		if !hasRoom && int(c.open.Load()) >= c.max+SpareConns && !c.closeOldest(&c.spareConns, 0) {
			return nil
		}
	}
	m := &limitedConn{Conn: nc, isOverLimit: c.admittedCount == c.max}
	if !m.isOverLimit {
		c.admittedCount++
	}
	c.open.Add(1)
	return m
}

// closeOldest closes the connection of a list that has gone longest without a request, if it has
// done so for at least minAge. The caller holds the mutex.
func (c *connLimiter) closeOldest(conns *list.List, minAge time.Duration) bool {
	first := conns.Front()
	if first == nil {
		return false
	}
	m := first.Value.(*limitedConn)
	if time.Since(m.since) < minAge {
		return false
	}
	c.removeFromList(m)
	c.release(m)
	if t, ok := m.Conn.(*net.TCPConn); ok && !m.isIdle {
		_ = t.SetLinger(0) // discard the part of an incomplete answer that the client has not read
	}
	_ = m.Close()
	return true
}

// release frees the place of a connection within the limit, once. The caller holds the mutex.
func (c *connLimiter) release(m *limitedConn) {
	if !m.isOverLimit && !m.isReplaced {
		m.isReplaced = true
		c.admittedCount--
	}
}

// removeFromList takes a connection off the list. The caller holds the mutex.
func (c *connLimiter) removeFromList(m *limitedConn) {
	if m.element != nil {
		c.listOf(m).Remove(m.element)
		m.element = nil
	}
}

// listOf returns the list in which a connection waits.
func (c *connLimiter) listOf(m *limitedConn) *list.List {
	if m.isOverLimit {
		return &c.spareConns
	}
	return &c.waitingConns
}

// connOf returns the limiter's connection, which a TLS connection may wrap.
func connOf(conn net.Conn) *limitedConn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return conn.(*limitedConn)
}

// onState is the server's http.Server.ConnState.
func (c *connLimiter) onState(conn net.Conn, state http.ConnState) {
	m := connOf(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeFromList(m)
	switch state {
	case http.StateNew, http.StateActive, http.StateIdle:
		m.since, m.isIdle = time.Now(), state == http.StateIdle
		m.element = c.listOf(m).PushBack(m)
	case http.StateClosed, http.StateHijacked:
		c.release(m)
		c.open.Add(-1)
	}
}

// connKey is the key of a connection in the context of its requests.
type connKey struct{}

// withConn is the server's http.Server.ConnContext.
func (c *connLimiter) withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, connOf(conn))
}

func requestConn(r *http.Request) *limitedConn {
	m, _ := r.Context().Value(connKey{}).(*limitedConn)
	return m
}

// protect keeps closeOldest from closing a connection until its request is answered.
func (c *connLimiter) protect(r *http.Request) {
	if m := requestConn(r); m != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.removeFromList(m)
	}
}

// isOverLimit reports whether a request came on a connection beyond the limit. Such a request is
// refused and its connection closed, unless its path is open to anybody (Requirements.Public).
func isOverLimit(r *http.Request) bool {
	m := requestConn(r)
	return m != nil && m.isOverLimit
}
