package engine

import (
	"errors"
	"time"

	"gloom/cmd/serverlessd/store"
)

const (
	// maxWriteJobs and writeBytes bound a transaction that writes endings.
	maxWriteJobs = 500
	writeBytes   = 8 << 20
	writeRetry   = 100 * time.Millisecond
	// writePace is the time between the starts of two transactions.
	writePace = 5 * time.Millisecond
)

// queueEnding queues an ending for write.
func (b *backend) queueEnding(end *ending) {
	b.mu.Lock()
	end.run.ended = true
	b.queue = append(b.queue, end)
	b.mu.Unlock()
	signal(b.full)
}

// write writes the queued endings until the engine ends, as many as possible in each transaction.
// They wait while the store is away.
func (b *backend) write() {
	for {
		select {
		case <-b.e.life.Done():
			return
		case <-b.full:
		}
		for ends := b.nextEndings(); len(ends) > 0; ends = b.nextEndings() {
			next := time.Now().Add(writePace)
			if b.writeAll(ends) != nil && !b.e.sleep(writeRetry) || !b.e.sleep(time.Until(next)) {
				return
			}
		}
	}
}

// nextEndings returns the first endings that fit into one transaction. They all have the same sysid.
func (b *backend) nextEndings() []*ending {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes := 0
	for i, end := range b.queue {
		bytes += len(end.Data)
		for _, f := range end.Follow {
			bytes += len(f.Payload)
		}
		if i > 0 && (i == maxWriteJobs || bytes > writeBytes || end.run.sysid != b.queue[0].run.sysid) {
			return b.queue[:i:i]
		}
	}
	return b.queue[:len(b.queue):len(b.queue)]
}

// writeAll writes endings. If the store refuses them together, it writes them one by one, so that
// no ending waits for another. An ending that is refused alone, too, is written without its data
// or, if that is refused, also without the jobs that follow.
func (b *backend) writeAll(ends []*ending) error {
	err := b.writeOnce(ends)
	if err == nil || errors.Is(err, store.ErrAway) || b.e.life.Err() != nil {
		return err
	}
	if len(ends) > 1 {
		for i := range ends {
			if err := b.writeAll(ends[i : i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	less := *ends[0] // a copy, because after other errors the complete ending is tried again
	if len(less.Data) > 0 {
		less.Data, less.Truncated = nil, true
		if err = b.writeShortened(&less, "the store refuses a job's data; the job ended without it"); err == nil {
			return nil
		}
	}
	if len(less.Follow) > 0 && !errors.Is(err, store.ErrAway) {
		less.BadLines += len(less.Follow)
		less.Follow = nil
		err = b.writeShortened(&less, "the store refuses the jobs that follow a job; it ended without them")
	}
	return err
}

func (b *backend) writeShortened(end *ending, msg string) error {
	err := b.writeOnce([]*ending{end})
	if err == nil {
		b.log.Error().Stringer("id", end.ID).Str("type", end.run.Jobtype).Msg(msg)
	}
	return err
}

func (b *backend) writeOnce(ends []*ending) error {
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
	if b.note("write how jobs ended", err) != nil {
		return err
	}
	b.e.meter.observeCall("end", began)
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
		b.e.recordEnd(end, counted[i])
	}
	if follow {
		b.wakePick()
	}
	return nil
}

// recordEnd counts and logs a run whose end was written.
func (e *Engine) recordEnd(end *ending, counted bool) {
	if !counted {
		e.meter.discarded.Inc()
		e.log.Warn().Stringer("id", end.ID).Msg("a run's end was not written: the job has been taken again since")
		return
	}
	e.meter.observeEnd(&end.Ending)
	if end.Fate != store.GiveBack {
		e.meter.runTime.Observe(end.wall.Seconds())
	}
	e.events.logFollowed(end.Follow)
	e.events.logEnd(end)
	if end.BadLines > 0 {
		e.meter.badLines.Add(float64(end.BadLines))
		e.log.Warn().Stringer("id", end.ID).Int("lines", end.BadLines).Msg("a run printed invalid J: lines")
	}
}
