package bridge

import (
	"context"
	"sync"
	"time"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/link"

	"github.com/rs/zerolog"
)

// crew is the workers of one target's type, with as many slots together as the
// target's concurrency.
type crew struct {
	link    *link.Link
	log     zerolog.Logger
	typ     string
	handler gloom.Handler

	all    *sync.WaitGroup
	cancel context.CancelFunc // of the present workers
}

// regiveUp is how long to wait before a broker that refuses is tried again.
const regiveUp = 10 * time.Second

// resize gives the crew so many slots. Slots at work finish.
func (c *crew) resize(ctx context.Context, slots int) {
	c.leave()
	crewCtx, cancel := context.WithCancel(ctx)
	c.cancel = cancel
	for slots > 0 {
		n := min(slots, link.MostSlots)
		slots -= n
		c.add(crewCtx, n)
	}
}

func (c *crew) add(ctx context.Context, slots int) {
	c.all.Go(func() {
		for {
			err := c.worker(slots).Run(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			c.log.Error().Err(err).Str("type", c.typ).Msg("the broker refuses the launcher's slots")
			if !sleep(ctx, regiveUp, nil) {
				return
			}
		}
	})
}

func (c *crew) worker(slots int) *gloom.Worker {
	return &gloom.Worker{
		Type: c.typ, Handler: c.handler, Concurrency: slots, Prefetch: slots,
		// A slot's process may take as long as it likes; the bridge ends it.
		StopTimeout: 1000 * time.Hour,
		Options:     c.link.Worker(c.typ),
	}
}

// leave lets the workers finish in the background.
func (c *crew) leave() {
	if c.cancel != nil {
		c.cancel()
	}
	c.cancel = nil
	c.link.Forget(c.typ)
}
