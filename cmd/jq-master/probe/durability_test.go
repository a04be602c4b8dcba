package probe

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"gloom/bench/throwaway/redistest"
)

// load enqueues jobs and runs them while something fails.
type load struct {
	mu        sync.Mutex
	d         *daemon
	accepted  map[string]bool // the acknowledged jobs, by id; true for jobs with max_retry 0
	runs      map[string]int
	succeeded map[string]bool
	stop      chan struct{}
	wg        sync.WaitGroup
}

func (l *load) daemon() *daemon {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.d
}

func startLoad(d *daemon, name string) *load {
	l := &load{d: d, accepted: map[string]bool{}, runs: map[string]int{}, succeeded: map[string]bool{}, stop: make(chan struct{})}
	open := func() bool {
		select {
		case <-l.stop:
			return false
		default:
			return true
		}
	}
	for i := range 3 {
		l.wg.Go(func() {
			for n := 0; open(); n++ {
				never := n%3 == i
				o := object{"name": name, "argument": object{"n": n}, "timeout": 2, "max_retry": 100}
				if never {
					o["max_retry"] = 0
				}
				if r, err := l.daemon().try("POST", "/job", o); err == nil && r.status == 201 {
					l.mu.Lock()
					l.accepted[r.text("job_id")] = never
					l.mu.Unlock()
				}
				time.Sleep(4 * time.Millisecond)
			}
		})
	}
	return l
}

// work runs the jobs until idle is closed.
func (l *load) work(name string, idle chan struct{}) {
	var id string
	for {
		select {
		case <-idle:
			return
		default:
		}
		d := l.daemon()
		if id == "" {
			r, err := d.try("POST", "/worker", object{"name": "w", "max_jobs": 20, "names": []string{name}})
			if err != nil || r.status != 201 {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			id = r.text("worker_id")
		}
		r, err := d.try("POST", "/worker/jobs?wait=0.2&max=10", nil, "worker-id: "+id)
		switch {
		case err != nil:
			time.Sleep(20 * time.Millisecond)
			continue
		case r.status == 404:
			id = ""
			continue
		case r.status != 200:
			time.Sleep(5 * time.Millisecond)
			continue
		}
		jobs, _ := r.json["jobs"].([]any)
		for _, j := range jobs {
			job, _ := j.(object)["job_id"].(string)
			l.mu.Lock()
			l.runs[job]++
			l.mu.Unlock()
		}
		for _, j := range jobs {
			job, _ := j.(object)["job_id"].(string)
			for range 200 {
				r, err := l.daemon().try("POST", "/done", object{"job_id": job, "type": "success"}, "worker-id: "+id)
				if err == nil && (r.status == 204 || r.status == 404 || r.status == 409) {
					if r.status == 204 {
						l.mu.Lock()
						l.succeeded[job] = true
						l.mu.Unlock()
					}
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
}

// check ends the load, and checks that every acknowledged job ends, and that jobs with max_retry 0
// have run at most once.
func (l *load) check(t *testing.T, idle chan struct{}, workers *sync.WaitGroup) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	for id, never := range l.accepted {
		waitUntil(t, id+" ends", func() error {
			r, err := l.daemon().try("GET", "/job/"+id, nil)
			if err != nil || r.status != 200 || r.text("status") != "done" && !(never && r.text("status") == "error") {
				return fmt.Errorf("%s, %v", r, err)
			}
			return nil
		})
	}
	close(idle)
	workers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, never := range l.accepted {
		if never && l.runs[id] > 1 {
			t.Errorf("%s with max_retry 0 has run %d times", id, l.runs[id])
		}
	}
	for id := range l.succeeded {
		if r, err := l.d.try("GET", "/job/"+id, nil); err != nil || r.text("status") != "done" && l.accepted[id] {
			t.Errorf("%s was reported and is %s, %v", id, r, err)
		}
	}
	t.Logf("%d jobs, %d of them done by report", len(l.accepted), len(l.succeeded))
}

func runWithFaults(t *testing.T, name string, flags []string, server *redistest.Server, fault func(l *load, rng *rand.Rand)) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	d := start(t, flags...)
	d.waitUntilReady(t)
	l := startLoad(d, name)
	idle := make(chan struct{})
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() { l.work(name, idle) })
	}
	rounds := 3
	if *fullRun {
		rounds = 25
	}
	for range rounds {
		time.Sleep(time.Duration(100+rng.IntN(400)) * time.Millisecond)
		fault(l, rng)
	}
	time.Sleep(200 * time.Millisecond)
	l.check(t, idle, &workers)
}

// TestNoAckedJobIsLost: no acknowledged job is lost, and none with max_retry 0 runs twice.
func TestNoAckedJobIsLost(t *testing.T) {
	redis := func(t *testing.T) (*redistest.Server, []string) {
		s := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
		return s, append([]string{"--redis=" + s.URL(), "--store-wait=2s"}, quickFlags...)
	}
	t.Run("the master is killed", func(t *testing.T) {
		s, flags := redis(t)
		runWithFaults(t, freshName(), flags, s, func(l *load, _ *rand.Rand) {
			l.daemon().Kill()
			d := start(t, flags...)
			l.mu.Lock()
			l.d = d
			l.mu.Unlock()
		})
	})
	t.Run("a standby takes over", func(t *testing.T) {
		s, flags := redis(t)
		runWithFaults(t, freshName(), flags, s, func(l *load, _ *rand.Rand) {
			standby := start(t, flags...)
			waitUntil(t, "it stands by", func() error {
				r := standby.ask(t, "POST", "/job", object{"name": "x", "argument": object{}})
				if r.status != 503 {
					t.Fatalf("beside an active master: %s", r)
				}
				if r.text("error") != "standby" {
					return fmt.Errorf("%s", r)
				}
				return nil
			})
			l.daemon().Kill()
			standby.waitUntilReady(t)
			l.mu.Lock()
			l.d = standby
			l.mu.Unlock()
		})
	})
	t.Run("Redis is killed", func(t *testing.T) {
		s, flags := redis(t)
		runWithFaults(t, freshName(), flags, s, func(l *load, rng *rand.Rand) {
			s.Kill()
			r, err := l.daemon().try("POST", "/job", object{"name": "x", "argument": object{}})
			if err != nil || r.status != 503 || r.text("error") != "store_unavailable" || r.header.Get("Retry-After") == "" {
				t.Errorf("without Redis: %s, %v", r, err)
			}
			if err := s.Launch(); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("Redis stands still", func(t *testing.T) {
		s, flags := redis(t)
		runWithFaults(t, freshName(), flags, s, func(_ *load, rng *rand.Rand) {
			s.Freeze()
			time.Sleep(time.Duration(100+rng.IntN(1500)) * time.Millisecond)
			s.Thaw()
		})
	})
	t.Run("both are killed", func(t *testing.T) {
		s, flags := redis(t)
		runWithFaults(t, freshName(), flags, s, func(l *load, _ *rand.Rand) {
			l.daemon().Kill()
			s.Kill()
			if err := s.Launch(); err != nil {
				t.Fatal(err)
			}
			d := start(t, flags...)
			l.mu.Lock()
			l.d = d
			l.mu.Unlock()
		})
	})
	t.Run("an evicting Redis is refused", func(t *testing.T) {
		t.Parallel()
		s := redistest.New(t, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")
		d, err := launch("--redis=" + s.URL())
		if err == nil {
			waitUntil(t, "not ready", func() error {
				// The job may have ended by now.
				if r, err := d.try("GET", "/readyz", nil); err == nil && r.status == 200 {
					return fmt.Errorf("it is ready")
				}
				return nil
			})
			_ = d.Stop()
		}
	})
}
