package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker"
	"gloom/broker/admin"
	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/testing/proxytest"
	"gloom/wire"
)

// startShared starts a broker outside the master. It takes over the addresses of an earlier broker,
// unless earlier is nil.
func startShared(t *testing.T, earlierServer *server.Server) *server.Server {
	t.Helper()
	return startSharedWith(t, earlierServer, func(*settings.Options) {})
}

// startSharedWith is like startShared, but with further options.
func startSharedWith(t *testing.T, earlierServer *server.Server, change func(*settings.Options)) *server.Server {
	t.Helper()
	o := settings.Default()
	change(&o)
	o.SubmitAddr, o.WorkerAddr, o.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	if earlierServer != nil {
		o.SubmitAddr, o.WorkerAddr, o.HTTPAddr = earlierServer.SubmitAddr().String(), earlierServer.WorkerAddr().String(), earlierServer.HTTPAddr().String()
	}
	var b *server.Server
	eventually(t, "the broker starts", func() (ok bool) {
		var err error
		b, err = server.Start(o, zerolog.Nop())
		return err == nil // the addresses may not be free yet
	})
	t.Cleanup(func() { b.Close() })
	b.ServeHTTP(admin.New(b, zerolog.Nop()))
	return b
}

// TestBrokerHTTP: the broker's HTTP address may have a scheme.
func TestBrokerHTTP(t *testing.T) {
	for given, want := range map[string]string{
		"":                      "http://broker.example:9997",
		"other.example:1":       "http://other.example:1",
		"http://[::1]:1/":       "http://[::1]:1",
		"https://a.example:443": "https://a.example:443",
	} {
		o := options{brokerHTTP: given}
		o.broker.SubmitAddr = "broker.example:9998"
		if r, err := o.operatorAPI(); err != nil || r.Base != want {
			t.Errorf("%q: %q, %v, want %q", given, r.Base, err, want)
		}
	}
}

// TestUnreachableBrokerIsLoggedOnce: during an outage the log says once, and not at each attempt,
// that the broker cannot be reached, and names the consequences. Later it says that the broker has
// been reached.
func TestUnreachableBrokerIsLoggedOnce(t *testing.T) {
	t.Parallel()
	b := startShared(t, nil)
	b.Close()
	var l net.Listener
	eventually(t, "the address is free", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", b.SubmitAddr().String())
		return err == nil
	})
	d := launch(t, brokerFlags(b)...)
	for range 4 { // attempts that fail
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	l.Close()
	startShared(t, b)
	d.waitUntilReady()
	eventually(t, "the log says that the broker has been reached", func() bool {
		return strings.Contains(d.Log.String(), "the broker has been reached")
	})
	if n := strings.Count(d.Log.String(), "no job is handed out until an attempt succeeds"); n != 1 {
		t.Errorf("the log says %d times that the broker cannot be reached", n)
	}
}

// TestUnreachableWorkerAddressIsNamed: the log names the address that cannot be reached, and its flag.
func TestUnreachableWorkerAddressIsNamed(t *testing.T) {
	t.Parallel()
	b := startShared(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			conn.Close()
		}
	}()
	d := start(t, "--broker", b.SubmitAddr().String(), "--broker-workers", l.Addr().String(), "--broker-http", b.HTTPAddr().String())
	c := d.client(t, jsonType)
	c.enqueue(`{"name":"n","argument":{}}`)
	worker := c.register(`{"name":"n","max_jobs":1}`)
	c.do("POST", "/worker/jobs?wait=1&max=1", "", "worker-id", worker)
	eventually(t, "the log names the address for workers", func() bool {
		return strings.Contains(d.Log.String(), fmt.Sprintf("%q", l.Addr())) && strings.Contains(d.Log.String(), "is --broker-workers right?")
	})
}

func brokerFlags(b *server.Server) []string {
	return []string{"--broker", b.SubmitAddr().String(), "--broker-workers", b.WorkerAddr().String(), "--broker-http", b.HTTPAddr().String()}
}

// startGloomWorker serves a type of the broker at an address.
func startGloomWorker(t *testing.T, addr, typ string, handle gloom.Handler) {
	t.Helper()
	runGloomWorker(t, addr, &gloom.Worker{Type: typ, Handler: handle})
}

func runGloomWorker(t *testing.T, addr string, w *gloom.Worker, options ...gloom.Option) {
	t.Helper()
	w.Options = append(options, gloom.Addrs(addr), gloom.Backoff(time.Millisecond, 50*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		_ = w.Stop(ctx)
	})
}

// TestSocketWorkers: Gloom workers serve jobs of the broker inside the process and of a shared
// broker, and --socket-workers=false keeps the workers out.
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
	runJobs := func(t *testing.T, d *process) {
		c := d.client(t, jsonType)
		id := c.enqueue(`{"name":"sock","argument":{"n":18446744073709551615,"b":{"$bin":"AAE="}},"keep_result":true}`)
		c.do("GET", "/job/"+id+"/polling?timeout=60", "").wantStatus(200).has(`{"result":{"n":18446744073709551615,"b":{"$bin":"AAE="}}}`)
		id = c.enqueue(`{"name":"sock","argument":{"Fail":true,"Final":true}}`)
		c.do("GET", "/job/"+id+"/polling?timeout=60", "").wantStatus(200).has(`{"status":"error","message":"no luck"}`)
		id = c.enqueue(`{"name":"sock","argument":{"Fail":true},"max_retry":1}`)
		c.do("GET", "/job/"+id+"/polling?timeout=60", "").wantStatus(200).has(`{"status":"error"}`)
		checkServed(t, c, "true")
	}
	t.Run("inside", func(t *testing.T) {
		at := "unix:" + filepath.Join(t.TempDir(), "work")
		d := start(t, "--worker-addr", at)
		startGloomWorker(t, at, "jq.sock", echo)
		runJobs(t, d)
	})
	t.Run("shared", func(t *testing.T) {
		b := startShared(t, nil)
		d := start(t, brokerFlags(b)...)
		startGloomWorker(t, b.WorkerAddr().String(), "jq.sock", echo)
		runJobs(t, d)
	})
	t.Run("kept away", func(t *testing.T) {
		b := startShared(t, nil)
		d := start(t, append(brokerFlags(b), "--socket-workers=false")...)
		startGloomWorker(t, b.WorkerAddr().String(), "jq.sock", echo)
		c := d.client(t, jsonType)
		id := c.enqueue(`{"name":"sock","argument":{}}`)
		c.do("GET", "/job/"+id+"/polling?timeout=1", "").wantStatus(408)
		checkServed(t, c, "false")
		worker := c.register(`{"name":"w","max_jobs":1}`)
		if got := c.pull(worker, 1); len(got) != 1 || got[0] != id {
			t.Errorf("pulled %v, want %s", got, id)
		}
	})
}

// checkServed enqueues a job that waits, and checks that its name is shown as served ("true") or not
// ("false").
func checkServed(t *testing.T, c *client, want string) {
	t.Helper()
	id := c.enqueue(`{"name":"sock","argument":{},"delay":3600}`)
	names, _ := c.do("GET", "/v1/stats?names=1", "").wantStatus(200).decode()["names"].([]any)
	if len(names) != 1 || fmt.Sprint(names[0].(map[string]any)["served"]) != want {
		t.Errorf("stats of the name: %v, want served %s", names, want)
	}
	c.do("POST", "/v1/jobs/"+id+"/cancel", "").wantStatus(204)
}

// TestSingleRunJobs: jobs with max_retry 0 are not for Gloom workers, which would run them before
// the attempt is written. A Gloom worker that joins for all types does not get the argument, and its
// answer does not count.
func TestSingleRunJobs(t *testing.T) {
	for _, typ := range []string{"jq.sock", "*"} {
		t.Run(typ, func(t *testing.T) {
			b := startShared(t, nil)
			d := start(t, brokerFlags(b)...)
			c := d.client(t, jsonType)
			singleRunID := c.enqueue(`{"name":"sock","argument":{"n":1},"max_retry":0}`)
			often := c.enqueue(`{"name":"sock","argument":{"n":2},"priority":1}`)
			runGloomWorker(t, b.WorkerAddr().String(), &gloom.Worker{Types: []string{typ}, Handler: func(_ context.Context, j *gloom.Job) (any, error) {
				if string(j.Body) == `{"n":1}` {
					t.Errorf("a Gloom worker runs a job of max_retry 0: %s %s", j.Type, j.Body)
				}
				return j.Body, nil
			}})
			c.do("GET", "/job/"+often+"/polling?timeout=60", "").wantStatus(200)
			c.do("GET", "/job/"+singleRunID, "").wantStatus(200).has(`{"status":"queued"}`)
			worker := c.register(`{"name":"w","max_jobs":1}`)
			if got := c.pull(worker, 1); len(got) != 1 || got[0] != singleRunID {
				t.Fatalf("pulled %v, want %s", got, singleRunID)
			}
			b.Close() // the broker loses the job, too
			startShared(t, b)
			d.waitUntilReady()
			c.do("POST", "/done", fmt.Sprintf(`{"job_id":%q,"type":"success","result":null,"attempt":1}`, singleRunID), "worker-id", worker).wantStatus(204)
		})
	}
}

// TestGloomWorkersRetryWithBackoff: a run that a Gloom worker has failed is followed by the next one
// only after a backoff, which doubles. Meanwhile the job is shown as not due.
func TestGloomWorkersRetryWithBackoff(t *testing.T) {
	t.Parallel()
	b := startShared(t, nil)
	c := start(t, append(brokerFlags(b), "--backoff-base", "200ms")...).client(t, jsonType)
	runs, shown := make(chan time.Time, 3), make(chan struct{})
	startGloomWorker(t, b.WorkerAddr().String(), "jq.sock", func(context.Context, *gloom.Job) (any, error) {
		runs <- time.Now()
		<-shown
		return nil, errors.New("no luck")
	})
	id := c.enqueue(`{"name":"sock","argument":{},"max_retry":2}`)
	waits := func(why string) {
		t.Helper()
		eventually(t, why, func() bool { return c.do("GET", "/v1/jobs/"+id, "").wantStatus(200).decode()["waits"] == why })
	}
	waits("a Gloom worker runs it")
	close(shown)
	waits("it is not due yet")
	c.do("GET", "/job/"+id+"/polling?timeout=60", "").wantStatus(200).has(`{"status":"error","message":"no luck","retry_count":2}`)
	first, second, third := <-runs, <-runs, <-runs
	if second.Sub(first) < 200*time.Millisecond || third.Sub(second) < 400*time.Millisecond {
		t.Errorf("the retries began %v and %v after the run before", second.Sub(first), third.Sub(second))
	}
}

// TestBackoffCapOfGloomWorkers: the waits between the runs at Gloom workers grow no further than --backoff-cap, the
// runs at max_retry, and a worker may still ask for another wait or for none.
func TestBackoffCapOfGloomWorkers(t *testing.T) {
	t.Parallel()
	b := startShared(t, nil)
	c := start(t, append(brokerFlags(b), "--backoff-base", "100ms", "--backoff-cap", "300ms")...).client(t, jsonType)
	var runs atomic.Int32
	startGloomWorker(t, b.WorkerAddr().String(), "jq.sock", func(_ context.Context, j *gloom.Job) (any, error) {
		switch n := runs.Add(1); {
		case n == 5:
			return nil, gloom.RetryAfter(errors.New("later"), 2*time.Second)
		case strings.Contains(string(j.Body), "final") && n == 7:
			return nil, gloom.Fatal(errors.New("the last"))
		}
		return nil, errors.New("no luck")
	})
	for argument, want := range map[string]struct {
		runs  int32
		reply string
	}{
		`{}`:            {9, `{"status":"error","message":"no luck","retry_count":8}`},
		`{"x":"final"}`: {7, `{"status":"error","message":"the last"}`},
	} {
		runs.Store(0)
		from := time.Now()
		id := c.enqueue(`{"name":"sock","argument":` + argument + `,"max_retry":8}`)
		c.do("GET", "/job/"+id+"/polling?timeout=60", "").wantStatus(200).has(want.reply)
		// Without the cap the waits are 0.1, 0.2, 0.4, 0.8, 2, 3.2, 6.4 and 12.8 seconds.
		if d, n := time.Since(from), runs.Load(); n != want.runs || d < 2*time.Second || d > 15*time.Second {
			t.Errorf("argument %s: %d runs in %v", argument, n, d)
		}
	}
}

// TestRetriesOfMixedWorkers: a job gets max_retry retries, however its runs are divided between Gloom workers and
// others.
func TestRetriesOfMixedWorkers(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"10m", "50ms"} { // the broker makes all retries, or only the first two
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			b := startShared(t, nil)
			c := start(t, append(brokerFlags(b), "--backoff-base", "20ms", "--backoff-cap", limit)...).client(t, jsonType)
			w := &gloom.Worker{Types: []string{"jq.sock"}}
			var runs atomic.Int32
			w.Handler = func(context.Context, *gloom.Job) (any, error) {
				if runs.Add(1) == 2 { // the next run is at the other worker
					if err := w.Serve(gloom.Serving{Types: []string{"none"}, Prefetch: 1}); err != nil {
						t.Error(err)
					}
				}
				return nil, errors.New("no luck")
			}
			runGloomWorker(t, b.WorkerAddr().String(), w)
			id := c.enqueue(`{"name":"sock","argument":{},"max_retry":4}`)
			eventually(t, "two runs at the Gloom worker", func() bool { return runs.Load() == 2 })
			worker := c.register(`{"name":"w","max_jobs":1}`)
			var status string
			for status != "error" {
				if got := c.do("POST", "/worker/jobs?wait=0.2", "", "worker-id", worker); got.status == 200 {
					runs.Add(1)
					c.do("POST", "/done", fmt.Sprintf(`{"job_id":%q,"type":"failure","reason":"other","should_retry":true,"message":"no"}`, id), "worker-id", worker).wantStatus(204)
				}
				status, _ = c.do("GET", "/job/"+id, "").wantStatus(200).decode()["status"].(string)
			}
			c.do("GET", "/job/"+id, "").wantStatus(200).has(`{"retry_count":4}`)
			if n := runs.Load(); n != 5 {
				t.Errorf("%d runs, want 5", n)
			}
		})
	}
}

// TestRefusedGloomWorkers: with --socket-workers=false, a Gloom worker that joins for all types does
// not get the argument of a job, and its answer does not count.
func TestRefusedGloomWorkers(t *testing.T) {
	t.Parallel()
	b := startShared(t, nil)
	c := start(t, append(brokerFlags(b), "--socket-workers=false")...).client(t, jsonType)
	id := c.enqueue(`{"name":"n","argument":{"key":"secret"},"keep_result":true}`)
	bodies := make(chan string, 100)
	runGloomWorker(t, b.WorkerAddr().String(), &gloom.Worker{Types: []string{"*"}, Handler: func(_ context.Context, j *gloom.Job) (any, error) {
		bodies <- string(j.Body)
		return "foreign", nil
	}})
	if body := <-bodies; strings.Contains(body, "secret") {
		t.Errorf("the worker gets the argument: %s", body)
	}
	c.do("GET", "/job/"+id+"/polling?timeout=1", "").wantStatus(408).has(`{"status":"queued"}`)
}

// TestBrokerRestarts: after a shared broker has lost everything, waiting jobs keep their order,
// running jobs can still be answered, and constraints hold.
func TestBrokerRestarts(t *testing.T) {
	b := startShared(t, nil)
	d := start(t, brokerFlags(b)...)
	c := d.client(t, jsonType)
	c.do("PUT", "/v1/constraints/two", `{"match":{"field":"/name","op":"eq","value":"few"},"concurrency":2}`).wantStatus(201)
	worker := c.register(`{"name":"w","max_jobs":10}`)
	var ids []string
	for n := range 12 {
		ids = append(ids, c.enqueue(fmt.Sprintf(`{"name":"few","argument":{"n":%d}}`, n)))
	}
	running := c.pull(worker, 10)
	for len(running) < 2 { // a pull may return before the second job has come
		running = append(running, c.pull(worker, 10)...)
	}
	if len(running) != 2 {
		t.Fatalf("%d jobs run, two may", len(running))
	}
	b.Close()
	startShared(t, b)
	d.waitUntilReady()
	if got := c.do("POST", "/worker/jobs?wait=2&max=10", "", "worker-id", worker); got.status != 204 {
		t.Fatalf("two jobs run, and a third one is handed out: %d", got.status)
	}
	order := append([]string(nil), running...)
	for len(running) > 0 || len(order) < len(ids) {
		for _, id := range running {
			c.do("POST", "/done", fmt.Sprintf(`{"job_id":%q,"type":"success","result":null}`, id), "worker-id", worker).wantStatus(204)
		}
		running = nil
		if len(order) < len(ids) {
			running = c.pull(worker, 10)
			order = append(order, running...)
		}
	}
	for i, id := range ids {
		if order[i] != id {
			t.Fatalf("job %d was handed out as %v", i, order)
		}
	}
}

// TestCutConnections: if connections to the broker break all the time, the master pauses before the
// next connection. So it does not submit all jobs, nor fill the log, many times a second. The
// master still takes jobs, and hands them out when connections last.
func TestCutConnections(t *testing.T) {
	b := startShared(t, nil)
	var isCut atomic.Bool
	isCut.Store(true)
	proxy := proxytest.Start(t, b.SubmitAddr().String(), func(c net.Conn) (toServer, toClient proxytest.Filter, err error) {
		if isCut.Load() {
			time.AfterFunc(50*time.Millisecond, func() { c.Close() })
		}
		return nil, nil, nil
	})
	d := launch(t, "--broker", proxy.String(), "--broker-workers", b.WorkerAddr().String(), "--broker-http", b.HTTPAddr().String())
	c := d.client(t, jsonType)
	breakCount := func() int { return strings.Count(d.Log.String(), "the broker is gone") }
	eventually(t, "a connection breaks", func() bool { return breakCount() > 0 })
	start := time.Now()
	eventually(t, "seven more connections break", func() bool { return breakCount() >= 8 })
	if duration := time.Since(start); duration < time.Second {
		t.Errorf("seven connections broke in %v", duration)
	}
	id := c.enqueue(`{"name":"n","argument":{}}`)
	c.do("PUT", "/v1/constraints/k", `{"match":{},"concurrency":1}`).wantStatus(201)
	eventually(t, "a constraint is shown during a pause", func() bool {
		return strings.Contains(c.do("GET", "/v1/constraints", "").wantStatus(200).text, `"blocked":null`)
	})
	eventually(t, "a job says that it waits for the broker", func() bool {
		return strings.Contains(c.do("GET", "/v1/jobs/"+id, "").wantStatus(200).text, `"waits":"the connection to the broker is lost"`)
	})
	if strings.Contains(c.do("GET", "/v1/findings", "").wantStatus(200).text, "no_worker") {
		t.Error("a finding says that there is no worker, but the broker could not be asked")
	}
	isCut.Store(false)
	d.waitUntilReady()
	if strings.Contains(d.Log.String(), "the broker did not report") {
		t.Error("the master asked the broker on a closed connection")
	}
	if text := c.do("GET", "/v1/constraints", "").wantStatus(200).text; !strings.Contains(text, `"blocked":0`) {
		t.Errorf("connected, it says %s", text)
	}
	worker := c.register(`{"name":"w","max_jobs":1}`)
	if got := c.pull(worker, 1); len(got) != 1 || got[0] != id {
		t.Fatalf("pulled %v, want %s", got, id)
	}
}

// TestFailureAfterBrokerRestarts: a job runs while a shared broker loses everything, and then fails
// or times out. The job runs again, because the end of the run at the broker says nothing about the
// job.
func TestFailureAfterBrokerRestarts(t *testing.T) {
	t.Parallel()
	for ending, timeout := range map[string]float64{"failure": 30, "timeout": 0.5} {
		t.Run(ending, func(t *testing.T) {
			t.Parallel()
			b := startShared(t, nil)
			d := start(t, append(brokerFlags(b), "--backoff-base", "1ms", "--timeout-grace", "1ms")...)
			c := d.client(t, jsonType)
			worker := c.register(`{"name":"w","max_jobs":10}`)
			id := c.enqueue(fmt.Sprintf(`{"name":"n","argument":{},"keep_result":true,"timeout":%v}`, timeout))
			if got := c.pull(worker, 1); len(got) != 1 || got[0] != id {
				t.Fatalf("pulled %v, want %s", got, id)
			}
			b.Close()
			b = startShared(t, b)
			d.waitUntilReady()
			if ending == "failure" {
				eventually(t, "the broker has the run again", func() bool {
					r, err := http.Get("http://" + b.HTTPAddr().String() + "/v1/jobs/" + id)
					if err != nil {
						return false
					}
					defer r.Body.Close()
					text, err := io.ReadAll(r.Body)
					return err == nil && strings.Contains(string(text), `"running"`)
				})
				c.do("POST", "/done", fmt.Sprintf(`{"job_id":%q,"type":"failure","reason":"other","should_retry":true,"message":"no luck"}`, id), "worker-id", worker).wantStatus(204)
			}
			if got := c.pull(worker, 1); len(got) != 1 || got[0] != id {
				t.Fatalf("pulled %v, want %s again: %s", got, id, c.do("GET", "/job/"+id, "").text)
			}
			c.do("POST", "/done", fmt.Sprintf(`{"job_id":%q,"type":"success","result":7}`, id), "worker-id", worker).wantStatus(204)
			c.do("GET", "/job/"+id, "").wantStatus(200).has(`{"status":"done","result":7}`)
		})
	}
}

// TestBrokerRefuses: if the broker no longer knows the master's token, no longer lets it work, or
// refuses its rules, the master repeats its requests until the broker accepts them. Until then jobs
// and workers wait, no constraint is broken, and /readyz says why.
func TestBrokerRefuses(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	path := filepath.Join(t.TempDir(), "tokens")
	allowScopes := func(scopes string) {
		if err := os.WriteFile(path, []byte(token+" "+scopes+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	withTokenFile := func(o *settings.Options) { o.TokenFile = path }
	allowScopes("submit,work,admin")
	b := startSharedWith(t, nil, withTokenFile)
	d := start(t, append(brokerFlags(b), "--broker-token", token)...)
	c := d.client(t, jsonType)
	c.do("PUT", "/v1/constraints/none", `{"match":{"field":"/name","op":"eq","value":"held"},"concurrency":0}`).wantStatus(201)
	worker := c.register(`{"name":"w","max_jobs":10}`)
	c.register(`{"name":"pushed to","max_jobs":1,"names":["other"],"url":"http://127.0.0.1:1/"}`) // so that the master always has a worker connection to the broker
	for _, scope := range [][2]string{{"admin", "forbidden"}, {"submit,admin", "forbidden"}, {"submit,work", "403 Forbidden"}} {
		scopes, code := scope[0], scope[1]
		b.Close()
		allowScopes(scopes)
		b = startSharedWith(t, b, withTokenFile)
		eventually(t, "it is told that the broker refuses", func() bool {
			r, err := http.Get(d.url + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			reason, err := io.ReadAll(r.Body)
			return err == nil && r.StatusCode == 503 && strings.Contains(string(reason), code)
		})
		held, id := c.enqueue(`{"name":"held","argument":{}}`), c.enqueue(`{"name":"free","argument":{}}`)
		allowScopes("submit,work,admin")
		if err := b.Reload(); err != nil {
			t.Fatal(err)
		}
		if got := c.pull(worker, 10); len(got) != 1 || got[0] != id {
			t.Fatalf("pulled %v, want %s", got, id)
		}
		d.waitUntilReady()
		c.do("DELETE", "/job/"+held, "").wantStatus(204)
	}
}

// TestPartialToken: a job of a type that the master's token does not cover waits until the token
// covers it. Running jobs are not disturbed.
func TestPartialToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	path := filepath.Join(t.TempDir(), "tokens")
	allowTypes := func(types string) {
		if err := os.WriteFile(path, []byte(token+" submit,work,admin "+types+"\nworker0123456789 work *\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	allowTypes("jq.sock")
	b := startSharedWith(t, nil, func(o *settings.Options) { o.TokenFile = path })
	d := start(t, append(brokerFlags(b), "--broker-token", token)...)
	c := d.client(t, jsonType)
	runs, goOn := make(chan struct{}, 10), make(chan struct{})
	runGloomWorker(t, b.WorkerAddr().String(), &gloom.Worker{
		Types: []string{"jq.sock", "jq.other"}, Prefetch: 2, Concurrency: 2,
		Handler: func(_ context.Context, j *gloom.Job) (any, error) {
			if j.Type == "jq.sock" {
				runs <- struct{}{}
				<-goOn
			}
			return j.Body, nil
		}}, gloom.Token("worker0123456789"))
	long := c.enqueue(`{"name":"sock","argument":{}}`)
	<-runs
	other := c.enqueue(`{"name":"other","argument":{}}`)
	eventually(t, "it is told that the broker refuses", func() bool {
		r, err := http.Get(d.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		return r.StatusCode == 503
	})
	c.do("GET", "/job/"+other+"/polling?timeout=1", "").wantStatus(408)
	if len(runs) > 0 {
		t.Error("a job at work was given out again")
	}
	close(goOn)
	c.do("GET", "/job/"+long+"/polling?timeout=60", "").wantStatus(200)
	allowTypes("jq.sock,jq.other")
	if err := b.Reload(); err != nil {
		t.Fatal(err)
	}
	c.do("GET", "/job/"+other+"/polling?timeout=60", "").wantStatus(200)
	d.waitUntilReady()
}

// TestBrokerIsFull: the findings name a shared broker's own limit exactly while the broker refuses
// jobs because of it.
func TestBrokerIsFull(t *testing.T) {
	t.Parallel()
	b := startSharedWith(t, nil, func(o *settings.Options) { o.MaxJobs = 1 })
	c := start(t, brokerFlags(b)...).client(t, jsonType)
	first := c.enqueue(`{"name":"report","argument":{}}`)
	second := c.enqueue(`{"name":"report","argument":{}}`)
	refused := func() bool {
		return strings.Contains(c.do("GET", "/v1/findings?cause=refused", "").wantStatus(200).text, "the broker refuses jobs: ")
	}
	eventually(t, "the findings say that the broker refuses jobs", refused)
	if text := c.do("GET", "/v1/findings?cause=refused", "").text; !strings.Contains(text, "max-jobs") {
		t.Errorf("they do not name the limit: %s", text)
	}
	for _, id := range []string{first, second} {
		c.do("DELETE", "/job/"+id, "").wantStatus(204)
	}
	eventually(t, "the finding is gone", func() bool { return !refused() })
}

// TestBrokerLimits: a worker may have more jobs than a broker sends to one connection, and a job
// whose argument does not fit into a frame of the broker is only for the master's own workers.
func TestBrokerLimits(t *testing.T) {
	t.Parallel()
	b := startSharedWith(t, nil, func(o *settings.Options) { o.MaxFrame = 64 << 10 })
	c := start(t, brokerFlags(b)...).client(t, jsonType)
	worker := c.register(`{"name":"w","max_jobs":2500}`)
	ids := c.do("POST", "/jobs", "["+strings.Repeat(`{"name":"n","argument":{}},`, 999)+`{"name":"n","argument":{}}]`).wantStatus(201).decode()["job_ids"].([]any)
	ids = append(ids, c.do("POST", "/jobs", "["+strings.Repeat(`{"name":"n","argument":{}},`, 99)+`{"name":"n","argument":{}}]`).wantStatus(201).decode()["job_ids"].([]any)...)
	ids = append(ids, c.enqueue(fmt.Sprintf(`{"name":"long","argument":{"a":%q}}`, strings.Repeat("a", 100<<10))))
	got := map[any]bool{}
	for len(got) < len(ids) {
		for _, id := range c.pull(worker, 2500) {
			got[id] = true
		}
	}
	for _, id := range ids {
		if !got[id] {
			t.Fatalf("job %s does not run", id)
		}
	}
}

// TestLongJobAtRestartedBroker: a job whose argument did not fit into a frame of the broker is for
// Gloom workers again once the broker has been restarted with longer frames.
func TestLongJobAtRestartedBroker(t *testing.T) {
	t.Parallel()
	b := startSharedWith(t, nil, func(o *settings.Options) { o.MaxFrame = 64 << 10 })
	c := start(t, brokerFlags(b)...).client(t, jsonType)
	id := c.enqueue(fmt.Sprintf(`{"name":"long","argument":{"a":%q}}`, strings.Repeat("a", 100<<10)))
	eventually(t, "the broker has the job for the master's own workers", func() bool {
		r, err := http.Get("http://" + b.HTTPAddr().String() + "/v1/jobs/" + id)
		if err != nil {
			return false
		}
		return r.Body.Close() == nil && r.StatusCode == 200
	})
	startGloomWorker(t, b.WorkerAddr().String(), "jq.long", func(context.Context, *gloom.Job) (any, error) { return "done", nil })
	b.Close()
	startShared(t, b)
	if got := c.do("GET", "/job/"+id+"/polling?timeout=60", "").wantStatus(200).decode()["status"]; got != "done" {
		t.Fatalf("the job is %v", got)
	}
}

// TestRefusedWorkersAreLoggedOnce: while a broker refuses the prefetch that a worker needs, /readyz
// gives the reason, and the log gives the reason once in ten seconds, not at each attempt.
func TestRefusedWorkersAreLoggedOnce(t *testing.T) {
	t.Parallel()
	b := startSharedWith(t, nil, func(o *settings.Options) { o.MaxPrefetch = 2 })
	d := start(t, brokerFlags(b)...)
	c := d.client(t, jsonType)
	c.register(`{"name":"w","max_jobs":3,"url":"http://127.0.0.1:1/"}`)
	eventually(t, "the broker has refused the worker several times", func() bool {
		return b.Hub().Stats().Errors[wire.InvalidValue] >= 4
	})
	if got := c.do("GET", "/readyz", ""); got.status != 503 || !strings.Contains(got.text, "prefetch") {
		t.Errorf("/readyz answers %d %s", got.status, got.text)
	}
	if n := strings.Count(d.Log.String(), "the broker refuses"); n != 1 {
		t.Errorf("the log says %d times that the broker refuses the worker", n)
	}
}

// TestScrapesDoNotListGroups: frequent scrapes of the metrics, which need no token, do not make the
// broker list its groups each time.
func TestScrapesDoNotListGroups(t *testing.T) {
	t.Parallel()
	b := startShared(t, nil)
	var requestCount atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: b.HTTPAddr().String()})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/v1/groups" {
			requestCount.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	c := start(t, append(brokerFlags(b), "--broker-http", front.Listener.Addr().String())...).client(t, jsonType)
	c.do("PUT", "/v1/constraints/k", `{"match":{},"concurrency":1}`).wantStatus(201)
	requestCount.Store(0)
	start := time.Now()
	for range 50 {
		if !strings.Contains(c.do("GET", "/metrics", "").wantStatus(200).text, `gloom_jq_blocked{constraint="k"} 0`) {
			t.Fatal("the metrics lack the constraint")
		}
	}
	if n, limit := requestCount.Load(), 2+int32(time.Since(start)/time.Second); n > limit {
		t.Errorf("the broker was asked %d times in %v", n, time.Since(start))
	}
}

// TestStalledBrokerHTTP: if the HTTP address of a shared broker does not answer, the statistics are
// delayed by about a second, however many names have no worker.
func TestStalledBrokerHTTP(t *testing.T) {
	t.Parallel()
	b := startShared(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := start(t, append(brokerFlags(b), "--broker-http", l.Addr().String())...).client(t, jsonType)
	for i := range 20 {
		c.enqueue(fmt.Sprintf(`{"name":"n%d","argument":{}}`, i))
	}
	start := time.Now()
	c.do("GET", "/v1/stats", "").wantStatus(200)
	if duration := time.Since(start); duration > 10*time.Second {
		t.Errorf("the statistics came after %v", duration)
	}
}

// TestRulesFull: while a shared broker has no room for the rule of a constraint, the master runs no
// job that the constraint might hold back, and /readyz says so. The master continues when the
// constraint is dropped.
func TestRulesFull(t *testing.T) {
	t.Parallel()
	b := startShared(t, nil)
	d := start(t, brokerFlags(b)...)
	c := d.client(t, jsonType)
	for i := range broker.MaxWildcardRules {
		r, err := http.NewRequest("PUT", fmt.Sprintf("http://%s/v1/groups/other%d*", b.HTTPAddr(), i), strings.NewReader(`{"concurrency":1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != 201 {
			t.Fatalf("%v %v", resp, err)
		}
		resp.Body.Close()
	}
	worker := c.register(`{"name":"w","max_jobs":10}`)
	set := make(chan *reply, 1)
	go func() { set <- c.do("PUT", "/v1/constraints/k", `{"match":{},"per":"/name","concurrency":0}`) }()
	eventually(t, "it is told that the broker has no room", func() bool {
		return strings.Contains(c.do("GET", "/readyz", "").text, "1000 with a *")
	})
	id := c.enqueue(`{"name":"n","argument":{}}`)
	c.do("POST", "/worker/jobs?wait=0.2", "", "worker-id", worker).wantStatus(204)
	c.do("DELETE", "/v1/constraints/k", "").wantStatus(204)
	if got := c.pull(worker, 1); len(got) != 1 || got[0] != id {
		t.Fatalf("pulled %v, want %s", got, id)
	}
	(<-set).wantRefusal(404, "unknown_constraint", "")
	d.waitUntilReady()
}

// TestNamespacesShareOnlyTheBroker: masters of different namespaces share a broker and nothing
// else. The masters' jobs have the same names, and their constraints have the same ids, including
// ids that would collide if they were joined with colons. A job never gets to another master's
// worker. A change of one master's constraint has no effect on the other master.
func TestNamespacesShareOnlyTheBroker(t *testing.T) {
	b := startShared(t, nil)
	long := strings.Repeat("%", 100)
	spaces := []string{"default", "a", "a:b", long}
	ids := []string{"x", "b:x", strings.Repeat("%", 200), strings.Repeat("\"", 200), strings.Repeat("<", 200)}
	clients := map[string]*client{}
	for _, ns := range spaces {
		clients[ns] = start(t, append(brokerFlags(b), "--namespace", ns)...).client(t, jsonType)
	}
	path := func(id string) string { return "/v1/constraints/" + url.PathEscape(id) }
	jobs := map[string]string{}
	for _, ns := range spaces {
		c := clients[ns]
		for i, id := range ids {
			body, _ := json.Marshal(map[string]any{"match": map[string]any{"field": "/argument/n", "op": "eq", "value": i}, "concurrency": 0, "rate": 1000})
			c.do("PUT", path(id), string(body)).wantStatus(201)
			jobs[ns+id] = c.enqueue(fmt.Sprintf(`{"name":"same","argument":{"n":%d},"priority":%d}`, i, i))
		}
		constraint, _ := json.Marshal(map[string]any{"match": map[string]any{"field": "/argument/u", "op": "exists", "value": true}, "concurrency": 1, "rate": 1000, "per": "/argument/u"})
		c.do("PUT", path("per"), string(constraint)).wantStatus(201)
	}
	// Each master counts only its own jobs.
	for _, ns := range spaces {
		for i, id := range ids {
			eventually(t, ns+" sees what its constraint holds back", func() bool {
				return clients[ns].do("GET", path(id), "").wantStatus(200).get("blocked") == "1"
			})
			if got := clients[ns].do("GET", "/v1/jobs/"+jobs[ns+id], "").wantStatus(200).decode()["blocked_by"]; fmt.Sprint(got) != fmt.Sprint([]string{id}) {
				t.Errorf("%s: job %d is held back by %v, want %.20q", ns, i, got, id)
			}
		}
	}
	// When one master drops a constraint, only this master's job runs, at this master's worker.
	workers := map[string]string{}
	for _, ns := range spaces {
		workers[ns] = clients[ns].register(`{"name":"w","max_jobs":20}`)
	}
	for _, ns := range spaces {
		for _, id := range ids {
			clients[ns].do("DELETE", path(id), "").wantStatus(204)
			if got := clients[ns].pull(workers[ns], 20); len(got) != 1 || got[0] != jobs[ns+id] {
				t.Errorf("%.20s has lifted %.20s and got %v, want %s", ns, id, got, jobs[ns+id])
			}
			for _, other := range spaces {
				if r := clients[other].do("POST", "/worker/jobs?wait=0.02&max=20", "", "worker-id", workers[other]); r.status != 204 {
					t.Fatalf("%.20s has lifted %.20s, and %.20s hands out %s", ns, id, other, r.text)
				}
			}
		}
	}
	// The buckets of constraints with per are separate, too.
	for _, ns := range spaces {
		jobID := clients[ns].enqueue(`{"name":"same","argument":{"u":1}}`)
		if got := clients[ns].pull(workers[ns], 20); len(got) != 1 || got[0] != jobID {
			t.Errorf("%.20s: %v runs, want %s", ns, got, jobID)
		}
	}
}

// TestForeignJobs: a master that is handed a job it does not know gives it back. Two masters that
// share a namespace at a broker, but not a store, cannot work. Neither of them ends the jobs of the
// other.
func TestForeignJobs(t *testing.T) {
	b := startShared(t, nil)
	firstClient, secondClient := start(t, brokerFlags(b)...).client(t, jsonType), start(t, brokerFlags(b)...).client(t, jsonType)
	idle := secondClient.register(`{"name":"w","max_jobs":5}`)
	stop := make(chan struct{})
	firstAsked := make(chan struct{})
	go func() {
		defer close(firstAsked)
		for {
			select {
			case <-stop:
				return
			default:
				secondClient.do("POST", "/worker/jobs?wait=0.2&max=5", "", "worker-id", idle)
			}
		}
	}()
	id := firstClient.enqueue(`{"name":"same","argument":{}}`)
	if st := firstClient.do("GET", "/job/"+id+"/polling?timeout=1", ""); st.status != 408 {
		t.Errorf("nobody has run the job: %d %s", st.status, st.text)
	}
	close(stop)
	<-firstAsked
	worker := firstClient.register(`{"name":"w","max_jobs":5}`)
	if got := firstClient.pull(worker, 5); len(got) != 1 || got[0] != id {
		t.Errorf("pulled %v, want %s", got, id)
	}
}
