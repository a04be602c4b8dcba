package broker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/wire"
)

// poolTwin finds out which worker gets which job by looking at all workers and jobs.
type poolTwin struct {
	jobs        []twinJob // by age
	workers     []twinWorker
	line        int
	pausedTypes map[string]bool
}

// twinJob is a waiting job as the twin knows it.
type twinJob struct {
	id, typ  string
	priority int64
}

// twinWorker is a worker as the twin knows it.
type twinWorker struct {
	peer       Peer
	servesType func(typ string) bool
	line       int    // orders idle workers by when they became idle; 0 while the worker works
	job        string // the type of its job, "" for none
}

// handOut hands out all jobs that may run, and returns which worker got which job.
func (tw *poolTwin) handOut() (handOuts []string) {
	for {
		best, to := -1, -1
		for i, j := range tw.jobs {
			if tw.pausedTypes[j.typ] || best >= 0 && tw.jobs[best].priority >= j.priority {
				continue
			}
			idlest := -1
			for n, w := range tw.workers {
				if w.line > 0 && w.servesType(j.typ) && (idlest < 0 || w.line < tw.workers[idlest].line) {
					idlest = n
				}
			}
			if idlest >= 0 {
				best, to = i, idlest
			}
		}
		if best < 0 {
			return handOuts
		}
		w := &tw.workers[to]
		handOuts = append(handOuts, fmt.Sprintf("%d gets %s", w.peer, tw.jobs[best].id))
		w.line, w.job = 0, tw.jobs[best].typ
		tw.jobs = slices.Delete(tw.jobs, best, best+1)
	}
}

// TestPoolsAgainstTwin checks that the core and the twin give each job to the same worker, while
// workers of all kinds come, go and change their types.
func TestPoolsAgainstTwin(t *testing.T) {
	lists := []string{"a", "b", "a b", "a b c", "*", "a* b*", "ab* c", "a b c d e f", "*a", "* -b", "* -a* c", "a b -b"}
	for seed := range uint64(scaleDown(400, 100)) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := New(Config{MaxUnusedTypes: r.IntN(3)})
		x := &poolTwin{pausedTypes: map[string]bool{}}
		sub := b.AddSubmitter()
		types := []string{"a", "b", "c", "ab", "ba", "abc"}
		for step := range 300 {
			var effects []Effect
			n := -1
			if len(x.workers) > 0 {
				n = r.IntN(len(x.workers))
			}
			name := ""
			switch v := r.IntN(100); {
			case v < 40:
				j := twinJob{fmt.Sprintf("j%d", step), types[r.IntN(len(types))], int64(r.IntN(3))}
				name = fmt.Sprintf("submit %+v", j)
				effects = b.Submit(0, sub, &Submission{ID: []byte(j.id), Type: []byte(j.typ), Body: []byte("1"), Priority: j.priority, NoAck: true})
				x.jobs = append(x.jobs, j)
			case v < 75 && n >= 0:
				w := &x.workers[n]
				if w.job == "" {
					continue
				}
				name = fmt.Sprintf("respond %d", w.peer)
				effects = b.Respond(0, w.peer, nil, []byte("1"), false)
				w.job = ""
				x.line++
				w.line = x.line
			case v < 85 || n < 0:
				if n < 0 || r.IntN(3) == 0 && len(x.workers) < 5 {
					x.workers = append(x.workers, twinWorker{peer: b.AddWorker()})
					n = len(x.workers) - 1
				}
				w := &x.workers[n]
				list := lists[r.IntN(len(lists))]
				name = fmt.Sprintf("join %d %s", w.peer, list)
				q, included, excluded := JoinRequest{}, []wire.Pattern{}, []wire.Pattern{}
				for _, f := range strings.Fields(list) {
					if f[0] == '-' || len(q.Except) > 0 {
						name := []byte(strings.TrimPrefix(f, "-"))
						q.Except, excluded = append(q.Except, name), append(excluded, wire.NewPattern(name))
					} else {
						q.Types, included = append(q.Types, []byte(f)), append(included, wire.NewPattern([]byte(f)))
					}
				}
				if len(q.Types) == 1 && included[0].IsPlain() && r.IntN(2) == 0 {
					q.Type, q.Types = q.Types[0], nil
				}
				effects = b.Join(0, w.peer, &q)
				w.servesType = func(typ string) bool {
					matches := func(p wire.Pattern) bool { return p.Matches(typ) }
					return slices.ContainsFunc(included, matches) && !slices.ContainsFunc(excluded, matches)
				}
				if w.job == "" {
					x.line++
					w.line = x.line
				}
			case v < 92:
				w := x.workers[n]
				if w.job != "" {
					continue
				}
				name = fmt.Sprintf("gone %d", w.peer)
				effects = b.RemovePeer(0, w.peer)
				x.workers = slices.Delete(x.workers, n, n+1)
			default:
				typ := types[r.IntN(len(types))]
				x.pausedTypes[typ] = !x.pausedTypes[typ]
				name = fmt.Sprintf("pause %s %v", typ, x.pausedTypes[typ])
				effects, _ = b.Pause(0, []byte(typ), x.pausedTypes[typ])
			}
			var got []string
			for _, e := range effects {
				if e.Op == OpJob {
					got = append(got, fmt.Sprintf("%d gets %s", e.Peer, e.ID))
				}
			}
			if want := x.handOut(); !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d, %s: got %q, want %q", seed, step, name, got, want)
			}
		}
	}
}

// TestManyPatternsStayCheap: a worker that joins with a thousand long patterns while there are
// very many types makes no command expensive, and serves all matching types in the end.
func TestManyPatternsStayCheap(t *testing.T) {
	types := scaleDown(10_000, 300)
	b := New(Config{MaxUnusedTypes: types})
	s, w := b.AddSubmitter(), b.AddWorker()
	longName := strings.Repeat("x", 1000)
	for n := range types {
		b.Submit(0, s, &Submission{ID: fmt.Appendf(nil, "j%d", n), Type: fmt.Appendf(nil, "%s%d", longName, n), Body: []byte("1"), NoAck: true})
	}
	q := JoinRequest{Prefetch: types}
	for n := range 1000 {
		q.Types = append(q.Types, []byte(strings.Repeat("*x", 500)+fmt.Sprintf("*%03d", n)))
	}
	longest, out := time.Duration(0), 0
	timed := func(fn func() []Effect) {
		begin := time.Now()
		effects := fn()
		longest = max(longest, time.Since(begin))
		for _, e := range effects {
			if e.Op == OpJob {
				out++
			}
		}
	}
	timed(func() []Effect { return b.Join(0, w, &q) })
	for b.NextTick() <= 0 {
		timed(func() []Effect { return b.Tick(0) })
	}
	want := 0
	for n := range types {
		if n >= 100 {
			want++
		}
	}
	if out != want {
		t.Errorf("%d jobs are out, want %d", out, want)
	}
	t.Logf("%d pairs, the longest step took %v", b.pairs.Len(), longest)
	timed(func() []Effect { return b.RemovePeer(0, w) })
	if b.pairs.Len() != 0 || len(b.poolsByKey) != 0 {
		t.Errorf("%d pairs and %d pools are left", b.pairs.Len(), len(b.poolsByKey))
	}
}

// TestPairingStartsAnewAtEachSet: while the patterns of a set are tried on a new type, the set's
// worker leaves. The patterns of the next set are tried from the first one.
func TestPairingStartsAnewAtEachSet(t *testing.T) {
	var digits [][]byte
	for n := range 1000 {
		digits = append(digits, fmt.Appendf(nil, "%d*", n))
	}
	for _, c := range []struct {
		left JoinRequest // the worker that leaves
		next string      // the pattern of the next worker
		want int         // how many jobs the next worker gets
	}{
		{JoinRequest{Types: [][]byte{[]byte("*")}, Except: digits}, "other*", 0},
		{JoinRequest{Types: digits}, "x*", 1},
	} {
		b := New(Config{MaxUnusedTypes: 10})
		s, left, next := b.AddSubmitter(), b.AddWorker(), b.AddWorker()
		got := 0
		count := func(effects []Effect) {
			for _, e := range effects {
				if e.Op == OpJob && e.Peer == next {
					got++
				}
			}
		}
		finish := func() {
			for b.NextTick() <= 0 {
				count(b.Tick(0))
			}
		}
		b.Join(0, left, &c.left)
		b.Join(0, next, &JoinRequest{Types: [][]byte{[]byte(c.next)}})
		finish()
		count(b.Submit(0, s, &Submission{ID: []byte("j"), Type: []byte(strings.Repeat("x", 200)), Body: []byte("1"), NoAck: true}))
		if b.pairingsInProgress == 0 {
			t.Fatal("all patterns were tried in one step")
		}
		count(b.RemovePeer(0, left))
		finish()
		if got != c.want {
			t.Errorf("a worker that serves %s gets %d jobs, want %d", c.next, got, c.want)
		}
	}
}
