package jq

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"
)

// asynqRound measures asynq with the same jobs, with the same number of pushers, and with as many
// jobs at a time as our workers have slots.
func asynqRound(ctx context.Context, s *servers, o Options, r *Round) error {
	opt := asynq.RedisClientOpt{Addr: s.redis.Addr(), PoolSize: o.Pushers + o.Workers*o.Slots}
	b := newLedger(ctx, o.Jobs)
	defer b.fail(nil)
	server := asynq.NewServer(opt, asynq.Config{Concurrency: o.Workers * o.Slots, LogLevel: asynq.FatalLevel, TaskCheckInterval: 5 * time.Millisecond})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		p := t.Payload()
		n := int(binary.BigEndian.Uint32(p[len(p)-4:]))
		b.recordRun(n)
		b.recordEnd(n)
		return nil
	}))
	if err != nil {
		return err
	}
	defer server.Shutdown()
	client := asynq.NewClient(opt)
	defer client.Close()
	start := time.Now()
	var next atomic.Int64
	var pushers errgroup.Group
	for range o.Pushers {
		pushers.Go(func() error {
			for b.running.Err() == nil {
				n := next.Add(1) - 1
				if n >= int64(o.Jobs) {
					return nil
				}
				text := jobBody(o)
				binary.BigEndian.PutUint32(text[len(text)-4:], uint32(n))
				b.sendTimes[n] = time.Now()
				if _, err := client.EnqueueContext(ctx, asynq.NewTask("bench", text), asynq.MaxRetry(10)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := pushers.Wait(); err != nil {
		return err
	}
	if err := b.wait(); err != nil {
		return err
	}
	r.Seconds, r.P50, r.P99 = time.Since(start).Seconds(), b.latencyMS(50), b.latencyMS(99)
	return nil
}
