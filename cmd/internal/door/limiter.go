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

// Spare connections are accepted beyond the limit, for health checks and for the answer
// that there are too many.
const Spare = 64

// crowd bounds the connections of a listener. If there are too many, it closes one that has asked
// for nothing for long: one that is idle, or in the middle of a handshake or of the head of a
// request, or that does not read the answer to an open request.
type crowd struct {
	net.Listener
	most int
	open atomic.Int64

	mu      sync.Mutex
	within  int       // how many have places within the limit
	waiting list.List // of *member, in the order of since
}

// member is a connection.
type member struct {
	net.Conn
	beyond bool // accepted beyond the limit
	// Guarded by the crowd's mutex.
	at    *list.Element // nil while an admitted request is answered
	since time.Time     // when it came, or last began or ended a request
	idle  bool          // its last request has ended
	gone  bool          // another connection has its place
}

// leastIdle is how long a connection must have asked for nothing before it may be closed for
// another: a client that is about to use it would lose its request.
const leastIdle = time.Second

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		nc, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if m := c.enter(nc); m != nil {
			return m, nil
		}
		_ = nc.Close()
	}
}

// enter returns the member for a connection, or nil if there are too many.
func (c *crowd) enter(nc net.Conn) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.within == c.most {
		if made := c.makeRoom(); !made && int(c.open.Load()) >= c.most+Spare {
			return nil
		}
	}
	m := &member{Conn: nc, beyond: c.within == c.most}
	if !m.beyond {
		c.within++
	}
	c.open.Add(1)
	return m
}

// makeRoom closes the connection that has asked for nothing for longest, if any may be closed: one
// within the limit, if possible. The caller holds the mutex.
func (c *crowd) makeRoom() bool {
	var m *member
	for at := c.waiting.Front(); at != nil && (m == nil || m.beyond); at = at.Next() {
		next := at.Value.(*member)
		if time.Since(next.since) < leastIdle {
			break
		}
		if m == nil || !next.beyond {
			m = next
		}
	}
	if m == nil {
		return false
	}
	c.leave(m)
	c.giveUp(m)
	if t, ok := m.Conn.(*net.TCPConn); ok && !m.idle {
		_ = t.SetLinger(0) // discard what it has not read of an incomplete answer
	}
	_ = m.Close()
	return true
}

// giveUp frees the place of a connection within the limit, once. The caller holds the mutex.
func (c *crowd) giveUp(m *member) {
	if !m.beyond && !m.gone {
		m.gone = true
		c.within--
	}
}

// leave takes a connection off the list. The caller holds the mutex.
func (c *crowd) leave(m *member) {
	if m.at != nil {
		c.waiting.Remove(m.at)
		m.at = nil
	}
}

// memberOf finds the member of a connection below TLS.
func memberOf(conn net.Conn) *member {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return conn.(*member)
}

// note is a ConnState of http.Server.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	m := memberOf(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave(m)
	switch state {
	case http.StateNew, http.StateActive, http.StateIdle:
		m.since, m.idle = time.Now(), state == http.StateIdle
		m.at = c.waiting.PushBack(m)
	case http.StateClosed, http.StateHijacked:
		c.giveUp(m)
		c.open.Add(-1)
	}
}

// memberKey is the key of a connection in the context of its requests.
type memberKey struct{}

// mark is a ConnContext of http.Server.
func (c *crowd) mark(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, memberKey{}, memberOf(conn))
}

func visitorOf(r *http.Request) *member {
	m, _ := r.Context().Value(memberKey{}).(*member)
	return m
}

// admit keeps makeRoom from closing a connection until its request is answered.
func (c *crowd) admit(r *http.Request) {
	if m := visitorOf(r); m != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leave(m)
	}
}

// crowded reports whether a request came on a connection beyond the limit. It is refused, unless it
// is a health check, and the connection is closed.
func crowded(r *http.Request) bool {
	m := visitorOf(r)
	return m != nil && m.beyond
}
