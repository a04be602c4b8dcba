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

// spare connections are accepted beyond the limit, for health checks and for the answer
// that there are too many.
const spare = 64

// crowd bounds the connections of a listener. If there are too many, one that has long been
// idle is closed.
type crowd struct {
	net.Listener
	most int
	open atomic.Int64

	mu   sync.Mutex
	idle list.List // of *member, the longest idle first
}

// member is a connection.
type member struct {
	net.Conn
	beyond bool // accepted beyond the limit
	// Guarded by the crowd's mutex.
	at    *list.Element // nil while it is not idle
	since time.Time
}

// leastIdle is how long a connection must have been idle before it may be closed for
// another: a client that is about to use it would lose its request.
const leastIdle = time.Second

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		nc, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		n := int(c.open.Add(1))
		if n <= c.most || c.makeRoom() {
			return &member{Conn: nc}, nil
		}
		if n <= c.most+spare {
			return &member{Conn: nc, beyond: true}, nil
		}
		c.open.Add(-1)
		_ = nc.Close()
	}
}

func (c *crowd) makeRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.idle.Front()
	if first == nil {
		return false
	}
	m := first.Value.(*member)
	if time.Since(m.since) < leastIdle {
		return false
	}
	c.idle.Remove(first)
	m.at = nil
	_ = m.Close()
	return true
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
	if m.at != nil {
		c.idle.Remove(m.at)
		m.at = nil
	}
	switch state {
	case http.StateIdle:
		m.since = time.Now()
		m.at = c.idle.PushBack(m)
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
	}
}

type beyond struct{}

// mark is a ConnContext of http.Server.
func (c *crowd) mark(ctx context.Context, conn net.Conn) context.Context {
	if memberOf(conn).beyond {
		return context.WithValue(ctx, beyond{}, true)
	}
	return ctx
}

// crowded tells that a request came on a connection beyond the limit. It is refused, unless
// it is a health check, and the connection is closed.
func crowded(r *http.Request) bool { return r.Context().Value(beyond{}) != nil }
