package broker

import "math"

// pace is a rate as times, in nanoseconds; the zero pace means no rate. step is the time between two
// jobs, at most 30 years, because beyond that sums of times would overflow. leeway is the time by
// which a job may start earlier than if all jobs were evenly spaced.
type pace struct{ step, leeway int64 }

func newPace(rate, burst float64) pace {
	if rate == 0 {
		return pace{}
	}
	step := int64(min(max(1, 1e9/rate), 1e18))
	return pace{step, int64(min((burst-1)*float64(step), 4e18))}
}

// pace returns the pace of the rate.
func (l *TypeLimits) pace() pace {
	p := newPace(l.Rate, float64(l.Burst))
	if l.Burst == 0 {
		p.leeway = max(0, 1e8-p.step)
	}
	return p
}

// burst returns how many jobs may start at once.
func (r *Rule) burst() float64 {
	if r.Burst > 0 {
		return float64(r.Burst)
	}
	return max(1, math.Floor(r.Rate))
}

// bucket counts what a rate has let through, by GCRA, the generic cell rate algorithm of ATM.
// Each job uses up one step of the rate, which the passing of time gives back.
type bucket struct {
	// fullAt is the time from which the bucket is full again (in GCRA, the theoretical
	// arrival time of the next job). Until then, part of it is used up.
	fullAt int64
	// rateSetAt is when the rate was set. Jobs handed out until then took nothing from the bucket.
	rateSetAt int64
	// minUsed is the smallest use since the time minUsedSince.
	minUsedSince, minUsed int64
}

// opensAt returns the time from which one more job may start.
func (b *bucket) opensAt(p *pace) int64 {
	if p.step == 0 {
		return math.MinInt64
	}
	return b.fullAt - p.leeway
}

// used returns how much of the bucket is used up, in nanoseconds.
func (b *bucket) used(now int64) int64 { return max(0, b.fullAt-now) }

// take uses up one step for a job that is handed out.
func (b *bucket) take(now int64, p *pace) {
	if p.step == 0 {
		return
	}
	used := b.used(now)
	if b.minUsed = min(b.minUsed, used); b.minUsed < p.step || b.minUsedSince == now {
		b.minUsedSince, b.minUsed = now, used+p.step
	}
	b.fullAt = now + used + p.step
}

// undoTake undoes take for a job that was handed out at startedAt, as far as the passing of time
// has not done so already. The amount that is given back is limited, so that the use since
// startedAt, computed without that job, is never below zero. So the remaining jobs keep to the rate
// over any span of time.
func (b *bucket) undoTake(now, startedAt int64, p *pace) {
	if p.step == 0 || startedAt <= b.rateSetAt {
		return
	}
	used := b.used(now)
	b.minUsed = min(b.minUsed, used)
	refund := max(0, p.step-(now-startedAt)) // what this job still uses up
	if startedAt >= b.minUsedSince {
		refund = max(refund, min(p.step, b.minUsed))
	}
	refund = min(refund, used)
	b.fullAt = now + used - refund
	b.minUsed = max(0, b.minUsed-refund)
}

// rateAllows reports whether the rate limit of a type lets a job start now. If not, it sets the
// type's timer.
func (b *Broker) rateAllows(jt *jobType) bool {
	if at := jt.rate.opensAt(&jt.pace); at > b.now {
		b.startTimer(jt.timerPos, jt.number|typeTimer, at)
		return false
	}
	return true
}

// tokens returns how many jobs the bucket lets start at once.
func (b *bucket) tokens(now int64, p *pace) int {
	room := p.leeway - b.used(now)
	switch {
	case p.step == 0:
		return math.MaxInt
	case room < 0:
		return 0
	}
	return int(min(room/p.step, math.MaxInt32)) + 1
}
