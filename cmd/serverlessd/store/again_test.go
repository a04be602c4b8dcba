package store

import (
	"context"
	"errors"
	"testing"
	"time"
)

var errInTheWay = errors.New("another transaction is in the way")

// crowded is a database in which there is always another transaction in the way.
type crowded struct{ dialect }

func (crowded) kind(error) kind { return conflict }

// TestAwayTellsWhy: who repeats a transaction until his time is over is told what for.
func TestAwayTellsWhy(t *testing.T) {
	s := &SQL{dialect: crowded{}, ready: true}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := s.again(ctx, func(context.Context) error { return errInTheWay })
	if !errors.Is(err, ErrAway) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errInTheWay) {
		t.Errorf("%v", err)
	}
}
