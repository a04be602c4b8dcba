package peer

import (
	"fmt"
	"sync"
)

// unfinished bounds the bytes that all connections of a server together hold for incomplete
// messages. Beyond the limit, the connection that holds most is closed; of several that hold the
// same, the first that began to.
type unfinished struct {
	most int // bytes

	mu    sync.Mutex // guards the fields below
	held  map[*Conn]holding
	total int
	begun int
}

type holding struct{ bytes, begun int }

func newUnfinished(most int) *unfinished {
	return &unfinished{most: most, held: make(map[*Conn]holding)}
}

// note records how much a connection holds now, and closes connections beyond the limit.
func (u *unfinished) note(c *Conn, bytes int) {
	for _, hoarder := range u.update(c, bytes) {
		hoarder.giveUp(fmt.Sprintf("too many unfinished messages (limit %d bytes), and this one is the largest", u.most))
	}
}

func (u *unfinished) update(c *Conn, bytes int) (hoarders []*Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	h, known := u.held[c]
	if !known {
		u.begun++
		h.begun = u.begun
	}
	u.total += bytes - h.bytes
	h.bytes = bytes
	if bytes > 0 {
		u.held[c] = h
	} else {
		delete(u.held, c)
	}
	for u.total > u.most {
		var most *Conn
		for c, h := range u.held {
			if m := u.held[most]; most == nil || h.bytes > m.bytes || h.bytes == m.bytes && h.begun < m.begun {
				most = c
			}
		}
		u.total -= u.held[most].bytes
		delete(u.held, most)
		hoarders = append(hoarders, most)
	}
	return hoarders
}
