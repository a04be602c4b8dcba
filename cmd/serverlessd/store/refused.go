package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gloom/cmd/serverlessd/job"
)

// RefusedError names jobs that a database will never accept: they do not fit into its packets, and
// it has accepted the same jobs with short payloads.
type RefusedError struct {
	IDs []job.ID
	Err error // the database's error for one of them
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the store refuses %d jobs: %v", len(e.IDs), e.Err)
}

// Unwrap returns the database's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// findRefused finds the rows that make an insert too large, and returns a RefusedError. An err with
// another cause is returned unchanged.
func (s *SQL) findRefused(ctx context.Context, rows []row, err error) error {
	if err == nil || isStoreError(err) || errors.Is(err, ErrAway) {
		return err
	}
	found := &RefusedError{}
	tryErr := s.transact(ctx, "blame", func(t *tx) error {
		found.IDs = nil
		if err := t.tryRows(rows, found); err != nil {
			return err
		}
		return errUndo
	})
	switch {
	case !errors.Is(tryErr, errUndo):
		return tryErr
	case len(found.IDs) == 0:
		return fmt.Errorf("%w: %w", ErrUnwell, err)
	}
	return found
}

// tryRows inserts rows. If they are refused, it tries each half of them.
func (t *tx) tryRows(rows []row, found *RefusedError) error {
	err := t.putRows(rows)
	if err == nil || t.store.kind(err) != kindTooLarge {
		return err
	}
	if len(rows) == 1 {
		// The cause may be the store: check that it accepts the same row with a short payload.
		goodRow := rows[0]
		goodRow.id, goodRow.payload = rows[0].id+"+", goodRow.payload[:min(len(goodRow.payload), maxInlinePayload+1)]
		if err := t.putRows([]row{goodRow}); err != nil {
			return fmt.Errorf("%w: %w", ErrUnwell, err)
		}
		found.IDs, found.Err = append(found.IDs, rows[0].id), err
		return nil
	}
	for half := range slices.Chunk(rows, (len(rows)+1)/2) {
		if err := t.tryRows(half, found); err != nil {
			return err
		}
	}
	return nil
}

// putRows inserts all rows or none.
func (t *tx) putRows(rows []row) error {
	if _, err := t.exec("SAVEPOINT try"); err != nil {
		return err
	}
	err := t.insert(rows)
	if err == nil {
		err = t.store.exec(t.ctx, t, t.statements)
	}
	t.statements = nil
	if err == nil {
		return nil
	}
	if _, undoErr := t.exec("ROLLBACK TO SAVEPOINT try"); undoErr != nil {
		return undoErr
	}
	return err
}
