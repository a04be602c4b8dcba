package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway/redistest"
)

// TestFullRedisRefusesJobs: a full Redis refuses jobs, and accepts jobs again once its stored jobs
// have run.
func TestFullRedisRefusesJobs(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	d := start(t, "--redis", server.URL())
	c := d.client(t, jsonType)
	body := fmt.Sprintf(`{"name":"n","argument":{"x":%q},"keep_result":true}`, strings.Repeat("x", 50<<10))
	takenCount := 0
	enqueueUntilFull := func() (n int) {
		for ; ; n++ {
			if r := c.do("POST", "/job", body); r.status != 201 {
				r.wantRefusal(503, "store_unavailable", "")
				return n
			}
		}
	}
	drain := func() {
		worker := c.register(`{"name":"w","max_jobs":10}`)
		for takenCount > 0 {
			for _, id := range c.pull(worker, 10) {
				c.do("POST", "/done", `{"job_id":"`+id+`","type":"success","result":"`+strings.Repeat("y", 1<<10)+`"}`, "worker-id", worker).wantStatus(204)
				c.do("GET", "/job/"+id, "").wantStatus(200)
				takenCount--
			}
		}
		c.do("DELETE", "/worker", "", "worker-id", worker).wantStatus(204)
	}
	if takenCount = enqueueUntilFull(); takenCount < 20 {
		t.Fatalf("only %d jobs fit", takenCount)
	}
	drain()
	// Jobs that have just ended can be read for some seconds; then their memory is used
	// for new jobs.
	for end := time.Now().Add(testTimeout); takenCount < 20; time.Sleep(50 * time.Millisecond) {
		for c.do("POST", "/job", body).status == 201 {
			takenCount++
		}
		if time.Now().After(end) {
			t.Fatalf("only %d jobs are taken again", takenCount)
		}
	}
	drain()
}
