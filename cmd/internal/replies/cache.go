// Package replies keeps encoded replies that equal requests share, so that a hundred viewers of a
// page cost about as much as one.
package replies

import "sync"

// maxReplies is the maximum number of different replies of one snapshot that are kept.
const maxReplies = 64

// Cache holds encoded replies that show the latest snapshot of a daemon. Requests with the same key
// K get the same reply. The zero value is an empty cache.
type Cache[K comparable] struct {
	mu             sync.Mutex // held while a reply is encoded, so that no other request encodes the same
	snapshot       any
	encodedReplies map[K][]byte
}

// Get returns the reply to a request. The reply shows the given snapshot (a pointer). It calls
// encode only if the cache does not have that reply yet. Errors are not kept. The reply must not be
// changed.
func (c *Cache[K]) Get(snapshot any, request K, encode func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.snapshot != snapshot || len(c.encodedReplies) >= maxReplies {
		c.snapshot, c.encodedReplies = snapshot, make(map[K][]byte)
	}
	reply, ok := c.encodedReplies[request]
	if !ok {
		var err error
		if reply, err = encode(); err != nil {
			return nil, err
		}
		c.encodedReplies[request] = reply
	}
	return reply, nil
}
