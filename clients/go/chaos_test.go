package gloom_test

import (
	"context"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gloom "gloom/clients/go"
)

var seed = flag.Uint64("seed", 0, "of the tests with cut connections; 0 takes a new one")

// cutter passes connections on to an address and cuts them at random.
type cutter struct {
	ln         net.Listener
	to         string
	passing    sync.WaitGroup
	mu         sync.Mutex // guards the fields below
	rng        *rand.Rand
	hasStopped bool
	cuts       int
}

func newCutter(t *testing.T, to string, rng *rand.Rand) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{ln: ln, to: to, rng: rng}
	c.passing.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			c.passing.Go(func() { c.passOn(nc) })
		}
	})
	return c
}

// budget returns the number of bytes after which a connection is cut.
func (c *cutter) budget() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasStopped {
		return 1 << 60
	}
	c.cuts++
	return c.rng.Int64N(20_000)
}

// stopCutting stops cutting connections, and returns how many were cut.
func (c *cutter) stopCutting() (cuts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasStopped = true
	return c.cuts
}

func (c *cutter) passOn(client net.Conn) {
	broker, err := net.Dial("tcp", c.to)
	if err != nil {
		client.Close()
		return
	}
	limit := c.budget()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, broker}, {broker, client}} {
		both.Go(func() {
			io.CopyN(pair[0], pair[1], limit)
			client.(*net.TCPConn).SetLinger(0)
			client.Close()
			broker.Close()
		})
	}
	both.Wait()
}

// chaosSeed returns the seed of -seed, or a new seed, and prints it.
func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	n := *seed
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("-seed=%d", n)
	return n
}

// A submitter whose connection is cut again and again does not notice: each kept job is
// answered exactly once.
func TestCutsDoNotAffectKeptJobs(t *testing.T) {
	const jobs = 10_000
	b := startBroker(t)
	b.serve(&gloom.Worker{Handler: echoHandler, Concurrency: 2, Prefetch: 8})
	cut := newCutter(t, b.SubmitAddr().String(), rand.New(rand.NewPCG(chaosSeed(t), 4)))
	s := b.newSubmitter(gloom.Addrs(cut.ln.Addr().String()), gloom.Window(64))
	var answers [jobs]atomic.Int32
	for i := range jobs {
		body := strconv.Itoa(i)
		job := gloom.Job{Type: "echo", Body: []byte(body), Keep: time.Minute, AtLeastOnce: true, NoAck: i%3 == 0}
		err := s.SubmitFunc(waitContext(t), job, func(r gloom.Result, err error) {
			if err != nil || string(r.Body) != body {
				t.Errorf("job %d: %s, %v", i, r.Body, err)
			}
			answers[i].Add(1)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Drain(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	for i := range answers {
		if n := answers[i].Load(); n != 1 {
			t.Errorf("job %d was answered %d times", i, n)
		}
	}
	cuts := cut.stopCutting()
	t.Logf("%d connections", cuts)
	if cuts < 50 {
		t.Error("too little was tried")
	}
	cut.ln.Close()
}

// With connections cut at random, every job ends exactly once, with its result or with
// an error that reports the lost connection. A kept job ends with that error only if the broker
// no longer knows it, and a job with AtLeastOnce never does.
func TestCutConnectionsEndEveryJobOnce(t *testing.T) {
	seed := chaosSeed(t)
	b := startBroker(t)
	sub := newCutter(t, b.SubmitAddr().String(), rand.New(rand.NewPCG(seed, 1)))
	work := newCutter(t, b.WorkerAddr().String(), rand.New(rand.NewPCG(seed, 2)))

	for _, prefetch := range []int{0, 8} {
		b.serve(&gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
			job.Progress(1) // may be lost with the connection
			return job.Body, nil
		}, Concurrency: 3, Prefetch: prefetch}, gloom.Addrs(work.ln.Addr().String()))
	}
	s := b.newSubmitter(gloom.Addrs(sub.ln.Addr().String()), gloom.Window(64))
	var submitted, answered, lost, failed, other atomic.Int64
	rng := rand.New(rand.NewPCG(seed, 3))
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		var called atomic.Bool
		body := []byte{byte('0' + rng.IntN(10))}
		job := gloom.Job{Type: "echo", Body: body, NoAck: rng.IntN(4) == 0, Retries: 1000}
		switch rng.IntN(8) {
		case 0:
			job.Detach = true
		case 1, 2:
			job.Keep = time.Minute
		case 3, 4:
			job.Keep, job.AtLeastOnce = time.Minute, true
		}
		err := s.SubmitFunc(waitContext(t), job, func(r gloom.Result, err error) {
			if called.Swap(true) {
				t.Error("a job ended twice")
			}
			switch name := endName(err); {
			case err == nil && (job.Detach || string(r.Body) == string(body)):
				answered.Add(1)
			case job.Keep == 0 && (name == "lost, acked" || name == "lost, sent" || name == "lost, not sent"),
				job.Keep > 0 && !job.AtLeastOnce && (name == "lost, acked, unknown_id" || name == "lost, sent, unknown_id"):
				lost.Add(1)
			case name == "ended job_failed":
				failed.Add(1)
			default:
				other.Add(1)
				t.Errorf("result %s: %v", r.Body, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		submitted.Add(1)
	}
	subCuts, workCuts := sub.stopCutting(), work.stopCutting()
	if err := s.Drain(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every job has ended", func() bool {
		return answered.Load()+lost.Load()+failed.Load()+other.Load() == submitted.Load()
	})
	t.Logf("%d jobs: %d answered, %d lost, %d failed; %d and %d connections cut",
		submitted.Load(), answered.Load(), lost.Load(), failed.Load(), subCuts, workCuts)
	if answered.Load() == 0 || lost.Load() == 0 {
		t.Error("nothing was tried")
	}
	// The workers' connections end with the test; the listeners end here.
	sub.ln.Close()
	work.ln.Close()
}
