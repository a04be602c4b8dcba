package store

import (
	"context"
	"errors"
	"testing"
	"time"
)

var errConflict = errors.New("another transaction is in the way")

// conflictDialect is a dialect in which every transaction meets a conflict.
type conflictDialect struct{ dialect }

func (conflictDialect) kind(error) kind { return kindConflict }

// TestAwayReason: if a transaction is repeated until its time is up, the error says why.
func TestAwayReason(t *testing.T) {
	s := &SQL{dialect: conflictDialect{}, ready: true}
	ctx, cancel := context.WithTimeout(OwnCalls(t.Context()), 20*time.Millisecond)
	defer cancel()
	err := s.retry(ctx, nil, func(context.Context) error { return errConflict })
	if !errors.Is(err, ErrAway) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errConflict) {
		t.Errorf("%v", err)
	}
}
