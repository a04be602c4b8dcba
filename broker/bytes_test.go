package broker

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// heapInUse returns how many bytes Go's heap holds.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestPriorityMemoryIsReturned: jobs of many priorities in many queues let lanes and heaps grow. When
// the jobs have ended, all that memory is returned.
func TestPriorityMemoryIsReturned(t *testing.T) {
	before := heapInUse()
	b := New(Config{MaxUnusedTypes: 10})
	var subs []Peer
	for range 20 {
		subs = append(subs, b.AddSubmitter())
	}
	n := 0
	for _, p := range subs {
		for typ := range scaleDown(100, 1) {
			for prio := range scaleDown(193, 80) {
				n++
				b.Submit(0, p, &Submission{ID: fmt.Appendf(nil, "j%d", n), Type: fmt.Appendf(nil, "t%d", typ), Body: []byte("1"), Priority: int64(prio)})
			}
		}
	}
	fullMemory := b.Memory()
	for _, p := range subs {
		b.RemovePeer(0, p)
	}
	for b.NextTick() <= 0 {
		b.Tick(0)
	}
	m := b.Memory()
	if m.Heaps > fullMemory.Heaps/100+1<<10 || m.Queues > fullMemory.Queues/100+1<<10 {
		t.Errorf("queues and heaps keep %d and %d bytes of %d and %d", m.Queues, m.Heaps, fullMemory.Queues, fullMemory.Heaps)
	}
	if kept := heapInUse() - before; kept > 8<<20 {
		t.Errorf("%d bytes are kept after %d jobs have gone", kept, n)
	}
	runtime.KeepAlive(b)
}

// TestMaxBytesBoundsHeap: jobs of any kind are refused at the limit on bytes, and until then the
// heap grows by little more than the limit.
func TestMaxBytesBoundsHeap(t *testing.T) {
	if InvariantsEnabled || raceDetectorOn {
		t.Skip("memory is another's here: invariants and the race detector keep their own")
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		name string
		make func(n int, s *Submission)
	}{
		{"plain", func(int, *Submission) {}},
		{"timers", func(_ int, s *Submission) { s.Delay, s.Expires = time.Hour, 2*time.Hour }},
		{"timers, wild priorities", func(n int, s *Submission) {
			s.Priority, s.Expires = int64(r.Uint64()), time.Duration(n+1)*time.Hour
		}},
		{"a type each", func(n int, s *Submission) { s.Type = fmt.Appendf(nil, "t%d", n%10_000) }},
		{"many priorities in many types", func(n int, s *Submission) {
			s.Type, s.Priority = fmt.Appendf(nil, "t%d", n/193%100), int64(n%193)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const limit = 64 << 20
			before := heapInUse()
			b := New(Config{MaxBytes: limit})
			p := b.AddSubmitter()
			for n := 0; ; n++ {
				s := Submission{ID: fmt.Appendf(nil, "j%d", n), Type: []byte("echo"), Body: []byte("1")}
				c.make(n, &s)
				if b.Submit(0, p, &s)[0].Op == OpRefuse {
					break
				}
			}
			heapGrowth := heapInUse() - before
			t.Logf("%d jobs hold %d bytes, %.2f of the limit; %+v", b.JobCount(), heapGrowth, float64(heapGrowth)/limit, b.Memory())
			if heapGrowth > limit*5/4 {
				t.Errorf("%d bytes are held, the limit is %d", heapGrowth, limit)
			}
			runtime.KeepAlive(b)
		})
	}
}

// TestOverdueRunsCountAgainstLimits: runs that passed their timeout count against the limits
// while they exist, and end with their worker.
func TestOverdueRunsCountAgainstLimits(t *testing.T) {
	for _, c := range []Config{{MaxJobs: 100}, {MaxBytes: 1 << 20}} {
		b := New(c)
		s, w := b.AddSubmitter(), b.AddWorker()
		b.Join(0, w, &JoinRequest{Type: []byte("echo"), Prefetch: 1 << 20})
		now, n, runs := int64(0), 0, scaleDown(10_000, 300)
		for ; n < runs; n++ {
			q := Submission{ID: fmt.Appendf(make([]byte, 0, 1024), "%01000d", n), Type: []byte("echo"), Body: []byte("1"), Timeout: 1}
			if b.Submit(now, s, &q)[0].Op == OpRefuse {
				break
			}
			now++
			if n%10 == 9 {
				// The worker would get no job before it has answered the overdue run, so it is
				// replaced.
				b.Tick(now)
				b.RemovePeer(now, w)
				w = b.AddWorker()
				b.Join(now, w, &JoinRequest{Type: []byte("echo"), Prefetch: 1 << 20})
			}
		}
		if n != runs {
			t.Fatalf("%+v: refused after %d jobs, though all that went before had ended", c, n)
		}
		// Now each overdue run is on a worker of its own that never answers.
		for n = 0; n < scaleDown(10_000, 300); n++ {
			w := b.AddWorker()
			b.Join(now, w, &JoinRequest{Type: []byte("echo"), Prefetch: 10})
			q := Submission{ID: fmt.Appendf(make([]byte, 0, 1024), "%01000d", n), Type: []byte("echo"), Body: []byte("1"), Timeout: 1}
			if b.Submit(now, s, &q)[0].Op == OpRefuse {
				break
			}
			now++
			b.Tick(now)
		}
		if jobs, bytes := b.Usage(); c.MaxJobs > 0 && jobs > 100 || c.MaxBytes > 0 && bytes > 1<<20 {
			t.Errorf("%+v: %d jobs were taken, %d overdue runs of %d bytes are held", c, n, b.overdueRuns, bytes)
		}
	}
}

// TestLostSubmitterNotifiesWorkersInSlices: when a submitter with very many running jobs is lost, its counts and the
// ledger change at once, but the workers are notified in slices.
func TestLostSubmitterNotifiesWorkersInSlices(t *testing.T) {
	n := scaleDown(200_000, 1500)
	b := New(Config{})
	s, w := b.AddSubmitter(), b.AddWorker()
	b.Join(0, w, &JoinRequest{Type: []byte("echo"), Prefetch: n, WantsNotices: true})
	id := make([]byte, 16)
	for i := range n {
		b.Submit(0, s, &Submission{ID: putNumber(id, i), Type: []byte("echo"), Body: []byte("1"), NoAck: true})
	}
	notifiedRuns := map[string]bool{}
	tell := func(effects []Effect) {
		t.Helper()
		if len(effects) > tickSteps {
			t.Fatalf("one step tells %d workers, at most %d", len(effects), tickSteps)
		}
		for _, e := range effects {
			if e.Op != OpCancel || notifiedRuns[string(e.ID)] {
				t.Fatalf("told %x of %x (again: %v)", e.Op, e.ID, notifiedRuns[string(e.ID)])
			}
			notifiedRuns[string(e.ID)] = true
		}
	}
	tell(b.RemovePeer(0, s))
	// No notice is sent about a run that has ended in the meantime.
	answers := 0
	for i := range n / 2 {
		if effects := b.Respond(0, w, putNumber(id, 2*i), []byte("1"), false); len(effects) != 1 || effects[0].Op != OpOK {
			t.Fatalf("a discarded answer has effects %v", effects)
		}
		if !notifiedRuns[string(id)] {
			answers++
		}
		if i%100 == 0 && b.NextTick() <= 0 {
			tell(b.Tick(0))
		}
	}
	for ticks := 0; b.NextTick() <= 0; ticks++ {
		tell(b.Tick(0))
		if ticks > 2*n/tickSteps+2 {
			t.Fatalf("%d ticks, and %d of %d told", ticks, len(notifiedRuns), n)
		}
	}
	if len(notifiedRuns)+answers != n {
		t.Errorf("%d runs told, %d answered before, want %d in all", len(notifiedRuns), answers, n)
	}
	if b.totals.Running != uint64(n-n/2) || b.totals.Discarded != uint64(n/2) {
		t.Errorf("ledger: %+v", b.totals)
	}
}

// TestReferencedBodyCountsItsCapacity: a body kept by reference counts with its capacity, as a
// job and as a dead letter.
func TestReferencedBodyCountsItsCapacity(t *testing.T) {
	b := New(Config{MaxBytes: 10 << 20, DeadLetters: 10, DeadBytes: 4 << 20, DeadAge: time.Hour})
	s, w := b.AddSubmitter(), b.AddWorker()
	body := make([]byte, bigBody, 3<<20)
	for n, want := range []Op{OpOK, OpOK, OpOK, OpRefuse} {
		effects := b.Submit(0, s, &Submission{ID: fmt.Appendf(nil, "j%d", n), Type: []byte("echo"), Body: body, StableBody: true})
		if effects[0].Op != want {
			t.Fatalf("submit %d: effect %d, want %d", n, effects[0].Op, want)
		}
	}
	if m := b.Memory(); m.Bodies != 9<<20 {
		t.Errorf("bodies take %d bytes, want %d", m.Bodies, 9<<20)
	}
	b.Join(0, w, &JoinRequest{Type: []byte("echo")})
	for range 3 {
		b.Fail(0, w, &Failure{Reason: "broken", NoRetry: true})
	}
	if n, bytes := b.LetterCount(); n != 1 || bytes < 3<<20 {
		t.Errorf("%d letters of %d bytes are kept, want one of 3 MiB", n, bytes)
	}
}

// TestStalledWorkersAreClosed: retries cannot pile up overdue runs without a bound: the worker
// with most of them is closed, with an error.
func TestStalledWorkersAreClosed(t *testing.T) {
	limit := scaleDown(1000, 100)
	b := New(Config{MaxJobs: limit})
	s := b.AddSubmitter()
	for n := range limit {
		b.Submit(0, s, &Submission{ID: fmt.Appendf(nil, "j%d", n), Type: []byte("echo"), Body: []byte("1"), Timeout: 1, Retries: 1000, NoAck: true})
	}
	slowWorker := b.AddWorker()
	b.Join(0, slowWorker, &JoinRequest{Type: []byte("echo")})
	closed := map[Peer]bool{}
	for now := int64(1); now <= 50; now++ {
		w := b.AddWorker()
		b.Join(now, w, &JoinRequest{Type: []byte("echo"), Prefetch: 100})
		effects := b.Tick(now + 1)
		for i, e := range effects {
			if e.Op != OpClose {
				continue
			}
			if effects[i-1].Op == OpJob || closed[e.Peer] {
				t.Fatalf("closed after %+v, again: %v", effects[i-1], closed[e.Peer])
			}
			closed[e.Peer] = true
		}
		if b.overdueRuns > limit/2 {
			t.Fatalf("%d runs are overdue", b.overdueRuns)
		}
	}
	if len(closed) < 40 || closed[slowWorker] {
		t.Errorf("%d workers were closed, the slow one among them: %v", len(closed), closed[slowWorker])
	}
}

// TestNewPriorityKeepsHeadersAndBody: a job whose priority is set or changed keeps its headers and
// its body, and counts for as many bytes as before.
func TestNewPriorityKeepsHeadersAndBody(t *testing.T) {
	for _, headers := range []string{"", `{"a":"b"}`} {
		for _, size := range []int{1, 5000, bigBody} {
			b := New(Config{})
			p, body := b.AddSubmitter(), bytes.Repeat([]byte("x"), size)
			b.Submit(0, p, &Submission{ID: []byte("a"), Type: []byte("t"), Headers: []byte(headers), Body: body})
			b.Submit(0, p, &Submission{ID: []byte("b"), Type: []byte("t"), Priority: 3, Body: []byte("1")})
			_, before := b.Usage()
			big := b.BigBytes()
			for _, prio := range []int64{5, -1, 0, 1 << 40} {
				b.Change(0, p, &ChangeRequest{ID: []byte("a"), SetPriority: true, Priority: prio, Delay: -1})
				rec, j := b.findJob([]byte("a"))
				if b.priority(j) != prio || string(b.headers(j)) != headers || !bytes.Equal(b.body(rec, j), body) {
					t.Fatalf("priority %d, headers %q, %d bytes of body; want %d, %q and %d", b.priority(j), b.headers(j), len(b.body(rec, j)), prio, headers, size)
				}
				if _, n := b.Usage(); n != before || b.BigBytes() != big {
					t.Errorf("%d bytes count, %d of them long bodies; before %d and %d", n, b.BigBytes(), before, big)
				}
			}
			w := b.AddWorker()
			effects := b.Join(0, w, &JoinRequest{Type: []byte("t"), WantsHeaders: true})
			if e := effects[len(effects)-1]; string(e.ID) != "a" || string(e.Headers) != headers || !bytes.Equal(e.Body, body) {
				t.Errorf("the worker got job %q with headers %q and %d bytes of body", e.ID, e.Headers, len(e.Body))
			}
		}
	}
}
