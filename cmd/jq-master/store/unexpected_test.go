package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// scriptHook does not run scripts. It answers calls of scripts with values from its channel that no
// script returns.
type scriptHook struct{ answers chan any }

func (scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		if h.answerInstead(c) {
			return c.Err()
		}
		return next(ctx, c)
	}
}

func (h scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		for _, c := range all {
			if h.answerInstead(c) {
				return c.Err()
			}
		}
		return next(ctx, all)
	}
}

func (h scriptHook) answerInstead(c redis.Cmder) bool {
	script, ok := c.(*redis.Cmd)
	if !ok {
		return false
	}
	select {
	case a := <-h.answers:
		if err, ok := a.(error); ok {
			script.SetErr(err)
		} else {
			script.SetVal(a)
		}
		return true
	default:
		return false
	}
}

// TestUnexpectedAnswers: an answer that no script gives, but a proxy may, ends neither the process
// nor the term, and does not count as a success.
func TestUnexpectedAnswers(t *testing.T) {
	t.Parallel()
	r := open(t, shared)
	l := scriptHook{make(chan any, 2)}
	r.client.AddHook(l)
	acquire(t, r)
	seq := uint64(0)
	for _, answer := range []any{"OK", "", int64(-1), int64(0), 1.5, true, []any{}, []any{"x"}, []any{nil}, map[any]any{}, []any{int64(1)},
		[]any{int64(1), "a b", int64(5)}, redis.Nil} {
		for n := 1; n <= 2; n++ { // the second is for a renewal of the lease
			seq += 2
			j, keyed := newJob(seq), newJob(seq+1)
			for e := await(t, enqueueing(r, nil, j)); e.err != nil; e = await(t, enqueueing(r, nil, j)) {
				if !errors.Is(e.err, ErrAway) {
					t.Fatal(e.err)
				}
			}
			send := func() {
				for range n {
					l.answers <- answer
				}
			}
			send()
			j = moveTo(t, r, j, started(j), 0, 0)
			send()
			key := &Key{Name: keyed.ID.String(), TTL: time.Hour}
			if e := await(t, enqueueing(r, key, keyed)); e.err != nil && !errors.Is(e.err, ErrAway) {
				t.Errorf("%v: %v", answer, e.err)
			}
			if err := r.Err(); err != nil {
				t.Fatalf("%v: the term is over: %v", answer, err)
			}
			for left := true; left; { // an answer that no script has had must not meet those of load
				select {
				case <-l.answers:
				default:
					left = false
				}
			}
			if got := load(t, r).Jobs[j.ID]; got.State != j.State {
				t.Errorf("%v: the job is %v, not %v", answer, got.State, j.State)
			}
		}
	}
	if err := r.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []any{"OK", []any{}, []any{int64(1)}, []any{"x", "y", "z"}, []any{int64(1), "a b", int64(5)}, []any{int64(0), 1.5, true}} {
		l.answers <- answer
		acquire(t, r)
		if err := r.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
