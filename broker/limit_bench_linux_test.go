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

// BenchmarkLimited is a cycle of submit, dispatch and answer for one worker of all
// types, while groups with limits are in very many types or turns: the time of a
// cycle, and the most processor time that one command took.
func BenchmarkLimited(b *testing.B) {
	type world struct {
		name string
		fair bool
		// rule and its concurrency; backlog jobs wait before the cycles begin.
		rule        string
		concurrency int64
		backlog     int
		typ, groups func(i int) string
	}
	of := func(format string, n int) func(int) string {
		return func(i int) string { return fmt.Sprintf(format, i%n) }
	}
	one := func(name string) func(int) string { return func(int) string { return name } }
	for _, c := range []world{
		{"one group in 10000 fair types", true, "licence", 1, 10_000, of("type-%d", 10_000), one("licence")},
		{"one group in 100000 fair types", true, "licence", 1, 100_000, of("type-%d", 100_000), one("licence")},
		{"one group in 100000 types", false, "licence", 1, 100_000, of("type-%d", 100_000), one("licence")},
		{"100000 tenants and one licence", true, "licence", 1, 100_000, one("type"), of("tenant-%d licence", 100_000)},
		{"one tenant and 20000 hosts", true, "host-*", 5, 20_000, one("type"), of("tenant host-%d", 20_000)},
		{"10 tenants and 100000 hosts", true, "host-*", 1, 100_000, one("type"), func(i int) string {
			return fmt.Sprintf("tenant-%d host-%d", i%10, i%100_000)
		}},
		{"one tenant and 20000 groups that hold all", true, "host-*", 0, 20_000, one("type"), func(i int) string {
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
			sub, wrk := core.AddSubmitter(), core.AddWorker()
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
					return core.Submit(now, sub, &broker.Submission{ID: fmt.Appendf(nil, "%d", n), Type: typ, Body: body, Groups: groups, Quiet: true})
				})
				n++
			}
			for n < c.backlog {
				submit()
			}
			timed(func() []broker.Effect {
				return core.Join(now, wrk, &broker.Joining{Types: [][]byte{[]byte("*")}, Prefetch: 1})
			})
			tick := func() {
				for core.Next() <= now {
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
					timed(func() []broker.Effect { done := id; id = nil; return core.Respond(now, wrk, done, body, false) })
				}
				tick()
			}
			b.StopTimer()
			b.ReportMetric(float64(before.Microseconds()), "backlog-max-µs")
			b.ReportMetric(float64(longest.Microseconds()), "max-µs")
		})
	}
}

// threadTime is the processor time of this thread.
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
