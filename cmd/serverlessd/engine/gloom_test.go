package engine

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gloom/broker/server"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/testing/proxytest"
	"gloom/cmd/serverlessd/job"
)

// addGloomHandler adds a handler for Gloom workers and, if does is not nil, connects a worker.
func addGloomHandler(t *testing.T, e *Engine, jobtype string, options job.Options, handle gloom.Handler) {
	t.Helper()
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: jobtype, Source: job.Source{Lang: job.Gloom, Body: "on workers", Options: options}})
	})
	if handle != nil {
		connectWorker(t, e, &gloom.Worker{Type: jobtype, Concurrency: 10, Handler: handle})
	}
}

// connectWorker connects a worker to the engine's broker, until the test ends or stop is called.
func connectWorker(t *testing.T, e *Engine, w *gloom.Worker) (stop func()) {
	w.Options = e.link.WorkerOptions("crew")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

func echoHandler(_ context.Context, j *gloom.Job) (any, error) { return j.Body, nil }

// TestBrokerRefusal: a job that the broker will never accept is a failed run, and is retried
// until --retry-for is over.
func TestBrokerRefusal(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"too large": func(c *Config) { c.Broker.MaxFrame = 64 << 10 },
		"another's type": func(c *Config) {
			s := broker(t, "secret submit other-*\n")
			c.Broker.SubmitAddr, c.Broker.WorkerAddr, c.Broker.Token = s.SubmitAddr().String(), s.WorkerAddr().String(), "secret"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
			e := startEngineAs(t, t.TempDir(), func(c *Config) {
				c.MaxLineBytes, c.RetryFor = 1<<20, 0
				change(c)
			}, s)
			defer e.Shutdown(context.Background())
			worker := gloom.Handler(echoHandler)
			if name != "too large" {
				worker = nil // the broker would refuse the payload as JSON, too
			}
			addGloomHandler(t, e, "a-x", job.Options{}, worker)
			id := add(t, e, "a-x", strings.Repeat("x", 100<<10))[0]
			rec := awaitState(t, e, id, job.Abandoned)
			if rec.Tries != 1 || rec.Status != 500 || s.takeCalls.Load() > 10 {
				t.Errorf("%+v, taken %d times", rec, s.takeCalls.Load())
			}
		})
	}
}

// TestDeepBodies: JSON that is too deep for the broker is sent as a string.
func TestDeepBodies(t *testing.T) {
	e := startEngineAs(t, t.TempDir(), func(c *Config) { c.MaxLineBytes, c.MaxResult = 1<<20, 1<<20 }, sqlite(t, filepath.Join(t.TempDir(), "jobs.db")))
	defer e.Shutdown(context.Background())
	addGloomHandler(t, e, "a-x", job.Options{}, echoHandler)
	deepArray := strings.Repeat("[", 1100) + strings.Repeat("]", 1100)
	id := add(t, e, "a-x", deepArray)[0]
	awaitState(t, e, id, job.Succeeded)
	if _, data, err := e.Result(t.Context(), id, math.MaxInt); err != nil || string(data) != `"`+deepArray+`"` {
		t.Errorf("%.20q…, %v", data, err)
	}
}

// TestConcurrencyOfWorkers: options.concurrency also limits the simultaneous runs at Gloom workers.
func TestConcurrencyOfWorkers(t *testing.T) {
	t.Run("fewer than slots", func(t *testing.T) { concurrencyOfWorkers(t, 2, 10) })
	t.Run("more than slots", func(t *testing.T) { concurrencyOfWorkers(t, 10, 2) })
}

func concurrencyOfWorkers(t *testing.T, limit, slots int) {
	const jobs = 40
	e := startEngineAs(t, t.TempDir(), func(c *Config) { c.Concurrency = slots }, sqlite(t, filepath.Join(t.TempDir(), "jobs.db")))
	defer e.Shutdown(context.Background())
	runBegins, runEnds := make(chan struct{}, jobs), make(chan struct{})
	var now, highest atomic.Int32
	addGloomHandler(t, e, "a-x", job.Options{Concurrency: limit}, func(context.Context, *gloom.Job) (any, error) {
		for n, h := now.Add(1), highest.Load(); n > h && !highest.CompareAndSwap(h, n); h = highest.Load() {
		}
		runBegins <- struct{}{}
		<-runEnds
		now.Add(-1)
		return nil, nil
	})
	e.Stop()
	ids := add(t, e, "a-x", slices.Repeat([]string{"1"}, jobs)...)
	for _, id := range ids {
		waitUntil(t, "it is ingested", func() error { return e.journal.AwaitStored(t.Context(), id) })
	}
	e.Start()
	for range limit { // as many jobs as the limit allows run at the same time
		awaitClosed(t, "one begins", runBegins)
	}
	close(runEnds)
	for _, id := range ids {
		awaitState(t, e, id, job.Succeeded)
	}
	if n := highest.Load(); int(n) != limit {
		t.Errorf("%d ran at the same time", n)
	}
}

// TestStartedBeforeTheAnswer: the event that a job at a Gloom worker has started is written while
// the job runs, not after the answer.
func TestStartedBeforeTheAnswer(t *testing.T) {
	dir := t.TempDir()
	e := startEngine(t, dir, sqlite(t, filepath.Join(t.TempDir(), "jobs.db")))
	defer e.Shutdown(context.Background())
	runBegins, runEnds := make(chan struct{}, 1), make(chan struct{})
	addGloomHandler(t, e, "a-x", job.Options{}, func(context.Context, *gloom.Job) (any, error) {
		runBegins <- struct{}{}
		<-runEnds
		return nil, nil
	})
	id := add(t, e, "a-x", "1")[0]
	awaitClosed(t, "it begins", runBegins)
	e.events.flush()
	text, err := os.ReadFile(filepath.Join(dir, "events.log"))
	close(runEnds)
	if err != nil || !strings.Contains(string(text), `"event":"started","id":"`+id.String()) {
		t.Errorf("%s, %v", text, err)
	}
	awaitState(t, e, id, job.Succeeded)
}

// startShared starts a daemon with a shared broker, and returns the daemon and the broker.
func startShared(t *testing.T, change func(*Config)) (*Engine, *server.Server) {
	t.Helper()
	s := broker(t, "secret submit,work\n")
	e := startEngineAs(t, t.TempDir(), func(c *Config) {
		c.Broker.SubmitAddr, c.Broker.WorkerAddr, c.Broker.Token = s.SubmitAddr().String(), s.WorkerAddr().String(), "secret"
		change(c)
	}, sqlite(t, filepath.Join(t.TempDir(), "jobs.db")))
	t.Cleanup(func() { e.Shutdown(context.Background()) })
	return e, s
}

// TestRunsThatOutliveTheirConnection: jobs that were given up with the connection to the broker, or
// with their locks, count against the concurrency of their type as long as workers run them.
func TestRunsThatOutliveTheirConnection(t *testing.T) {
	for name, giveUp := range map[string]func(e *Engine, conn net.Conn){
		"connection": func(_ *Engine, conn net.Conn) { conn.Close() },
		"locks":      func(e *Engine, _ net.Conn) { e.backends[0].loseSysid(e.backends[0].currentSysid()) },
	} {
		t.Run(name, func(t *testing.T) {
			const limit = 2
			conns := make(chan net.Conn, 1)
			e, _ := startShared(t, func(c *Config) {
				c.Concurrency = 5
				c.Broker.SubmitAddr = proxytest.Start(t, c.Broker.SubmitAddr, func(c net.Conn) (toServer, toClient proxytest.Filter, err error) {
					select {
					case conns <- c:
					default:
					}
					return nil, nil, nil
				}).String()
			})
			var running, highest, runs atomic.Int32
			release := make(chan struct{})
			addGloomHandler(t, e, "a-x", job.Options{Concurrency: limit}, func(context.Context, *gloom.Job) (any, error) {
				for n, h := running.Add(1), highest.Load(); n > h && !highest.CompareAndSwap(h, n); h = highest.Load() {
				}
				defer running.Add(-1)
				if runs.Add(1) <= limit {
					<-release
				}
				return nil, nil
			})
			addGloomHandler(t, e, "a-y", job.Options{}, echoHandler)
			ids := add(t, e, "a-x", "1", "1")
			waitUntil(t, "both run", func() error {
				if n := running.Load(); n < limit {
					return fmt.Errorf("%d run", n)
				}
				return nil
			})
			giveUp(e, <-conns)
			ids = append(ids, add(t, e, "a-x", "2", "2")...)
			for range 10 {
				awaitState(t, e, add(t, e, "a-y", "3")[0], job.Succeeded)
			}
			close(release)
			for _, id := range ids {
				awaitState(t, e, id, job.Succeeded)
			}
			if n := highest.Load(); n > limit {
				t.Errorf("%d ran at once", n)
			}
		})
	}
}

// TestRunsThatOutliveTheirDaemon: runs that a killed daemon has left at workers count against the
// concurrency of their type when it is started again.
func TestRunsThatOutliveTheirDaemon(t *testing.T) {
	const limit = 2
	s, dir, jobs := broker(t, "secret submit,work\n"), t.TempDir(), filepath.Join(t.TempDir(), "jobs.db")
	start := func() *Engine {
		return startEngineAs(t, dir, func(c *Config) {
			c.Broker.SubmitAddr, c.Broker.WorkerAddr, c.Broker.Token = s.SubmitAddr().String(), s.WorkerAddr().String(), "secret"
			c.Concurrency = 5
		}, sqlite(t, jobs))
	}
	e := start()
	var running, highest, runs atomic.Int32
	release := make(chan struct{})
	addGloomHandler(t, e, "a-x", job.Options{Concurrency: limit}, func(context.Context, *gloom.Job) (any, error) {
		for n, h := running.Add(1), highest.Load(); n > h && !highest.CompareAndSwap(h, n); h = highest.Load() {
		}
		defer running.Add(-1)
		if runs.Add(1) <= limit {
			<-release
		}
		return nil, nil
	})
	addGloomHandler(t, e, "a-y", job.Options{}, echoHandler)
	ids := add(t, e, "a-x", "1", "1", "2", "2")
	waitUntil(t, "the first ones run", func() error {
		if n := running.Load(); n < limit {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	e.close() // frees nothing, like a kill
	e = start()
	defer e.Shutdown(context.Background())
	for range 10 {
		awaitState(t, e, add(t, e, "a-y", "3")[0], job.Succeeded)
	}
	close(release)
	for _, id := range ids {
		awaitState(t, e, id, job.Succeeded)
	}
	if n := highest.Load(); n > limit {
		t.Errorf("%d ran at once", n)
	}
}

// TestDamagedRunOfAnEarlierDaemon: if a killed daemon has left a run whose row cannot be read, the
// next daemon still runs other jobs.
func TestDamagedRunOfAnEarlierDaemon(t *testing.T) {
	s, dir, jobs := broker(t, "secret submit,work\n"), t.TempDir(), filepath.Join(t.TempDir(), "jobs.db")
	start := func() *Engine {
		return startEngineAs(t, dir, func(c *Config) {
			c.Broker.SubmitAddr, c.Broker.WorkerAddr, c.Broker.Token = s.SubmitAddr().String(), s.WorkerAddr().String(), "secret"
		}, sqlite(t, jobs))
	}
	e := start()
	runBegan, release := make(chan bool, 1), make(chan bool)
	defer close(release)
	addGloomHandler(t, e, "a-x", job.Options{Concurrency: 1}, func(context.Context, *gloom.Job) (any, error) {
		runBegan <- true
		<-release
		return nil, nil
	})
	addGloomHandler(t, e, "a-y", job.Options{}, echoHandler)
	add(t, e, "a-x", "1")
	<-runBegan
	e.close() // frees nothing, like a kill
	db, err := sql.Open("sqlite", jobs)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("UPDATE sq_jobs SET first_dt = 'damaged' WHERE type = 'a-x'"); err != nil {
		t.Fatal(err)
	}
	e = start()
	defer e.Shutdown(context.Background())
	awaitState(t, e, add(t, e, "a-y", "2")[0], job.Succeeded)
}

// TestDistantWorkers: jobs run at full speed even if they reach a worker only after some time, as
// when another broker borrows them.
func TestDistantWorkers(t *testing.T) {
	const jobs, releaseDelay = 100, 20 * time.Millisecond
	e, _ := startShared(t, func(*Config) {})
	var tries atomic.Int64
	var seen sync.Map
	addGloomHandler(t, e, "a-x", job.Options{}, func(_ context.Context, j *gloom.Job) (any, error) {
		tries.Add(1)
		if _, again := seen.LoadOrStore(j.ID, true); !again {
			return nil, gloom.Release(releaseDelay)
		}
		seen.Delete(j.ID)
		return nil, nil
	})
	start := time.Now()
	for _, id := range add(t, e, "a-x", slices.Repeat([]string{"1"}, jobs)...) {
		awaitState(t, e, id, job.Succeeded)
	}
	// One at a time, with a pause of 50 ms before each, they would take 7 s.
	if elapsed := time.Since(start); elapsed > 5*time.Second {
		t.Errorf("%d jobs took %v, in %d tries", jobs, elapsed, tries.Load())
	}
}

// TestLongJobs: the workers of a shared broker get as many jobs as they take, however long the jobs
// run, and each end is written as soon as the broker reports it.
func TestLongJobs(t *testing.T) {
	const workers = 10
	e, _ := startShared(t, func(c *Config) { c.Concurrency = 20 })
	runEnds := make(chan struct{})
	var running atomic.Int32
	addGloomHandler(t, e, "a-x", job.Options{}, func(_ context.Context, j *gloom.Job) (any, error) {
		running.Add(1)
		if string(j.Body) == "2" {
			return nil, nil
		}
		<-runEnds
		return nil, nil
	})
	add(t, e, "a-x", slices.Repeat([]string{"1"}, workers-1)...)
	waitUntil(t, "all but one of them work", func() error {
		if n := running.Load(); n < workers-1 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	awaitState(t, e, add(t, e, "a-x", "2")[0], job.Succeeded)
	awaitState(t, e, add(t, e, "a-x", "2")[0], job.Succeeded)
	close(runEnds)
}

// TestNoIdleWorker: jobs of many types without workers hold few of the slots that other types need.
func TestNoIdleWorker(t *testing.T) {
	const types, slots = 30, 8
	e, _ := startShared(t, func(c *Config) { c.Concurrency = slots })
	reason := &gloom.JobError{Code: gloom.ErrExpired}
	for range 10 { // probes of all types are sent at the same time
		long := 0
		var jobs []*brokerJob
		for i := range types {
			a := e.newBrokerJob(fmt.Sprint("a-x", i))
			if a.deadline > firstProbeTime {
				long++
			}
			jobs = append(jobs, a)
		}
		for _, a := range jobs {
			a.recordGone(reason)
		}
		if long > slots/8 {
			t.Fatalf("%d jobs wait for long", long)
		}
	}
	if room := e.workerRoom("a-x0"); room != 0 {
		t.Errorf("room for %d jobs of a type that rests", room)
	}
}
