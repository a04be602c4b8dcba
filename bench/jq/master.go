package jq

import (
	"context"
	"strconv"

	"gloom/bench/door"
	"gloom/bench/proc"
	"gloom/bench/throwaway/jqtest"
	"gloom/bench/throwaway/redistest"
)

// servers holds the servers of a round.
type servers struct {
	master  *jqtest.Server
	redis   *redistest.Server
	workers []*workers
}

// start starts what a system needs: a jq-master, a Redis or both.
func start(ctx context.Context, system string, o Options) (*servers, error) {
	s := &servers{}
	if system != Memory {
		var err error
		if s.redis, err = redistest.Start("--appendfsync", o.Fsync); err != nil {
			return nil, err
		}
	}
	if system == Asynq || system == BullMQ {
		return s, nil
	}
	err := s.startMaster(ctx, o)
	if err != nil {
		s.close()
	}
	return s, err
}

func (s *servers) startMaster(ctx context.Context, o Options) error {
	program, err := proc.FindProgram(ctx, "jq-master", o.Master, "--master")
	if err != nil {
		return err
	}
	args := []string{"--max-jobs", strconv.Itoa(2*o.Jobs + 1000), "--max-bytes", "4GiB"}
	if s.redis != nil {
		args = append(args, "--redis", s.redis.URL())
	}
	if s.master, err = jqtest.New([]string{program}, false, args...); err != nil {
		return err
	}
	return s.master.Launch()
}

func (s *servers) close() {
	for _, w := range s.workers {
		w.close()
	}
	if s.master != nil {
		s.master.Close()
	}
	if s.redis != nil {
		s.redis.Close()
	}
}

// startMeter starts a meter of the master and of Redis.
func (s *servers) startMeter() *door.Meter {
	var master, redis int
	if s.master != nil {
		master = s.master.PID()
	}
	if s.redis != nil {
		redis = s.redis.PID()
	}
	return door.StartMeter(master, redis)
}
