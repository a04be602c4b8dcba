package shape

import (
	"fmt"
	"time"

	"gloom/bench/brokers"
	"gloom/bench/load"
	"gloom/bench/result"
)

// Options describes one round of load.
type Options struct {
	load.Config // the protocol, the addresses and MayFail follow from the server and from Churn

	Rate     float64 // jobs per second of an open loop; 0: closed loop
	Arrivals string  // arrivals in an open loop: constant or poisson

	Duration    time.Duration // duration of the measurement, unless Jobs is set
	Warmup      time.Duration // time before the measurement, not counted; not used with Jobs
	Jobs        int64         // measure exactly this number of jobs
	Grace       time.Duration // wait for answers after the end, before they count as lost
	Interval    time.Duration // interval of samples; 0: none
	StepTimeout time.Duration // limit for every step without a set duration, such as connecting or draining

	OneCPU bool // server and generator share one processor
	Unix   bool // use unix sockets, which needs a server that is started for the round
	Churn  *load.Churn

	Progress func(Progress) // called a few times per second; may be nil
}

// Progress is the state of a round.
type Progress struct {
	Phase    string
	Done     float64 // 0 … 1 of the phase; negative when unknown
	Rate     float64 // jobs per second since the last report
	P50, P99 time.Duration
}

// Defaults returns the options that all shapes start from.
func Defaults() Options {
	return Options{
		Config:   load.Config{Submitters: 4, Window: 64, Workers: 32, Types: 1, Priorities: 1, BodySize: 100, Loops: 1, Seed: 1},
		Arrivals: "constant", Duration: 5 * time.Second, Warmup: 500 * time.Millisecond, Grace: 10 * time.Second, StepTimeout: 2 * time.Minute,
	}
}

// Validate returns an error for the first option that is out of range; load.Config checks the
// others.
func (o *Options) Validate() error {
	switch {
	case o.Jobs < 0:
		return fmt.Errorf("jobs %d: must not be negative", o.Jobs)
	case o.Jobs == 0 && o.Duration <= 0:
		return fmt.Errorf("duration %v: must be positive", o.Duration)
	case o.Rate < 0:
		return fmt.Errorf("rate %v: must not be negative", o.Rate)
	case o.Jobs > 0 && o.Churn != nil:
		return fmt.Errorf("jobs %d: churn runs for a duration", o.Jobs)
	case o.Jobs > 0 && o.Rate > 0:
		return fmt.Errorf("jobs %d: a fixed rate runs for a duration", o.Jobs)
	}
	return nil
}

func (o *Options) config(s *brokers.Server) load.Config {
	c := o.Config
	c.Protocol, c.SubmitAddr, c.WorkerAddr, c.MayFail = s.Protocol, s.SubmitAddr, s.WorkerAddr, o.Churn != nil
	return c
}

// Params returns the options in the form of a result file.
func (o *Options) Params() result.Params {
	p := result.Params{Submitters: o.Submitters, Window: o.Window, Workers: o.Workers, Idle: o.IdleWorkers, Types: o.Types,
		Versatile: o.Versatile, Groups: o.Groups, Priorities: o.Priorities, BodySize: o.BodySize, WorkTimeUS: o.WorkTime.Microseconds(), Prefetch: o.Prefetch,
		Rate: o.Rate, Jobs: o.Jobs, OneCPU: o.OneCPU, Unix: o.Unix, Loops: o.Loops, Seed: o.Seed}
	if o.Rate > 0 {
		p.Window, p.Arrivals = 0, o.Arrivals
	}
	if o.Jobs == 0 {
		p.Seconds = o.Duration.Seconds()
	}
	if c := o.Churn; c != nil {
		p.Churn = &result.Churn{Workers: c.Workers, Submitters: c.Submitters, Steady: c.Steady, AwayMS: c.MaxAway.Milliseconds()}
	}
	return p
}
