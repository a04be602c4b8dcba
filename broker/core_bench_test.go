package broker_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"gloom/broker"
)

// benchmarkCycle measures submit, hand-out and answer while other jobs are queued. prio returns
// the priorities.
func benchmarkCycle(b *testing.B, queued int, prio func(i int) int64) {
	benchmarkCycleWith(b, 0, queued, prio)
}

// BenchmarkHistory measures what the history costs per job.
func BenchmarkHistory(b *testing.B) {
	for _, history := range []int64{0, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprint("history=", history), func(b *testing.B) {
			benchmarkCycleWith(b, history, 0, func(int) int64 { return 0 })
		})
	}
}

func benchmarkCycleWith(b *testing.B, history int64, queued int, prio func(i int) int64) {
	c := broker.New(broker.Config{Retries: 3, MaxUnusedTypes: 100, History: history})
	submitter, worker := c.AddSubmitter(), c.AddWorker()
	typ, body := []byte("echo"), make([]byte, 100)
	id := make([]byte, 16)
	now := int64(0)
	n := 0
	submit := func() {
		n++
		binary.LittleEndian.PutUint64(id, uint64(n)*0x9e3779b97f4a7c15)
		now += 1000
		c.Submit(now, submitter, &broker.Submission{ID: id, Type: typ, Body: body, Priority: prio(n), Retries: -1})
	}
	for range queued {
		submit()
	}
	c.Join(now, worker, &broker.JoinRequest{Type: typ})
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		submit()
		c.Respond(now, worker, nil, body, false)
	}
	b.StopTimer()
	if l := c.Totals(); l.Imbalance() != 0 || l.Answered != uint64(b.N) {
		b.Fatalf("ledger: %+v", l)
	}
}

func BenchmarkCycle(b *testing.B) {
	onePriority := func(int) int64 { return 0 }
	fewPriorities := func(i int) int64 { return int64(i % 10) }
	manyPriorities := func(i int) int64 { return int64(uint32(i) * 2654435761 >> 4) }
	for _, queued := range []int{0, 10_000, 1_000_000, 2_000_000} {
		for _, p := range []struct {
			name string
			f    func(int) int64
		}{{"one", onePriority}, {"ten", fewPriorities}, {"distinct", manyPriorities}} {
			b.Run(fmt.Sprintf("queued=%d/priorities=%s", queued, p.name), func(b *testing.B) {
				benchmarkCycle(b, queued, p.f)
			})
		}
	}
}

// BenchmarkFailBesideLetters makes jobs fail while their type has the largest number of dead
// letters, so that each failure drops the oldest letter.
func BenchmarkFailBesideLetters(b *testing.B) {
	for _, kept := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint("letters=", kept), func(b *testing.B) {
			c := broker.New(broker.Config{DeadLetters: kept, DeadBytes: 1 << 40, DeadAge: 1 << 60})
			submitter, worker := c.AddSubmitter(), c.AddWorker()
			c.Join(0, worker, &broker.JoinRequest{Type: []byte("echo")})
			id, n := make([]byte, 16), 0
			fail := func() {
				n++
				binary.LittleEndian.PutUint64(id, uint64(n))
				c.Submit(int64(n), submitter, &broker.Submission{ID: id, Type: []byte("echo"), Body: []byte("1")})
				c.Fail(int64(n), worker, &broker.Failure{Reason: "it broke", NoRetry: true})
			}
			for range kept {
				fail()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				fail()
			}
		})
	}
}

// BenchmarkSubmitNewGroups submits and cancels a job with 16 new groups, while there are
// rules for other groups.
func BenchmarkSubmitNewGroups(b *testing.B) {
	for _, rules := range []int{0, 10, 1000} {
		for _, form := range []string{"tenant-%04d-*", "*-of-%04d"} {
			b.Run(fmt.Sprintf("rules=%d/%s", rules, form), func(b *testing.B) {
				c := broker.New(broker.Config{})
				var s broker.Settings
				for i := range rules {
					s.Rules = append(s.Rules, broker.RuleInfo{Pattern: fmt.Appendf(nil, form, i), Rule: broker.Rule{Concurrency: 5}})
				}
				if _, err := c.Configure(0, &s); err != nil {
					b.Fatal(err)
				}
				submitter, n := c.AddSubmitter(), 0
				groups := make([][]byte, 16)
				id := make([]byte, 16)
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					for i := range groups {
						n++
						groups[i] = fmt.Appendf(groups[i][:0], "tenant-%d", n)
					}
					binary.LittleEndian.PutUint64(id, uint64(n))
					c.Submit(0, submitter, &broker.Submission{ID: id, Type: []byte("echo"), Body: []byte("1"), Groups: groups})
					c.Cancel(0, submitter, id)
				}
			})
		}
	}
}

// BenchmarkReportIdle measures ReportIdle and EachIdleChange with one idle worker among many types.
func BenchmarkReportIdle(b *testing.B) {
	for _, types := range []int{1, 100, 10_000, 100_000} {
		b.Run(fmt.Sprint("types=", types), func(b *testing.B) {
			c := broker.New(broker.Config{})
			submitter := c.AddSubmitter()
			for i := range types {
				c.Submit(0, submitter, &broker.Submission{ID: fmt.Append(nil, i), Type: fmt.Append(nil, "type-", i), Body: []byte("1")})
			}
			c.Join(0, c.AddWorker(), &broker.JoinRequest{Type: []byte("idle")})
			c.TrackIdle()
			b.ResetTimer()
			for range b.N {
				c.ReportIdle()
				notices := 0
				c.EachIdleChange(func(*broker.IdleChange) { notices++ })
				if notices != 1 {
					b.Fatalf("told of %d types", notices)
				}
			}
		})
	}
}
