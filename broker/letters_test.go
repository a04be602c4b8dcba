package broker_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker"
)

// TestLettersCanBeRemovedAnywhere: the store of dead letters stays correct and bounded when letters
// are removed from the middle while an old one stays.
func TestLettersCanBeRemovedAnywhere(t *testing.T) {
	core := broker.New(broker.Config{DeadLetters: 10, DeadBytes: 1 << 20, DeadAge: time.Hour})
	s, w := core.AddSubmitter(), core.AddWorker()
	failOne := func(now int64, typ, id string) {
		core.Join(now, w, &broker.JoinRequest{Type: []byte(typ)})
		core.Submit(now, s, &broker.Submission{ID: []byte(id), Type: []byte(typ), Body: []byte("1"), Retries: -1})
		core.Fail(now, w, &broker.Failure{Reason: "broken", Delay: -1})
	}
	failOne(0, "old", "first")
	for i := range int64(1000) {
		failOne(i, "busy", string(binary.BigEndian.AppendUint32(nil, uint32(i))))
	}
	letters := func(typ string) []*broker.DeadLetter {
		found, _ := core.DeadLetters(0, []byte(typ), 0, 100, nil)
		return found
	}
	if n, _ := core.LetterCount(); n != 11 || len(letters("busy")) != 10 || len(letters("old")) != 1 {
		t.Fatalf("%d letters are kept, want 1 and 10", n)
	}
	if got := letters("busy")[9].ID; binary.BigEndian.Uint32(got) != 990 {
		t.Errorf("the oldest letter kept is %d, want 990", binary.BigEndian.Uint32(got))
	}
	hour := int64(time.Hour)
	for _, c := range []struct {
		now  int64
		want int
	}{{hour - 1, 11}, {hour, 10}, {hour + 989, 10}, {hour + 990, 9}, {hour + 2000, 0}} {
		core.Tick(c.now)
		if n, _ := core.LetterCount(); n != c.want {
			t.Errorf("at an hour and %d ns %d letters are kept, want %d", c.now-hour, n, c.want)
		}
	}
	if n, bytes := core.LetterCount(); n != 0 || bytes != 0 || core.NextTick() != broker.Never {
		t.Errorf("%d letters of %d bytes are left, next deadline %d", n, bytes, core.NextTick())
	}
}

// TestLetterBytesAreUsedUp: as many letters are kept as the limit on bytes allows.
func TestLetterBytesAreUsedUp(t *testing.T) {
	fill := func(limit int64) (int, int64) {
		core := broker.New(broker.Config{DeadLetters: 100, DeadBytes: limit, DeadAge: time.Hour})
		s, w := core.AddSubmitter(), core.AddWorker()
		core.Join(0, w, &broker.JoinRequest{Type: []byte("echo")})
		for i := range byte(20) {
			core.Submit(0, s, &broker.Submission{ID: []byte{'a' + i}, Type: []byte("echo"), Body: []byte("1"), Retries: -1})
			core.Fail(0, w, &broker.Failure{Reason: "broken", Delay: -1})
		}
		return core.LetterCount()
	}
	n, heldBytes := fill(1 << 20)
	if n != 20 || heldBytes%20 != 0 {
		t.Fatalf("%d letters of %d bytes are kept, want 20 of equal size", n, heldBytes)
	}
	for _, c := range []struct {
		limit int64
		want  int
	}{{heldBytes, 20}, {heldBytes - 1, 19}, {heldBytes / 20 * 3, 3}, {heldBytes/20*3 - 1, 2}, {heldBytes / 20, 1}, {heldBytes/20 - 1, 0}} {
		if n, bytes := fill(c.limit); n != c.want || bytes > c.limit {
			t.Errorf("with a limit of %d bytes, %d letters of %d bytes are kept, want %d letters", c.limit, n, bytes, c.want)
		}
	}
}

// TestLetterListingShowsEachOnce: a listing in pages shows each letter that exists throughout exactly once,
// although letters are added and forgotten between the pages.
func TestLetterListingShowsEachOnce(t *testing.T) {
	core := broker.New(broker.Config{DeadLetters: 100, DeadBytes: 1 << 20, DeadAge: time.Hour})
	s, w := core.AddSubmitter(), core.AddWorker()
	typ := []byte("t")
	core.Join(0, w, &broker.JoinRequest{Type: typ})
	n := 0
	failOne := func(reason string) {
		n++
		core.Submit(int64(n), s, &broker.Submission{ID: fmt.Append(nil, n), Type: typ, Body: []byte("1"), Retries: -1})
		core.Fail(int64(n), w, &broker.Failure{Reason: reason, Delay: -1})
	}
	for i := range 40 {
		failOne([]string{"timeout", "no route"}[i%2])
	}
	var got []string
	for from, page := 0, 0; from >= 0; page++ {
		var found []*broker.DeadLetter
		if found, from = core.DeadLetters(100, typ, from, 3, &broker.LetterFilter{Reason: reasonHas("time")}); len(found) > 3 {
			t.Fatalf("a page of 3 has %d letters", len(found))
		}
		for _, l := range found {
			got = append(got, string(l.ID))
		}
		failOne("timeout")
		if page < 3 {
			core.DropLetter(100, typ, fmt.Append(nil, 2*page+2), 0) // "no route"
			core.DropLetter(100, typ, fmt.Append(nil, 2*page+1), 0)
		}
	}
	var want []string
	for i := 39; i > 6; i -= 2 {
		want = append(want, fmt.Sprint(i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed are %q, want %q", got, want)
	}
	if found, _ := core.DeadLetters(int64(time.Minute), typ, 0, 100, &broker.LetterFilter{ID: "3", MinTimeSinceFailure: time.Minute - 20}); len(found) != 1 {
		t.Errorf("%d letters are old enough and have a 3 in their ids, want 1 (13)", len(found))
	}
}

// TestWalkHandlesEachLetterOnce: each matching letter is submitted again or forgotten, exactly once. Letters
// of jobs that fail again in the meantime are left alone.
func TestWalkHandlesEachLetterOnce(t *testing.T) {
	for _, again := range []bool{true, false} {
		core := broker.New(broker.Config{DeadLetters: 1000, DeadBytes: 1 << 20, DeadAge: time.Hour})
		s, w := core.AddSubmitter(), core.AddWorker()
		typ := []byte("t")
		for i := range 300 {
			core.Join(0, w, &broker.JoinRequest{Type: typ, Prefetch: 1})
			core.Submit(0, s, &broker.Submission{ID: fmt.Append(nil, i), Type: typ, Body: []byte("1"), Retries: -1})
			core.Fail(0, w, &broker.Failure{ID: fmt.Append(nil, i), Reason: []string{"keep", "go"}[i%2], Delay: -1, NoRetry: true})
		}
		// One of the letters cannot be submitted again, because its id is in use.
		core.Leave(0, w)
		core.Submit(0, s, &broker.Submission{ID: []byte("7"), Type: typ, Body: []byte("1")})
		core.Join(0, w, &broker.JoinRequest{Type: typ, Prefetch: 1})
		walk := broker.LetterWalk{LetterFilter: broker.LetterFilter{Reason: reasonHas("go")}}
		pieces := 0
		for more := true; more; pieces++ {
			var fx []broker.Effect
			for fx, more = core.WalkLetters(0, typ, &walk, again); len(fx) > 0; {
				var id []byte
				for _, e := range fx {
					if e.Op == broker.OpJob {
						id = slices.Clone(e.ID)
					}
				}
				if id == nil {
					break
				}
				fx = core.Fail(0, w, &broker.Failure{ID: id, Reason: "go", NoRetry: true, Delay: -1})
			}
		}
		refusals := 0
		if again {
			refusals = 1
		}
		if walk.Handled != 150-refusals || walk.Refused != refusals || (walk.Reason == broker.Reason{}) != (refusals == 0) || pieces < 3 {
			t.Errorf("again %v: %d done, %d refused (%+v) in %d pieces; want %d and %d", again, walk.Handled, walk.Refused, walk.Reason, pieces, 150-refusals, refusals)
		}
		if n, _ := core.LetterCount(); !again && n != 150 {
			t.Errorf("%d letters are left, want 150", n)
		}
	}
}

// reasonHas returns a filter for reasons that contain this text.
func reasonHas(part string) func(*broker.Reason) bool {
	return func(r *broker.Reason) bool { return strings.Contains(r.Text, part) }
}
