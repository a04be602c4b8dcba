package broker

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"gloom/wire"
)

// groupTwin is a broker with groups, rules and fair types that looks at all
// jobs to find the next one.
type groupTwin struct {
	jobs    []*groupJob // by age
	workers []*groupWorker
	rules   map[string]int
	fair    map[string]bool
	turns   map[string][]string // by type: who may run, in rotation
	last    map[string]int      // by type and turn: when it had one, or came
	clock   int
}

type groupJob struct {
	id, typ string
	prio    int
	age     int
	groups  []string
	from    Peer
	on      *groupWorker // nil: queued
}

type groupWorker struct {
	peer Peer
	like wire.Pattern
	line int // when it came to be idle, 0: at work
	job  *groupJob
}

func (j *groupJob) turn() string {
	if len(j.groups) > 0 {
		return j.groups[0]
	}
	return fmt.Sprint("s", j.from)
}

// free: the rules let the job run.
func (x *groupTwin) free(j *groupJob) bool {
	for _, g := range j.groups {
		running := 0
		for _, o := range x.jobs {
			if o.on != nil && slices.Contains(o.groups, g) {
				running++
			}
		}
		for pattern, most := range x.rules {
			if p := wire.NewPattern([]byte(pattern)); p.Fits(g) && running >= most {
				return false
			}
		}
	}
	return true
}

// rotate takes out of the rotations who may not run, and lets in who may.
func (x *groupTwin) rotate() {
	may, waits := map[string]map[string]bool{}, map[string]bool{}
	for _, j := range x.jobs {
		if j.on != nil {
			continue
		}
		if may[j.typ] == nil {
			may[j.typ] = map[string]bool{}
		}
		waits[j.typ+" "+j.turn()] = true
		if x.free(j) {
			may[j.typ][j.turn()] = true
		}
	}
	for key := range x.last {
		if !waits[key] {
			delete(x.last, key)
		}
	}
	for _, j := range x.jobs {
		if key := j.typ + " " + j.turn(); j.on == nil && x.last[key] == 0 {
			x.clock++
			x.last[key] = x.clock
		}
	}
	for typ := range x.fair {
		x.turns[typ] = slices.DeleteFunc(x.turns[typ], func(t string) bool { return !may[typ][t] })
		var come []string
		for t := range may[typ] {
			if !slices.Contains(x.turns[typ], t) {
				come = append(come, t)
			}
		}
		slices.SortFunc(come, func(a, b string) int { return x.last[typ+" "+a] - x.last[typ+" "+b] })
		x.turns[typ] = append(x.turns[typ], come...)
	}
}

// best is the job that a type hands out next.
func (x *groupTwin) best(typ string) (best *groupJob) {
	place := func(j *groupJob) int {
		if !x.fair[typ] {
			return 0
		}
		return slices.Index(x.turns[typ], j.turn())
	}
	for _, j := range x.jobs {
		if j.typ == typ && j.on == nil && x.free(j) &&
			(best == nil || j.prio > best.prio || j.prio == best.prio && place(j) < place(best)) {
			best = j
		}
	}
	return best
}

func (x *groupTwin) handOut() (given []string) {
	for {
		x.rotate()
		var best *groupJob
		var to *groupWorker
		for _, typ := range []string{"t", "u"} {
			j := x.best(typ)
			if j == nil || best != nil && (best.prio > j.prio || best.prio == j.prio && best.age < j.age) {
				continue
			}
			var w *groupWorker
			for _, o := range x.workers {
				if o.line > 0 && o.like.Fits(typ) && (w == nil || o.line < w.line) {
					w = o
				}
			}
			if w != nil {
				best, to = j, w
			}
		}
		if best == nil {
			return given
		}
		given = append(given, fmt.Sprintf("%d gets %s", to.peer, best.id))
		to.line, to.job, best.on = 0, best, to
		key := best.typ + " " + best.turn()
		x.clock++
		x.last[key] = x.clock
		if i := slices.Index(x.turns[best.typ], best.turn()); i >= 0 {
			x.turns[best.typ] = append(slices.Delete(x.turns[best.typ], i, i+1), best.turn())
		}
	}
}

func (x *groupTwin) drop(j *groupJob) {
	x.jobs = slices.DeleteFunc(x.jobs, func(o *groupJob) bool { return o == j })
}

func (x *groupTwin) idle(w *groupWorker) {
	x.clock++
	w.job, w.line = nil, x.clock
}

// TestGroupsAgainstTwin compares who gets which job with the twin. In worlds with
// fair types all jobs of a turn group have the same groups: a turn of others keeps
// its place until somebody finds it held back, which the twin does at once.
func TestGroupsAgainstTwin(t *testing.T) {
	for seed := range uint64(many(300, 100)) {
		r := rand.New(rand.NewPCG(seed, 5))
		b := New(Config{IdleTypes: r.IntN(3)})
		x := &groupTwin{rules: map[string]int{}, fair: map[string]bool{}, turns: map[string][]string{}, last: map[string]int{}}
		patterns := []string{"a", "b", "*", "x*", "x1", "c*"}
		if seed%2 == 0 {
			for _, typ := range []string{"t", "u"} {
				if r.IntN(3) > 0 {
					b.SetFair(0, []byte(typ), true)
					x.fair[typ] = true
				}
			}
		}
		subs := []Peer{b.AddSubmitter(), b.AddSubmitter()}
		groups := func() (list []string) {
			if r.IntN(4) > 0 {
				list = append(list, []string{"a", "b", "c", "ca"}[r.IntN(4)])
			}
			if seed%2 == 0 {
				// Of a turn group all jobs have the same groups.
				if len(list) > 0 && (list[0] == "a" || list[0] == "c") {
					list = append(list, "x")
				}
			} else if r.IntN(2) > 0 {
				list = append(list, []string{"x", "x1"}[r.IntN(2)])
			}
			return list
		}
		names := func(list []string) (names [][]byte) {
			for _, g := range list {
				names = append(names, []byte(g))
			}
			return names
		}
		for step := range 250 {
			var fx []Effect
			var w *groupWorker
			if len(x.workers) > 0 {
				w = x.workers[r.IntN(len(x.workers))]
			}
			what := ""
			switch v := r.IntN(100); {
			case v < 40:
				from := subs[r.IntN(2)]
				j := &groupJob{id: fmt.Sprintf("j%d", step), typ: []string{"t", "u"}[r.IntN(2)], prio: r.IntN(2), age: step, groups: groups(), from: from}
				what = fmt.Sprintf("submit %+v", *j)
				fx = b.Submit(0, from, &Submission{ID: []byte(j.id), Type: []byte(j.typ), Body: []byte("1"), Priority: int64(j.prio), Groups: names(j.groups), Quiet: true, Detach: r.IntN(5) == 0, Retries: 1000})
				x.jobs = append(x.jobs, j)
			case v < 65 && w != nil && w.job != nil:
				what = fmt.Sprintf("respond %d", w.peer)
				fx = b.Respond(0, w.peer, nil, []byte("1"), false)
				x.drop(w.job)
				x.idle(w)
			case v < 72 && w != nil && w.job != nil:
				if what = fmt.Sprintf("fail %d", w.peer); r.IntN(2) == 0 {
					fx = b.Fail(0, w.peer, &Failure{Reason: "broken", Delay: -1})
				} else {
					fx = b.Release(0, w.peer, &Releasing{})
				}
				w.job.on = nil
				x.idle(w)
			case v < 78:
				pattern, most := patterns[r.IntN(len(patterns))], r.IntN(3)
				if _, there := x.rules[pattern]; there && r.IntN(2) == 0 {
					what = "unrule " + pattern
					fx, _ = b.DropRule(0, []byte(pattern))
					delete(x.rules, pattern)
				} else {
					what = fmt.Sprintf("rule %s %d", pattern, most)
					fx, _, _ = b.SetRule(0, []byte(pattern), Rule{Concurrency: int64(most)})
					x.rules[pattern] = most
				}
			case v < 85 && len(x.jobs) > 0:
				j := x.jobs[r.IntN(len(x.jobs))]
				if j.on != nil {
					continue
				}
				if r.IntN(3) == 0 {
					what = "revoke " + j.id
					fx, _ = b.Revoke(0, []byte(j.id), false)
					x.drop(j)
					break
				}
				q := Changing{ID: []byte(j.id), Delay: -1}
				if r.IntN(2) == 0 {
					j.groups = groups()
					q.SetGroups, q.Groups = true, names(j.groups)
				}
				if r.IntN(2) == 0 {
					j.prio = r.IntN(2)
					q.SetPriority, q.Priority = true, int64(j.prio)
				}
				what = fmt.Sprintf("change %+v", *j)
				fx, _, _ = b.Amend(0, &q)
			case v < 92 || w == nil:
				if len(x.workers) < 4 {
					w = &groupWorker{peer: b.AddWorker()}
					x.workers = append(x.workers, w)
				}
				like := []string{"t", "u", "*", "t*"}[r.IntN(4)]
				what = fmt.Sprintf("join %d %s", w.peer, like)
				w.like = wire.NewPattern([]byte(like))
				if q := (Joining{Type: []byte(like)}); w.like.Plain() {
					fx = b.Join(0, w.peer, &q)
				} else {
					fx = b.Join(0, w.peer, &Joining{Types: [][]byte{[]byte(like)}})
				}
				if w.job == nil {
					x.idle(w)
				}
			default:
				what = fmt.Sprintf("gone %d", w.peer)
				fx = b.Gone(0, w.peer)
				x.workers = slices.DeleteFunc(x.workers, func(o *groupWorker) bool { return o == w })
				if w.job != nil {
					w.job.on = nil
				}
			}
			var got []string
			for _, e := range fx {
				if e.Op == OpJob {
					got = append(got, fmt.Sprintf("%d gets %s", e.Peer, e.ID))
				}
			}
			want := x.handOut()
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d, %s: got %q, want %q; rules %v, fair %v, turns %v", seed, step, what, got, want, x.rules, x.fair, x.turns)
			}
		}
		for _, p := range subs {
			b.Gone(0, p)
		}
		for _, w := range x.workers {
			b.Gone(0, w.peer)
		}
		for _, j := range x.jobs {
			b.Revoke(0, []byte(j.id), false)
		}
		for b.Next() <= 0 {
			b.Tick(0)
		}
		for b.unused.n > 0 {
			b.dropFlow(b.unused.first())
		}
		if n := b.GroupCount(); n != 0 || b.unusedBytes != 0 || b.rotation.n() != 0 || b.groups.n() != 0 || b.sets.n() != 0 || b.gates.n() != 0 || b.shares.n() != 0 {
			t.Fatalf("seed %d: %d groups are there, %d, %d sets, %d gates and %d shares are left", seed, n, b.groups.n(), b.sets.n(), b.gates.n(), b.shares.n())
		}
	}
}

// TestHeldBackIsNotLookedAt: jobs that one group holds back cost nobody else
// anything once they have been found.
func TestHeldBackIsNotLookedAt(t *testing.T) {
	n := many(30_000, 300)
	b := New(Config{})
	s, w := b.AddSubmitter(), b.AddWorker()
	b.SetRule(0, []byte("license"), Rule{Concurrency: 1})
	b.Join(0, w, &Joining{Type: []byte("t"), Prefetch: 10})
	for i := range n {
		// Each has a group of its own, too: none stands in another one's queue.
		b.Submit(0, s, &Submission{ID: fmt.Appendf(nil, "j%d", i), Type: []byte("t"), Body: []byte("1"), Quiet: true,
			Groups: [][]byte{fmt.Appendf(nil, "user-%d", i), []byte("license")}})
	}
	looks := 0
	for i := range n - 1 {
		fx := b.Respond(0, w, fmt.Appendf(nil, "j%d", i), []byte("1"), false)
		if last := fx[len(fx)-1]; last.Op != OpJob || string(last.ID) != fmt.Sprintf("j%d", i+1) {
			t.Fatalf("after job %d: %+v", i, last)
		}
		looks = max(looks, b.looks)
	}
	if looks > 4 {
		t.Errorf("one answer had %d things looked at", looks)
	}
	// With the rule set when all wait they are found held back in slices.
	b = New(Config{})
	s, w = b.AddSubmitter(), b.AddWorker()
	for i := range n {
		b.Submit(0, s, &Submission{ID: fmt.Appendf(nil, "j%d", i), Type: []byte("t"), Body: []byte("1"), Quiet: true,
			Groups: [][]byte{fmt.Appendf(nil, "user-%d", i), []byte("license")}})
	}
	b.SetRule(0, []byte("lic*"), Rule{Concurrency: 0})
	b.Join(0, w, &Joining{Type: []byte("t")})
	b.Submit(0, s, &Submission{ID: []byte("free"), Type: []byte("t"), Body: []byte("1"), Quiet: true})
	handed, ticks := false, 0
	for ; b.Next() <= 0; ticks++ {
		for _, e := range b.Tick(0) {
			handed = handed || e.Op == OpJob && string(e.ID) == "free"
		}
		if b.looks > lookFlows || ticks > n {
			t.Fatalf("%d looks in one tick, %d ticks", b.looks, ticks)
		}
	}
	if explained, _ := b.Explain(0, []byte("free")); explained.State != "running" {
		t.Errorf("the job that may run: %+v (handed out in a tick: %v, %d ticks)", explained, handed, ticks)
	}
}

// TestUnusedFlows: what is kept of groups without jobs stays within its bound, and
// keeps neither a job out nor a type in use.
func TestUnusedFlows(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		groups int
		most   int64 // bytes
	}{
		{"many", Config{IdleTypes: 10}, many(50_000, 300), unusedBytes},
		{"little room", Config{IdleTypes: 10, MaxBytes: 64 << 10}, 1000, 1 << 10},
		{"types", Config{IdleTypes: 10, MaxTypes: 2}, 1000, unusedBytes},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := heapNow()
			b := New(c.cfg)
			s, w := b.AddSubmitter(), b.AddWorker()
			typ := []byte("t")
			for i := range c.groups {
				if c.cfg.MaxTypes > 0 {
					typ = fmt.Appendf(nil, "t%d", i/10)
				}
				if _, err := b.SetFair(0, typ, i%3 > 0); err != nil {
					t.Fatalf("type %s: %v", typ, err)
				}
				b.Join(0, w, &Joining{Type: typ})
				fx := b.Submit(0, s, &Submission{ID: []byte("j"), Type: typ, Body: []byte("1"), Groups: [][]byte{fmt.Appendf(nil, "g%d", i)}, Detach: i%2 > 0})
				if fx[0].Op != OpOK {
					t.Fatalf("job %d: %+v", i, fx[0])
				}
				b.Respond(0, w, nil, []byte("1"), false)
				b.SetFair(0, typ, false)
			}
			if l := b.Totals(); l.Answered != uint64(c.groups) || b.GroupCount() != 0 {
				t.Errorf("%d groups are there, %+v", b.GroupCount(), l)
			}
			if _, counted := b.load(); counted > c.most {
				t.Errorf("%d bytes are counted without a job, at most %d", counted, c.most)
			}
			if kept := heapNow() - before; !Checking && !racing && kept > 2*c.most+2<<20 {
				t.Errorf("%d bytes are kept", kept)
			}
			runtime.KeepAlive(b)
		})
	}
}

// TestGroupsComeAndGo: very many groups leave nothing behind.
func TestGroupsComeAndGo(t *testing.T) {
	n := many(50_000, 300)
	before := heapNow()
	b := New(Config{MaxGroups: n})
	b.SetRule(0, []byte("g*"), Rule{Concurrency: 1, Rate: 1e9})
	b.SetFair(0, []byte("t"), true)
	s := b.AddSubmitter()
	for round := range 3 {
		for i := range n {
			fx := b.Submit(int64(round), s, &Submission{ID: fmt.Appendf(nil, "j%d", i), Type: []byte("t"), Body: []byte("1"), Groups: [][]byte{fmt.Appendf(nil, "g%d-%d", round, i)}})
			if fx[0].Op != OpOK {
				t.Fatalf("job %d: %+v", i, fx[0])
			}
		}
		if fx := b.Submit(int64(round), s, &Submission{ID: []byte("x"), Type: []byte("t"), Body: []byte("1"), Groups: [][]byte{[]byte("one more")}}); fx[0].Code != Overloaded || fx[0].Reason.Why != ManyGroups {
			t.Fatalf("a group too many: %+v", fx[0])
		}
		if round == 0 {
			took := heapNow() - before
			_, counted := b.load()
			t.Logf("a job with a group of its own takes %d bytes, %d are counted", took/int64(n), counted/int64(n))
			if !Checking && took > counted*3/2 {
				t.Errorf("%d bytes are held, %d are counted", took, counted)
			}
		}
		longest := time.Duration(0)
		timed := func(fn func()) {
			begin := time.Now()
			fn()
			longest = max(longest, time.Since(begin))
		}
		timed(func() { b.Gone(int64(round), s) })
		for b.Next() <= int64(round)+1000 {
			timed(func() { b.Tick(int64(round) + 1000) })
		}
		t.Logf("%d groups went, the longest step took %v", n, longest)
		s = b.AddSubmitter()
	}
	if n := b.GroupCount(); n != 0 {
		t.Errorf("%d groups are there", n)
	}
	if kept := heapNow() - before; kept > 8<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
}

// TestFairToggled: however often a type becomes fair and no longer is, its flows are
// soon done with.
func TestFairToggled(t *testing.T) {
	b := New(Config{})
	p := b.AddSubmitter()
	const flows = 2 * lookFlows
	for i := range flows {
		b.Submit(0, p, &Submission{ID: fmt.Append(nil, i), Type: []byte("t"), Body: []byte("1"), Groups: [][]byte{fmt.Append(nil, "g", i)}})
	}
	for i := range 101 {
		if _, err := b.SetFair(0, []byte("t"), i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	ticks := 0
	for ; b.Next() <= 0 && ticks <= 100; ticks++ {
		b.Tick(0)
	}
	if ticks > flows/lookFlows+1 {
		t.Errorf("%d ticks have not let all flows stand where they belong", ticks)
	}
}
