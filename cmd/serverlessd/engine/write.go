package engine

import (
	"errors"
	"time"

	"gloom/cmd/serverlessd/store"
)

const (
	// writeAtOnce and writeBytes bound a transaction of endings.
	writeAtOnce = 500
	writeBytes  = 8 << 20
	writeRetry  = 100 * time.Millisecond
)

// put queues an ending.
func (b *backend) put(end *ending) {
	b.mu.Lock()
	end.run.ended = true
	b.queue = append(b.queue, end)
	b.mu.Unlock()
	select {
	case b.full <- struct{}{}:
	default:
	}
}

// write writes endings, those that came meanwhile together, until the engine
// ends. While the store is away they wait.
func (b *backend) write() {
	for {
		select {
		case <-b.e.life.Done():
			return
		case <-b.full:
		}
		for ends := b.queued(); len(ends) > 0; ends = b.queued() {
			if !b.writeOnce(ends) && !b.e.sleep(writeRetry) {
				return
			}
		}
	}
}

// queued are the first endings that go into one transaction: of one sysid.
func (b *backend) queued() []*ending {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes := 0
	for i, end := range b.queue {
		bytes += len(end.Data)
		for _, f := range end.Follow {
			bytes += len(f.Payload)
		}
		if i > 0 && (i == writeAtOnce || bytes > writeBytes || end.run.sysid != b.queue[0].run.sysid) {
			return b.queue[:i:i]
		}
	}
	return b.queue[:len(b.queue):len(b.queue)]
}

func (b *backend) writeOnce(ends []*ending) bool {
	rows := make([]store.Ending, len(ends))
	follow := false
	for i, end := range ends {
		rows[i] = end.Ending
		follow = follow || len(end.Follow) > 0 || end.Fate != store.Archive
	}
	ctx, cancel := b.call()
	defer cancel()
	began := time.Now()
	counted, err := b.store.End(ctx, ends[0].run.sysid, rows)
	if b.note(err) != nil {
		if !errors.Is(err, store.ErrAway) {
			b.complain(err, "cannot write how jobs ended; trying again")
		}
		return false
	}
	b.e.meter.wrote(time.Since(began))
	b.mu.Lock()
	b.queue = b.queue[len(ends):]
	if len(b.queue) == 0 {
		b.queue = nil
	}
	for _, end := range ends {
		if b.hand[end.ID] == end.run {
			delete(b.hand, end.ID)
		}
	}
	b.mu.Unlock()
	for i, end := range ends {
		b.e.ended(end, counted[i])
	}
	if follow {
		b.look()
	}
	return true
}

// ended counts and tells of a run whose end is written.
func (e *Engine) ended(end *ending, counted bool) {
	if !counted {
		e.meter.discarded.Inc()
		e.log.Warn().Stringer("id", end.ID).Msg("a run's end was not written: somebody else has taken the job since")
		return
	}
	e.meter.ended(&end.Ending)
	for i := range end.Follow {
		e.events.followed(&end.Follow[i])
	}
	e.events.ended(end)
	if end.BadLines > 0 {
		e.meter.badLines.Add(float64(end.BadLines))
		e.log.Warn().Stringer("id", end.ID).Int("lines", end.BadLines).Msg("a run printed lines that make no job")
	}
}
