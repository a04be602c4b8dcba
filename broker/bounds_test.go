package broker

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"gloom/broker/container"
)

// countingPages counts the memory that it provides, and overwrites it when it is returned.
type countingPages struct {
	container.HeapPages
	heldBytes int
}

func (p *countingPages) Get(n int) []byte {
	p.heldBytes += n
	return p.HeapPages.Get(n)
}

func (p *countingPages) Put(m []byte) {
	p.heldBytes -= len(m)
	for i := range m {
		m[i] = 0xA5
	}
}

// scaleDown returns n, or less with -short or where every command is slow: under the race detector,
// or if each command checks the invariants.
func scaleDown(n, quickCount int) int {
	switch {
	case InvariantsEnabled:
		return quickCount
	case raceDetectorOn || testing.Short():
		return n / 10
	}
	return n
}

func putNumber(id []byte, n int) []byte {
	binary.LittleEndian.PutUint64(id, uint64(n)*0x9e3779b97f4a7c15)
	return id
}

// TestGroupsChangeInSlices: when very many groups get a rule or lose their submitter, no command changes
// more than its share of them: each change visits several places in memory.
func TestGroupsChangeInSlices(t *testing.T) {
	const n, share = 1000, 2 * (choreSteps/recordVisits + 1) // the loss of a submitter takes two shares
	b := New(Config{})
	p := b.AddSubmitter()
	s := b.peer(p).submitter
	for i := range n {
		b.Submit(0, p, &Submission{ID: fmt.Append(nil, i), Type: []byte("t"), Body: []byte("1"), NoAck: true, Groups: [][]byte{fmt.Append(nil, "g", i)}})
	}
	b.SetRule(0, []byte("g*"), Rule{Concurrency: 1})
	for before, done := 0, 0; done < n; before = done {
		done = 0
		for _, g := range b.groups.All() {
			if g.rulesVersion == b.rulesVersion {
				done++
			}
		}
		if done-before > share || done == before {
			t.Fatalf("a command applied the rule to %d groups; its share is %d", done-before, share)
		}
		b.Tick(0)
	}
	b.RemovePeer(0, p)
	for before := n; before > 0; b.Tick(0) {
		d := before - len(s.holdings)
		if d > share || d == 0 {
			t.Fatalf("a command took %d holdings from the lost submitter; its share is %d", d, share)
		}
		before -= d
	}
}

// TestLostSubmitterIsFreedInSlices: when a submitter with very many jobs is lost, all counts change at
// once, but the memory is freed in slices: no step frees more than its share.
func TestLostSubmitterIsFreedInSlices(t *testing.T) {
	n := scaleDown(1_000_000, 3000)
	b := New(Config{Pages: &countingPages{}})
	s := b.AddSubmitter()
	id, body := make([]byte, 16), make([]byte, 100)
	for i := range n {
		sub := Submission{ID: putNumber(id, i), Type: []byte("echo"), Body: body, Priority: int64(i % 200), Retries: -1, NoAck: true}
		if i%10 == 0 {
			sub.Delay = 3600e9
		}
		b.Submit(int64(i), s, &sub)
	}
	now := int64(n)
	b.RemovePeer(now, s)
	if b.JobCount() != 0 || b.totals.Discarded != uint64(n) || b.bytes != 0 {
		t.Fatalf("after it went: %d jobs and %d bytes are held, %d discarded", b.JobCount(), b.bytes, b.totals.Discarded)
	}
	if b.unsweptJobs != n || b.jobs.Len() != n {
		t.Fatalf("the loss of a submitter has swept jobs at once: %d are unswept, %d records live", b.unsweptJobs, b.jobs.Len())
	}

	// The ids of the lost jobs are free at once, and each submit frees a few records of them.
	other := b.AddSubmitter()
	for i := range 100 {
		before := b.unsweptJobs
		effects := b.Submit(now, other, &Submission{ID: putNumber(id, i), Type: []byte("echo"), Body: body, Retries: -1})
		if len(effects) != 1 || effects[0].Op != OpOK {
			t.Fatalf("id %d is not free: %+v", i, effects)
		}
		if d := before - b.unsweptJobs; d < 1 || d > 4 {
			t.Fatalf("a submit swept %d jobs", d)
		}
	}

	// A survey sweeps, too, and holds the lock no longer than a tick does.
	before := b.unsweptJobs
	if b.Survey(now, &Survey{}); before-b.unsweptJobs > tickSteps {
		t.Fatalf("a piece of a survey swept %d jobs, at most %d", before-b.unsweptJobs, tickSteps)
	}

	ticks := 0
	for ; b.NextTick() <= now; ticks++ {
		before := b.unsweptJobs
		b.Tick(now)
		if d := before - b.unsweptJobs; d > tickSteps {
			t.Fatalf("a tick swept %d jobs, at most %d", d, tickSteps)
		}
		if ticks > n/tickSteps+2 {
			t.Fatalf("%d ticks, and still %d jobs to sweep", ticks, b.unsweptJobs)
		}
	}
	if b.jobs.Len() != 100 || b.unsweptJobs != 0 || b.JobCount() != 100 {
		t.Errorf("%d records live, %d unswept, %d jobs held, want 100, 0, 100", b.jobs.Len(), b.unsweptJobs, b.JobCount())
	}
	if b.timers.Len() != 0 {
		t.Errorf("%d timers are left", b.timers.Len())
	}
}

// TestLostSubmitterDelaysNoOther: however many jobs a lost submitter leaves in a type, the job of
// another submitter is handed out within the next few commands.
func TestLostSubmitterDelaysNoOther(t *testing.T) {
	for _, fair := range []bool{false, true} {
		n := scaleDown(100_000, 2000)
		b := New(Config{Pages: &countingPages{}})
		b.SetFair(0, []byte("echo"), fair)
		s, other := b.AddSubmitter(), b.AddSubmitter()
		id := make([]byte, 16)
		for i := range n {
			b.Submit(0, s, &Submission{ID: putNumber(id, i), Type: []byte("echo"), Body: []byte("1"), Retries: -1, NoAck: true})
		}
		b.Submit(0, other, &Submission{ID: []byte("new"), Type: []byte("echo"), Body: []byte("1"), Retries: -1, NoAck: true})
		b.RemovePeer(0, s)
		w := b.AddWorker()
		hasHandOut := func(effects []Effect) bool {
			for i := range effects {
				if effects[i].Op == OpJob {
					return true
				}
			}
			return false
		}
		done, ticks := hasHandOut(b.Join(0, w, &JoinRequest{Type: []byte("echo")})), 0
		for ; !done && b.NextTick() <= 0; ticks++ {
			done = hasHandOut(b.Tick(0))
		}
		if !done || ticks > 2 {
			t.Errorf("fair %v: handed out %v after %d ticks, want 2 at the most", fair, done, ticks)
		}
	}
}

// TestReconnectingSubmitterCannotOutrunSweep: a submitter that floods, leaves and reconnects cannot outrun the
// sweep, even without ticks.
func TestReconnectingSubmitterCannotOutrunSweep(t *testing.T) {
	b := New(Config{})
	id := make([]byte, 16)
	n := scaleDown(2000, 200)
	for round := range 50 {
		s := b.AddSubmitter()
		for i := range n {
			b.Submit(0, s, &Submission{ID: putNumber(id, round*n+i), Type: []byte("echo"), Body: []byte("1"), Retries: -1, NoAck: true})
		}
		b.RemovePeer(0, s)
		if b.unsweptJobs > 2*n {
			t.Fatalf("round %d: %d jobs are unswept", round, b.unsweptJobs)
		}
	}
}

// TestLostSubmitterOfManyTypesIsSweptFast: the jobs of a lost submitter are swept just as fast if they are of
// very many types.
func TestLostSubmitterOfManyTypesIsSweptFast(t *testing.T) {
	n := scaleDown(100_000, 500)
	b := New(Config{MaxUnusedTypes: 10})
	s := b.AddSubmitter()
	for i := range n {
		b.Submit(0, s, &Submission{ID: fmt.Appendf(nil, "j%d", i), Type: fmt.Appendf(nil, "t%d", i), Body: []byte("1"), Retries: -1, NoAck: true})
	}
	if got := b.types.Len(); got != n {
		t.Fatalf("%d types, want %d", got, n)
	}
	b.RemovePeer(0, s)
	ticks := 0
	for ; b.NextTick() <= 0; ticks++ {
		b.Tick(0)
	}
	if limit := n/tickSteps + 2; ticks > limit {
		t.Errorf("%d ticks to sweep, at most %d", ticks, limit)
	}
	if got := len(b.typesByName); got > 10 {
		t.Errorf("%d types are remembered, at most 10", got)
	}
	if l := b.ForgottenTotals(); l.Discarded+10 < uint64(n) || b.totals.Discarded != uint64(n) {
		t.Errorf("%d discarded in forgotten types, %d in all, want about %d", l.Discarded, b.totals.Discarded, n)
	}
}

// TestTypesAreBounded: types that come and go leave nothing behind, and no more are
// admitted than allowed.
func TestTypesAreBounded(t *testing.T) {
	n := scaleDown(100_000, 3000)
	limit := 1000
	if InvariantsEnabled {
		limit = 300
	}
	b := New(Config{MaxUnusedTypes: 100, MaxTypes: limit})
	s, w := b.AddSubmitter(), b.AddWorker()
	for i := range n {
		typ := fmt.Appendf(nil, "t%d", i)
		b.Submit(0, s, &Submission{ID: []byte("a"), Type: typ, Body: []byte("1"), Retries: -1})
		b.Join(0, w, &JoinRequest{Type: typ})
		b.Respond(0, w, nil, []byte("1"), false)
		// The types that the submitter and the worker used last count as in use.
		if got := len(b.typesByName); got > 100+2 {
			t.Fatalf("after %d types %d are known", i, got)
		}
	}
	if len(b.types.All()) > 110 {
		t.Errorf("the table of types has %d places", len(b.types.All()))
	}
	if len(b.holdings.All()) > 110 || len(b.queues.All()) > 110 {
		t.Errorf("%d holdings and %d queues were made", len(b.holdings.All()), len(b.queues.All()))
	}
	if b.totals.Answered != uint64(n) {
		t.Errorf("%d answered, want %d", b.totals.Answered, n)
	}

	// No more types than the limit may be in use at the same time.
	refusals := 0
	typeCount := limit * 3 / 2
	for i := range typeCount {
		effects := b.Submit(0, s, &Submission{ID: fmt.Appendf(nil, "k%d", i), Type: fmt.Appendf(nil, "u%d", i), Body: []byte("1"), Retries: -1})
		if effects[0].Code == Overloaded {
			refusals++
		}
	}
	if got := len(b.typesByName) - b.countUnusedWithoutLetters(); got != limit || refusals != typeCount-limit+1 {
		t.Errorf("%d types are in use, %d submits were refused", got, refusals)
	}
	if _, err := b.Pause(0, []byte("one more"), true); err == nil {
		t.Error("a type too many was configured")
	}
}

// TestBytesPerQueuedJob measures the memory per job of two million queued jobs, each with a
// body of 100 bytes and an id of 16.
func TestBytesPerQueuedJob(t *testing.T) {
	n := scaleDown(2_000_000, 5000)
	const wantBytes = 250.0
	for _, priorities := range []int{1, 10} {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		pages := &countingPages{}
		b := New(Config{Pages: pages})
		s := b.AddSubmitter()
		id, body := make([]byte, 16), make([]byte, 100)
		for i := range n {
			b.Submit(int64(i), s, &Submission{ID: putNumber(id, i), Type: []byte("echo"), Body: body, Priority: int64(i % priorities), Retries: -1, NoAck: true})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if got := b.JobCount(); got != uint64(n) {
			t.Fatalf("%d jobs are held", got)
		}
		// Here pages come from Go's heap, so the heap holds everything.
		heap := float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
		pageBytes := float64(pages.heldBytes) / float64(n)
		m := b.Memory()
		t.Logf("%d jobs, %d priorities: %.1f bytes each, %.1f of them in pages; Memory says %.1f", n, priorities, heap, pageBytes, float64(m.Total())/float64(n))
		if !InvariantsEnabled && heap > wantBytes {
			t.Errorf("%.1f bytes per queued job, the goal is %.0f", heap, wantBytes)
		}
		if pageBytes, got := float64(pages.heldBytes), float64(m.Records+m.Slabs); got > 1.05*pageBytes || got < 0.9*pageBytes {
			t.Errorf("records and slabs take %.0f bytes, lent are %.0f", got, pageBytes)
		}
		if inHeap, got := heap*float64(n), float64(m.Total()); !InvariantsEnabled && (got < 0.95*inHeap || got > 1.1*inHeap) {
			t.Errorf("Memory says %.0f bytes in all, the heap has %.0f", got, inHeap)
		}
		runtime.KeepAlive(b)
	}
}

// TestDrainedBacklogReturnsMemory: once all jobs of a backlog have ended, its memory has been
// returned.
func TestDrainedBacklogReturnsMemory(t *testing.T) {
	n := scaleDown(200_000, 4000)
	pages := &countingPages{}
	b := New(Config{Pages: pages})
	s, w := b.AddSubmitter(), b.AddWorker()
	id, body := make([]byte, 16), make([]byte, 100)
	for i := range n {
		b.Submit(0, s, &Submission{ID: putNumber(id, i), Type: []byte("echo"), Body: body, Priority: int64(i % 100), Retries: -1, NoAck: true})
	}
	fullBytes := pages.heldBytes
	b.Join(0, w, &JoinRequest{Type: []byte("echo")})
	for range n {
		b.Respond(0, w, nil, body, false)
	}
	b.Tick(0)
	if b.JobCount() != 0 || pages.heldBytes > 5<<20+2*128<<10 { // the size of five slabs and two chunks of records
		t.Errorf("%d bytes are held after a backlog of %d bytes, for %d jobs", pages.heldBytes, fullBytes, b.JobCount())
	}
	if n := b.jobIndex.HeldBytes(); n > 2304+8 {
		t.Errorf("the empty index takes %d bytes, more than one segment", n)
	}
}

// TestManyDeadlinesEndInSlices: when very many jobs are past their deadline and the timer is
// late, neither a tick nor the join of a worker ends more than its share of these jobs. None of
// these jobs is handed out; the one job without a deadline is.
func TestManyDeadlinesEndInSlices(t *testing.T) {
	n := scaleDown(20_000, 2000)
	b := New(Config{})
	s, w := b.AddSubmitter(), b.AddWorker()
	for i := range n {
		b.Submit(0, s, &Submission{ID: fmt.Appendf(nil, "j%d", i), Type: []byte("echo"), Body: []byte("1"), Expires: 1000, Retries: -1})
	}
	b.Submit(0, s, &Submission{ID: []byte("last"), Type: []byte("echo"), Body: []byte("1"), Retries: -1})
	expiries, handOuts := 0, 0
	count := func(effects []Effect, share int) {
		t.Helper()
		ends := 0
		for _, e := range effects {
			switch {
			case e.Op == OpEnd && e.Code == Expired:
				ends++
			case e.Op == OpJob && string(e.ID) == "last":
				handOuts++
			case e.Op == OpJob:
				t.Fatalf("job %s was handed out past its deadline", e.ID)
			}
		}
		if ends > share {
			t.Fatalf("%d jobs ended in one step, at most %d", ends, share)
		}
		expiries += ends
	}
	count(b.Join(1000, w, &JoinRequest{Type: []byte("echo")}), maxTickTimers)
	if expiries != maxTickTimers || handOuts != 0 {
		t.Fatalf("the join ended %d jobs and handed out %d", expiries, handOuts)
	}
	// The next command, of whatever kind, ends more jobs, and the core asks for a tick.
	count(b.Leave(1000, b.AddWorker()), maxTickTimers)
	count(b.Leave(1000, w), 0)
	count(b.Join(1000, w, &JoinRequest{Type: []byte("echo")}), maxTickTimers)
	for ticks := 0; b.NextTick() <= 1000; ticks++ {
		count(b.Tick(1000), 2*maxTickTimers)
		if ticks > n/maxTickTimers+2 {
			t.Fatalf("%d ticks, and %d of %d jobs have expired", ticks, expiries, n)
		}
	}
	if expiries != n || handOuts != 1 {
		t.Errorf("%d of %d jobs expired, the last one was handed out %d times", expiries, n, handOuts)
	}
}
