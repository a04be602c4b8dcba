package gloom_test

import (
	"context"
	"encoding/json"
	"net"
	"sync"
	"testing"
	"time"

	gloom "gloom/clients/go"
	"gloom/wire"
)

// The peer of these benchmarks is the trivial echo broker of echo_test.go, in this
// process. It uses about a third of the processor time.

var testBody = json.RawMessage(`{"user":12345,"text":"hello"}`)

func benchmarkSubmitter(b *testing.B, opts ...gloom.Option) *gloom.Submitter {
	s, err := gloom.Dial(context.Background(), append([]gloom.Option{gloom.Addrs(echoBroker(b))}, opts...)...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	b.ReportAllocs()
	return s
}

func reportPerSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkCallbacks: one goroutine submits as fast as the window allows.
func BenchmarkCallbacks(b *testing.B) {
	for name, job := range map[string]gloom.Job{
		"acked": {Type: "echo", Body: testBody},
		"quiet": {Type: "echo", Body: testBody, NoAck: true},
	} {
		b.Run(name, func(b *testing.B) {
			s := benchmarkSubmitter(b)
			var wg sync.WaitGroup
			done := func(_ gloom.Result, err error) {
				if err != nil {
					b.Error(err)
				}
				wg.Done()
			}
			ctx := context.Background()
			for b.Loop() {
				wg.Add(1)
				if err := s.SubmitFunc(ctx, job, done); err != nil {
					b.Fatal(err)
				}
			}
			wg.Wait()
			reportPerSecond(b)
		})
	}
}

// BenchmarkFutures keeps a ring of pending jobs.
func BenchmarkFutures(b *testing.B) {
	s := benchmarkSubmitter(b)
	ctx := context.Background()
	var ring [512]*gloom.Pending
	n := 0
	for b.Loop() {
		at := &ring[n%len(ring)]
		n++
		if *at != nil {
			if _, err := (*at).Result(ctx); err != nil {
				b.Fatal(err)
			}
		}
		p, err := s.Submit(ctx, gloom.Job{Type: "echo", Body: testBody})
		if err != nil {
			b.Fatal(err)
		}
		*at = p
	}
	reportPerSecond(b)
}

// BenchmarkDo has at least 256 goroutines, each of which waits for its answer before it submits
// again.
func BenchmarkDo(b *testing.B) {
	s := benchmarkSubmitter(b)
	b.SetParallelism(128)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Do(context.Background(), gloom.Job{Type: "echo", Body: testBody}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	reportPerSecond(b)
}

// BenchmarkRoundTrip: one goroutine submits one job at a time.
func BenchmarkRoundTrip(b *testing.B) {
	s := benchmarkSubmitter(b)
	for b.Loop() {
		if _, err := s.Do(context.Background(), gloom.Job{Type: "echo", Body: testBody}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWorker gets its jobs from a peer that keeps a socket full.
func BenchmarkWorker(b *testing.B) {
	for name, prefetch := range map[string]int{"one": 0, "prefetch": 64} {
		b.Run(name, func(b *testing.B) {
			f := newFakeBroker(b)
			w := &gloom.Worker{Type: "echo", Prefetch: prefetch, Concurrency: max(1, prefetch/32),
				Handler: echoHandler, Options: []gloom.Option{gloom.Addrs(f.addr())}}
			go w.Start(context.Background())
			nc, err := f.ln.Accept()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			feedJobs(b, nc, max(prefetch, 1))
			b.StopTimer()
			reportPerSecond(b)
			nc.Close()
			runCtx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			w.Stop(runCtx)
			<-w.Done()
		})
	}
}

// feedJobs sends b.N jobs to a worker, at most window of them at a time.
func feedJobs(b *testing.B, nc net.Conn, window int) {
	var (
		dec   wire.Decoder
		req   wire.Request
		buf   = make([]byte, 64<<10)
		in    = buf[:0]
		out   []byte
		jobs  int
		id    = []byte("job-000000")
		named = window > 1
	)
	next := func() {
		if jobs == b.N {
			return
		}
		jobs++
		for n, i := jobs, len(id)-1; i > 3; n, i = n/10, i-1 {
			id[i] = byte('0' + n%10)
		}
		out = wire.AppendJob(out, id, []byte("echo"), nil, testBody)
	}
	for answers := 0; answers < b.N; {
		n, err := nc.Read(buf[len(in):])
		if err != nil {
			b.Fatal(err)
		}
		in, out = buf[:len(in)+n], out[:0]
		for {
			frame, used, _ := wire.SplitFrame(in, 1<<20)
			if used == 0 {
				break
			}
			if err := dec.Decode(frame, wire.WorkerPort, named, &req); err != nil {
				b.Fatal(err)
			}
			in = in[used:]
			out = wire.AppendOK(out)
			switch req.Verb {
			case wire.Join:
				for range window {
					next()
				}
			case wire.Respond:
				answers++
				next()
			}
		}
		in = buf[:copy(buf, in)]
		if _, err := nc.Write(out); err != nil {
			b.Fatal(err)
		}
	}
}
