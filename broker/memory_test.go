package broker

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMemoryMatchesHeap fills each part of Memory separately: Memory differs from the heap by at
// most a fifth.
func TestMemoryMatchesHeap(t *testing.T) {
	if InvariantsEnabled {
		t.Skip("what checks also takes memory")
	}
	size := func(n int) int { return scaleDown(n, n/10) }
	longName := func(i int) []byte { return fmt.Appendf(nil, "%0900d", i) }
	submit := func(b *Broker, p Peer, i int, change func(s *Submission)) {
		s := Submission{ID: fmt.Appendf(nil, "%016d", i), Type: []byte("t"), Body: []byte("1"), NoAck: true}
		change(&s)
		for _, e := range b.Submit(0, p, &s) {
			if e.Op == OpRefuse {
				t.Fatal(e.Reason)
			}
		}
	}
	lists := func(i, names int, star string) (list [][]byte) {
		for n := range names {
			list = append(list, fmt.Appendf(nil, "%d-%0200d%s", i, n, star))
		}
		return list
	}
	for _, c := range []struct {
		part string
		fill func(b *Broker)
	}{
		{"jobs", func(b *Broker) {
			p := b.AddSubmitter()
			for i := range size(200_000) {
				submit(b, p, i, func(s *Submission) { s.Body = make([]byte, 100) })
			}
		}},
		{"big bodies", func(b *Broker) {
			p := b.AddSubmitter()
			for i := range 100 {
				submit(b, p, i, func(s *Submission) { s.Body = make([]byte, 256<<10) })
			}
		}},
		{"timers", func(b *Broker) {
			p := b.AddSubmitter()
			for i := range size(200_000) {
				submit(b, p, i, func(s *Submission) { s.Delay = time.Hour })
			}
		}},
		{"priorities", func(b *Broker) {
			p := b.AddSubmitter()
			for i := range size(200_000) {
				submit(b, p, i, func(s *Submission) { s.Priority = int64(i) })
			}
		}},
		{"outcomes", func(b *Broker) {
			p, w := b.AddSubmitter(), b.AddWorker()
			b.Join(0, w, &JoinRequest{Type: []byte("t")})
			for i := range size(100_000) {
				submit(b, p, i, func(s *Submission) { s.Keep = time.Hour })
				b.Respond(0, w, nil, make([]byte, 100), false)
			}
		}},
		{"dead", func(b *Broker) {
			p, w := b.AddSubmitter(), b.AddWorker()
			b.Join(0, w, &JoinRequest{Type: []byte("t")})
			for i := range size(100_000) {
				submit(b, p, i, func(s *Submission) { s.Body = make([]byte, 100) })
				b.Fail(0, w, &Failure{Reason: "it broke", NoRetry: true})
			}
		}},
		// The names of groups are counted twice: with the remembered groups, and with the letters that
		// refer to these groups. There are many more letters than remembered groups, so the error is
		// small.
		{"dead with groups", func(b *Broker) {
			p, w := b.AddSubmitter(), b.AddWorker()
			b.Join(0, w, &JoinRequest{Type: []byte("t")})
			for i := range 20_000 {
				submit(b, p, i, func(s *Submission) { s.Groups = [][]byte{longName(i)} })
				b.Fail(0, w, &Failure{Reason: "it broke", NoRetry: true})
			}
		}},
		{"runs", func(b *Broker) {
			p, w := b.AddSubmitter(), b.AddWorker()
			b.Join(0, w, &JoinRequest{Type: []byte("t")})
			submit(b, p, 0, func(s *Submission) { s.Retries = maxRetries })
			for range maxRuns {
				b.Fail(0, w, &Failure{Reason: strings.Repeat("why ", 60), Delay: -1})
			}
		}},
		{"groups", func(b *Broker) {
			p := b.AddSubmitter()
			for i := range size(30_000) {
				submit(b, p, i, func(s *Submission) { s.Groups = [][]byte{fmt.Append(nil, "g", i)} })
			}
		}},
		{"groups held back", func(b *Broker) {
			_, err := b.Configure(0, &Settings{Rules: []RuleInfo{{[]byte("g*"), Rule{Concurrency: 0}}}})
			if err != nil {
				t.Fatal(err)
			}
			p := b.AddSubmitter()
			for i := range size(30_000) {
				submit(b, p, i, func(s *Submission) { s.Groups = [][]byte{fmt.Append(nil, "g", i)} })
			}
		}},
		{"groups that a rate remembers", func(b *Broker) {
			_, err := b.Configure(0, &Settings{Rules: []RuleInfo{{[]byte("*"), Rule{Concurrency: -1, Rate: 1e-6}}}})
			if err != nil {
				t.Fatal(err)
			}
			p, w := b.AddSubmitter(), b.AddWorker()
			b.Join(0, w, &JoinRequest{Type: []byte("t")})
			for i := range size(30_000) {
				submit(b, p, i, func(s *Submission) { s.Groups = [][]byte{longName(i)} })
				b.Respond(0, w, nil, []byte("1"), false)
			}
		}},
		{"turns", func(b *Broker) {
			if _, err := b.SetFair(0, []byte("t"), true); err != nil {
				t.Fatal(err)
			}
			p := b.AddSubmitter()
			for i := range size(30_000) {
				submit(b, p, i, func(s *Submission) { s.Groups = [][]byte{fmt.Append(nil, "g", i)} })
			}
		}},
		{"types", func(b *Broker) {
			for i := range size(20_000) {
				if _, err := b.Limit(0, fmt.Append(nil, "t", i), TypeLimits{Concurrency: 1}); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"long names of types", func(b *Broker) {
			for i := range size(20_000) {
				if _, err := b.Limit(0, longName(i), TypeLimits{Concurrency: 1}); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"types with jobs", func(b *Broker) {
			p := b.AddSubmitter()
			for i := range size(20_000) {
				submit(b, p, i, func(s *Submission) { s.Type = fmt.Append(nil, "t", i) })
			}
		}},
		{"pools of patterns", func(b *Broker) {
			for i := range size(200) {
				b.Join(0, b.AddWorker(), &JoinRequest{Types: lists(i, 1000, "*"), Except: lists(i, 1000, "*")})
			}
		}},
		{"pools of names", func(b *Broker) {
			for i := range size(100) {
				b.Join(0, b.AddWorker(), &JoinRequest{Types: lists(0, 1000, ""), Except: lists(i+1, 1000, "")})
			}
		}},
		{"pools of short names", func(b *Broker) {
			for i := range size(20_000) {
				b.Join(0, b.AddWorker(), &JoinRequest{Types: [][]byte{fmt.Append(nil, "t", i, "*")}})
			}
		}},
		{"pairs", func(b *Broker) {
			for i := range size(300) {
				req := &JoinRequest{}
				for n := range 1000 {
					req.Types = append(req.Types, fmt.Append(nil, "t", n))
				}
				req.Except = [][]byte{fmt.Append(nil, "x", i)}
				b.Join(0, b.AddWorker(), req)
			}
		}},
		{"peers", func(b *Broker) {
			for range size(50_000) {
				b.AddSubmitter()
				b.AddWorker()
			}
		}},
	} {
		t.Run(c.part, func(t *testing.T) {
			before := heapInUse()
			b := New(Config{Retries: 0, DeadLetters: 1 << 20, DeadBytes: 1 << 40, DeadAge: 1 << 60, MaxUnusedTypes: 1 << 20})
			c.fill(b)
			b.Tick(0)
			heapGrowth := heapInUse() - before
			m := b.Memory()
			t.Logf("the heap has %d bytes, Memory reports %.2f of them", heapGrowth, float64(m.Total())/float64(heapGrowth))
			if total := m.Total(); float64(total) < 0.8*float64(heapGrowth) || float64(total) > 1.2*float64(heapGrowth) {
				t.Errorf("the heap has %d bytes, Memory reports %d (%.2f): %+v", heapGrowth, total, float64(total)/float64(heapGrowth), m)
			}
			runtime.KeepAlive(b)
		})
	}
}
