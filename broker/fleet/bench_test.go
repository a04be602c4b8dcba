package fleet_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/fleet"
)

// BenchmarkIdle: what a hundred idle brokers cost each other, in the processor time
// that each takes in a second of theirs.
func BenchmarkIdle(b *testing.B) {
	const brokers = 100
	var all []*fleet.Machine
	var sent [brokers][]fleet.Message
	now := int64(1)
	for i := range brokers {
		core := broker.New(broker.Config{IdleTypes: 10})
		m := fleet.New(fleet.Config{Name: fmt.Sprintf("host-%d:9998", i), Epoch: uint64(i + 1), Part: 256 << 10}, core, now, func([]broker.Effect) {})
		core.Join(now, core.AddWorker(), &broker.Joining{Type: []byte(`"mail"`)})
		m.Step(now)
		all = append(all, m)
	}
	second := func() {
		for end := now + int64(time.Second); now < end; now += int64(100 * time.Millisecond) {
			for i, m := range all {
				m.Tick(now)
				sent[i] = m.Take(sent[i])
				for _, v := range sent[i] {
					for j, o := range all {
						if i != j && v.To == "" {
							o.Receive(now, v.Data)
						}
					}
				}
			}
		}
	}
	for range 3 {
		second()
	}
	if n := len(all[0].Info().Peers); n != brokers-1 {
		b.Fatalf("the first one hears %d others", n)
	}
	before := processorTime(b)
	for b.Loop() {
		second()
	}
	b.ReportMetric(float64(processorTime(b)-before)/1e9/float64(b.N)/brokers*100, "%cpu/broker")
}

// BenchmarkLend: what lending a job costs both brokers together, without a network,
// where 64 jobs travel together.
func BenchmarkLend(b *testing.B) {
	const together = 64
	now := int64(1)
	var work, answers []broker.Effect
	var cores [2]*broker.Broker
	var all [2]*fleet.Machine
	var sent [2][]fleet.Message
	for i := range all {
		cores[i] = broker.New(broker.Config{IdleTypes: 10})
		all[i] = fleet.New(fleet.Config{Name: fmt.Sprint(i), Epoch: uint64(i + 1), Part: 256 << 10}, cores[i], now, func(fx []broker.Effect) {
			for k := range fx {
				switch e := &fx[k]; {
				case all[i] != nil && all[i].Effect(e):
				case e.Op == broker.OpJob:
					work = append(work, *e)
				case e.Op == broker.OpResult:
					answers = append(answers, *e)
				}
			}
		})
	}
	// deliver carries what there is, until nothing is.
	deliver := func() {
		for some := true; some; {
			some = false
			for i, m := range all {
				m.Step(now)
				sent[i] = m.Take(sent[i])
				for _, v := range sent[i] {
					some = true
					all[1-i].Receive(now, slices.Clone(v.Data))
				}
			}
		}
	}
	for range 40 { // they meet
		now += int64(100 * time.Millisecond)
		for _, m := range all {
			m.Tick(now)
		}
		deliver()
	}
	typ, body := []byte(`"mail"`), fmt.Appendf(nil, `"%0100d"`, 0)
	s, w := cores[0].AddSubmitter(), cores[1].AddWorker()
	cores[1].Join(now, w, &broker.Joining{Type: typ, Prefetch: 4 * together})
	var ids [together][]byte
	for i := range ids {
		ids[i] = fmt.Appendf(nil, `"%020d"`, i)
	}
	apply := func(i int, fx []broker.Effect) {
		for k := range fx {
			all[i].Effect(&fx[k])
		}
	}
	b.ReportAllocs()
	before := processorTime(b)
	for n := 0; b.Loop(); n++ {
		work, answers = work[:0], answers[:0]
		for _, id := range ids {
			apply(0, cores[0].Submit(now, s, &broker.Submission{ID: id, Type: typ, Body: body}))
		}
		for len(work) < together {
			now += int64(time.Millisecond)
			for _, m := range all {
				m.Tick(now)
			}
			deliver()
		}
		for k := range work {
			apply(1, cores[1].Respond(now, w, work[k].ID, body, false))
		}
		if deliver(); len(answers) != together {
			b.Fatalf("%d of %d jobs were answered", len(answers), together)
		}
		now += int64(time.Millisecond)
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/together, "cpu-ns/job")
}

func processorTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
