package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// ErrDamaged says that a file with damage cannot be put back, because it cannot be
// read.
var ErrDamaged = errors.New("a damaged file cannot be put back")

// AsideFiles returns the files of jobs that were set aside.
func (e *Engine) AsideFiles() ([]journal.AsideFile, error) { return e.journal.AsideFiles() }

// PutBack gives a store the jobs of a file that was set aside, under their own ids, and returns how
// many there are. It may be repeated, for example after a crash. No job is made twice, because the
// store records the file, and PutBack always gives a file to the same store. After a
// store.RefusedError nothing has changed: the store does not accept the jobs yet.
func (e *Engine) PutBack(ctx context.Context, file string) (jobs int, err error) {
	e.putBackMu.Lock()
	defer e.putBackMu.Unlock()
	for {
		if jobs, err = e.putBackOnce(ctx, file); !errors.Is(err, journal.ErrAsideChanged) {
			return jobs, err
		}
	}
}

func (e *Engine) putBackOnce(ctx context.Context, file string) (jobs int, err error) {
	a, err := e.journal.ReadAsideFile(file)
	if err != nil {
		return 0, err
	}
	if len(a.Jobs) == 0 {
		return 0, fmt.Errorf("%s: %w", file, ErrDamaged)
	}
	b := slices.MinFunc(e.backends, func(a, b *backend) int { return strings.Compare(a.store.Name(), b.store.Name()) })
	if err := b.checkReachable(); err != nil {
		return 0, err
	}
	if b.transit.Acquire(ctx, 1) != nil { // no count may find the jobs both in the store and in the journal
		return 0, errors.Join(store.ErrAway, context.Cause(ctx))
	}
	defer b.transit.Release(1)
	for i := range a.Jobs {
		a.Jobs[i].End = a.Bytes // the store accepts all of them or none
	}
	// ingest waits for transit, so this call must not wait for other requests.
	if _, err := b.store.Ingest(store.OwnCalls(ctx), a.Piece(), a.Jobs, time.Now); b.noteRequest(ctx, err) != nil {
		return 0, err
	}
	if err := e.journal.RemoveAsideFile(&a); err != nil {
		return 0, fmt.Errorf("its jobs are in the store, and the file could not be removed: %w", err)
	}
	e.dropSegment(a.File)
	b.wakePick()
	return len(a.Jobs), nil
}
