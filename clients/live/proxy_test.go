package live

import (
	"io"
	"net"
	"sync"
)

// proxy passes connections on to an address, and can cut them.
type proxy struct {
	ln net.Listener

	mu sync.Mutex // guards what follows
	to string
	// budget returns how many bytes a new connection carries to the broker, and from
	// it, before it is cut; below 0 there is no limit.
	budget func() (out, in int64)
	open   map[net.Conn]bool
	count  int
}

func newProxy(w *world, to string) *proxy {
	w.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	p := &proxy{ln: ln, to: to, open: map[net.Conn]bool{}, budget: func() (int64, int64) { return -1, -1 }}
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			go p.pass(client)
		}
	}()
	w.Cleanup(func() {
		ln.Close()
		p.cut()
	})
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

// cut resets all connections that are open.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// limit sets how many bytes each new connection may carry, in each direction.
func (p *proxy) limit(budget func() (out, in int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget = budget
}

// redirect directs new connections elsewhere.
func (p *proxy) redirect(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

// connections returns the number of connections so far.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *proxy) pass(client net.Conn) {
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	broker, err := net.Dial("tcp", to)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	p.count++
	p.open[client], p.open[broker] = true, true
	out, in := p.budget()
	p.mu.Unlock()
	var both sync.WaitGroup
	copies := func(to, from net.Conn, most int64) {
		if most < 0 {
			most = 1 << 62
		}
		io.CopyN(to, from, most)
		client.(*net.TCPConn).SetLinger(0)
		client.Close()
		broker.Close()
	}
	both.Go(func() { copies(broker, client, out) })
	both.Go(func() { copies(client, broker, in) })
	both.Wait()
	p.mu.Lock()
	delete(p.open, client)
	delete(p.open, broker)
	p.mu.Unlock()
}
