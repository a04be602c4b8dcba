package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"

	"github.com/rs/zerolog"
)

const (
	maxIngestJobs = 10_000          // lines of one piece
	ingestTimeout = 2 * time.Minute // a reservation goes back to the journal after this time
	ingestRetry   = 100 * time.Millisecond
	// minPace and maxPace bound the time between the starts of two pieces.
	minPace, maxPace = 5 * time.Millisecond, 15 * time.Millisecond
)

// pauseBetweenPieces waits before the next piece, so that lines that come one by one do not need a
// transaction each: the syncs of the transactions would delay the syncs of the journal. After many
// lines it waits longer, unless a request waits for the store. It reports whether the engine still
// runs.
func (b *backend) pauseBetweenPieces(start time.Time, lines int) bool {
	if !b.engine.sleep(time.Until(start.Add(minPace))) {
		return false
	}
	timer := time.NewTimer(time.Until(start.Add(min(time.Duration(lines)*time.Millisecond, maxPace))))
	defer timer.Stop()
	select {
	case <-b.engine.ctx.Done():
		return false
	case <-timer.C:
	case <-b.ingestWake:
	}
	return true
}

// ingestNow makes all stores ingest the journal's jobs at once.
func (e *Engine) ingestNow() {
	for _, b := range e.backends {
		signal(b.ingestWake)
	}
}

// openJournal opens the journal of a directory for these stores.
func openJournal(dir string, stores []store.Store, opt journal.Options) (*journal.Journal, error) {
	for _, s := range stores {
		lane := laneOf(dir, s.Name())
		if slices.Contains(opt.Lanes, lane) {
			return nil, fmt.Errorf("store %s is given twice", s.Name())
		}
		opt.Lanes = append(opt.Lanes, lane)
	}
	files, err := journal.Directory(dir)
	if err != nil {
		return nil, err
	}
	opt.Files = files
	if opt.Notes, opt.SaveNotes, err = journal.LoadLaneNotes(dir); err == nil {
		var j *journal.Journal
		if j, err = journal.Open(opt); err == nil {
			return j, nil
		}
	}
	return nil, errors.Join(err, files.Close())
}

// ingest moves jobs from the journal into this store, a piece at a time. Each piece goes to one store
// only.
func (b *backend) ingest() {
	e := b.engine
	for {
		reachable := b.reachableContext()
		if reachable.Err() != nil {
			select {
			case <-e.ctx.Done():
				return
			case <-b.reachableAgain:
			}
			continue
		}
		// The wait ends when the store goes away: other stores take the next lines.
		r, err := e.journal.Reserve(reachable, b.lane, maxIngestJobs, ingestTimeout)
		switch {
		case e.ctx.Err() != nil, errors.Is(err, journal.ErrClosed):
			return
		case errors.Is(err, context.Canceled):
			continue
		}
		b.setFailure("read the journal", err)
		start := time.Now()
		if err == nil && b.ingestPiece(r) {
			if !b.pauseBetweenPieces(start, len(r.Read())) {
				return
			}
		} else if !e.sleep(ingestRetry) {
			return
		}
	}
}

// ingestPiece writes a piece of the journal to the store.
func (b *backend) ingestPiece(r *journal.Reservation) bool {
	e := b.engine
	if b.transit.Acquire(e.ctx, 1) != nil {
		r.Cancel()
		return false
	}
	start := time.Now()
	before, err := ingest(e.ctx, b.store, r)
	if b.noteCall("bring jobs from the journal to the store", err) != nil {
		r.Cancel()
	} else if err := r.Sync(); err != nil { // the store has recorded that it has the piece
		e.log.Warn().Err(err).Msg("a piece of the journal will be ingested again, without effect")
	}
	b.transit.Release(1)
	if err != nil {
		return false
	}
	newEntries := slices.DeleteFunc(r.Read(), func(j journal.Entry) bool { return j.End <= before })
	e.metrics.ingestedJobs.Add(float64(len(newEntries)))
	e.metrics.observeCall("ingest", start)
	for i := range newEntries {
		e.events.logAdded(newEntries[i].ID, newEntries[i].Jobtype)
	}
	b.wakePick()
	return true
}

// ingest writes a piece of a journal to a store. Jobs that the store will never accept are copied
// to a file in the journal's directory instead. The store already had the lines that end at or
// before the offset before.
func ingest(ctx context.Context, s store.Store, r *journal.Reservation) (before int64, err error) {
	before, err = s.Ingest(ctx, r.Range, r.Read(), time.Now)
	refused, ok := errors.AsType[*store.RefusedError](err)
	if !ok {
		return before, err
	}
	if err := r.SetAside(refused.IDs, refused.Err); err != nil {
		return before, err
	}
	return s.Ingest(ctx, r.Range, r.Read(), time.Now)
}

// Rescue moves the jobs in the journal of a dead daemon into stores. It returns the number of jobs,
// and the number of damaged bytes.
func Rescue(ctx context.Context, dir string, addresses []string, log zerolog.Logger) (jobs, damaged int64, err error) {
	stores, err := openStores(addresses)
	if err != nil {
		return 0, 0, err
	}
	defer closeStores(stores)
	j, err := openJournal(dir, stores, journal.Options{IDs: job.NewIDSource(job.NewSysid(), time.Now), Log: log})
	if err != nil {
		return 0, 0, err
	}
	defer j.Close()
	ended, cancel := context.WithCancel(ctx)
	cancel() // the context has ended, so only the existing records are read
	for _, s := range stores {
		for {
			r, err := j.Reserve(ended, laneOf(dir, s.Name()), maxIngestJobs, ingestTimeout)
			if ctx.Err() != nil {
				return jobs, j.Stats().DamagedBytes, context.Cause(ctx)
			}
			if errors.Is(err, context.Canceled) {
				break
			}
			var before int64
			if err == nil {
				before, err = ingest(ctx, s, r)
			}
			if err == nil {
				err = r.Sync()
			}
			if err != nil {
				return jobs, j.Stats().DamagedBytes, fmt.Errorf("store %s: %w", s.Name(), err)
			}
			jobs += int64(len(slices.DeleteFunc(r.Read(), func(e journal.Entry) bool { return e.End <= before })))
		}
	}
	if left := j.Stats().Jobs; left > 0 {
		return jobs, j.Stats().DamagedBytes, fmt.Errorf("%d jobs are left: they may already be in a store that was not named; if that store is gone for good, remove %s",
			left, filepath.Join(dir, "routes.json"))
	}
	return jobs, j.Stats().DamagedBytes, nil
}
