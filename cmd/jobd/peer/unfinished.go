package peer

import (
	"fmt"
	"sync"
)

// unfinishedBudget bounds the bytes that all connections of a server together hold for incomplete
// messages. Beyond the limit, it closes the connection that holds the most. If several connections
// hold the same, it closes the connection among them whose message began first. The others do not
// read on until its memory is free.
type unfinishedBudget struct {
	limit int // bytes

	mu           sync.Mutex // guards the fields below
	freed        sync.Cond
	byConn       map[*Conn]heldMessage
	totalBytes   int // bytes held
	closingBytes int // bytes held by connections that are being closed
	lastStarted  int
}

// heldMessage counts the bytes that a connection holds for an incomplete message. startNumber is
// the message's number in the order in which such messages began.
type heldMessage struct {
	bytes, startNumber int
	isClosing          bool
}

func newUnfinished(limit int) *unfinishedBudget {
	u := &unfinishedBudget{limit: limit, byConn: make(map[*Conn]heldMessage)}
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
	for bytes > 0 && u.totalBytes > u.limit && !u.byConn[c].isClosing {
		u.freed.Wait()
	}
}

func (u *unfinishedBudget) findHoarders(c *Conn, bytes int) (hoarders []*Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	h, known := u.byConn[c]
	if !known {
		u.lastStarted++
		h.startNumber = u.lastStarted
	}
	newBytes := bytes - h.bytes
	u.totalBytes += newBytes
	if h.isClosing {
		u.closingBytes += newBytes
	}
	h.bytes = bytes
	if bytes > 0 {
		u.byConn[c] = h
	} else {
		delete(u.byConn, c)
	}
	for u.totalBytes-u.closingBytes > u.limit {
		var largest *Conn
		for c, h := range u.byConn {
			if m := u.byConn[largest]; !h.isClosing && (largest == nil || h.bytes > m.bytes || h.bytes == m.bytes && h.startNumber < m.startNumber) {
				largest = c
			}
		}
		h := u.byConn[largest]
		h.isClosing = true
		u.byConn[largest] = h
		u.closingBytes += h.bytes
		hoarders = append(hoarders, largest)
	}
	u.freed.Broadcast()
	return hoarders
}
