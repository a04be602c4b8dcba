package journal_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/journal"

	"github.com/rs/zerolog"
)

// BenchmarkAppend adds lines with fsync, like clients that wait for each answer. It reports lines/s
// and the median time of a request.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ clients, lines int }{{1, 1}, {32, 1}, {4, 1000}} {
		b.Run(fmt.Sprintf("clients=%d/lines=%d", c.clients, c.lines), func(b *testing.B) {
			files, err := Directory(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			j, err := Open(Options{Files: files, IDs: job.NewIDSource("0seven", time.Now), Log: zerolog.Nop()})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			batch := Batch{Jobtype: "client-type"}
			for range c.lines {
				batch.Lines = append(batch.Lines, []byte(strings.Repeat("x", 100)))
			}
			var mu sync.Mutex
			var elapsed []time.Duration
			var wg sync.WaitGroup
			b.ResetTimer()
			for client := range c.clients {
				wg.Go(func() {
					var times []time.Duration
					for i := client; i < b.N; i += c.clients {
						start := time.Now()
						if _, err := j.Append(b.Context(), []Batch{batch}); err != nil {
							b.Error(err)
							return
						}
						times = append(times, time.Since(start))
					}
					mu.Lock()
					defer mu.Unlock()
					elapsed = append(elapsed, times...)
				})
			}
			wg.Wait()
			b.StopTimer()
			slices.Sort(elapsed)
			b.ReportMetric(float64(b.N*c.lines)/b.Elapsed().Seconds(), "lines/s")
			b.ReportMetric(float64(elapsed[len(elapsed)/2].Microseconds()), "p50-µs")
			s := j.Stats()
			b.ReportMetric(float64((time.Duration(s.SyncTime) / time.Duration(s.Syncs)).Microseconds()), "sync-µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}
