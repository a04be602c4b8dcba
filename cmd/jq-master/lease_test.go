package main

import (
	"syscall"
	"testing"
	"time"

	"gloom/bench/throwaway/redistest"
)

// leaseTerm is the time from each renewal of a lease to its end. During this time no other master
// becomes active.
const leaseTerm = 10 * time.Second

// askAll sends one request of each kind that the master answers from memory, and returns the
// replies.
func (c *client) askAll(job, worker string) map[string]*reply {
	done := `{"job_id":"` + job + `","type":"success","result":1}`
	key := []string{"Idempotency-Key", "k"}
	return map[string]*reply{
		"head":              c.do("HEAD", "/job/"+job, ""),
		"head of a poll":    c.do("HEAD", "/job/"+job+"/polling?timeout=0", ""),
		"cancel":            c.do("DELETE", "/job/"+job, ""),
		"cancel by force":   c.do("DELETE", "/job/"+job+"?force=true", ""),
		"enqueue":           c.do("POST", "/job", `{"name":"n","argument":{}}`, key...),
		"batch":             c.do("POST", "/jobs", `[{"name":"n","argument":{}}]`, key...),
		"register":          c.do("POST", "/worker", `{"name":"w","max_jobs":1}`),
		"pull":              c.do("POST", "/worker/jobs?wait=0", "", "worker-id", worker),
		"unregister":        c.do("DELETE", "/worker", "", "worker-id", worker),
		"dismiss":           c.do("DELETE", "/v1/workers/"+worker, ""),
		"detail":            c.do("GET", "/v1/jobs/"+job, ""),
		"query":             c.do("POST", "/v1/jobs/query", `{}`),
		"operator's retry":  c.do("POST", "/v1/jobs/"+job+"/retry", ""),
		"operator's cancel": c.do("POST", "/v1/jobs/"+job+"/cancel", ""),
		"bulk retry":        c.do("POST", "/v1/jobs/retry", `{"all":true}`),
		"bulk cancel":       c.do("POST", "/v1/jobs/cancel", `{"all":true}`),
		"workers":           c.do("GET", "/v1/workers", ""),
		"constraints":       c.do("GET", "/v1/constraints", ""),
		"constraint":        c.do("GET", "/v1/constraints/c", ""),
		"set constraint":    c.do("PUT", "/v1/constraints/c", `{"match":{},"rate":1}`),
		"drop constraint":   c.do("DELETE", "/v1/constraints/c", ""),
		"status":            c.do("GET", "/job/"+job+"?peek=true", ""),
		"unknown job":       c.do("GET", "/job/01a20283-6e63-7578-8deb-2a843bd12c25", ""),
		"poll":              c.do("GET", "/job/"+job+"/polling?timeout=0", ""),
		"heartbeat":         c.do("POST", "/worker/heartbeat", "", "worker-id", worker),
		"other's job":       c.do("POST", "/done", done, "worker-id", worker),
		"unknown's job":     c.do("POST", "/done", done, "worker-id", "01a20283-6e63-7578-8deb-2a843bd12c25"),
		"statistics":        c.do("GET", "/v1/stats", ""),
		"jobs":              c.do("GET", "/v1/jobs", ""),
	}
}

// TestLeaseLost: a master that has not reached Redis for a whole lease term answers nothing from
// memory.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	gate := redistest.NewGate(t, server.Addr())
	d := start(t, "--redis", gate.URL(), "--store-wait", "200ms")
	c := d.client(t, jsonType)
	worker := c.register(`{"name":"w","max_jobs":1}`)
	job := c.enqueue(`{"name":"n","argument":{}}`)
	waiting := make(chan *reply, 2)
	idle := c.register(`{"name":"w","max_jobs":1,"names":["none"]}`)
	go func() { waiting <- c.do("GET", "/job/"+job+"/polling?timeout=12", "") }()
	go func() { waiting <- c.do("POST", "/worker/jobs?wait=12", "", "worker-id", idle) }()
	gate.SetTarget("127.0.0.1:1")
	c.do("GET", "/job/"+job, "").wantStatus(200) // within the lease, memory is up to date
	leaseEnd := time.Now().Add(leaseTerm)
	eventually(t, "the master stands by", func() bool { return c.do("GET", "/job/"+job, "").status == 503 })
	if time.Now().After(leaseEnd.Add(time.Second)) {
		t.Error("the lease lasts for longer than its term")
	}
	for name, r := range c.askAll(job, worker) {
		t.Run(name, func(t *testing.T) {
			if r.text == "" { // the reply to HEAD has no body
				r.wantStatus(503)
				return
			}
			r.wantRefusal(503, "standby", "")
		})
	}
	for range cap(waiting) {
		(<-waiting).wantRefusal(503, "standby", "")
	}
	c.do("GET", "/healthz", "").wantStatus(200)
	gate.SetTarget(server.Addr())
	d.waitUntilReady()
	c.do("GET", "/job/"+job, "").wantStatus(200)
}

// TestDeposedMasterAnswersNothing: a master is stopped until its lease has expired and another
// master has taken over. When it continues, it answers nothing from memory.
func TestDeposedMasterAnswersNothing(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	first := start(t, "--redis", server.URL())
	c := first.client(t, jsonType)
	job := c.enqueue(`{"name":"n","argument":{},"keep_result":true}`)
	worker := c.register(`{"name":"w","max_jobs":1}`)
	if ids := c.pull(worker, 1); len(ids) != 1 {
		t.Fatalf("pulled %v", ids)
	}
	first.Signal(syscall.SIGSTOP)
	time.Sleep(leaseTerm) // the lease of a stopped process expires in real time
	second := start(t, "--redis", server.URL())
	other := second.client(t, jsonType)
	other.do("POST", "/done", `{"job_id":"`+job+`","type":"success","result":1}`, "worker-id", worker).wantStatus(204)
	other.do("DELETE", "/worker", "", "worker-id", worker).wantStatus(204)
	first.Signal(syscall.SIGCONT)
	for name, r := range c.askAll(job, worker) {
		if r.status != 503 {
			t.Errorf("%s: %s", name, r.text)
		}
	}
	other.do("GET", "/job/"+job, "").wantStatus(200).has(`{"status":"done","result":1}`)
}

// TestLostDuringOutage: if Redis was away and returns without its data, the master notices that the
// data is lost.
func TestLostDuringOutage(t *testing.T) {
	t.Parallel()
	server, empty := redistest.New(t), redistest.New(t)
	gate := redistest.NewGate(t, server.Addr())
	d := start(t, "--redis", gate.URL())
	c := d.client(t, jsonType)
	c.enqueue(`{"name":"n","argument":{}}`)
	gate.SetTarget("127.0.0.1:1")
	eventually(t, "the store is away", func() bool {
		return c.do("POST", "/job", `{"name":"n","argument":{}}`).get("error") == "store_unavailable"
	})
	gate.SetTarget(empty.Addr())
	d.waitUntilReady()
	job, worker := c.enqueue(`{"name":"n","argument":{}}`), c.register(`{"name":"w","max_jobs":1}`)
	if got := c.pull(worker, 1); len(got) != 1 || got[0] != job {
		t.Errorf("pulled %v, want %v", got, job)
	}
}

// TestShortestStoreWait: a report always has time for a round trip to the store.
func TestShortestStoreWait(t *testing.T) {
	o := defaults()
	if o.limits.StoreWait = 0; o.validate() == nil {
		t.Error("--store-wait 0 is allowed")
	}
}
