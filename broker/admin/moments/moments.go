// Package moments keeps the sums of the last minutes, so that the plots of a page are not empty
// when it is opened.
package moments

import (
	"sync"
	"time"

	"gloom/broker/admin/api"
)

// Period is the time between two moments.
const Period = 5 * time.Second

// most is how many moments are kept.
const most = int(5 * time.Minute / Period)

// Ring has the last moments. Its zero value has none.
type Ring struct {
	mu   sync.Mutex
	ring [most]api.Moment
	n    int // moments added since the start
}

// Note adds a moment.
func (r *Ring) Note(m api.Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.n%most] = m
	r.n++
}

// Run adds the result of look every Period until stop, if it is known, and sets its time. The first
// look is after one Period: right after its start a daemon may not have reached its store.
func (r *Ring) Run(stop <-chan struct{}, look func() (m api.Moment, known bool)) {
	t := time.NewTicker(Period)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		if m, ok := look(); ok {
			m.UnixMS = time.Now().UnixMilli()
			r.Note(m)
		}
	}
}

// Lately returns the last minutes, oldest first.
func (r *Ring) Lately() []api.Moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []api.Moment{}
	for i := max(0, r.n-most); i < r.n; i++ {
		out = append(out, r.ring[i%most])
	}
	return out
}
