package moments

import (
	"testing"
	"testing/synctest"
	"time"

	"gloom/broker/admin/api"
)

// TestRing: the last five minutes are kept, without the moments for which nothing is known.
func TestRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Ring
		if got := r.Lately(); got == nil || len(got) > 0 {
			t.Errorf("at first %v", got)
		}
		n, stop, ended := uint64(0), make(chan struct{}), make(chan struct{})
		go func() {
			r.Run(stop, func() (api.Moment, bool) { n++; return api.Moment{Queued: n}, n != 80 })
			close(ended)
		}()
		time.Sleep(99*Period + time.Second)
		close(stop)
		<-ended
		got := r.Lately()
		if len(got) != most || got[0].Queued != 39 || got[most-1].Queued != 99 {
			t.Fatalf("%d moments, %+v to %+v", len(got), got[0], got[len(got)-1])
		}
		for i := 1; i < most; i++ {
			want := uint64(1)
			if got[i].Queued == 81 {
				want = 2
			}
			if passed := got[i].UnixMS - got[i-1].UnixMS; got[i].Queued-got[i-1].Queued != want || passed != int64(want)*Period.Milliseconds() {
				t.Errorf("%+v after %+v", got[i], got[i-1])
			}
		}
	})
}
