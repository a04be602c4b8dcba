package probe_test

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// cuttableProxy carries a broker's connections to NATS. When the proxy is cut, it carries nothing
// in one direction or both: sent data waits, as when a network is down.
type cuttableProxy struct {
	url string

	mu      sync.Mutex
	cond    *sync.Cond
	blocked [2]bool // whether bytes to the server are blocked, and bytes from it
	closed  bool
}

func newCuttableProxy(t *testing.T, to string) *cuttableProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cuttableProxy{url: "nats://" + ln.Addr().String()}
	c.cond = sync.NewCond(&c.mu)
	t.Cleanup(func() {
		ln.Close()
		c.mu.Lock()
		c.closed = true
		c.cond.Broadcast()
		c.mu.Unlock()
	})
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(to, "nats://"))
			if err != nil {
				in.Close()
				continue
			}
			go c.copyBytes(out, in, 0)
			go c.copyBytes(in, out, 1)
		}
	}()
	return c
}

func (c *cuttableProxy) copyBytes(to, from net.Conn, direction int) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		c.mu.Lock()
		for c.blocked[direction] && !c.closed {
			c.cond.Wait()
		}
		c.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// set cuts or restores each direction.
func (c *cuttableProxy) set(toServer, toClient bool) {
	c.mu.Lock()
	c.blocked = [2]bool{toServer, toClient}
	c.cond.Broadcast()
	c.mu.Unlock()
}
