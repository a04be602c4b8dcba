// Package shared lets equal requests share an encoded reply, so that a hundred viewers of a page
// cost about as much as one.
package shared

import "sync"

// most is how many different replies about one look are kept.
const most = 64

// Replies has the replies that show the latest look at a daemon, by what distinguishes the
// requests. Its zero value has none.
type Replies[K comparable] struct {
	mu   sync.Mutex // held while a reply is encoded, so that nobody encodes the same
	look any
	of   map[K][]byte
}

// Get returns the reply to a request. It calls encode only if there is none yet that shows this
// look, a pointer. The reply must not be changed.
func (r *Replies[K]) Get(look any, request K, encode func() ([]byte, error)) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.look != look || len(r.of) >= most {
		r.look, r.of = look, make(map[K][]byte)
	}
	reply, ok := r.of[request]
	if !ok {
		var err error
		if reply, err = encode(); err != nil {
			return nil, err
		}
		r.of[request] = reply
	}
	return reply, nil
}
