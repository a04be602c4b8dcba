package main

import (
	"fmt"
	"testing"

	"gloom/bench/throwaway/redistest"
)

// TestFetchedOnce: a result that was fetched right before the master stops cannot be fetched again
// after it has restarted.
func TestFetchedOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	d := start(t, "--redis", redis.URL())
	c := d.client(t, jsonType)
	id := c.enqueue(`{"name":"n","argument":{},"keep_result":true}`)
	worker := c.register(`{"name":"w","max_jobs":1}`)
	if got := c.pull(worker, 1); len(got) != 1 {
		t.Fatalf("pulled %v", got)
	}
	c.do("POST", "/done", fmt.Sprintf(`{"job_id":%q,"type":"success","result":"once"}`, id), "worker-id", worker).wantStatus(204)
	c.do("GET", "/job/"+id, "").wantStatus(200).has(`{"result":"once"}`)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	c = start(t, "--redis", redis.URL()).client(t, jsonType)
	c.do("GET", "/job/"+id, "").wantStatus(200).has(`{"status":"done","result":null}`)
}

// TestStopAlone: a master whose Redis is down stops cleanly.
func TestStopAlone(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	d := start(t, "--redis", redis.URL())
	redis.Kill()
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}
