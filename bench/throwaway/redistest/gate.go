package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"gloom/bench/throwaway"
)

// Gate is a proxy between a client and a server that delays and loses data as a network may.
type Gate struct {
	listener net.Listener

	mu     sync.Mutex // guards what follows
	target string
	conns  map[*gateConn]bool // open connections
	silent bool
	rate   atomic.Int64 // bytes in a second each way; 0: no limit
}

// gateConn is a connection through the gate.
type gateConn struct {
	client, server net.Conn
	held           bool
	delayed        []byte // bytes from the client, not yet sent to the server
}

// NewGate opens a gate to a server's TCP address. It is closed when the test ends.
func NewGate(t throwaway.TB, target string) *Gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	g := &Gate{listener: l, target: target, conns: map[*gateConn]bool{}}
	go g.accept()
	t.Cleanup(func() {
		l.Close()
		g.Cut()
	})
	return g
}

// URL returns the address for clients.
func (g *Gate) URL() string { return "redis://" + g.listener.Addr().String() }

// SetTarget directs new connections to another server and cuts the others.
func (g *Gate) SetTarget(target string) {
	g.mu.Lock()
	g.target = target
	g.mu.Unlock()
	g.Cut()
}

// Cut breaks all connections.
func (g *Gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		g.drop(c)
	}
}

// Throttle limits the bytes per second, in each direction of each connection.
func (g *Gate) Throttle(rate int64) { g.rate.Store(rate) }

// acquire waits for as long as n bytes take at the set rate.
func (g *Gate) acquire(n int) {
	if rate := g.rate.Load(); rate > 0 {
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
	}
}

// Mute passes on the next requests, drops the first answer and closes its connection.
func (g *Gate) Mute() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.silent = true
}

// Hold keeps the bytes that arrive from now on over the open connections, even when their clients
// disconnect. Release sends them to the server.
func (g *Gate) Hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.held = true
	}
}

// Release sends the bytes that Hold kept, and returns their number.
func (g *Gate) Release() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for c := range g.conns {
		if c.held {
			n += len(c.delayed)
			c.server.Write(c.delayed)
			c.held, c.delayed = false, nil
		}
	}
	return n
}

func (g *Gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		server, err := net.Dial("tcp", g.target)
		if err != nil {
			client.Close()
		} else {
			c := &gateConn{client: client, server: server}
			g.conns[c] = true
			go g.copyUp(c)
			go g.copyDown(c)
		}
		g.mu.Unlock()
	}
}

func (g *Gate) copyUp(c *gateConn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.client.Read(buf)
		g.acquire(n)
		g.mu.Lock()
		switch {
		case c.held:
			c.delayed = append(c.delayed, buf[:n]...)
		case err != nil:
			g.drop(c)
		default:
			c.server.Write(buf[:n])
		}
		g.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (g *Gate) copyDown(c *gateConn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.server.Read(buf)
		g.acquire(n)
		g.mu.Lock()
		if n > 0 && g.silent {
			g.silent = false
			err = net.ErrClosed
		}
		if err != nil {
			g.drop(c)
		} else {
			c.client.Write(buf[:n])
		}
		g.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// drop closes a connection; the caller holds mu.
func (g *Gate) drop(c *gateConn) {
	c.client.Close()
	c.server.Close()
	delete(g.conns, c)
}
