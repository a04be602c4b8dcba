package schedule

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "of the random worlds; 0: a new one each time")

// runSimulations runs a test in n random worlds, or in a fifth of them with -short. The names of
// the subtests contain the seeds.
func runSimulations(t *testing.T, n int, f func(t *testing.T, r *rand.Rand)) {
	t.Helper()
	if testing.Short() {
		n = n/5 + 1
	}
	for range n {
		seed := *seedFlag
		if seed == 0 {
			seed = rand.Uint64()
		}
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { f(t, rand.New(rand.NewPCG(seed, 1))) }) {
			return
		}
	}
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

// simulation is a daemon that has only slots and batches, in virtual time.
type simulation struct {
	*Scheduler
	t       *testing.T
	limits  Limits
	now     time.Duration
	running []batch
	runTime map[string]time.Duration // run time of ended batches, by client
}

type batch struct {
	Type
	startedAt, endsAt time.Duration
}

func newSimulation(t *testing.T, limits Limits) *simulation {
	return &simulation{Scheduler: New(limits), t: t, limits: limits, runTime: make(map[string]time.Duration)}
}

func (w *simulation) count(counts func(batch) bool) (n int) {
	for _, b := range w.running {
		if counts(b) {
			n++
		}
	}
	return n
}

// mayRun reports whether a batch of a type may run now, by counting.
func (w *simulation) mayRun(t Type) bool {
	client := w.count(func(b batch) bool { return b.Client == t.Client })
	typ := w.count(func(b batch) bool { return b.Client == t.Client && b.Jobtype == t.Jobtype })
	return (w.limits.Slots == 0 || len(w.running) < w.limits.Slots) &&
		(w.limits.ClientSlots == 0 || client < w.limits.ClientSlots) && (t.Limit == 0 || typ < t.Limit)
}

// pick makes a selection, and checks what must hold for every selection.
func (w *simulation) pick(types []Type) int {
	w.t.Helper()
	at := w.SelectJobtypeToRun(after(w.now), types)
	if at < 0 {
		if i := slices.IndexFunc(types, w.mayRun); i >= 0 {
			w.t.Fatalf("nothing was selected though %+v may run; running: %+v", types[i], w.running)
		}
		return at
	}
	if !w.mayRun(types[at]) {
		w.t.Fatalf("%+v was selected and may not run; running: %+v", types[at], w.running)
	}
	for _, other := range types {
		if other.Client == types[at].Client && w.mayRun(other) && other.Age > types[at].Age && (!types[at].Warm || other.Age > types[at].Age+tieAge) {
			w.t.Fatalf("%+v was selected though %+v has waited longer", types[at], other)
		}
	}
	return at
}

func (w *simulation) start(t Type, length time.Duration) {
	w.JobsStarted(after(w.now), t.Client, t.Jobtype)
	w.running = append(w.running, batch{Type: t, startedAt: w.now, endsAt: w.now + length})
}

// stop ends the batch that ends first.
func (w *simulation) stop() {
	first := 0
	for i, b := range w.running {
		if b.endsAt < w.running[first].endsAt {
			first = i
		}
	}
	b := w.running[first]
	w.running = slices.Delete(w.running, first, first+1)
	w.now = b.endsAt
	w.runTime[b.Client] += b.endsAt - b.startedAt
	w.JobsStopped(after(w.now), b.Client, b.Jobtype)
}

// TestLimitsHoldInSimulations: clients appear and leave, with types that have all kinds of limits.
// The limits hold, no usable slot stays free, and at the end no state is left.
func TestLimitsHoldInSimulations(t *testing.T) {
	runSimulations(t, 30, func(t *testing.T, r *rand.Rand) {
		w := newSimulation(t, Limits{Slots: r.IntN(6), ClientSlots: r.IntN(4)})
		if w.limits.Slots+w.limits.ClientSlots == 0 {
			w.limits.Slots, w.Scheduler = 3, New(Limits{Slots: 3})
		}
		for range 500 {
			var types []Type
			for c := range r.IntN(6) {
				for typ := range r.IntN(4) {
					types = append(types, Type{
						Client: fmt.Sprint("c", c), Jobtype: fmt.Sprint("t", typ), Limit: typ, Warm: r.IntN(2) == 0,
						Age: time.Duration(r.IntN(1000)) * time.Millisecond,
					})
				}
			}
			for n := 0; n < 50; n++ {
				at := w.pick(types)
				if at < 0 || r.IntN(10) == 0 {
					break
				}
				w.start(types[at], time.Duration(r.IntN(1000))*time.Millisecond)
			}
			for len(w.running) > 0 && r.IntN(3) > 0 {
				w.stop()
			}
			w.now += time.Duration(r.IntN(500)) * time.Millisecond
			for i := range w.running {
				w.running[i].endsAt = max(w.running[i].endsAt, w.now)
			}
		}
		for len(w.running) > 0 {
			w.stop()
		}
		if at := w.pick(nil); at != -1 || len(w.clients) != 0 || len(w.turns) != 0 || w.Scheduler.running != 0 {
			t.Fatalf("selected %d, %d clients are still known", at, len(w.clients))
		}
	})
}

// TestClientsGetSameRunTime: clients that all have a backlog, with batches of different lengths,
// get the same run time, up to the length of a batch.
func TestClientsGetSameRunTime(t *testing.T) {
	runSimulations(t, 30, func(t *testing.T, r *rand.Rand) {
		slots := 1 + r.IntN(6)
		w := newSimulation(t, Limits{Slots: slots})
		var types []Type
		var longest time.Duration
		length := make(map[string]time.Duration)
		for c := range 2 + r.IntN(5) {
			name := fmt.Sprint("c", c)
			length[name] = time.Duration(1+r.IntN(1<<r.IntN(8))) * time.Millisecond
			longest = max(longest, length[name])
			for typ := range 1 + r.IntN(3) {
				types = append(types, Type{Client: name, Jobtype: fmt.Sprint("t", typ), Age: time.Second})
			}
		}
		for w.now < 200*longest {
			for at := w.pick(types); at >= 0; at = w.pick(types) {
				w.start(types[at], length[types[at].Client])
			}
			w.stop()
		}
		minTime, maxTime := time.Duration(1<<62), time.Duration(0)
		for name := range length {
			minTime, maxTime = min(minTime, w.runTime[name]), max(maxTime, w.runTime[name])
		}
		if maxTime-minTime > 2*time.Duration(slots)*longest+4*quantum {
			t.Fatalf("%d slots, batches of %v: run times are %v", slots, length, w.runTime)
		}
	})
}

// TestNewClient: when a client appears while others have backlogs, its first job gets the next free
// slot. If two clients appear, the earlier one is first.
func TestNewClient(t *testing.T) {
	runSimulations(t, 30, func(t *testing.T, r *rand.Rand) {
		w := newSimulation(t, Limits{Slots: 1 + r.IntN(4)})
		var old []Type
		for c := range 1 + r.IntN(4) {
			old = append(old, Type{Client: fmt.Sprint("old", c), Jobtype: "t", Age: time.Hour})
		}
		work := func(types []Type) (choice Type) {
			at := w.pick(types)
			w.start(types[at], time.Duration(1+r.IntN(3000))*time.Millisecond)
			return types[at]
		}
		for len(w.running) < w.limits.Slots {
			work(old)
		}
		for n := range 50 {
			for range r.IntN(20) {
				w.stop()
				work(old)
			}
			first := Type{Client: fmt.Sprint("first", n), Jobtype: "t"}
			second := Type{Client: fmt.Sprint("second", n), Jobtype: "t"}
			if at := w.pick(append(slices.Clone(old), first)); at != -1 {
				t.Fatalf("%d was selected without a free slot", at)
			}
			w.stop()
			if got := work(append([]Type{second}, append(slices.Clone(old), first)...)); got != first {
				t.Fatalf("%+v was selected before %+v", got, first)
			}
			w.stop()
			if got := work(append([]Type{second}, old...)); got != second {
				t.Fatalf("%+v was selected before %+v", got, second)
			}
		}
	})
}

// TestLongBatches: a client that fills all slots for a long time
// is not served again before others.
func TestLongBatches(t *testing.T) {
	w := newSimulation(t, Limits{Slots: 2})
	long, short := Type{Client: "long", Jobtype: "t"}, Type{Client: "short", Jobtype: "t"}
	for _, length := range []time.Duration{time.Second, time.Hour} {
		w.pick([]Type{long})
		w.start(long, length)
	}
	for served := range 3000 { // each batch takes one second, on one slot
		w.stop()
		if at := w.pick([]Type{long, short}); at != 1 {
			t.Fatalf("the client with a batch of an hour was served again after the other one had %d seconds", served)
		}
		w.start(short, time.Second)
	}
}

// TestQuietDebts: run time that a client had while no other client waited does
// not count against it.
func TestQuietDebts(t *testing.T) {
	w := newSimulation(t, Limits{Slots: 1})
	a, b := Type{Client: "a", Jobtype: "t"}, Type{Client: "b", Jobtype: "t"}
	for range 100 {
		w.pick([]Type{a})
		w.start(a, time.Minute)
		w.stop()
	}
	w.pick([]Type{b}) // client a has no jobs
	for range 3 {     // a is back
		w.start([]Type{a, b}[w.pick([]Type{a, b})], time.Second)
		w.stop()
	}
	if w.runTime["a"] != 100*time.Minute+time.Second && w.runTime["a"] != 100*time.Minute+2*time.Second {
		t.Fatalf("run times %v", w.runTime)
	}
}

func TestWarmTypeWinsTie(t *testing.T) {
	for _, c := range []struct {
		name    string
		warmAge time.Duration // age of the type with a warm handler process; the other type's is 1 s
		want    []int         // the indexes that are selected one after the other; 0 is the cold type
	}{
		{"of one age", time.Second, []int{1, 1, 1, 1, 0, 1, 1, 1, 1, 0}},
		{"nearly", time.Second - tieAge, []int{1, 1, 1, 1, 0, 1}},
		{"younger", time.Second - tieAge - 1, []int{0, 0}},
		{"older", time.Second + 1, []int{1, 1, 1, 1, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newSimulation(t, Limits{})
			types := []Type{{Client: "a", Jobtype: "cold", Age: time.Second}, {Client: "a", Jobtype: "warm", Age: c.warmAge, Warm: true}}
			var got []int
			for range c.want {
				at := w.pick(types)
				got = append(got, at)
				w.start(types[at], time.Second)
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("selected %v, want %v", got, c.want)
			}
		})
	}
}

// TestClockSetBack: no client is charged when the time goes back.
func TestClockSetBack(t *testing.T) {
	w := newSimulation(t, Limits{Slots: 2})
	a := Type{Client: "a", Jobtype: "t"}
	w.now = time.Hour
	w.pick([]Type{a})
	w.start(a, time.Second)
	w.now = 0
	if at := w.pick([]Type{a}); at != 0 || w.clients["a"].credit > quantum {
		t.Fatalf("selected %d", at)
	}
}

func BenchmarkSelect(b *testing.B) {
	s := New(Limits{Slots: 8})
	var types []Type
	for c := range 100 {
		for typ := range 10 {
			types = append(types, Type{Client: fmt.Sprint("c", c), Jobtype: fmt.Sprint("c", c, "-t", typ), Age: time.Second})
		}
	}
	now := start
	for b.Loop() {
		now = now.Add(time.Millisecond)
		t := types[s.SelectJobtypeToRun(now, types)]
		s.JobsStarted(now, t.Client, t.Jobtype)
		s.JobsStopped(now.Add(time.Millisecond), t.Client, t.Jobtype)
	}
}
