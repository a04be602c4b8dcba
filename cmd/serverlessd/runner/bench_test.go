package runner

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"gloom/cmd/serverlessd/job"
)

// BenchmarkRun runs jobs that do almost nothing, in batches of ten; as many batches run at a time
// as a daemon has slots.
func BenchmarkRun(b *testing.B) {
	for _, l := range testLanguages {
		b.Run(l.lang, func(b *testing.B) { benchmark(b, handler(job.Source{Lang: l.lang, Body: l.echo})) })
	}
	b.Run("http", func(b *testing.B) {
		url := startServer(b, func(w http.ResponseWriter, q *http.Request) { io.Copy(w, q.Body) })
		benchmark(b, httpHandler(url, job.Options{}))
	})
	b.Run("http batch", func(b *testing.B) {
		url := startServer(b, func(w http.ResponseWriter, q *http.Request) {
			io.WriteString(w, "200\n200\n200\n200\n200\n200\n200\n200\n200\n200\n")
		})
		benchmark(b, httpHandler(url, job.Options{Batch: true}))
	})
}

func benchmark(b *testing.B, h *job.Handler) {
	r := newRunner(b, func(o *Options) { o.JobsPerProcess = 1 << 30 })
	const size = 10
	payloads := make([]string, size)
	for i := range payloads {
		payloads[i] = `{"user":17,"picture":"2026/01/02/0001.jpg"}`
	}
	one := batch(h, payloads...)
	var jobsLeft atomic.Int64
	jobsLeft.Store(int64(b.N))
	var wg sync.WaitGroup
	slots := 4 * runtime.NumCPU()
	wg.Go(func() { r.Run(context.Background(), one, &reportRecorder{t: b}) })
	wg.Wait()
	b.ResetTimer()
	for range slots {
		wg.Go(func() {
			for jobsLeft.Add(-size) > -size {
				to := &reportRecorder{t: b}
				r.Run(context.Background(), one, to)
				for _, o := range to.outcomes {
					if o.Status != 200 {
						b.Errorf("%s", text(o))
					}
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
