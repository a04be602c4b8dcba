package admin

import (
	"sync"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
)

const (
	momentPeriod = 5 * time.Second
	// latelyMoments is how many moments a new viewer gets.
	latelyMoments = int(5 * time.Minute / momentPeriod)
)

// past has the sums of the last minutes, so that a new viewer's plots are not empty.
type past struct {
	mu   sync.Mutex
	ring [latelyMoments]api.Moment
	n    int // moments noted since the start
}

// note records the sums periodically until stop.
func (p *past) note(a *API, stop <-chan struct{}) {
	t := time.NewTicker(glancePeriod)
	defer t.Stop()
	for i := 0; ; i++ {
		if i%int(momentPeriod/glancePeriod) == 0 {
			var l broker.Ledger
			a.srv.Hub().View(func(b *broker.Broker, _ int64) { l = b.Totals() })
			p.mu.Lock()
			p.ring[p.n%latelyMoments] = api.Moment{
				UnixMS: time.Now().UnixMilli(), Submitted: l.Submitted, Ended: ended(&l), Failed: l.Failed,
				Queued: l.Queued, Running: l.Running,
			}
			p.n++
			p.mu.Unlock()
		}
		a.glance()
		select {
		case <-stop:
			return
		case <-t.C:
		}
	}
}

func ended(l *broker.Ledger) uint64 {
	return l.Answered + l.Failed + l.Cancelled + l.Expired + l.Discarded
}

// lately returns the last minutes, oldest first.
func (p *past) lately() []api.Moment {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []api.Moment{}
	for i := max(0, p.n-latelyMoments); i < p.n; i++ {
		out = append(out, p.ring[i%latelyMoments])
	}
	return out
}
