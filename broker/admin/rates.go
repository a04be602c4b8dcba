package admin

import (
	"math"
	"net/http"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
)

// The rates of the last day are kept in steps: of a minute for three hours, and of ten
// minutes for a day. A step counts from its beginning to its end, so snapshots may be taken
// at any time, late or not at all.

const (
	// otherTypes is the name of the row that types without a row of their own share.
	otherTypes     = "other types"
	shortStepCount = int(3 * time.Hour / time.Minute)
	longStepCount  = int(24 * time.Hour / longStep)
	longStep       = 10 * time.Minute
)

// counts holds the numbers of jobs of one type, or of all types, since the start.
type counts struct {
	submitted, answered, failed, otherEnds uint64
	queued, running                        uint64
}

func countsOf(l *api.Ledger) counts {
	return counts{l.Submitted, l.Answered, l.Failed, l.Ended() - l.Answered - l.Failed, l.Queued, l.Running}
}

// step holds the figures of one step. Its waits and runs are in milliseconds, NaN if there were
// none.
type step struct {
	number                                 int64 // number of the step since 1970, 0 if nothing is known
	submitted, answered, failed, otherEnds uint32
	queued, running                        uint32 // at the end of the step
	wait50, wait95, run50, run95           float32
}

// steps holds the latest steps of one length. baseCounts holds the counts at the beginning of the
// current step.
type steps struct {
	ring          []step
	currentNumber int64
	baseCounts    counts
	baseStats     broker.TypeStats // the statistics at the time of baseCounts
}

// rates holds the steps of the last day, of a type or of all types.
type rates struct {
	shortSteps, longSteps steps
	latestCounts          counts
	stats                 broker.TypeStats // the statistics at the time of latestCounts
	decayedJobs           uint64           // jobs of the last hours, of which older ones weigh less
	rate                  float64          // current jobs per second
}

func newRates() *rates {
	return &rates{shortSteps: steps{ring: make([]step, shortStepCount)}, longSteps: steps{ring: make([]step, longStepCount)}}
}

// add adds the current counts.
func (r *rates) add(at time.Time, c counts, s *broker.TypeStats) {
	if c.submitted < r.latestCounts.submitted { // the type was forgotten, and its counts began at 0 again
		r.latestCounts, r.stats = counts{}, broker.TypeStats{}
		r.shortSteps.baseCounts, r.shortSteps.baseStats, r.longSteps.baseCounts, r.longSteps.baseStats = r.latestCounts, r.stats, r.latestCounts, r.stats
	}
	r.shortSteps.advance(at.Unix()/60, r)
	if r.longSteps.advance(at.Unix()/int64(longStep/time.Second), r) {
		r.decayedJobs -= r.decayedJobs / 16
	}
	r.decayedJobs += c.submitted - r.latestCounts.submitted
	r.latestCounts, r.stats = c, *s
}

// advance begins a step with the latest counts. It returns false, and does nothing, if the step
// with this number has already begun.
func (s *steps) advance(number int64, rates *rates) bool {
	if number == s.currentNumber {
		return false
	}
	if s.currentNumber != 0 {
		s.ring[s.currentNumber%int64(len(s.ring))] = s.currentStep(rates)
	}
	s.currentNumber, s.baseCounts, s.baseStats = number, rates.latestCounts, rates.stats
	return true
}

// currentStep returns the current step.
func (s *steps) currentStep(rates *rates) step {
	c, b := &rates.latestCounts, &s.baseCounts
	p := step{
		number: s.currentNumber, submitted: uint32(c.submitted - b.submitted), answered: uint32(c.answered - b.answered), failed: uint32(c.failed - b.failed),
		otherEnds: uint32(c.otherEnds - b.otherEnds), queued: uint32(c.queued), running: uint32(c.running),
	}
	p.wait50, p.wait95 = quantiles(&rates.stats.Wait, &s.baseStats.Wait)
	p.run50, p.run95 = quantiles(&rates.stats.Run, &s.baseStats.Run)
	return p
}

// quantiles estimates, from counts by powers of two, the 50th and 95th percentiles in milliseconds
// of the values that were added between two counts.
func quantiles(now, before *broker.Durations) (p50, p95 float32) {
	n := now.Count() - before.Count()
	at := func(part float64) float32 {
		rank, countBelow := part*float64(n), 0.0
		for i := range now.Buckets {
			inBucket := float64(now.Buckets[i] - before.Buckets[i])
			if inBucket > 0 && countBelow+inBucket >= rank {
				lower, upper := 0.0, math.Exp2(float64(i))
				if i > 0 {
					lower = upper / 2
				}
				return float32((lower + (upper-lower)*(rank-countBelow)/inBucket) / 1000)
			}
			countBelow += inBucket
		}
		return float32(math.NaN())
	}
	return at(0.5), at(0.95)
}

// stepAt returns the step with this number, or nil if nothing is known about it.
func (s *steps) stepAt(number int64, rates *rates) *step {
	if number == s.currentNumber {
		p := s.currentStep(rates)
		return &p
	}
	if p := &s.ring[number%int64(len(s.ring))]; p.number == number {
		return p
	}
	return nil
}

// countFailed returns how many jobs have failed in the latest n steps.
func (s *steps) countFailed(n int, rates *rates) (sum uint64) {
	for i := range int64(n) {
		if p := s.stepAt(s.currentNumber-i, rates); p != nil {
			sum += uint64(p.failed)
		}
	}
	return sum
}

// apiHistory returns the n steps that end with step number last.
func (s *steps) apiHistory(last int64, n int, length time.Duration, rates *rates) api.History {
	first := last - int64(n) + 1
	h := api.History{StepMS: length.Milliseconds(), From: time.Unix(first*int64(length/time.Second), 0).UTC().Format(time.RFC3339)}
	columns := []struct {
		to    *[]*float64
		value func(p *step) float64
	}{
		{&h.Submitted, func(p *step) float64 { return float64(p.submitted) }}, {&h.Answered, func(p *step) float64 { return float64(p.answered) }},
		{&h.Failed, func(p *step) float64 { return float64(p.failed) }}, {&h.Other, func(p *step) float64 { return float64(p.otherEnds) }},
		{&h.Queued, func(p *step) float64 { return float64(p.queued) }}, {&h.Running, func(p *step) float64 { return float64(p.running) }},
		{&h.WaitP50, func(p *step) float64 { return float64(p.wait50) }}, {&h.WaitP95, func(p *step) float64 { return float64(p.wait95) }},
		{&h.RunP50, func(p *step) float64 { return float64(p.run50) }}, {&h.RunP95, func(p *step) float64 { return float64(p.run95) }},
	}
	for _, c := range columns {
		*c.to = make([]*float64, n)
	}
	for i := range n {
		p := s.stepAt(first+int64(i), rates)
		if p == nil {
			continue
		}
		for _, c := range columns {
			if v := c.value(p); !math.IsNaN(v) {
				v = math.Round(v*1000) / 1000
				(*c.to)[i] = &v
			}
		}
	}
	return h
}

// dayRates holds the rates of all types together, of each of the busiest types, and of all other
// types together.
type dayRates struct {
	total, otherTypes *rates
	types             map[string]*rates
	otherCounts       counts // the sum of the types in otherTypes
	shiftedAt         time.Time
}

// ratesSize is the size of a row in bytes.
const ratesSize = int64((shortStepCount+longStepCount)*48 + 4096)

// bytes returns the size of all rows.
func (d *dayRates) bytes() int64 { return int64(len(d.types)+2) * ratesSize }

// add adds the current counts of a type; old holds those of the previous snapshot. limit bounds
// the number of types that have rows of their own.
func (d *dayRates) add(at time.Time, row *row, old, latest *api.Type, s *broker.TypeStats, limit int) {
	r := d.types[row.Type.Type]
	if r == nil && len(d.types) >= limit && limit > 0 && row.rates.In > 0 && at.Sub(d.shiftedAt) >= time.Second {
		// The least busy type gives its row to a type that did more in ten minutes.
		d.shiftedAt = at
		minRate, name := math.Inf(1), ""
		for n, r := range d.types {
			busy := max(float64(r.decayedJobs), r.rate*longStep.Seconds())
			if r.longSteps.currentNumber < d.total.longSteps.currentNumber { // the type was forgotten
				busy = 0
			}
			if busy < minRate {
				minRate, name = busy, n
			}
		}
		if row.rates.In*longStep.Seconds() > minRate {
			delete(d.types, name)
		}
	}
	if r == nil && len(d.types) < limit {
		r = newRates()
		d.types[row.Type.Type] = r
		if !row.takenAt.IsZero() { // earlier jobs do not belong to this step
			r.latestCounts, r.stats = countsOf(&old.Ledger), *s
		}
	}
	if r != nil {
		r.rate = row.rates.In
		r.add(at, countsOf(&latest.Ledger), s)
		return
	}
	oldCounts, newCounts := countsOf(&old.Ledger), countsOf(&latest.Ledger)
	if newCounts.submitted >= oldCounts.submitted {
		d.otherCounts.submitted += newCounts.submitted - oldCounts.submitted
		d.otherCounts.answered += newCounts.answered - oldCounts.answered
		d.otherCounts.failed += newCounts.failed - oldCounts.failed
		d.otherCounts.otherEnds += newCounts.otherEnds - oldCounts.otherEnds
	}
	d.otherCounts.queued += newCounts.queued
	d.otherCounts.running += newCounts.running
}

// addTotals adds the sums of a snapshot of all types.
func (d *dayRates) addTotals(at time.Time, ledger *api.Ledger, s *broker.TypeStats) {
	d.total.add(at, countsOf(ledger), s)
	d.otherTypes.add(at, d.otherCounts, &broker.TypeStats{})
	d.otherCounts.queued, d.otherCounts.running = 0, 0
}

// getHistory answers with the rates of the last hours.
func (a *API) getHistory(w http.ResponseWriter, r *http.Request) error {
	since, length := 3*time.Hour, time.Minute
	if v := r.URL.Query().Get("since"); v != "" {
		var err error
		if since, err = time.ParseDuration(v); err != nil || since <= 0 || since > 24*time.Hour {
			return apiError(http.StatusBadRequest, "invalid_value", "since must be a duration up to 24h, such as 90m, got %.64q", v)
		}
	}
	typ := r.URL.Query().Get("type")
	if typ != "" && typ != otherTypes {
		if _, err := parseName("type", typ); err != nil {
			return err
		}
	}
	if since > 3*time.Hour {
		length = longStep
	}
	n := int((since + length - 1) / length)
	var h api.History
	a.withSnapshot(func(snap *snapshot) {
		rates := snap.dayRates.total
		switch typ {
		case "":
		case otherTypes:
			rates = snap.dayRates.otherTypes
		default:
			if rates = snap.dayRates.types[typ]; rates == nil {
				rates = newRates() // all its steps are unknown
			}
		}
		if length == longStep {
			h = rates.longSteps.apiHistory(snap.dayRates.total.longSteps.currentNumber, n, length, rates)
		} else {
			h = rates.shortSteps.apiHistory(snap.dayRates.total.shortSteps.currentNumber, n, length, rates)
		}
	})
	reply(w, http.StatusOK, h)
	return nil
}
