package sim

import (
	"fmt"
	"slices"
)

// rated is what a rate has let through: when its next job would come if all came evenly
// spaced, since when this has not changed, and the smallest use since a moment.
type rated struct{ next, set, from, least int64 }

func (r *rated) used(now int64) int64 { return max(0, r.next-now) }

func (r *rated) take(now, step int64) {
	used := r.used(now)
	r.least = min(r.least, used)
	if r.least < step || r.from == now {
		r.from, r.least = now, used+step
	}
	r.next = now + used + step
}

func (r *rated) giveBack(now, began, step int64) {
	if began <= r.set {
		return
	}
	used := r.used(now)
	r.least = min(r.least, used)
	back := max(0, step-(now-began))
	if began >= r.from {
		back = max(back, min(step, r.least))
	}
	back = min(back, used)
	r.next, r.least = now+used-back, max(0, r.least-back)
}

// start is a job that was handed out and has not been given back.
type start struct {
	job *oracleJob
	at  int64
}

// mostStarts bounds how many starts are kept.
const mostStarts = 500

// judgeRate complains if more jobs have started under a rate, in some span of time that
// ends now, than the burst and the rate of that span allow. This is the definition of a
// rate, and does not depend on how the core implements it.
func (o *oracle) judgeRate(at ruled, j *oracleJob, step, spare int64) {
	all := append(o.starts[at], start{j, o.now})
	if len(all) > mostStarts {
		all = slices.Delete(all, 0, len(all)-mostStarts)
	}
	o.starts[at] = all
	for i := range all {
		if more := int64(len(all) - i - 1); more > (spare+o.now-all[i].at)/step {
			o.complaint = fmt.Sprintf("with job %q, %d jobs have started under rate %v in %d ns and were not given back; allowed is one in %d ns, besides %d ns", j.id, more+1, at, o.now-all[i].at, step, spare)
			return
		}
	}
}

// unstart removes a job that was given back from those that started.
func (o *oracle) unstart(at ruled, j *oracleJob) {
	o.starts[at] = slices.DeleteFunc(o.starts[at], func(s start) bool { return s.job == j && s.at == j.since })
}

// ofType is the key of a type's rate among the rates of rules.
func ofType(name string) ruled { return ruled{pattern: "type", group: name} }

// paced: a type has a rate.
func (o *oracle) paced() bool {
	for _, k := range o.types {
		if k.rate > 0 {
			return true
		}
	}
	return false
}
