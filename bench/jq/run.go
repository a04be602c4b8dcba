package jq

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"gloom/bench/result"
)

// Report is what a Run measured.
type Report struct {
	result.Environment
	Options Options `json:"options"`
	Rounds  []Round `json:"rounds"`
}

// Round is one measurement of one system. CPU is user and system time.
type Round struct {
	System    string        `json:"system"`
	Jobs      int           `json:"jobs"`
	Seconds   float64       `json:"seconds"`
	P50       float64       `json:"p50_ms"` // time from enqueueing to done
	P99       float64       `json:"p99_ms"`
	MasterCPU time.Duration `json:"master_cpu_ns"`
	RedisCPU  time.Duration `json:"redis_cpu_ns"`
	OwnCPU    time.Duration `json:"own_cpu_ns"`
	OthersCPU float64       `json:"others_cpu"` // processors that other programs kept busy

	// Only --load waiting measures these.
	BytesPerJob       float64 `json:"bytes_per_job,omitempty"` // resident memory of the master
	Constraints       int     `json:"constraints,omitempty"`
	FillSeconds       float64 `json:"fill_s,omitempty"`          // time until all jobs were queued
	ChangeMillis      float64 `json:"change_ms,omitempty"`       // time to change a constraint on half of them
	StallMillis       float64 `json:"stall_ms,omitempty"`        // longest request during the change
	StallBeforeMillis float64 `json:"stall_before_ms,omitempty"` // longest request while nothing is changed
	RecoverySeconds   float64 `json:"recovery_s,omitempty"`      // time until the next master has read everything from Redis
}

// Rate returns the jobs per second.
func (r Round) Rate() float64 { return float64(r.Jobs) / r.Seconds }

// Run measures the systems in turn, one round each, so that other work of the machine affects all
// of them.
func Run(ctx context.Context, o Options, progress func(Round)) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	rep := &Report{Environment: result.CurrentEnvironment(), Options: o}
	for range o.Rounds {
		for _, system := range o.Systems {
			rounds, err := measureRound(ctx, system, o)
			rep.Rounds = append(rep.Rounds, rounds...)
			if progress != nil {
				for _, r := range rounds {
					progress(r)
				}
			}
			if err != nil {
				return rep, fmt.Errorf("%s: %w", system, err)
			}
		}
	}
	return rep, nil
}

func measureRound(ctx context.Context, system string, o Options) ([]Round, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	s, err := start(ctx, system, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	runtime.GC() // so that memory of the previous round does not count in this one
	if o.Load == Waiting {
		return s.measureWaiting(ctx, system, o)
	}
	r := Round{System: system, Jobs: o.Jobs}
	err = s.measure(&r, func() error {
		switch {
		case system == Asynq:
			return asynqRound(ctx, s, o, &r)
		case system == BullMQ:
			return bullmqRound(ctx, s, o, &r)
		case o.Load == Batch:
			return s.measureBatches(ctx, o.Jobs, o)
		default:
			return s.measurePush(ctx, o, &r)
		}
	})
	if err != nil {
		return nil, err
	}
	return []Round{r}, nil
}

// measure measures the time and the processor time of a load. A load that sets the seconds
// itself keeps its value.
func (s *servers) measure(r *Round, fn func() error) error {
	meter := s.startMeter()
	if err := fn(); err != nil {
		return err
	}
	meter.Stop(r.OwnCPU) // the load has set the time of its child process, if any
	r.MasterCPU, r.RedisCPU, r.OwnCPU, r.OthersCPU = meter.DaemonCPU[0], meter.DaemonCPU[1], meter.OwnCPU, meter.OthersCPU
	if r.Seconds == 0 {
		r.Seconds = meter.Elapsed.Seconds()
	}
	return nil
}
