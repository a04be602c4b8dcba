package broker_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"gloom/broker"
)

// loadModel is a core with one type and 1,000 groups. Jobs come at random times, and each takes one
// of 100 workers for 5 to 15 ms of virtual time. The load is a share of what the workers can
// do.
type loadModel struct {
	load        float64
	othersFirst bool // the other groups have a larger priority than the group that floods
	core        *broker.Broker
	submitter   broker.Peer
	rng         *rand.Rand
	now         int64
	busy        runs // ordered by when their workers answer
	submittedAt map[string]int64
	waitingIDs  map[string]bool
	nextID      int
	service     int64
	// The times from submit to hand-out, and to answer, for all groups except the one that
	// floods.
	waits, answers []time.Duration
}

// runs are the jobs that are out, ordered by when their workers answer.
type runs []struct {
	at     int64
	worker broker.Peer
}

func (r runs) Len() int           { return len(r) }
func (r runs) Less(i, j int) bool { return r[i].at < r[j].at }
func (r runs) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(x any) {
	*r = append(*r, x.(struct {
		at     int64
		worker broker.Peer
	}))
}
func (r *runs) Pop() any {
	x := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return x
}

const modelGroups, modelWorkers = 1000, 100

func newLoadModel(load float64, fair bool) *loadModel {
	t := &loadModel{
		load: load,
		core: broker.New(broker.Config{MaxUnusedTypes: 10}), rng: rand.New(rand.NewPCG(1, 2)),
		submittedAt: map[string]int64{}, waitingIDs: map[string]bool{}, service: int64(10 * time.Millisecond),
	}
	t.submitter = t.core.AddSubmitter()
	t.core.SetFair(0, []byte("t"), fair)
	for range modelWorkers {
		t.noteEffects(t.core.Join(0, t.core.AddWorker(), &broker.JoinRequest{Type: []byte("t")}))
	}
	return t
}

func (m *loadModel) submit(group int) {
	m.nextID++
	id := fmt.Sprintf("%d", m.nextID)
	priority := int64(0)
	if group != 0 {
		m.submittedAt[id], m.waitingIDs[id] = m.now, true
		if m.othersFirst {
			priority = 1
		}
	}
	m.noteEffects(m.core.Submit(m.now, m.submitter, &broker.Submission{
		ID: []byte(id), Type: []byte("t"), Body: []byte("1"), Groups: [][]byte{fmt.Appendf(nil, "g%d", group)}, NoAck: true,
		Priority: priority,
	}))
}

func (m *loadModel) noteEffects(fx []broker.Effect) {
	for i := range fx {
		at, other := m.submittedAt[string(fx[i].ID)]
		if fx[i].Op != broker.OpJob {
			if other {
				m.answers = append(m.answers, time.Duration(m.now-at))
				delete(m.submittedAt, string(fx[i].ID))
			}
			continue
		}
		if other {
			m.waits = append(m.waits, time.Duration(m.now-at))
			delete(m.waitingIDs, string(fx[i].ID))
		}
		heap.Push(&m.busy, struct {
			at     int64
			worker broker.Peer
		}{m.now + m.service/2 + m.rng.Int64N(m.service), fx[i].Peer})
	}
}

// run submits n more jobs, one after the other, and lets workers answer meanwhile.
func (m *loadModel) run(n int) {
	pause := float64(m.service) / modelWorkers / m.load
	arrive := m.now
	for range n {
		arrive += int64(m.rng.ExpFloat64() * pause)
		for m.busy.Len() > 0 && m.busy[0].at <= arrive {
			r := heap.Pop(&m.busy).(struct {
				at     int64
				worker broker.Peer
			})
			m.now = r.at
			m.noteEffects(m.core.Respond(m.now, r.worker, nil, []byte("1"), false))
		}
		m.now = arrive
		m.submit(1 + m.rng.IntN(modelGroups-1))
	}
}

// In BenchmarkFlood one of 1,000 groups queues a million jobs. The benchmark shows the effect on
// the other groups: their p99 wait, in virtual time, and the processor time per job. Without turns
// no other group gets a worker before the million jobs are done, 100 s later. In that case the
// figure is the wait so far of the jobs that still wait at the end. No scheme that stops no runs
// can do better than a larger priority for all other groups: a flood leaves no worker idle, so even
// then a job must wait for one.
func BenchmarkFlood(b *testing.B) {
	for _, load := range []float64{0.5, 0.8, 0.9, 0.95, 0.98} {
		for _, c := range []struct {
			name               string
			fair, flood, first bool
		}{
			{"calm", false, false, false}, {"calm,fair", true, false, false}, {"flooded,others first", false, true, true},
			{"flooded,fair", true, true, false}, {"flooded", false, true, false},
		} {
			b.Run(fmt.Sprintf("load=%.0f%%/%s", 100*load, c.name), func(b *testing.B) {
				t := newLoadModel(load, c.fair)
				t.othersFirst = c.first
				t.run(20_000)
				if c.flood {
					for range 1_000_000 {
						t.submit(0)
					}
				}
				t.run(20_000)
				t.waits, t.answers = t.waits[:0], t.answers[:0]
				b.ResetTimer()
				t.run(b.N)
				b.StopTimer()
				for id, at := range t.submittedAt {
					t.answers = append(t.answers, time.Duration(t.now-at))
					if t.waitingIDs[id] {
						t.waits = append(t.waits, time.Duration(t.now-at))
					}
				}
				slices.Sort(t.waits)
				slices.Sort(t.answers)
				b.ReportMetric(float64(t.waits[len(t.waits)*99/100])/1e6, "p99-wait-ms")
				b.ReportMetric(float64(t.answers[len(t.answers)*99/100])/1e6, "p99-answer-ms")
			})
		}
	}
}

// BenchmarkTurns measures a cycle of submit, dispatch and answer with idle workers, for jobs in
// 1,000 groups or in none. It shows the cost of groups, rules and turns if no job waits.
func BenchmarkTurns(b *testing.B) {
	for _, c := range []struct {
		name               string
		groups, rule, fair bool
	}{
		{"plain", false, false, false}, {"plain,fair", false, false, true},
		{"groups", true, false, false}, {"groups,fair", true, false, true},
		{"rules", true, true, false}, {"rules,fair", true, true, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			core := broker.New(broker.Config{MaxUnusedTypes: 10})
			submitter, worker := core.AddSubmitter(), core.AddWorker()
			typ, body, id := []byte("t"), make([]byte, 100), make([]byte, 8)
			core.SetFair(0, typ, c.fair)
			if c.rule {
				if _, _, err := core.SetRule(0, []byte("g*"), broker.Rule{Concurrency: 10}); err != nil {
					b.Fatal(err)
				}
			}
			core.Join(0, worker, &broker.JoinRequest{Type: typ})
			groups := make([][][]byte, modelGroups)
			for i := range groups {
				if c.groups {
					groups[i] = [][]byte{fmt.Appendf(nil, "g%d", i)}
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				now := int64(n) * 1000
				id = fmt.Appendf(id[:0], "%d", n)
				core.Submit(now, submitter, &broker.Submission{ID: id, Type: typ, Body: body, Groups: groups[n%modelGroups], NoAck: true})
				core.Respond(now, worker, nil, body, false)
			}
			b.StopTimer()
			if core.Totals().Answered != uint64(b.N) {
				b.Fatalf("%+v", core.Totals())
			}
		})
	}
}

// BenchmarkSeveral measures a cycle of submit, dispatch and answer for one worker of many types.
// The worker names the types, or they match its pattern.
func BenchmarkSeveral(b *testing.B) {
	for _, c := range []struct {
		name    string
		types   int
		pattern bool
	}{{"types=1", 1, false}, {"types=1000/named", 1000, false}, {"types=10000/named", 10_000, false}, {"types=10000/pattern", 10_000, true}} {
		b.Run(c.name, func(b *testing.B) {
			core := broker.New(broker.Config{MaxUnusedTypes: 20_000})
			submitter, worker := core.AddSubmitter(), core.AddWorker()
			types := make([][]byte, c.types)
			for i := range types {
				types[i] = fmt.Appendf(nil, "type-%d", i)
				core.Pause(0, types[i], false) // it exists
			}
			q := &broker.JoinRequest{Type: types[0], Prefetch: 1}
			if c.pattern {
				q.Type, q.Types = nil, [][]byte{[]byte("type-*")}
			} else if c.types > 1 {
				q.Type, q.Types = nil, types
			}
			core.Join(0, worker, q)
			for core.NextTick() <= 0 {
				core.Tick(0) // carries out the pairing
			}
			id, body, now := make([]byte, 8), make([]byte, 100), int64(0)
			// A thousand jobs wait, spread evenly over the types.
			n := 0
			submit := func() []byte {
				n++
				now += 1000
				id = fmt.Appendf(id[:0], "%d", n)
				for _, e := range core.Submit(now, submitter, &broker.Submission{ID: id, Type: types[n*7919%c.types], Body: body, NoAck: true}) {
					if e.Op == broker.OpJob {
						return slices.Clone(e.ID)
					}
				}
				return nil
			}
			out := submit()
			for range 1000 {
				submit()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				submit()
				for _, e := range core.Respond(now, worker, out, body, false) {
					if e.Op == broker.OpJob {
						out = append(out[:0], e.ID...)
					}
				}
			}
			b.StopTimer()
			if core.Totals().Answered != uint64(b.N) {
				b.Fatalf("%+v", core.Totals())
			}
		})
	}
}

// BenchmarkOutcomes reports how much memory a kept outcome of 100 bytes takes.
func BenchmarkOutcomes(b *testing.B) {
	const n = 100_000
	for range b.N {
		core := broker.New(broker.Config{MaxUnusedTypes: 10})
		submitter, worker := core.AddSubmitter(), core.AddWorker()
		typ, body := []byte("t"), make([]byte, 100)
		core.Join(0, worker, &broker.JoinRequest{Type: typ})
		for i := range n {
			core.Submit(0, submitter, &broker.Submission{ID: fmt.Appendf(nil, "job-%09d", i), Type: typ, Body: body, Keep: time.Hour, NoAck: true})
			core.Respond(0, worker, nil, body, false)
		}
		core.RemovePeer(0, submitter)
		if kept, _ := core.Outcomes(); kept != n {
			b.Fatalf("%d outcomes are kept", kept)
		}
		b.ReportMetric(float64(core.Memory().Total())/n, "B/outcome")
	}
}

// BenchmarkForgotten measures a cycle of submit, dispatch and answer whose job is in a new
// group each time. It reports the heap before and after, and fails if a group is left.
func BenchmarkForgotten(b *testing.B) {
	core := broker.New(broker.Config{MaxUnusedTypes: 10})
	submitter, worker := core.AddSubmitter(), core.AddWorker()
	typ, body := []byte("t"), []byte("1")
	core.Join(0, worker, &broker.JoinRequest{Type: typ})
	if _, _, err := core.SetRule(0, []byte("group-*"), broker.Rule{Concurrency: 10}); err != nil {
		b.Fatal(err)
	}
	heldMB := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	cycle := func(n int) {
		id := fmt.Appendf(nil, "%d", n)
		core.Submit(0, submitter, &broker.Submission{ID: id, Type: typ, Body: body, Groups: [][]byte{fmt.Appendf(nil, "group-%d", n)}, NoAck: true})
		core.Respond(0, worker, nil, body, false)
	}
	for n := range 100_000 {
		cycle(-n)
	}
	before := heldMB()
	b.ResetTimer()
	for n := range b.N {
		cycle(n + 1)
	}
	b.StopTimer()
	b.ReportMetric(before, "MB-after-100000")
	b.ReportMetric(heldMB(), "MB-at-the-end")
	if core.GroupCount() != 0 {
		b.Fatalf("%d groups are left", core.GroupCount())
	}
}
