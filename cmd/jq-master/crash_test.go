package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"gloom/bench/throwaway/jqtest"
	"gloom/bench/throwaway/redistest"
	"gloom/cmd/internal/failpoint"
)

const childArg = "be-jq-master"

// becomeChild makes the test binary run the program if its first argument says so. The second
// argument is a failpoint and a count, such as "after move:3": the program kills itself when it
// passes the failpoint for the third time.
func becomeChild() {
	if len(os.Args) < 3 || os.Args[1] != childArg {
		return
	}
	name, text, _ := strings.Cut(os.Args[2], ":")
	count, _ := strconv.Atoi(text)
	var passCount atomic.Int64
	failpoint.Hook = func(at string) {
		if at == name && passCount.Add(1) == int64(count) {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	os.Args = append(os.Args[:1], os.Args[3:]...)
	main()
}

// testSite is a master with a Redis, and pushers and a worker that record the replies.
type testSite struct {
	t        *testing.T
	redis    *redistest.Server
	master   *jqtest.Server
	worker   *httptest.Server
	workerID atomic.Pointer[string] // of the worker
	random   func(int) int

	mu        sync.Mutex // guards what follows
	accepted  map[int]acceptedJob
	refused   map[int]bool // 503: not enqueued
	runs      map[int]int
	ended     map[int]bool // reported and answered 204
	fetched   map[int]bool
	nextIndex int
	wg        sync.WaitGroup // of pushers
	reports   sync.WaitGroup
	stop      chan struct{}
	finished  chan struct{} // reports give up
}

// acceptedJob is what a pusher knows about its job.
type acceptedJob struct {
	id    string
	retry int
}

// httpClient sends the requests of pushers and workers, each with a time limit.
var httpClient = &http.Client{Timeout: 15 * time.Second}

func newTestSite(t *testing.T, crashPoint string) *testSite {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	s := &testSite{
		t: t, redis: redistest.New(t, "--appendfsync", "always"), accepted: map[int]acceptedJob{}, refused: map[int]bool{},
		runs: map[int]int{}, ended: map[int]bool{}, fetched: map[int]bool{}, stop: make(chan struct{}), finished: make(chan struct{}),
		random: func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) },
	}
	s.master = s.newMaster(crashPoint, false)
	if err := s.master.Launch(); err != nil {
		t.Fatal(err)
	}
	s.worker = httptest.NewServer(http.HandlerFunc(s.work))
	t.Cleanup(s.worker.Close)
	t.Cleanup(s.master.Close)
	s.register()
	for range 4 {
		s.wg.Go(s.push)
	}
	return s
}

func (s *testSite) newMaster(crashPoint string, standby bool) *jqtest.Server {
	m, err := jqtest.New(s.command(crashPoint), standby, "--redis", s.redis.URL(),
		"--backoff-base", "50ms", "--timeout-grace", "200ms", "--heartbeat", "300ms", "--store-wait", "5s")
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *testSite) command(crashPoint string) []string {
	return []string{os.Args[0], childArg, crashPoint}
}

func (s *testSite) url(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "http://" + s.master.Addr + path
}

// call makes a JSON request. A status of 0 means that the connection failed and the effect of the
// request is unknown.
func (s *testSite) call(method, path, worker string, body, answer any) int {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			s.t.Error(err)
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, s.url(path), in)
	if err != nil {
		s.t.Error(err)
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	if worker != "" {
		req.Header.Set("worker-id", worker)
	}
	res, err := httpClient.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0
	}
	if answer != nil && res.StatusCode/100 == 2 {
		if err := json.Unmarshal(text, answer); err != nil {
			s.t.Errorf("%s %s: %v in %q", method, path, err, text)
		}
	}
	return res.StatusCode
}

func (s *testSite) register() {
	s.t.Helper()
	var answer struct {
		ID string `json:"worker_id"`
	}
	body := map[string]any{"name": "crash", "max_jobs": 20, "url": s.worker.URL}
	if status := s.call("POST", "/worker", "", body, &answer); status != 201 {
		s.t.Fatalf("registering: status %d", status)
	}
	s.workerID.Store(&answer.ID)
}

// push enqueues jobs, every second job with a key, until stopped.
func (s *testSite) push() {
	for {
		select {
		case <-s.stop:
			return
		default:
		}
		s.mu.Lock()
		n := s.nextIndex
		s.nextIndex++
		s.mu.Unlock()
		retry := s.random(2) * 100
		var answer struct {
			ID string `json:"job_id"`
		}
		status := s.call("POST", "/job", "", map[string]any{"name": "crash", "argument": map[string]int{"n": n, "retry": retry},
			"max_retry": retry, "timeout": 1, "keep_result": true, "priority": s.random(3)}, &answer)
		s.mu.Lock()
		switch status {
		case 201:
			s.accepted[n] = acceptedJob{answer.ID, retry}
		case 503:
			s.refused[n] = true
		case 0: // unknown
		default:
			s.t.Errorf("enqueueing: status %d", status)
		}
		s.mu.Unlock()
		if status != 201 {
			time.Sleep(20 * time.Millisecond) // no master answers at the moment
		}
	}
}

// work accepts a pushed job, and reports its end from another goroutine.
func (s *testSite) work(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return // the master went away while it was pushing
	}
	var job struct {
		ID       string         `msgpack:"job_id"`
		Attempt  int            `msgpack:"attempt"`
		Argument map[string]int `msgpack:"argument"`
	}
	if err := msgpack.Unmarshal(text, &job); err != nil {
		s.t.Errorf("pushed: %v", err)
		return
	}
	n := job.Argument["n"]
	s.mu.Lock()
	s.runs[n]++
	runs := s.runs[n]
	s.mu.Unlock()
	if runs > 1 && job.Argument["retry"] == 0 {
		s.t.Errorf("job %d with max_retry 0 runs for the time number %d, attempt %d", n, runs, job.Attempt)
	}
	w.WriteHeader(202)
	s.reports.Go(func() {
		body := map[string]any{"job_id": job.ID, "type": "success", "result": n, "attempt": job.Attempt}
		if runs == 1 && n%7 == 3 {
			body = map[string]any{"job_id": job.ID, "type": "failure", "reason": "other", "should_retry": true, "error": nil, "message": "no"}
		}
		for {
			switch status := s.call("POST", "/done", *s.workerID.Load(), body, nil); status {
			case 204:
				s.mu.Lock()
				s.ended[n] = s.ended[n] || body["type"] == "success"
				s.mu.Unlock()
				return
			case 404, 409: // the run has timed out, or the worker was forgotten
				return
			case 0, 503:
			default:
				s.t.Errorf("done: status %d", status)
				return
			}
			select {
			case <-s.finished:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}

// progress waits until this many more jobs have been accepted, and this many more have ended.
func (s *testSite) progress(goal int) {
	s.t.Helper()
	s.mu.Lock()
	acceptedCount, endedCount := len(s.accepted)+goal, len(s.ended)+goal
	s.mu.Unlock()
	s.waitUntil(fmt.Sprintf("%d more jobs end", goal), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.accepted) >= acceptedCount && len(s.ended) >= endedCount
	})
}

func (s *testSite) waitUntil(name string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(testTimeout); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %s: %s", testTimeout, name)
		}
	}
}

func (s *testSite) ready() bool { return s.master.Ready(context.Background()) == nil }

// settle stops the pushers, waits until all accepted jobs have ended, and compares how they ended
// with the replies to pushers and workers.
func (s *testSite) settle() {
	s.t.Helper()
	close(s.stop)
	s.wg.Wait()
	s.waitUntil("the master is ready", s.ready)
	for n, job := range s.accepted {
		var end struct {
			Status string `json:"status"`
			Result any    `json:"result"`
			Reason string `json:"message"`
			Retry  int    `json:"retry_count"`
		}
		s.waitUntil(fmt.Sprintf("job %d has ended: %+v", n, end), func() bool {
			status := s.call("GET", "/job/"+job.id+"?peek=true", "", nil, &end)
			if status == 404 {
				s.t.Fatalf("job %d was accepted and is lost", n)
			}
			return status == 200 && (end.Status == "done" || end.Status == "error")
		})
		s.mu.Lock()
		runs, ended := s.runs[n], s.ended[n]
		s.mu.Unlock()
		switch {
		case end.Status == "done" && (runs == 0 || !s.fetched[n] && end.Result != float64(n)):
			s.t.Errorf("job %d is done after %d runs with the result %v", n, runs, end.Result)
		case end.Status == "error" && ended:
			s.t.Errorf("job %d is %+v, though its worker was told that it is done", n, end)
		case end.Status == "error" && job.retry > 0:
			s.t.Errorf("job %d may be retried and is %+v", n, end)
		}
	}
	close(s.finished)
	s.reports.Wait()
	for n := range s.refused {
		if s.runs[n] > 0 {
			s.t.Errorf("job %d ran, though its pusher was refused", n)
		}
	}
	s.t.Logf("%d jobs accepted, %d refused", len(s.accepted), len(s.refused))
}

// TestMasterKilled: the master is killed at random moments and started again.
func TestMasterKilled(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, "never")
	for range 3 {
		s.progress(20)
		time.Sleep(time.Duration(s.random(20_000)) * time.Microsecond)
		s.master.Kill()
		if err := s.master.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	s.progress(20)
	s.settle()
}

// TestMasterDies: the master dies right before or right after it sends a script.
func TestMasterDies(t *testing.T) {
	t.Parallel()
	for script, count := range map[string]int{"enqueue": 15, "move": 30, "put": 4, "fetch": 2} {
		for _, moment := range []string{"before", "after"} {
			t.Run(moment+" "+script, func(t *testing.T) {
				t.Parallel()
				s := newTestSite(t, fmt.Sprintf("%s %s:%d", moment, script, count))
				exited := s.master.Exited()
				for i, deadline := 0, time.After(testTimeout); exited != nil; i++ {
					switch script {
					case "put":
						s.call("PUT", "/v1/constraints/c", "", map[string]any{"match": map[string]any{}, "rate": 1000 + i, "burst": 1000}, nil)
					case "fetch":
						s.fetch()
					}
					select {
					case <-exited:
						exited = nil
					case <-deadline:
						t.Fatal("the master never comes to that point")
					case <-time.After(5 * time.Millisecond):
					}
				}
				s.master.Kill()
				s.master.Command = s.command("never")
				if err := s.master.Launch(); err != nil {
					t.Fatal(err)
				}
				s.progress(10)
				s.settle()
			})
		}
	}
}

// fetch requests the result of a job that is done.
func (s *testSite) fetch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.ended {
		if job, known := s.accepted[n]; known && !s.fetched[n] {
			s.fetched[n] = true
			s.mu.Unlock()
			s.call("GET", "/job/"+job.id, "", nil, nil)
			s.mu.Lock()
			return
		}
	}
}

// TestRedisFaults: Redis fails under load while the master runs on. A job whose pusher was refused
// does not exist.
func TestRedisFaults(t *testing.T) {
	t.Parallel()
	do := func(words ...any) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, r *redistest.Server) { r.Do(t, words...) }
	}
	for name, f := range map[string]struct {
		begin, end func(*testing.T, *redistest.Server)
	}{
		"killed": {
			func(_ *testing.T, r *redistest.Server) { r.Kill() },
			func(t *testing.T, r *redistest.Server) {
				if err := r.Launch(); err != nil {
					t.Fatal(err)
				}
			},
		},
		"frozen": {
			func(_ *testing.T, r *redistest.Server) { r.Freeze() },
			func(_ *testing.T, r *redistest.Server) { r.Thaw() },
		},
		"read-only":     {do("REPLICAOF", "127.0.0.1", "1"), do("REPLICAOF", "NO", "ONE")},
		"out of memory": {do("CONFIG", "SET", "maxmemory", "1"), do("CONFIG", "SET", "maxmemory", "0")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestSite(t, "never")
			s.progress(20)
			f.begin(t, s.redis)
			s.waitUntil("enqueueing is refused", func() bool {
				var body map[string]any
				return s.call("POST", "/job", "", map[string]any{"name": "nobody", "argument": map[string]any{}}, &body) == 503
			})
			s.waitUntil("the master is not ready", func() bool { return !s.ready() })
			f.end(t, s.redis)
			s.progress(20)
			s.settle()
		})
	}
}

// TestRedisFlushed: when Redis loses everything, the master starts again with nothing.
func TestRedisFlushed(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, "never")
	s.progress(5)
	close(s.stop)
	s.wg.Wait()
	s.redis.Do(t, "FLUSHALL")
	for _, job := range s.accepted {
		s.waitUntil("the master forgets what Redis has lost", func() bool { return s.call("GET", "/job/"+job.id, "", nil, nil) == 404 })
	}
	close(s.finished)
	s.reports.Wait()
	s.waitUntil("the master is ready", s.ready)
	s.register()
	var job struct {
		ID string `json:"job_id"`
	}
	body := map[string]any{"name": "crash", "argument": map[string]int{"n": 1 << 20}}
	if status := s.call("POST", "/job", "", body, &job); status != 201 {
		t.Fatalf("enqueueing after all was flushed: status %d", status)
	}
	s.waitUntil("a job comes to the worker", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.runs[1<<20] > 0
	})
}

// TestStandbyTakesOver: a standby takes over at once from a master that was killed, and at the end
// of the lease from a master that hangs. A master that hung changes nothing when it continues.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprintf("hangs %t", hangs), func(t *testing.T) {
			t.Parallel()
			s := newTestSite(t, "never")
			standby := s.newMaster("never", true)
			if err := standby.Launch(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(standby.Close)
			s.progress(20)
			if err := standby.Ready(context.Background()); err == nil {
				t.Error("the standby says that it is ready while there is a master")
			}
			first := s.master
			defer first.Close()
			if hangs {
				first.Freeze()
			} else {
				first.Kill()
			}
			s.mu.Lock()
			s.master = standby
			s.mu.Unlock()
			s.waitUntil("the standby is ready", s.ready)
			first.Thaw()
			s.progress(20)
			if hangs && first.Ready(context.Background()) == nil {
				t.Error("there are two masters")
			}
			s.settle()
		})
	}
}
