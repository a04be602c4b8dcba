package engine

import (
	"errors"
	"time"

	"gloom/cmd/serverlessd/journal"
)

const (
	ingestAtOnce  = 10_000          // lines
	ingestTimeout = 2 * time.Minute // of a reservation
	ingestRetry   = 100 * time.Millisecond
)

// catchUp tells the journal what the stores have of it from before. While one is
// away all else waits: what it has is not to be offered to another one.
func (e *Engine) catchUp() bool {
	for _, segment := range e.journal.Segments() {
		for _, b := range e.backends {
			for {
				ctx, cancel := b.call()
				point, err := b.store.Point(ctx, segment)
				cancel()
				if b.note(err) == nil {
					e.journal.Skip(segment, point)
					break
				}
				b.complain(err, "cannot read how far the journal has been ingested")
				if !e.sleep(ingestRetry) {
					return false
				}
			}
		}
	}
	return true
}

// ingest brings what the journal has accepted into the stores.
func (e *Engine) ingest() {
	for next, on := 0, e.catchUp(); on; {
		r, err := e.journal.Reserve(e.life, ingestAtOnce, ingestTimeout)
		if e.life.Err() != nil || errors.Is(err, journal.ErrClosed) {
			return
		}
		if err != nil {
			e.log.Error().Err(err).Msg("cannot read the journal; trying again")
			if !e.sleep(ingestRetry) {
				return
			}
			continue
		}
		b := e.backends[next%len(e.backends)]
		if b.reachable() != nil {
			r.Cancel()
			if next++; next%len(e.backends) == 0 && !e.sleep(ingestRetry) {
				return
			}
			continue
		}
		if !e.bring(r, b) && !e.sleep(ingestRetry) {
			return
		}
		next++
	}
}

// bring puts a piece of the journal into a store.
func (e *Engine) bring(r *journal.Reservation, b *backend) bool {
	entries := r.Read()
	ctx, cancel := b.call()
	defer cancel()
	select {
	case e.transit <- struct{}{}:
	case <-ctx.Done():
		r.Cancel()
		return false
	}
	began := time.Now()
	err := b.note(b.store.Ingest(ctx, r.Range, entries, time.Now))
	if err != nil {
		r.Cancel()
	} else if err := r.Sync(); err != nil { // the store knows that it has them
		e.log.Warn().Err(err).Msg("a piece of the journal will be ingested again, without effect")
	}
	<-e.transit
	if err != nil {
		b.complain(err, "cannot ingest; the journal keeps the lines")
		return false
	}
	e.meter.ingested(len(entries), time.Since(began))
	e.tellIngested()
	for i := range entries {
		e.events.added(&entries[i])
	}
	b.look()
	return true
}

// tellIngested wakes those who wait for a store to have their jobs.
func (e *Engine) tellIngested() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.ingested)
	e.ingested = make(chan struct{})
}
