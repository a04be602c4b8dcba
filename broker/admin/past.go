package admin

import (
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/admin/moments"
)

// note records the sums of all types every Period until stop is closed, and takes snapshots
// meanwhile.
func (a *API) note(stop <-chan struct{}) {
	t := time.NewTicker(glancePeriod)
	defer t.Stop()
	for i := 0; ; i++ {
		if i%int(moments.Period/glancePeriod) == 0 {
			var l broker.Ledger
			a.srv.Hub().View(func(b *broker.Broker, _ int64) { l = b.Totals() })
			a.past.Note(moments.Moment{Moment: api.Moment{
				UnixMS: time.Now().UnixMilli(), Submitted: l.Submitted, Ended: ended(&l), Failed: l.Failed,
				Queued: l.Queued, Running: l.Running,
			}})
		}
		a.glance()
		select {
		case <-stop:
			return
		case <-t.C:
		}
	}
}

// history returns the sums of the last minutes, oldest first.
func (a *API) history() []api.Moment {
	all := a.past.Lately()
	out := make([]api.Moment, len(all))
	for i := range all {
		out[i] = all[i].Moment
	}
	return out
}

func ended(l *broker.Ledger) uint64 {
	return l.Answered + l.Failed + l.Cancelled + l.Expired + l.Discarded
}
