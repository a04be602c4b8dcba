package main

import (
	"os"
	"path/filepath"
	"testing"

	"gloom/bench/throwaway/redistest"
)

// TestOnlyItsTokenUsesWorkerID: only the token that registered a worker can use the worker's id,
// even after a restart.
func TestOnlyItsTokenUsesWorkerID(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("mine work\nother work\np push\na admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := start(t, "--redis", server.URL(), "--token-file", file)
	c := d.client(t, jsonType)
	withToken := func(token string) *client { c.token = token; return c }
	worker := withToken("mine").register(`{"name":"w","max_jobs":1}`)
	job := withToken("p").enqueue(`{"name":"n","argument":{}}`)
	if ids := withToken("mine").pull(worker, 1); len(ids) != 1 {
		t.Fatalf("pulled %v", ids)
	}
	done := `{"job_id":"` + job + `","type":"success","result":1}`
	for restarted := range 2 {
		if restarted == 1 {
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			d = start(t, "--redis", server.URL(), "--token-file", file)
			c = d.client(t, jsonType)
		}
		withToken("other").do("POST", "/worker/heartbeat", "", "worker-id", worker).wantRefusal(404, "unknown_worker", "")
		withToken("other").do("POST", "/worker/jobs?wait=0", "", "worker-id", worker).wantRefusal(404, "unknown_worker", "")
		withToken("other").do("POST", "/done", done, "worker-id", worker).wantRefusal(404, "unknown_worker", "")
		withToken("other").do("DELETE", "/worker", "", "worker-id", worker).wantRefusal(404, "unknown_worker", "")
		withToken("mine").do("POST", "/worker/heartbeat", "", "worker-id", worker).wantStatus(200)
	}
	withToken("mine").do("POST", "/done", done, "worker-id", worker).wantStatus(204)
	withToken("a").do("DELETE", "/v1/workers/"+worker, "").wantStatus(204)
}
