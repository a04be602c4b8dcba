package sim

import (
	"math"
	"slices"

	"gloom/broker"
)

// Rates are judged by their definition: in any span of time, no more jobs start than the burst plus
// what the rate adds in this span. A job that its worker gave back does not count. But if time had
// refilled a part of the job's token by then, the core may count that part.

// quota is a rate expressed as times: step is the time that adds one job, and burst is the time
// that adds as many jobs as may start at once. The largest time is 4e18 ns.
type quota struct{ step, burst int64 }

func quotaFor(step int64, burst float64) quota {
	return quota{step, step + int64(min((burst-1)*float64(step), 4e18))}
}

func stepOf(rate float64) int64 { return int64(min(max(1, 1e9/rate), 1e18)) }

// quota returns the rate of a type. If no burst is set, as many jobs may start at once as the
// rate adds in a tenth of a second.
func (ot *oracleType) quota() quota {
	step := stepOf(ot.rate)
	if ot.burst > 0 {
		return quotaFor(step, float64(ot.burst))
	}
	return quota{step, max(step, 1e8)}
}

func quotaOf(r *broker.Rule) quota {
	return quotaFor(stepOf(r.Rate), burstOf(r))
}

func burstOf(r *broker.Rule) float64 {
	if r.Burst > 0 {
		return float64(r.Burst)
	}
	return max(1, math.Floor(r.Rate))
}

// rateState holds the starts that a rate has allowed lately. setAt is the time at which the rate
// was set.
type rateState struct {
	starts []start
	setAt  int64
}

// start is the start of a job. If job is nil, it stands for all starts before the latest change of
// the rate. It counts as a time between minCost and maxCost.
type start struct {
	job                  *oracleJob
	at, minCost, maxCost int64
}

// opensBetween returns the times between which one more job may start.
func (r *rateState) opensBetween(q quota) (earliest, latest int64) {
	minWait, maxWait := q.step-q.burst, q.step-q.burst
	for _, s := range slices.Backward(r.starts) {
		minWait, maxWait = minWait+s.minCost, maxWait+s.maxCost
		earliest, latest = max(earliest, s.at+minWait), max(latest, s.at+maxWait)
	}
	return earliest, latest
}

// forgottenBetween returns the times between which the last of the starts ceases to count.
func (r *rateState) forgottenBetween() (earliest, latest int64) { return r.opensBetween(quota{}) }

func (r *rateState) take(j *oracleJob, now int64, q quota) {
	if _, until := r.forgottenBetween(); until <= now {
		r.starts = r.starts[:0]
	}
	r.starts = append(r.starts, start{j, now, q.step, q.step})
}

// giveBack handles a job that its worker gives back, which need not count any more. If the job
// started at the very time at which the rate was set, the oracle does not know their order.
func (r *rateState) giveBack(j *oracleJob, now int64) {
	for i := range slices.Backward(r.starts) {
		if s := &r.starts[i]; s.job == j && s.at == j.stateSince && s.minCost > 0 {
			s.minCost = 0
			if s.at != r.setAt {
				s.maxCost = min(s.maxCost, now-s.at)
			}
			return
		}
	}
}

// change changes the rate. The number of jobs that may start at once stays the same, unless
// the new burst is smaller.
func (r *rateState) change(now int64, from, to *broker.Rule) {
	remaining := func(until int64) int64 {
		usedTokens := float64(max(0, until-now)) / float64(stepOf(from.Rate))
		free := min(burstOf(to), burstOf(from)-usedTokens)
		return int64(min((burstOf(to)-free)*float64(stepOf(to.Rate)), 4e18))
	}
	earliest, latest := r.forgottenBetween()
	*r = rateState{[]start{{nil, now, remaining(earliest), remaining(latest)}}, now}
}

// paced reports whether any type has a rate.
func (o *oracle) paced() bool {
	return slices.ContainsFunc(o.names, func(name string) bool { return o.types[name].rate > 0 })
}
