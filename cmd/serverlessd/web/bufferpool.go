package web

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// smallBody is the number of bytes of a body that are read before the body needs a buffer. So large
// bodies that arrive slowly do not delay small bodies.
const smallBody = 64 << 10

// bufferWait limits the time that a body or a result waits for a buffer.
const bufferWait = time.Second

// bufferPool limits how many large bodies or results are in memory. Each large body or result
// occupies a buffer. A client may have half of the buffers.
type bufferPool struct {
	limit int

	mu       sync.Mutex // guards the following
	inUse    int
	byClient map[string]int
	freed    chan struct{} // closed and replaced when a buffer becomes free
}

func newBufferPool(limit int) *bufferPool {
	return &bufferPool{limit: limit, byClient: make(map[string]int), freed: make(chan struct{})}
}

// acquire waits for a buffer, and reports whether it has got one in time.
func (p *bufferPool) acquire(ctx context.Context, client string) bool {
	ctx, cancel := context.WithTimeout(ctx, bufferWait)
	defer cancel()
	for {
		p.mu.Lock()
		free := p.inUse < p.limit && !p.hasShare(client)
		if free {
			p.inUse++
			p.byClient[client]++
		}
		freed := p.freed
		p.mu.Unlock()
		if free {
			return true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

// hasShare reports whether a client has as many buffers as it may have; p.mu is held.
func (p *bufferPool) hasShare(client string) bool { return p.byClient[client] >= (p.limit+1)/2 }

// shortage says why a client has got no buffer.
func (p *bufferPool) shortage(client string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasShare(client) {
		return fmt.Sprintf("client %q has half of them", client)
	}
	return "none is free at the moment"
}

func (p *bufferPool) release(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse--
	if p.byClient[client]--; p.byClient[client] == 0 {
		delete(p.byClient, client)
	}
	close(p.freed)
	p.freed = make(chan struct{})
}
