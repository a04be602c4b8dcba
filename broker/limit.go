package broker

import "math"

// step returns the time between two jobs at a rate, in nanoseconds. It is at most 30 years,
// because beyond that sums of times would overflow.
func step(rate float64) int64 { return int64(min(max(1, 1e9/rate), 1e18)) }

// burst returns how many jobs may start at once under a rate. set is the burst that was set, or
// 0.
func burst(rate float64, set int64) float64 {
	if set > 0 {
		return float64(set)
	}
	return max(1, math.Floor(rate))
}

// tolerance returns how much earlier a job may start than if all jobs were evenly spaced.
func tolerance(rate float64, set int64) int64 {
	return int64(min((burst(rate, set)-1)*float64(step(rate)), 4e18))
}

// bucket counts what a rate has let through, by GCRA, the generic cell rate algorithm of ATM.
// Each job uses up one step of the rate, which the passing of time gives back.
type bucket struct {
	// tat is the theoretical arrival time of the next job. Until then, part of the bucket is
	// used up.
	tat int64
	// setAt is when the rate was set. Jobs handed out until then took nothing from the bucket.
	setAt int64
	// minUsed is the smallest use since the time minUsedSince.
	minUsedSince, minUsed int64
}

// used returns how much of the bucket is used up, in nanoseconds.
func (x *bucket) used(now int64) int64 { return max(0, x.tat-now) }

// take uses up one step for a job that is handed out.
func (x *bucket) take(now, step int64) {
	used := x.used(now)
	if x.minUsed = min(x.minUsed, used); x.minUsed < step || x.minUsedSince == now {
		x.minUsedSince, x.minUsed = now, used+step
	}
	x.tat = now + used + step
}

// undoTake undoes take for a job that was handed out at startedAt, as far as the passing of time
// has not done so already. The amount is limited so that the use since then, computed without
// that job, is never below zero. So the remaining jobs keep to the rate over any span of time.
func (x *bucket) undoTake(now, startedAt, step int64) {
	if startedAt <= x.setAt {
		return
	}
	used := x.used(now)
	x.minUsed = min(x.minUsed, used)
	back := max(0, step-(now-startedAt)) // what this job still uses up
	if startedAt >= x.minUsedSince {
		back = max(back, min(step, x.minUsed))
	}
	back = min(back, used)
	x.tat = now + used - back
	x.minUsed = max(0, x.minUsed-back)
}

// rateAllows reports whether the rate limit of a type lets a job start now. If not, it sets the
// type's timer.
func (b *Broker) rateAllows(k *jobType) bool {
	if wait := k.rateBucket.tat - k.leeway() - b.now; wait > 0 {
		b.startTimer(k.timerPos, k.number|typeTimer, b.now+wait)
		return false
	}
	return true
}

// leeway returns how much earlier a job of the type may start than if all jobs were evenly
// spaced.
func (k *jobType) leeway() int64 {
	if n := k.limits.Burst; n > 0 {
		return tolerance(k.limits.Rate, int64(n))
	}
	return max(0, int64(1e8)-step(k.limits.Rate))
}

// tokens returns how many jobs the rate limit of a type lets start at once.
func (b *Broker) tokens(k *jobType) int {
	room := k.leeway() - k.rateBucket.used(b.now)
	if room < 0 {
		return 0
	}
	return int(min(room/step(k.limits.Rate), math.MaxInt32)) + 1
}

// refundType gives back what a job that was handed out at startedAt has used up of its type's rate.
func (b *Broker) refundType(k *jobType, startedAt int64) {
	if k.limits.Rate > 0 {
		k.rateBucket.undoTake(b.now, startedAt, step(k.limits.Rate))
	}
}
