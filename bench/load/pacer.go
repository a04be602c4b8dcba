package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Pacer says when the jobs of an open-loop run should be sent. It depends only on the count and
// never on the server, so a slow server cannot slow down its own test.
type Pacer interface {
	// At returns the time at which job n (from 0) should be sent, counted from the start of the
	// run. It must be called in ascending order of n.
	At(n int64) time.Duration
}

// Constant is a pacer with even intervals.
type Constant struct{ PerSecond float64 }

// At implements Pacer without accumulating rounding errors.
func (c Constant) At(n int64) time.Duration {
	return time.Duration(math.Round(float64(n) / c.PerSecond * 1e9))
}

// Poisson is a pacer with random intervals and a mean rate, as independent users have. The same seed
// gives the same times.
type Poisson struct {
	perSecond float64
	rng       *rand.Rand
	count     int64
	seconds   float64
}

// NewPoisson makes a Poisson pacer.
func NewPoisson(perSecond float64, seed uint64) *Poisson {
	return &Poisson{perSecond: perSecond, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
}

// At implements Pacer.
func (p *Poisson) At(n int64) time.Duration {
	for p.count <= n {
		p.seconds += p.rng.ExpFloat64() / p.perSecond
		p.count++
	}
	return time.Duration(p.seconds * 1e9)
}

// NewPacer makes the pacer of a given name, "constant" or "poisson".
func NewPacer(name string, perSecond float64, seed uint64) (Pacer, error) {
	if perSecond <= 0 || math.IsInf(perSecond, 0) || math.IsNaN(perSecond) {
		return nil, fmt.Errorf("rate %v: must be a positive number of jobs per second", perSecond)
	}
	switch name {
	case "constant":
		return Constant{perSecond}, nil
	case "poisson":
		return NewPoisson(perSecond, seed), nil
	}
	return nil, fmt.Errorf("arrivals %q: must be constant or poisson", name)
}

// schedule is a pacer in use: it counts the jobs that were sent.
type schedule struct {
	pacer     Pacer
	startedAt int64
	sendTime  int64
	nextAt    int64 // when the next job should be sent, on the loop's clock
}

func newSchedule(p Pacer, start int64) *schedule {
	s := &schedule{pacer: p, startedAt: start}
	s.nextAt = start + int64(p.At(0))
	return s
}

// nextDue returns the intended time of the next job, if one is due.
func (s *schedule) nextDue(now int64) (intended int64, ok bool) {
	if s.nextAt > now {
		return 0, false
	}
	intended = s.nextAt
	s.sendTime++
	s.nextAt = s.startedAt + int64(s.pacer.At(s.sendTime))
	return intended, true
}
