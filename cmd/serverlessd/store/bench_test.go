package store_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

var rows = flag.Int("rows", 1_000_000, "of BenchmarkPick")

// benchEachStore runs a benchmark on each real database, with its usual durability.
func benchEachStore(b *testing.B, f func(b *testing.B, s Store)) {
	b.Run("sqlite", func(b *testing.B) {
		f(b, openStore(b, "sqlite:"+filepath.Join(b.TempDir(), "store.db")))
	})
	b.Run("mariadb", func(b *testing.B) {
		server, err := mariadbtest.Start(mariadbtest.Options{Durable: true})
		if err != nil {
			b.Fatal(err)
		}
		defer server.Close()
		f(b, openStore(b, address(b, server)))
	})
}

func openStore(b testing.TB, address string) Store {
	s, err := Open(address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// fill ingests n jobs of the given number of types, 10,000 jobs at a time.
func ingestJobs(b *testing.B, s Store, n, types int) {
	payload := []byte("a payload of the usual kind, about a hundred bytes long: {\"id\":12345,\"what\":\"resize\",\"to\":\"320x200\"}")
	for done := 0; done < n; {
		var jobs []journal.Entry
		first := ids.Next(10_000)
		for i := range min(10_000, n-done) {
			jobs = append(jobs, journal.Entry{ID: first.Add(i), Jobtype: fmt.Sprintf("client-%04d", (done+i)%types), Payload: payload, Accepted: time.Now(), End: 1})
		}
		segments++
		if _, err := s.Ingest(b.Context(), journal.Range{Segment: fmt.Sprint("s", segments), To: 1}, jobs, time.Now); err != nil {
			b.Fatal(err)
		}
		done += len(jobs)
	}
}

func BenchmarkIngest(b *testing.B) {
	benchEachStore(b, func(b *testing.B, s Store) {
		ingestJobs(b, s, 10_000, 10)
		b.ResetTimer()
		ingestJobs(b, s, b.N, 10)
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	})
}

// BenchmarkPick finds the types with waiting jobs and takes a batch, with a million rows of a
// thousand types.
func BenchmarkPick(b *testing.B) {
	benchEachStore(b, func(b *testing.B, s Store) {
		ingestJobs(b, s, *rows, 1000)
		var look, take []time.Duration
		b.ResetTimer()
		for i := range b.N {
			start := time.Now()
			if _, _, err := s.Waiting(b.Context()); err != nil {
				b.Fatal(err)
			}
			look = append(look, time.Since(start))
			start = time.Now()
			if _, err := s.Take(b.Context(), TakeRequest{Sysid: testSysid, Jobtype: fmt.Sprintf("client-%04d", i%1000), N: 10, TTL: testTTL}); err != nil {
				b.Fatal(err)
			}
			take = append(take, time.Since(start))
		}
		for name, elapsed := range map[string][]time.Duration{"look": look, "take": take} {
			slices.Sort(elapsed)
			b.ReportMetric(float64(elapsed[0].Microseconds()), name+"-min-µs")
			b.ReportMetric(float64(elapsed[len(elapsed)/2].Microseconds()), name+"-p50-µs")
		}
	})
}

// BenchmarkRun takes and ends jobs, a hundred at a time.
func BenchmarkRun(b *testing.B) {
	benchEachStore(b, func(b *testing.B, s Store) {
		ingestJobs(b, s, b.N, 1)
		b.ResetTimer()
		for done := 0; done < b.N; {
			taken, err := s.Take(b.Context(), TakeRequest{Sysid: testSysid, Jobtype: "client-0000", N: 100, TTL: testTTL})
			if err != nil || len(taken) == 0 {
				b.Fatal(err, len(taken))
			}
			var ends []RunEnd
			for _, j := range taken {
				ends = append(ends, RunEnd{Run: j.Run, Action: EndArchive, Code: job.CodeOK, Status: 200, Data: []byte("done")})
			}
			if _, err := s.End(b.Context(), testSysid, ends); err != nil {
				b.Fatal(err)
			}
			done += len(taken)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	})
}
