// Package moments keeps the sums of the last minutes, so that the plots of a page are not empty
// when it is opened.
package moments

import (
	"cmp"
	"strconv"
	"sync"
	"time"

	"gloom/broker/admin/api"
)

// Period is the time between two moments.
const Period = 5 * time.Second

// maxMoments is how many moments are kept.
const maxMoments = int(5 * time.Minute / Period)

// Moment is an api.Moment and, at the doors, the times for which jobs waited and ran shortly before
// it, in seconds: the 50th and the 95th percentile, nil if there were no such jobs or if the times
// are not known.
type Moment struct {
	api.Moment
	WaitP50 *float64 `json:"wait50,omitempty"`
	WaitP95 *float64 `json:"wait95,omitempty"`
	RunP50  *float64 `json:"run50,omitempty"`
	RunP95  *float64 `json:"run95,omitempty"`
}

// Histograms counts since a daemon's start how long jobs waited and ran. The buckets end at Bounds,
// in seconds; one more bucket counts longer times. Waits and Runs are nil if they are not known.
type Histograms struct {
	Bounds []float64 `json:"bounds"`
	Waits  []uint64  `json:"wait"`
	Runs   []uint64  `json:"run"`
}

// percentilePeriods is the number of periods that a moment's times cover.
const percentilePeriods = 2

// Ring holds the last moments. Its zero value has none.
type Ring struct {
	mu         sync.Mutex
	ring       [maxMoments]Moment
	n          int                           // moments added since the start
	histograms [percentilePeriods]Histograms // the histograms of the last moments
}

// Add adds a moment.
func (r *Ring) Add(m Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.n%maxMoments] = m
	r.n++
}

// Collect adds the moment that look returns, unless it is unknown, every Period until stop is
// closed. It sets the moment's time, and computes the waits and runs from the histograms; look may
// set WaitP95 itself. The first look is after one Period, because right after its start a daemon
// may not have reached its store. The histograms must not change later.
func (r *Ring) Collect(stop <-chan struct{}, look func() (m Moment, h Histograms, known bool)) {
	t := time.NewTicker(Period)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		if m, h, ok := look(); ok {
			m.UnixMS = time.Now().UnixMilli()
			r.addTimes(&m, h)
			r.Add(m)
		}
	}
}

// addTimes computes a moment's waits and runs from the counts that the histograms have added since
// the last moment but one, or since the last moment if there is only one.
func (r *Ring) addTimes(m *Moment, h Histograms) {
	old := r.histograms[(r.n-min(r.n, percentilePeriods))%percentilePeriods]
	r.histograms[r.n%percentilePeriods] = h
	wait, run := increase(old.Waits, h.Waits), increase(old.Runs, h.Runs)
	m.WaitP50, m.WaitP95 = quantile(h.Bounds, wait, 0.5), cmp.Or(quantile(h.Bounds, wait, 0.95), m.WaitP95)
	m.RunP50, m.RunP95 = quantile(h.Bounds, run, 0.5), quantile(h.Bounds, run, 0.95)
}

// increase returns how much counts have grown; nil if that is not known.
func increase(old, now []uint64) []uint64 {
	if len(old) != len(now) {
		return nil
	}
	diff := make([]uint64, len(now))
	for i := range now {
		if now[i] < old[i] { // the counts began at 0 again
			return nil
		}
		diff[i] = now[i] - old[i]
	}
	return diff
}

// quantile returns the quantile q of a histogram to two digits, as quantile of format.js does; nil
// if it is empty.
func quantile(bounds []float64, counts []uint64, q float64) *float64 {
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	rest, lower := q*float64(total), 0.0
	for i, n := range counts {
		high := bounds[min(i, len(bounds)-1)]
		if n > 0 && rest <= float64(n) {
			v, _ := strconv.ParseFloat(strconv.FormatFloat(lower+(high-lower)*rest/float64(n), 'g', 2, 64), 64)
			return &v
		}
		rest -= float64(n)
		lower = high
	}
	return nil
}

// Recent returns the last minutes, oldest first.
func (r *Ring) Recent() []Moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Moment{}
	for i := max(0, r.n-maxMoments); i < r.n; i++ {
		out = append(out, r.ring[i%maxMoments])
	}
	return out
}
