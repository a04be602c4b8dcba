package link

import (
	"context"
	"sync"
	"time"

	gloom "gloom/clients/go"
)

// MaxSlots is the maximum number of slots that a door has on one worker connection, far below the
// prefetch that brokers allow.
const MaxSlots = 250

// rejoinPause is the pause before the next attempt to join after the broker has refused slots.
const rejoinPause = 10 * time.Second

// KeepSlots keeps the given number of the door's own slots joined until ctx ends, over as many
// connections as needed. When ctx has ended, running jobs finish. worker returns the worker for a
// connection, numbered from 1; wg is done once all workers have ended.
func (l *Link) KeepSlots(ctx context.Context, wg *sync.WaitGroup, slots int, worker func(connection int) *gloom.Worker) {
	for n := 1; slots > 0; n++ {
		part := min(slots, MaxSlots)
		slots -= part
		wg.Go(func() {
			for {
				w := worker(n)
				w.Concurrency, w.Prefetch = part, part
				err := w.Run(ctx)
				if err == nil || ctx.Err() != nil {
					return
				}
				l.log.Error().Err(err).Str("type", w.Type).Strs("types", w.Types).Msg("the broker refuses the slots")
				select {
				case <-ctx.Done():
					return
				case <-time.After(rejoinPause):
				}
			}
		})
	}
}
