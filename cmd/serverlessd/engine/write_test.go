package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

// pickyStore is a store that refuses data and follow-on jobs that begin with an x, and data of more
// than pickyLimit bytes.
type pickyStore struct {
	store.Store
	writtenIDs []string
}

const pickyLimit = 10

func (s *pickyStore) End(_ context.Context, _ string, ends []store.RunEnd) ([]bool, error) {
	var writtenIDs []string
	for _, e := range ends {
		for _, f := range e.Follow {
			if f.Payload[0] == 'x' {
				return nil, errors.New("data too long")
			}
		}
		if len(e.Data) > pickyLimit || len(e.Data) > 0 && e.Data[0] == 'x' {
			return nil, errors.New("data too long")
		}
		writtenIDs = append(writtenIDs, fmt.Sprintf("%d %s %d", e.Tries, e.Data, len(e.Follow)))
	}
	s.writtenIDs = append(s.writtenIDs, writtenIDs...)
	return make([]bool, len(ends)), nil
}

// TestRefusedEndings: an ending that the store refuses does not delay other endings. If data is too
// large, only its beginning is kept.
func TestRefusedEndings(t *testing.T) {
	e := withStores(t, 1)
	b := e.backends[0]
	s := &pickyStore{Store: b.store}
	b.store = s
	for i, c := range []struct{ data, followType string }{{"a", "a"}, {"x", "a"}, {"a", "x"}, {"x", "x"}, {"b", "b"}, {"0123456789ABCDE", "a"}} {
		r := &run{TakenJob: store.TakenJob{Run: store.Run{ID: e.ids.Next(1), Tries: i}}}
		b.runsInHand[r.ID] = r
		b.queueEnding(&queuedEnding{run: r, RunEnd: store.RunEnd{
			Run: r.Run, Code: job.CodeOK, Data: []byte(c.data), Follow: []store.FollowJob{{ID: e.ids.Next(1), Payload: []byte(c.followType)}},
		}})
	}
	if err := b.writeAll(b.nextEndings()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"0 a 1", "1  1", "2 a 0", "3  0", "4 b 1", "5 0123456 1"}; !slices.Equal(s.writtenIDs, want) {
		t.Errorf("wrote %q, want %q", s.writtenIDs, want)
	}
	if len(b.queue) > 0 || len(b.runsInHand) > 0 {
		t.Errorf("%d wait, %d in hand", len(b.queue), len(b.runsInHand))
	}
}
