package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/admin"
	"gloom/broker/server"
	gloom "gloom/clients/go"
)

// shared is a broker that is not the master's own, at the addresses of the one
// before, if there was one.
func shared(t *testing.T, before *server.Server) *server.Server {
	t.Helper()
	o := server.DefaultOptions()
	o.SubmitAddr, o.WorkerAddr, o.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	if before != nil {
		o.SubmitAddr, o.WorkerAddr, o.HTTPAddr = before.SubmitAddr().String(), before.WorkerAddr().String(), before.HTTPAddr().String()
	}
	var b *server.Server
	eventually(t, "the broker starts", func() (ok bool) {
		var err error
		b, err = server.Start(o, zerolog.Nop())
		return err == nil // else the addresses are not free yet
	})
	t.Cleanup(func() { b.Close() })
	b.ServeHTTP(admin.New(b, zerolog.Nop()))
	return b
}

func usesBroker(b *server.Server) []string {
	return []string{"--broker", b.SubmitAddr().String(), "--broker-workers", b.WorkerAddr().String(), "--broker-http", b.HTTPAddr().String()}
}

// socketWorker serves a type of the broker at an address.
func socketWorker(t *testing.T, addr, typ string, handle gloom.Handler) {
	t.Helper()
	serveSocket(t, addr, &gloom.Worker{Type: typ, Handler: handle})
}

func serveSocket(t *testing.T, addr string, w *gloom.Worker) {
	t.Helper()
	w.Options = []gloom.Option{gloom.Addrs(addr), gloom.Backoff(time.Millisecond, 50*time.Millisecond)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = w.Stop(ctx)
	})
}

// TestSocketWorkers: workers of the broker serve jobs, inside the process and
// beside it, and --socket-workers=false keeps them away.
func TestSocketWorkers(t *testing.T) {
	echo := func(_ context.Context, j *gloom.Job) (any, error) {
		var arg struct{ Fail, Final bool }
		if json.Unmarshal(j.Body, &arg) == nil && arg.Fail {
			err := errors.New("no luck")
			if arg.Final {
				err = gloom.Fatal(err)
			}
			return nil, err
		}
		return j.Body, nil
	}
	try := func(t *testing.T, d *process) {
		c := d.client(t, jsonType)
		id := c.enqueue(`{"name":"sock","argument":{"n":18446744073709551615,"b":{"$bin":"AAE="}},"keep_result":true}`)
		c.do("GET", "/job/"+id+"/polling?timeout=60", "").want(200).has(`{"result":{"n":18446744073709551615,"b":{"$bin":"AAE="}}}`)
		id = c.enqueue(`{"name":"sock","argument":{"Fail":true,"Final":true}}`)
		c.do("GET", "/job/"+id+"/polling?timeout=60", "").want(200).has(`{"status":"error","message":"no luck"}`)
		id = c.enqueue(`{"name":"sock","argument":{"Fail":true},"max_retry":1}`)
		c.do("GET", "/job/"+id+"/polling?timeout=60", "").want(200).has(`{"status":"error"}`)
	}
	t.Run("inside", func(t *testing.T) {
		at := "unix:" + filepath.Join(t.TempDir(), "work")
		d := start(t, "--worker-addr", at)
		socketWorker(t, at, "jq.sock", echo)
		try(t, d)
	})
	t.Run("shared", func(t *testing.T) {
		b := shared(t, nil)
		d := start(t, usesBroker(b)...)
		socketWorker(t, b.WorkerAddr().String(), "jq.sock", echo)
		try(t, d)
	})
	t.Run("kept away", func(t *testing.T) {
		b := shared(t, nil)
		d := start(t, append(usesBroker(b), "--socket-workers=false")...)
		socketWorker(t, b.WorkerAddr().String(), "jq.sock", echo)
		c := d.client(t, jsonType)
		id := c.enqueue(`{"name":"sock","argument":{}}`)
		c.do("GET", "/job/"+id+"/polling?timeout=1", "").want(408)
		worker := c.register(`{"name":"w","max_jobs":1}`)
		if got := c.pull(worker, 1); len(got) != 1 || got[0] != id {
			t.Errorf("pulled %v, want %s", got, id)
		}
	})
}

// TestOnce: jobs with max_retry 0 are not for socket workers, as these would run
// them before that is written; one that joins for all types does not get the
// argument, and its answer does not count.
func TestOnce(t *testing.T) {
	for _, typ := range []string{"jq.sock", "*"} {
		t.Run(typ, func(t *testing.T) {
			b := shared(t, nil)
			d := start(t, usesBroker(b)...)
			c := d.client(t, jsonType)
			once := c.enqueue(`{"name":"sock","argument":{"n":1},"max_retry":0}`)
			often := c.enqueue(`{"name":"sock","argument":{"n":2},"priority":1}`)
			serveSocket(t, b.WorkerAddr().String(), &gloom.Worker{Types: []string{typ}, Handler: func(_ context.Context, j *gloom.Job) (any, error) {
				if string(j.Body) == `{"n":1}` {
					t.Errorf("a socket worker runs a job of max_retry 0: %s %s", j.Type, j.Body)
				}
				return j.Body, nil
			}})
			c.do("GET", "/job/"+often+"/polling?timeout=60", "").want(200)
			c.do("GET", "/job/"+once, "").want(200).has(`{"status":"queued"}`)
			worker := c.register(`{"name":"w","max_jobs":1}`)
			if got := c.pull(worker, 1); len(got) != 1 || got[0] != once {
				t.Fatalf("pulled %v, want %s", got, once)
			}
			b.Close() // and with it what it knew of the job
			shared(t, b)
			d.ready()
			c.do("POST", "/done", fmt.Sprintf(`{"job_id":%q,"type":"success","result":null,"attempt":1}`, once), "worker-id", worker).want(204)
		})
	}
}

// TestBrokerRestarts: with a shared broker that loses all it has, jobs that wait
// go on in their order, jobs that run may be answered, and constraints hold.
func TestBrokerRestarts(t *testing.T) {
	b := shared(t, nil)
	d := start(t, usesBroker(b)...)
	c := d.client(t, jsonType)
	c.do("PUT", "/v1/constraints/two", `{"match":{"field":"/name","op":"eq","value":"few"},"concurrency":2}`).want(201)
	worker := c.register(`{"name":"w","max_jobs":10}`)
	var all []string
	for n := range 12 {
		all = append(all, c.enqueue(fmt.Sprintf(`{"name":"few","argument":{"n":%d}}`, n)))
	}
	running := c.pull(worker, 10)
	for len(running) < 2 { // the second may have come too late for the first answer
		running = append(running, c.pull(worker, 10)...)
	}
	if len(running) != 2 {
		t.Fatalf("%d jobs run, two may", len(running))
	}
	b.Close()
	shared(t, b)
	d.ready()
	if got := c.do("POST", "/worker/jobs?wait=2&max=10", "", "worker-id", worker); got.status != 204 {
		t.Fatalf("two jobs run, and a third one is handed out: %d", got.status)
	}
	order := append([]string(nil), running...)
	for len(running) > 0 || len(order) < len(all) {
		for _, id := range running {
			c.do("POST", "/done", fmt.Sprintf(`{"job_id":%q,"type":"success","result":null}`, id), "worker-id", worker).want(204)
		}
		running = nil
		if len(order) < len(all) {
			running = c.pull(worker, 10)
			order = append(order, running...)
		}
	}
	for i, id := range all {
		if order[i] != id {
			t.Fatalf("job %d was handed out as %v", i, order)
		}
	}
}
