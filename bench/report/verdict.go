package report

import (
	"fmt"

	"golang.org/x/perf/benchmath"

	"gloom/bench/result"
)

// alpha is the chance we take of calling noise a difference.
const alpha = 0.05

// Verdict is whether two samples of a metric differ: by the Mann-Whitney U
// test, which assumes nothing about how the figures are distributed.
type Verdict struct {
	Old, New   float64 // medians
	P          float64 // chance of such a difference when there is none
	Real       bool
	Better     bool // of New, where Real
	TooFew     bool // so few rounds that no difference could count as real
	OldN, NewN int
}

// Judge compares two samples; ok is false when one of them is empty.
func Judge(m *result.Metric, old, new []float64) (v Verdict, ok bool) {
	if len(old) == 0 || len(new) == 0 {
		return v, false
	}
	t := benchmath.DefaultThresholds
	t.CompareAlpha = alpha
	a, b := benchmath.NewSample(old, &t), benchmath.NewSample(new, &t)
	c := benchmath.AssumeNothing.Compare(a, b)
	v = Verdict{Old: median(old), New: median(new), P: c.P, OldN: c.N1, NewN: c.N2}
	v.Real = c.P <= c.Alpha && v.Old != v.New
	v.Better = v.New > v.Old == m.Higher
	v.TooFew = !v.Real && smallestP(len(old), len(new)) > alpha
	return v, true
}

// Change is the difference as benchstat would show it: a percentage where it is
// real, a tilde where it is not.
func (v Verdict) Change() string {
	if !v.Real {
		return "~"
	}
	if v.Old == 0 {
		return "?"
	}
	return fmt.Sprintf("%+.1f %%", (v.New/v.Old-1)*100)
}

func (v Verdict) String() string {
	switch {
	case v.TooFew:
		return "~ (too few rounds to tell)"
	case !v.Real:
		return "~"
	case v.Better:
		return "better"
	}
	return "worse"
}

// smallestP is the p-value of two samples of these sizes that do not overlap:
// two of the (n+m)! / n! m! ways to arrange them.
func smallestP(n, m int) float64 {
	ways := 1.0
	for i := 1; i <= n; i++ {
		ways *= float64(m+i) / float64(i)
	}
	return 2 / ways
}
