package engine

import (
	"errors"
	"time"

	"gloom/cmd/serverlessd/store"
)

const (
	// maxWriteJobs and maxWriteBytes bound a transaction that writes endings.
	maxWriteJobs  = 500
	maxWriteBytes = 8 << 20
	// While more endings are queued than maxQueuedJobs or maxQueuedBytes, no jobs are taken.
	maxQueuedJobs  = 4 * maxWriteJobs
	maxQueuedBytes = 8 * maxWriteBytes
	writeRetryWait = 100 * time.Millisecond
	// writePace is the time between the starts of two transactions.
	writePace = 5 * time.Millisecond
)

// queueEnding queues an ending for write.
func (b *backend) queueEnding(end *queuedEnding) {
	b.mu.Lock()
	end.run.endQueued = true
	b.queue = append(b.queue, end)
	b.mu.Unlock()
	signal(b.endingsQueued)
}

// write writes the queued endings until the engine ends, as many as possible in each transaction.
// They wait while the store is away.
func (b *backend) write() {
	for {
		select {
		case <-b.engine.ctx.Done():
			return
		case <-b.endingsQueued:
		}
		for ends := b.nextEndings(); len(ends) > 0; ends = b.nextEndings() {
			next := time.Now().Add(writePace)
			if b.writeAll(ends) != nil && !b.engine.sleep(writeRetryWait) || !b.engine.sleep(time.Until(next)) {
				return
			}
		}
	}
}

// size returns about how many bytes the store must write.
func (end *queuedEnding) size() int {
	size := len(end.Data)
	for _, f := range end.Follow {
		size += len(f.Payload)
	}
	return size
}

// isQueueFull reports whether no more jobs are to be taken, because the store is slow or refuses to
// write endings. Otherwise the endings of all waiting jobs could fill the memory. The caller holds
// mu.
func (b *backend) isQueueFull() bool {
	bytes := 0
	for _, end := range b.queue {
		bytes += end.size()
	}
	return len(b.queue) > maxQueuedJobs || bytes > maxQueuedBytes
}

// nextEndings returns the first endings that fit into one transaction. They all have the same sysid.
func (b *backend) nextEndings() []*queuedEnding {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes := 0
	for i, end := range b.queue {
		bytes += end.size()
		if i > 0 && (i == maxWriteJobs || bytes > maxWriteBytes || end.run.sysid != b.queue[0].run.sysid) {
			return b.queue[:i:i]
		}
	}
	return b.queue[:len(b.queue):len(b.queue)]
}

// writeAll writes endings. If the store refuses the endings together, it writes them one by one, so
// that no ending waits for another. If an ending is refused alone, too, its data is halved until
// the store accepts the ending. If the store refuses the ending even without data, the jobs that
// follow are left out.
func (b *backend) writeAll(ends []*queuedEnding) error {
	err := b.writeOnce(ends)
	if err == nil || errors.Is(err, store.ErrAway) || b.engine.ctx.Err() != nil {
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
	shortened := *ends[0] // a copy: after another error the complete ending is written again
	for {
		for len(shortened.Data) > 0 {
			shortened.Data, shortened.Truncated = shortened.Data[:len(shortened.Data)/2], true
			if err = b.writeShortened(&shortened); err == nil || errors.Is(err, store.ErrAway) {
				return err
			}
		}
		if len(shortened.Follow) == 0 {
			return err
		}
		shortened = *ends[0]
		shortened.BadLines, shortened.Follow = shortened.BadLines+len(shortened.Follow), nil
		if err = b.writeShortened(&shortened); err == nil || errors.Is(err, store.ErrAway) {
			return err
		}
	}
}

func (b *backend) writeShortened(end *queuedEnding) error {
	err := b.writeOnce([]*queuedEnding{end})
	if err == nil {
		b.log.Error().Stringer("id", end.ID).Str("type", end.run.Jobtype).Int("data_bytes", len(end.Data)).Int("follow_jobs", len(end.Follow)).
			Msg("the store refuses all that a run left behind; the job ended with this much of it")
	}
	return err
}

func (b *backend) writeOnce(ends []*queuedEnding) error {
	rows := make([]store.RunEnd, len(ends))
	mustPick := false
	for i, end := range ends {
		rows[i] = end.RunEnd
		mustPick = mustPick || len(end.Follow) > 0 || end.Action != store.EndArchive
	}
	start := time.Now()
	counted, err := b.store.End(b.engine.ctx, ends[0].run.sysid, rows)
	if b.noteCall("write how jobs ended", err) != nil {
		return err
	}
	b.engine.metrics.observeCall("end", start)
	b.mu.Lock()
	mustPick = mustPick || b.isQueueFull()
	b.queue = b.queue[len(ends):]
	if len(b.queue) == 0 {
		b.queue = nil
	}
	for _, end := range ends {
		if b.runsInHand[end.ID] == end.run {
			delete(b.runsInHand, end.ID)
		}
	}
	b.mu.Unlock()
	for i, end := range ends {
		b.engine.recordEnd(end, counted[i])
	}
	if mustPick {
		b.wakePick()
	}
	return nil
}

// recordEnd counts and logs a run whose end was written.
func (e *Engine) recordEnd(end *queuedEnding, counted bool) {
	if !counted {
		e.metrics.discardedJobs.Inc()
		e.log.Warn().Stringer("id", end.ID).Msg("a run's end was not written: the job has been taken again since")
		return
	}
	e.metrics.observeEnd(&end.RunEnd)
	if end.Action != store.EndGiveBack {
		e.metrics.runTime.Observe(end.wall.Seconds())
	}
	e.events.logFollowed(end.Follow)
	e.events.logEnd(end)
	if end.BadLines > 0 {
		e.metrics.badLines.Add(float64(end.BadLines))
		e.log.Warn().Stringer("id", end.ID).Int("lines", end.BadLines).Msg("a run printed invalid J: lines")
	}
}
