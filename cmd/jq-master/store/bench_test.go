package store

import (
	"testing"

	"github.com/rs/zerolog"

	"gloom/cmd/jq-master/job"
)

// BenchmarkLife writes the enqueue, start and finish of each job, with as many jobs in progress
// as a master has at full load.
func BenchmarkLife(b *testing.B) {
	r := forBench(b)
	slots := make(chan bool, 64)
	for i := range b.N {
		slots <- true
		j := newJob(uint64(i) + 1)
		r.Enqueue([]*job.Job{j}, nil, func(_ []job.ID, _ bool, err error) {
			run := started(j)
			r.Move(j, run, 0, 0, func(error) {
				r.Move(run, ended(run, job.Done), 1, 0, func(err error) {
					if err != nil {
						b.Error(err)
					}
					<-slots
				})
			})
		})
	}
	for range cap(slots) {
		slots <- true
	}
}

// BenchmarkBatch enqueues 1,000 jobs at a time.
func BenchmarkBatch(b *testing.B) {
	r := forBench(b)
	result := make(chan error)
	for i := 0; i < b.N; i += job.MaxBatch {
		batch := make([]*job.Job, job.MaxBatch)
		for n := range batch {
			batch[n] = newJob(uint64(i+n) + 1)
		}
		r.Enqueue(batch, nil, func(_ []job.ID, _ bool, err error) { result <- err })
		if err := <-result; err != nil {
			b.Fatal(err)
		}
	}
}

func forBench(b *testing.B) *Redis {
	r, err := Open(Options{URL: shared.URL(), Namespace: b.Name(), Log: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close() })
	shared.Do(b, "FLUSHALL")
	if err := r.Acquire(b.Context(), canServe, func(error) {}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	return r
}
