package broker_test

import (
	"encoding/binary"
	"testing"
	"time"

	"gloom/broker"
)

// recyclingPages provides memory and reuses what it gets back, as the daemon's pages do.
type recyclingPages struct{ free map[int][][]byte }

func (p *recyclingPages) Get(n int) []byte {
	if f := p.free[n]; len(f) > 0 {
		m := f[len(f)-1]
		p.free[n] = f[:len(f)-1]
		clear(m)
		return m
	}
	return make([]byte, n)
}

func (p *recyclingPages) Put(m []byte) { p.free[len(m)] = append(p.free[len(m)], m) }

// testBed is a core with a submitter and a worker.
type testBed struct {
	t                 *testing.T
	core              *broker.Broker
	submitter, worker broker.Peer
	now               int64
	n                 uint64
	id                [16]byte
	typ               []byte
	body              []byte
	submission        broker.Submission
}

func newTestBed(t *testing.T) *testBed {
	b := &testBed{
		t: t, core: broker.New(broker.Config{Retries: 3, MaxUnusedTypes: 10, Pages: &recyclingPages{map[int][][]byte{}}}),
		typ: []byte("echo"), body: make([]byte, 100),
	}
	b.submitter, b.worker = b.core.AddSubmitter(), b.core.AddWorker()
	return b
}

func (b *testBed) join(prefetch int) {
	b.core.Join(b.now, b.worker, &broker.JoinRequest{Type: b.typ, Prefetch: prefetch})
}

// submit submits a new job; change may set more of its fields.
func (b *testBed) submit(change func(*broker.Submission)) []byte {
	b.n++
	b.now += 1000
	binary.LittleEndian.PutUint64(b.id[:], b.n*0x9e3779b97f4a7c15)
	b.submission = broker.Submission{ID: b.id[:], Type: b.typ, Body: b.body, Retries: -1}
	if change != nil {
		change(&b.submission)
	}
	b.core.Submit(b.now, b.submitter, &b.submission)
	return b.id[:]
}

// TestSteadyStateDoesNotAllocate runs each kind of cycle many times and counts allocations.
// Fewer than one allocation in a hundred cycles is allowed, because a structure may still grow
// once.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	manyGroups := func(b *testBed) func(*broker.Submission) {
		return func(s *broker.Submission) { s.Priority = int64(uint32(b.n) * 2654435761 >> 4) }
	}
	backlog := func(b *testBed, change func(*broker.Submission)) {
		n := 10_000
		if broker.InvariantsEnabled {
			n = 300
		}
		for range n {
			b.submit(change)
		}
	}
	for _, c := range []struct {
		name string
		make func(b *testBed) (cycle func())
	}{
		{"submit, respond", func(b *testBed) func() {
			b.join(0)
			return func() {
				b.submit(nil)
				b.core.Respond(b.now, b.worker, nil, b.body, false)
			}
		}},
		{"behind a backlog", func(b *testBed) func() {
			backlog(b, nil)
			b.join(0)
			return func() {
				b.submit(nil)
				b.core.Respond(b.now, b.worker, nil, b.body, false)
			}
		}},
		{"distinct priorities", func(b *testBed) func() {
			backlog(b, manyGroups(b))
			b.join(0)
			prio := manyGroups(b)
			return func() {
				b.submit(prio)
				b.core.Respond(b.now, b.worker, nil, b.body, false)
			}
		}},
		{"prefetch", func(b *testBed) func() {
			b.join(8)
			return func() {
				id := b.submit(nil)
				b.core.Progress(b.now, b.worker, id, b.body, false)
				b.core.Respond(b.now, b.worker, id, b.body, false)
			}
		}},
		{"cancel", func(b *testBed) func() {
			backlog(b, nil)
			return func() { b.core.Cancel(b.now, b.submitter, b.submit(nil)) }
		}},
		{"fail and again", func(b *testBed) func() {
			backlog(b, nil)
			b.join(0)
			q := broker.Failure{Reason: "broken", Delay: -1}
			return func() {
				b.submit(nil)
				b.core.Fail(b.now, b.worker, &q)
				b.core.Respond(b.now, b.worker, nil, b.body, false)
			}
		}},
		{"delay, timeout, deadline", func(b *testBed) func() {
			b.join(0)
			change := func(s *broker.Submission) {
				s.Delay, s.Timeout, s.Expires, s.Backoff = 500, time.Hour, time.Hour, time.Hour
			}
			return func() {
				b.submit(change)
				b.core.Tick(b.now + 1000)
				b.core.Respond(b.now, b.worker, nil, b.body, false)
			}
		}},
		{"two types in turn, detached", func(b *testBed) func() {
			b.join(0)
			types := [][]byte{[]byte("echo"), []byte("other")}
			i := 0
			change := func(s *broker.Submission) { s.Type, s.Detach = types[i%2], i%3 == 0 }
			q := broker.JoinRequest{}
			return func() {
				i++
				b.submit(change)
				q.Type = types[i%2]
				b.core.Join(b.now, b.worker, &q)
				b.core.Respond(b.now, b.worker, nil, b.body, false)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newTestBed(t)
			cycle := c.make(b)
			rounds, warmRounds := 20_000, 100_000
			if broker.InvariantsEnabled {
				rounds, warmRounds = 50, 50
			}
			// Warm up, so that each segment of the index has reached its largest size.
			for range warmRounds {
				cycle()
			}
			before := b.core.Totals()
			n := testing.AllocsPerRun(10, func() {
				for range rounds / 10 {
					cycle()
				}
			})
			if l := b.core.Totals(); l.Imbalance() != 0 || l.Submitted == before.Submitted {
				t.Fatalf("the cycle does nothing: %+v", l)
			}
			if limit := float64(rounds/10) / 100; !broker.InvariantsEnabled && n > limit {
				t.Errorf("%v allocations in %d cycles", n, rounds/10)
			}
		})
	}
}

// TestRetriesAreBounded: a job ends after a bounded number of runs, however many retries it asks
// for.
func TestRetriesAreBounded(t *testing.T) {
	b := newTestBed(t)
	b.join(0)
	b.submit(func(s *broker.Submission) { s.Retries = 1 << 30 })
	q := broker.Failure{Reason: "broken", Delay: -1}
	runs := 0
	for ended := false; !ended; runs++ {
		if runs > 70_000 {
			t.Fatal("70,000 runs, and no end")
		}
		for _, e := range b.core.Fail(b.now, b.worker, &q) {
			ended = ended || e.Op == broker.OpEnd && e.Code == broker.JobFailed
		}
	}
	if runs != 65535 {
		t.Errorf("the job ended after %d runs, want 65535: as many as can be counted", runs)
	}
}
