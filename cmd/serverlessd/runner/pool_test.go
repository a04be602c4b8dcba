package runner

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
)

// TestPoolBoundsItsProcesses: there are at most as many handler processes as allowed, and each is
// used for at most the allowed number of jobs and idle time.
func TestPoolBoundsItsProcesses(t *testing.T) {
	pid := func(r *Runner, client string) string {
		b := batch(&job.Handler{ID: "1", Jobtype: "c-t", Source: job.Source{Lang: job.Shell, Body: `echo "R: 200 $$"`}}, "")
		b.Client = client
		return text(run(t, r, b)[0])
	}
	t.Run("jobs", func(t *testing.T) {
		r := newRunner(t, func(o *Options) { o.JobsPerProcess = 3 })
		var pids []string
		for range 9 {
			pids = append(pids, pid(r, "c"))
		}
		if pids[0] != pids[2] || pids[2] == pids[3] || pids[3] != pids[5] || pids[5] == pids[6] {
			t.Errorf("contexts for 3 jobs each: %q", pids)
		}
	})
	t.Run("idle", func(t *testing.T) {
		r := newRunner(t, func(o *Options) { o.IdleTimeout = 20 * time.Millisecond })
		first := pid(r, "c")
		eventually(t, "the idle context is gone", func() bool { return r.Processes() == 0 })
		if pid(r, "c") == first {
			t.Error("it was used again")
		}
	})
	t.Run("full", func(t *testing.T) {
		r := newRunner(t, func(o *Options) { o.MaxProcesses = 3 })
		a, b, c := pid(r, "a"), pid(r, "b"), pid(r, "c")
		if pid(r, "a") != a {
			t.Error("a's context was not used again")
		}
		pid(r, "d") // it replaces b's handler process, which has been idle longest
		if pid(r, "a") != a || pid(r, "c") != c || r.Processes() > 3 {
			t.Errorf("a context other than the longest idle one has gone; there are %d", r.Processes())
		}
		if pid(r, "b") == b {
			t.Error("b's context was not ended")
		}
	})
	t.Run("waiting", func(t *testing.T) {
		r := newRunner(t, func(o *Options) { o.MaxProcesses = 2 })
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for range 5 {
					h := handler(job.Source{Lang: job.Shell, EID: fmt.Sprint("e", i%7), Body: "true"})
					if got := text(runOne(t, r, h, "")); got != "200" {
						t.Errorf("%q", got)
					}
					if n := r.Processes(); n > 2 {
						t.Errorf("%d contexts, at most 2", n)
					}
				}
			})
		}
		wg.Wait()
	})
	t.Run("waiting in vain", func(t *testing.T) {
		r := newRunner(t, func(o *Options) { o.MaxProcesses = 1 })
		busyReports := &reportRecorder{t: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(context.Background(), batch(handler(job.Source{Lang: job.Shell, Body: "sleep 1000"}), ""), busyReports)
		}()
		eventually(t, "the context is taken", func() bool { return r.Processes() == 1 })
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(10*time.Millisecond, cancel)
		to := &reportRecorder{t: t}
		r.Run(ctx, batch(handler(job.Source{Lang: job.Shell, Body: "true"}), ""), to)
		if to.startedCount != 0 {
			t.Error("a job began without a context")
		}
		r.Kill()
		<-done
	})
}

// TestOneProcessEach: two batches that run at the same time have two handler processes.
func TestOneProcessEach(t *testing.T) {
	r := newRunner(t, nil)
	dir := t.TempDir()
	// Each job waits for the other.
	body := fmt.Sprintf(`touch "%s/$1"; until [ $(ls %s | wc -l) = 2 ]; do sleep 0.01; done`, dir, dir)
	h := handler(job.Source{Lang: job.Shell, EID: "e", Body: body})
	var wg sync.WaitGroup
	for _, name := range []string{"1", "2"} {
		wg.Go(func() {
			if got := text(runOne(t, r, h, name)); got != "200" {
				t.Errorf("%q", got)
			}
		})
	}
	wg.Wait()
}
