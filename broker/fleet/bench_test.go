package fleet_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/fleet"
)

// BenchmarkIdle measures the processor time that each of a hundred idle brokers takes per second
// of virtual time.
func BenchmarkIdle(b *testing.B) {
	const brokers = 100
	var machines []*fleet.Machine
	var sentMessages [brokers][]fleet.Message
	now := int64(1)
	for i := range brokers {
		core := broker.New(broker.Config{MaxUnusedTypes: 10})
		m := fleet.New(fleet.Config{Name: fmt.Sprintf("host-%d:9998", i), Epoch: uint64(i + 1), MaxMessage: 256 << 10}, core, now, func([]broker.Effect) {})
		core.Join(now, core.AddWorker(), &broker.JoinRequest{Type: []byte(`"mail"`)})
		m.Step(now)
		machines = append(machines, m)
	}
	runOneSecond := func() {
		for end := now + int64(time.Second); now < end; now += int64(100 * time.Millisecond) {
			for i, m := range machines {
				m.Tick(now)
				sentMessages[i] = m.Messages(sentMessages[i])
				for _, v := range sentMessages[i] {
					for j, o := range machines {
						if i != j && v.To == "" {
							o.Receive(now, v.Data)
						}
					}
				}
			}
		}
	}
	for range 3 {
		runOneSecond()
	}
	if n := len(machines[0].Info().Peers); n != brokers-1 {
		b.Fatalf("the first one hears %d others", n)
	}
	before := processorTime(b)
	for b.Loop() {
		runOneSecond()
	}
	b.ReportMetric(float64(processorTime(b)-before)/1e9/float64(b.N)/brokers*100, "%cpu/broker")
}

// BenchmarkLend measures what lending a job costs both brokers together, without a network, when
// 64 jobs share a message.
func BenchmarkLend(b *testing.B) {
	const roundTrip = 64
	w := newTwins(0)
	worker := w.join(&broker.JoinRequest{Type: []byte(`"mail"`), Prefetch: 4 * roundTrip})
	var ids [roundTrip]string
	for i := range ids {
		ids[i] = fmt.Sprintf(`"%020d"`, i)
	}
	body := fmt.Appendf(nil, `"%0100d"`, 0)
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		for _, id := range ids {
			w.submit(id, `"mail"`, body)
		}
		for len(w.assignments) < roundTrip {
			w.letPass(time.Millisecond)
		}
		for _, j := range w.assignments {
			w.respond(worker, j.id, body)
		}
		if w.letPass(time.Millisecond); w.answers != roundTrip {
			b.Fatalf("%d of %d jobs were answered", w.answers, roundTrip)
		}
		w.assignments, w.answers = w.assignments[:0], 0
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/roundTrip, "cpu-ns/job")
}

func processorTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
