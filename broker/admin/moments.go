package admin

import (
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/admin/moments"
)

// recordMoments records the sums of all types every Period until stop is closed, and takes snapshots
// meanwhile.
func (a *API) recordMoments(stop <-chan struct{}) {
	t := time.NewTicker(idleSnapshotPeriod)
	defer t.Stop()
	for i := 0; ; i++ {
		if i%int(moments.Period/idleSnapshotPeriod) == 0 {
			var l broker.Ledger
			a.srv.Hub().View(func(core *broker.Broker, _ int64) { l = core.Totals() })
			a.moments.Add(moments.Moment{Moment: api.Moment{
				UnixMS: time.Now().UnixMilli(), Submitted: l.Submitted, Ended: countEnded(&l), Failed: l.Failed,
				Queued: l.Queued, Running: l.Running,
			}})
		}
		a.refreshIfStale()
		select {
		case <-stop:
			return
		case <-t.C:
		}
	}
}

// recentMoments returns the sums of the last minutes, oldest first.
func (a *API) recentMoments() []api.Moment {
	moments := a.moments.Recent()
	out := make([]api.Moment, len(moments))
	for i := range moments {
		out[i] = moments[i].Moment
	}
	return out
}

func countEnded(l *broker.Ledger) uint64 {
	return l.Answered + l.Failed + l.Cancelled + l.Expired + l.Discarded
}
