package moments

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"gloom/broker/admin/api"
)

// TestMomentsOfFiveMinutesAreKept: the moments of the last five minutes are kept, except those for
// which nothing is known.
func TestMomentsOfFiveMinutesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Ring
		if got := r.Recent(); got == nil || len(got) > 0 {
			t.Errorf("at first %v", got)
		}
		n, stop, done := uint64(0), make(chan struct{}), make(chan struct{})
		go func() {
			r.Collect(stop, func() (Moment, Histograms, bool) {
				n++
				return Moment{Moment: api.Moment{Queued: n}}, Histograms{}, n != 80
			})
			close(done)
		}()
		time.Sleep(99*Period + time.Second)
		close(stop)
		<-done
		got := r.Recent()
		if len(got) != maxMoments || got[0].Queued != 39 || got[maxMoments-1].Queued != 99 {
			t.Fatalf("%d moments, %+v to %+v", len(got), got[0], got[len(got)-1])
		}
		for i := 1; i < maxMoments; i++ {
			want := uint64(1)
			if got[i].Queued == 81 {
				want = 2
			}
			if elapsed := got[i].UnixMS - got[i-1].UnixMS; got[i].Queued-got[i-1].Queued != want || elapsed != int64(want)*Period.Milliseconds() {
				t.Errorf("%+v after %+v", got[i], got[i-1])
			}
		}
	})
}

// TestMomentTellsJobTimes: a moment tells how long jobs took in the two periods before it.
func TestMomentTellsJobTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Ring
		bounds := []float64{0.1, 1, 10}
		histograms := []Histograms{
			{bounds, []uint64{5, 0, 0, 0}, nil},
			{bounds, []uint64{5, 0, 0, 0}, []uint64{0, 0, 0, 0}},
			{bounds, []uint64{5, 100, 0, 0}, []uint64{0, 0, 0, 0}},
			{bounds, []uint64{5, 100, 0, 0}, []uint64{0, 0, 0, 9}},
			{bounds, []uint64{5, 100, 0, 0}, []uint64{2, 0, 0, 9}},
			{bounds, []uint64{0, 0, 0, 0}, []uint64{0, 0, 0, 0}}, // the daemon's worker has left
		}
		stop, done, i := make(chan struct{}), make(chan struct{}), 0
		go func() {
			r.Collect(stop, func() (Moment, Histograms, bool) { i++; return Moment{}, histograms[i-1], true })
			close(done)
		}()
		time.Sleep(time.Duration(len(histograms))*Period + time.Second)
		close(stop)
		<-done
		const sums = `{"unix_ms":0,"submitted":0,"ended":0,"failed":0,"queued":0,"running":0`
		want := []string{`}`, `}`, `,"wait50":0.55,"wait95":0.95}`, `,"wait50":0.55,"wait95":0.95,"run50":10,"run95":10}`, `,"run50":10,"run95":10}`, `}`}
		for i, m := range r.Recent() {
			m.UnixMS = 0
			if got, err := json.Marshal(m); err != nil || string(got) != sums+want[i] {
				t.Errorf("moment %d: %s %v, want %s at the end", i, got, err, want[i])
			}
		}
	})
}
