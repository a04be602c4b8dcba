package peer

import (
	"fmt"
	"sync"
)

// unfinishedBudget bounds the bytes that all connections of a server together hold for incomplete
// messages. Beyond the limit, the connection that holds the most is closed; among several that hold
// the same, the one whose message began first. The others do not read on until its memory is free.
type unfinishedBudget struct {
	limit int // bytes

	mu      sync.Mutex // guards the fields below
	freed   sync.Cond
	byConn  map[*Conn]heldBytes
	total   int // bytes held
	closing int // bytes held by connections that are being closed
	started int
}

type heldBytes struct {
	bytes, started int
	closing        bool
}

func newUnfinished(limit int) *unfinishedBudget {
	u := &unfinishedBudget{limit: limit, byConn: make(map[*Conn]heldBytes)}
	u.freed.L = &u.mu
	return u
}

// update records how much a connection holds now, and closes connections beyond the limit.
// It returns when the connection may continue to read.
func (u *unfinishedBudget) update(c *Conn, bytes int) {
	for _, hoarder := range u.findHoarders(c, bytes) {
		hoarder.refuse(fmt.Sprintf("too many unfinished messages (limit %d bytes), and this one is the largest", u.limit))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for bytes > 0 && u.total > u.limit && !u.byConn[c].closing {
		u.freed.Wait()
	}
}

func (u *unfinishedBudget) findHoarders(c *Conn, bytes int) (hoarders []*Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	h, known := u.byConn[c]
	if !known {
		u.started++
		h.started = u.started
	}
	added := bytes - h.bytes
	u.total += added
	if h.closing {
		u.closing += added
	}
	h.bytes = bytes
	if bytes > 0 {
		u.byConn[c] = h
	} else {
		delete(u.byConn, c)
	}
	for u.total-u.closing > u.limit {
		var largest *Conn
		for c, h := range u.byConn {
			if m := u.byConn[largest]; !h.closing && (largest == nil || h.bytes > m.bytes || h.bytes == m.bytes && h.started < m.started) {
				largest = c
			}
		}
		h := u.byConn[largest]
		h.closing = true
		u.byConn[largest] = h
		u.closing += h.bytes
		hoarders = append(hoarders, largest)
	}
	u.freed.Broadcast()
	return hoarders
}
