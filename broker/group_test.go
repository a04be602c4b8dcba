package broker

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// TestHeldBackJobsCostOthersNothing: once the scheduler has set aside the jobs that a group holds back, they cost
// other jobs nothing.
func TestHeldBackJobsCostOthersNothing(t *testing.T) {
	n := scaleDown(30_000, 300)
	b := New(Config{})
	s, w := b.AddSubmitter(), b.AddWorker()
	b.SetRule(0, []byte("license"), Rule{Concurrency: 1})
	b.Join(0, w, &JoinRequest{Type: []byte("t"), Prefetch: 10})
	for i := range n {
		// Each job has a group of its own, too, so that no two jobs share a queue.
		b.Submit(0, s, &Submission{ID: fmt.Appendf(nil, "j%d", i), Type: []byte("t"), Body: []byte("1"), NoAck: true,
			Groups: [][]byte{fmt.Appendf(nil, "user-%d", i), []byte("license")}})
	}
	examinedQueues := 0
	for i := range n - 1 {
		effects := b.Respond(0, w, fmt.Appendf(nil, "j%d", i), []byte("1"), false)
		if lastEffect := effects[len(effects)-1]; lastEffect.Op != OpJob || string(lastEffect.ID) != fmt.Sprintf("j%d", i+1) {
			t.Fatalf("after job %d: %+v", i, lastEffect)
		}
		examinedQueues = max(examinedQueues, b.examinedCount)
	}
	if examinedQueues > 4 {
		t.Errorf("one answer examined %d entries", examinedQueues)
	}
	// A rule is set while all jobs wait: the core finds out in slices which jobs the rule holds back.
	b = New(Config{})
	s, w = b.AddSubmitter(), b.AddWorker()
	for i := range n {
		b.Submit(0, s, &Submission{ID: fmt.Appendf(nil, "j%d", i), Type: []byte("t"), Body: []byte("1"), NoAck: true,
			Groups: [][]byte{fmt.Appendf(nil, "user-%d", i), []byte("license")}})
	}
	b.SetRule(0, []byte("lic*"), Rule{Concurrency: 0})
	b.Join(0, w, &JoinRequest{Type: []byte("t")})
	b.Submit(0, s, &Submission{ID: []byte("free"), Type: []byte("t"), Body: []byte("1"), NoAck: true})
	handed, ticks := false, 0
	for ; b.NextTick() <= 0; ticks++ {
		for _, e := range b.Tick(0) {
			handed = handed || e.Op == OpJob && string(e.ID) == "free"
		}
		if b.examinedCount > maxExamined || ticks > n {
			t.Fatalf("%d entries examined in one tick, %d ticks", b.examinedCount, ticks)
		}
	}
	if info, _ := b.Explain(0, []byte("free")); info.State != "running" {
		t.Errorf("the job that may run: %+v (handed out in a tick: %v, %d ticks)", info, handed, ticks)
	}
}

// TestUnusedHoldingMemoryIsBounded: the memory kept for groups without jobs stays within its bound, causes no
// refusal, and keeps no type in use.
func TestUnusedHoldingMemoryIsBounded(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		groups int
		limit  int64 // bytes
	}{
		{"many", Config{MaxUnusedTypes: 10}, scaleDown(20_000, 300), maxUnusedBytes},
		{"little room", Config{MaxUnusedTypes: 10, MaxBytes: 64 << 10}, 1000, 1 << 10},
		{"types", Config{MaxUnusedTypes: 10, MaxTypes: 2}, 1000, maxUnusedBytes},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := heapInUse()
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
				b.Join(0, w, &JoinRequest{Type: typ})
				effects := b.Submit(0, s, &Submission{ID: []byte("j"), Type: typ, Body: []byte("1"), Groups: [][]byte{fmt.Appendf(nil, "g%d", i)}, Detach: i%2 > 0})
				if effects[0].Op != OpOK {
					t.Fatalf("job %d: %+v", i, effects[0])
				}
				b.Respond(0, w, nil, []byte("1"), false)
				b.SetFair(0, typ, false)
			}
			if l := b.Totals(); l.Answered != uint64(c.groups) || b.GroupCount() != 0 {
				t.Errorf("%d groups are there, %+v", b.GroupCount(), l)
			}
			if _, counted := b.Usage(); counted > c.limit {
				t.Errorf("%d bytes are counted without a job, at most %d", counted, c.limit)
			}
			if kept := heapInUse() - before; !InvariantsEnabled && !raceDetectorOn && kept > 2*c.limit+2<<20 {
				t.Errorf("%d bytes are kept", kept)
			}
			runtime.KeepAlive(b)
		})
	}
}

// TestGoneGroupsLeaveNoMemory: very many groups leave no memory behind.
func TestGoneGroupsLeaveNoMemory(t *testing.T) {
	n := scaleDown(50_000, 300)
	before := heapInUse()
	b := New(Config{MaxGroups: n})
	b.SetRule(0, []byte("g*"), Rule{Concurrency: 1, Rate: 1e9})
	b.SetFair(0, []byte("t"), true)
	s := b.AddSubmitter()
	for round := range 3 {
		for i := range n {
			effects := b.Submit(int64(round), s, &Submission{ID: fmt.Appendf(nil, "j%d", i), Type: []byte("t"), Body: []byte("1"), Groups: [][]byte{fmt.Appendf(nil, "g%d-%d", round, i)}})
			if effects[0].Op != OpOK {
				t.Fatalf("job %d: %+v", i, effects[0])
			}
		}
		if effects := b.Submit(int64(round), s, &Submission{ID: []byte("x"), Type: []byte("t"), Body: []byte("1"), Groups: [][]byte{[]byte("one more")}}); effects[0].Code != Overloaded || effects[0].Reason.Why != WhyTooManyGroups {
			t.Fatalf("a group too many: %+v", effects[0])
		}
		if round == 0 {
			heapGrowth := heapInUse() - before
			_, counted := b.Usage()
			t.Logf("a job with a group of its own takes %d bytes, %d are counted", heapGrowth/int64(n), counted/int64(n))
			if !InvariantsEnabled && heapGrowth > counted*3/2 {
				t.Errorf("%d bytes are held, %d are counted", heapGrowth, counted)
			}
		}
		longest := time.Duration(0)
		timed := func(fn func()) {
			begin := time.Now()
			fn()
			longest = max(longest, time.Since(begin))
		}
		timed(func() { b.RemovePeer(int64(round), s) })
		for b.NextTick() <= int64(round)+1000 {
			timed(func() { b.Tick(int64(round) + 1000) })
		}
		t.Logf("%d groups went, the longest step took %v", n, longest)
		s = b.AddSubmitter()
	}
	if n := b.GroupCount(); n != 0 {
		t.Errorf("%d groups are there", n)
	}
	for b.unusedHoldings.Len() > 0 {
		b.dropHolding(b.unusedHoldings.First())
	}
	if n := []int{b.groups.Len(), b.groupSets.Len(), b.queues.Len(), b.holdings.Len(), b.tenants.Len(), b.heldQueues.Len(), int(b.unusedBytes), b.timers.Len()}; slices.Max(n) > 0 {
		t.Errorf("groups, sets, queues, holdings, tenants, held queues, bytes and timers are left: %v", n)
	}
	if kept := heapInUse() - before; kept > 8<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
}

// TestFairTogglesConvertQueues: however often a type becomes fair and stops being fair, its queues
// are soon converted.
func TestFairTogglesConvertQueues(t *testing.T) {
	b := New(Config{})
	p := b.AddSubmitter()
	const queues = choreSteps
	for i := range queues {
		b.Submit(0, p, &Submission{ID: fmt.Append(nil, i), Type: []byte("t"), Body: []byte("1"), Groups: [][]byte{fmt.Append(nil, "g", i)}})
	}
	for i := range 101 {
		if _, err := b.SetFair(0, []byte("t"), i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	ticks := 0
	for ; b.NextTick() <= 0 && ticks <= 100; ticks++ {
		b.Tick(0)
	}
	if ticks > 4*queues/choreSteps+1 {
		t.Errorf("converting the queues took %d ticks", ticks)
	}
}
