package broker_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gloom/broker"
)

// BenchmarkLimited measures a cycle of submit, dispatch and answer for one worker of all types,
// while groups with limits have jobs in very many types or take very many turns. It reports the
// time of a cycle and the largest processor time of one command.
func BenchmarkLimited(b *testing.B) {
	type world struct {
		name string
		fair bool
		// rule is the pattern of a rule with this concurrency. backlog jobs wait before the
		// cycles begin.
		rule        string
		concurrency int64
		backlog     int
		typ, groups func(i int) string
	}
	of := func(format string, n int) func(int) string {
		return func(i int) string { return fmt.Sprintf(format, i%n) }
	}
	constantName := func(name string) func(int) string { return func(int) string { return name } }
	for _, c := range []world{
		{"one group in 10000 fair types", true, "licence", 1, 10_000, of("type-%d", 10_000), constantName("licence")},
		{"one group in 100000 fair types", true, "licence", 1, 100_000, of("type-%d", 100_000), constantName("licence")},
		{"one group in 100000 types", false, "licence", 1, 100_000, of("type-%d", 100_000), constantName("licence")},
		{"100000 tenants and one licence", true, "licence", 1, 100_000, constantName("type"), of("tenant-%d licence", 100_000)},
		{"one tenant and 20000 hosts", true, "host-*", 5, 20_000, constantName("type"), of("tenant host-%d", 20_000)},
		{"10 tenants and 100000 hosts", true, "host-*", 1, 100_000, constantName("type"), func(i int) string {
			return fmt.Sprintf("tenant-%d host-%d", i%10, i%100_000)
		}},
		{"one tenant and 20000 groups that hold all", true, "host-*", 0, 20_000, constantName("type"), func(i int) string {
			if i >= 20_000 && i%2 == 0 {
				return "tenant"
			}
			return fmt.Sprintf("tenant host-%d", i)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			core := broker.New(broker.Config{})
			if _, _, err := core.SetRule(0, []byte(c.rule), broker.Rule{Concurrency: c.concurrency}); err != nil {
				b.Fatal(err)
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			submitter, worker := core.AddSubmitter(), core.AddWorker()
			body := make([]byte, 100)
			var id []byte
			n, now, longest := 0, int64(0), time.Duration(0)
			timed := func(command func() []broker.Effect) {
				begin := threadTime()
				fx := command()
				longest = max(longest, threadTime()-begin)
				for i := range fx {
					if fx[i].Op == broker.OpJob {
						id = append(id[:0], fx[i].ID...)
					}
				}
			}
			submit := func() {
				now += 1000
				typ := []byte(c.typ(n))
				if c.fair && n < c.backlog {
					core.SetFair(now, typ, true)
				}
				groups := bytesOf(c.groups(n))
				timed(func() []broker.Effect {
					return core.Submit(now, submitter, &broker.Submission{ID: fmt.Appendf(nil, "%d", n), Type: typ, Body: body, Groups: groups, NoAck: true})
				})
				n++
			}
			for n < c.backlog {
				submit()
			}
			timed(func() []broker.Effect {
				return core.Join(now, worker, &broker.JoinRequest{Types: [][]byte{[]byte("*")}, Prefetch: 1})
			})
			tick := func() {
				for core.NextTick() <= now {
					timed(func() []broker.Effect { return core.Tick(now) })
				}
			}
			tick()
			before := longest
			longest = 0
			b.ResetTimer()
			for range b.N {
				submit()
				if len(id) > 0 {
					timed(func() []broker.Effect { done := id; id = nil; return core.Respond(now, worker, done, body, false) })
				}
				tick()
			}
			b.StopTimer()
			b.ReportMetric(float64(before.Microseconds()), "backlog-max-µs")
			b.ReportMetric(float64(longest.Microseconds()), "max-µs")
		})
	}
}

// threadTime returns the processor time that this thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func bytesOf(words string) (list [][]byte) {
	for word := range strings.FieldsSeq(words) {
		list = append(list, []byte(word))
	}
	return list
}

// BenchmarkHeld measures a cycle of jobs without groups in two cores, alternately: one is empty,
// and in the other a group holds back a million jobs. It reports the processor time and the ratio
// of the two. The pair in which neither has held jobs shows how reliable the ratio is. The pair
// with a million jobs of a paused type shows what a million jobs cost in any case.
func BenchmarkHeld(b *testing.B) {
	for _, c := range []struct {
		name   string
		jobs   int
		typ    string
		groups [][]byte
	}{
		{"none", 0, "t", nil}, {"held", 1_000_000, "t", [][]byte{[]byte("full")}}, {"paused", 1_000_000, "paused", nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			const block = 1000
			emptyCore, loadedCore := newHeldJobsCore(b), newHeldJobsCore(b)
			for range c.jobs {
				loadedCore.submit(c.typ, c.groups)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += block {
				// The order alternates, because the second of a pair finds the caches in a
				// different state.
				first, second := emptyCore, loadedCore
				if n/block%2 > 0 {
					first, second = loadedCore, emptyCore
				}
				first.runCycles(block)
				second.runCycles(block)
			}
			b.StopTimer()
			runs := float64(loadedCore.core.Totals().Answered)
			b.ReportMetric(float64(loadedCore.elapsed)/runs, "cpu-ns/cycle")
			b.ReportMetric(float64(loadedCore.elapsed)/float64(emptyCore.elapsed), "times-without")
		})
	}
}

// heldJobsCore is a core with jobs without groups and jobs that a group holds back.
type heldJobsCore struct {
	core              *broker.Broker
	submitter, worker broker.Peer
	n                 int
	elapsed           time.Duration
}

func newHeldJobsCore(b *testing.B) *heldJobsCore {
	h := &heldJobsCore{core: broker.New(broker.Config{MaxUnusedTypes: 10})}
	h.submitter, h.worker = h.core.AddSubmitter(), h.core.AddWorker()
	if _, _, err := h.core.SetRule(0, []byte("full"), broker.Rule{Concurrency: 0}); err != nil {
		b.Fatal(err)
	}
	if _, err := h.core.Pause(0, []byte("paused"), true); err != nil {
		b.Fatal(err)
	}
	h.core.Join(0, h.worker, &broker.JoinRequest{Type: []byte("t")})
	for range 10_000 {
		h.submit("t", nil)
	}
	return h
}

func (h *heldJobsCore) submit(typ string, groups [][]byte) {
	h.n++
	h.core.Submit(int64(h.n), h.submitter, &broker.Submission{ID: fmt.Appendf(nil, "%d", h.n), Type: []byte(typ), Body: make([]byte, 100), Groups: groups, NoAck: true})
}

func (h *heldJobsCore) runCycles(n int) {
	begin := threadTime()
	for range n {
		h.submit("t", nil)
		h.core.Respond(int64(h.n), h.worker, nil, []byte("1"), false)
	}
	h.elapsed += threadTime() - begin
}
