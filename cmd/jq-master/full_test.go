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

// TestRepeatedWhenFull: at any limit a repeated request gets the ids of the first one, and another
// request is refused.
func TestRepeatedWhenFull(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	for name, test := range map[string]struct {
		flags []string
		fill  func()
		code  string
	}{
		"max-jobs":               {flags: []string{"--max-jobs=3"}, code: "overloaded"},
		"max-jobs, Redis":        {flags: []string{"--max-jobs=3", "--redis", server.URL()}, code: "overloaded"},
		"max-bytes":              {flags: []string{"--max-bytes=1024"}, code: "overloaded"},
		"maxmemory of the store": {flags: []string{"--redis", server.URL(), "--namespace=other"}, fill: func() { server.Do(t, "CONFIG", "SET", "maxmemory", "1") }, code: "store_unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, test.flags...).client(t, jsonType)
			body := `{"name":"n","argument":{"x":"` + strings.Repeat("x", 200) + `"}}`
			one := c.do("POST", "/job", body, "Idempotency-Key", "k").wantStatus(201)
			two := c.do("POST", "/jobs", "["+body+","+body+"]", "Idempotency-Key", "k").wantStatus(201)
			if test.fill != nil {
				test.fill()
				defer server.Do(t, "CONFIG", "SET", "maxmemory", "0")
			}
			c.do("POST", "/jobs", "["+body+","+body+","+body+","+body+"]", "Idempotency-Key", "other").wantRefusal(503, test.code, "")
			if again := c.do("POST", "/job", body, "Idempotency-Key", "k").wantStatus(201); again.text != one.text || again.header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("%s, then %s", one.text, again.text)
			}
			if again := c.do("POST", "/jobs", "["+body+","+body+"]", "Idempotency-Key", "k").wantStatus(201); again.text != two.text {
				t.Errorf("%s, then %s", two.text, again.text)
			}
			c.do("POST", "/job", `{"name":"n","argument":{}}`, "Idempotency-Key", "k").wantRefusal(422, "idempotency_key_reused", "")
		})
	}
}
