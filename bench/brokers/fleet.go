package brokers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gloom/bench/throwaway/natstest"

	"gloom/bench/proc"
)

// Fleet returns a kind with several gloomds and a NATS server: submitters connect to the first
// broker, workers to the others.
func Fleet(brokers int) *Kind {
	return NewKind(fmt.Sprintf("fleet-%d", brokers), fmt.Sprintf("fleet of %d", brokers), func(ctx context.Context, set Settings) (*Server, error) {
		return startFleet(ctx, set, brokers)
	})
}

func startFleet(ctx context.Context, set Settings, brokers int) (s *Server, err error) {
	nats, err := natstest.Cluster(1)
	if err != nil {
		return nil, err
	}
	stopAll := func() error { natstest.Close(nats); return nil }
	defer func() {
		if err != nil {
			err = errors.Join(err, stopAll())
		}
	}()
	flags := set.Flags
	for i := range brokers {
		set.Flags = append([]string{"--fleet=" + natstest.URLs(nats), fmt.Sprintf("--fleet-name=%d", i)}, flags...)
		server, err := startGloomd(ctx, set)
		if err != nil {
			return nil, err
		}
		stop, before := server.Shutdown, stopAll
		stopAll = func() error { return errors.Join(stop(), before()) }
		switch {
		case s == nil:
			s = server
		case i == 1:
			s.WorkerAddr = server.WorkerAddr
		default:
			s.WorkerAddr += "," + server.WorkerAddr
		}
		if i > 0 {
			s.OtherPIDs = append(s.OtherPIDs, server.PID)
		}
	}
	s.Shutdown = stopAll
	return s, waitForHeartbeats(ctx)
}

// waitForHeartbeats waits two seconds, so that brokers that were just started know each other.
// Brokers know each other two heartbeats after the first broker has joined, 600 ms after its start.
func waitForHeartbeats(ctx context.Context) error {
	select {
	case <-time.After(2 * time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CPU returns the processor time that all of the server's processes have taken.
func (s *Server) CPU() (sum time.Duration, err error) {
	for _, pid := range append([]int{s.PID}, s.OtherPIDs...) {
		d, err := proc.CPU(pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}
