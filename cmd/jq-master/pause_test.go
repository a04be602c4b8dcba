package main

import (
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestPausedMasterLosesNoWorkers: while a master is stopped, workers that keep sending heartbeats
// are not lost, and results that are sent in time count.
func TestPausedMasterLosesNoWorkers(t *testing.T) {
	t.Parallel()
	d := start(t, "--heartbeat", "300ms", "--timeout-grace", "0s")
	c := d.client(t, jsonType)
	worker := c.register(`{"name":"w","max_jobs":20,"heartbeat":true}`)
	for range 20 {
		c.enqueue(`{"name":"n","argument":{},"timeout":2,"max_retry":0}`)
	}
	var jobs []string
	for len(jobs) < 20 {
		jobs = append(jobs, c.pull(worker, 20)...)
	}
	d.Signal(syscall.SIGSTOP)
	thaw := time.AfterFunc(4*time.Second, func() { d.Signal(syscall.SIGCONT) })
	defer thaw.Stop()
	var wg sync.WaitGroup
	wg.Go(func() { c.do("POST", "/worker/heartbeat", "", "worker-id", worker).wantStatus(200) })
	for _, id := range jobs {
		wg.Go(func() {
			if r := c.do("POST", "/done", `{"job_id":"`+id+`","type":"success","result":1}`, "worker-id", worker); r.status != 204 {
				t.Errorf("%s: %s", r.request, r.text)
			}
		})
	}
	wg.Wait()
	eventually(t, "the silent worker is lost", func() bool {
		return c.do("GET", "/v1/workers", "").decode()["workers"] == nil || len(c.do("GET", "/v1/workers", "").decode()["workers"].([]any)) == 0
	})
}
