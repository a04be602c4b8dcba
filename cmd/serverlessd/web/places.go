package web

import (
	"context"
	"sync"
	"time"
)

// smallBody is how many bytes of a body are read before it needs a place. So large bodies that come
// slowly do not delay small ones.
const smallBody = 64 << 10

// placeWait is how long a body or a result waits for a place.
const placeWait = time.Second

// places limits how many large bodies or results are in memory. Each of them occupies a place. A
// client may have half of the places.
type places struct {
	limit int

	mu       sync.Mutex // guards the following
	inUse    int
	byClient map[string]int
	freed    chan struct{} // closed and replaced when a place becomes free
}

func newPlaces(limit int) *places {
	return &places{limit: limit, byClient: make(map[string]int), freed: make(chan struct{})}
}

// take waits for a place, and reports whether it has got one in time.
func (p *places) take(ctx context.Context, client string) bool {
	ctx, cancel := context.WithTimeout(ctx, placeWait)
	defer cancel()
	for {
		p.mu.Lock()
		free := p.inUse < p.limit && p.byClient[client] < (p.limit+1)/2
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

func (p *places) leave(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse--
	if p.byClient[client]--; p.byClient[client] == 0 {
		delete(p.byClient, client)
	}
	close(p.freed)
	p.freed = make(chan struct{})
}
