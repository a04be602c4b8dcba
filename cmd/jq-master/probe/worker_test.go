package probe

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestWorkersRegisterAndReport: workers register, send heartbeats and report.
func TestWorkersRegisterAndReport(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		for _, c := range []struct {
			name string
			body any
			code string
		}{
			{"no name", object{"max_jobs": 1}, "missing_field"},
			{"no max_jobs", object{"name": "w"}, "missing_field"},
			{"max_jobs 0", object{"name": "w", "max_jobs": 0}, "invalid_value"},
			{"max_jobs 10001", object{"name": "w", "max_jobs": 10001}, "invalid_value"},
			{"max_jobs as text", object{"name": "w", "max_jobs": "1"}, "invalid_type"},
			{"heartbeat as number", object{"name": "w", "max_jobs": 1, "heartbeat": 5}, "invalid_type"},
			{"a URL that is none", object{"name": "w", "max_jobs": 1, "url": "frob"}, "invalid_value"},
			{"another scheme", object{"name": "w", "max_jobs": 1, "url": "ftp://127.0.0.1/"}, "invalid_value"},
			{"a port that is none", object{"name": "w", "max_jobs": 1, "port": 70000}, "invalid_value"},
			{"names that are not a list", object{"name": "w", "max_jobs": 1, "names": "x"}, "invalid_type"},
		} {
			t.Run(c.name, func(t *testing.T) { d.expectError(t, 400, c.code, "POST", "/worker", c.body) })
		}
		t.Run("pull is the default", func(t *testing.T) {
			r := d.expect(t, 201, "POST", "/worker", object{"name": "w", "max_jobs": 1, "names": []string{freshName()}})
			if r.text("mode") != "pull" || r.json["heartbeat_interval"] != 1.0 {
				t.Errorf("%s", r)
			}
			id := "worker-id: " + r.text("worker_id")
			d.expect(t, 204, "DELETE", "/worker", nil, id)
			d.expectError(t, 404, "unknown_worker", "DELETE", "/worker", nil, id)
			d.expectError(t, 404, "unknown_worker", "POST", "/worker/heartbeat", nil, id)
			d.expectError(t, 404, "unknown_worker", "POST", "/worker/jobs?wait=0", nil, id)
		})
		t.Run("without worker-id", func(t *testing.T) {
			for _, path := range []string{"/worker/heartbeat", "/worker/jobs", "/done"} {
				d.expectError(t, 400, "", "POST", path, object{})
			}
			d.expectError(t, 400, "", "DELETE", "/worker", nil)
		})
		name := freshName()
		w, other := d.puller(t, 2, []string{name}), d.puller(t, 1, []string{freshName()})
		t.Run("nothing to pull", func(t *testing.T) {
			if jobs := w.pull(t, "0.1", 1); jobs != nil {
				t.Errorf("%v", jobs)
			}
		})
		id := d.job(t, name)
		w.pullOne(t)
		idHeader := "worker-id: " + w.id
		ok := object{"job_id": id, "type": "success", "result": 1}
		with := func(key string, v any) object {
			o := object{}
			for k, v := range ok {
				o[k] = v
			}
			if o[key] = v; v == nil {
				delete(o, key)
			}
			return o
		}
		for _, c := range []struct {
			name, worker string
			body         any
			status       int
			code         string
		}{
			{"an unknown worker, before its body", "worker-id: frob", "{", 404, "unknown_worker"},
			{"half a body", idHeader, "{", 400, "invalid_body"},
			{"no job_id", idHeader, with("job_id", nil), 400, "missing_field"},
			{"no type", idHeader, with("type", nil), 400, "missing_field"},
			{"an unknown type", idHeader, with("type", "maybe"), 400, "invalid_value"},
			{"a bad time", idHeader, with("finished_at", "noon"), 400, "invalid_value"},
			{"an unknown job", idHeader, with("job_id", "frob"), 404, "unknown_job"},
			{"another's job", "worker-id: " + other.id, ok, 409, "not_assigned"},
			{"a wrong attempt", idHeader, with("attempt", 2), 409, "not_assigned"},
			{"a failure without a reason", idHeader, object{"job_id": id, "type": "failure", "should_retry": true, "message": "m"}, 400, "missing_field"},
			{"a failure without should_retry", idHeader, object{"job_id": id, "type": "failure", "reason": "other", "message": "m"}, 400, "missing_field"},
			{"a failure without a message", idHeader, object{"job_id": id, "type": "failure", "reason": "other", "should_retry": true}, 400, "missing_field"},
			{"an unknown reason", idHeader, object{"job_id": id, "type": "failure", "reason": "frob", "should_retry": true, "message": "m"}, 400, "invalid_value"},
			{"should_retry as number", idHeader, object{"job_id": id, "type": "failure", "reason": "other", "should_retry": 1, "message": "m"}, 400, "invalid_type"},
		} {
			t.Run(c.name, func(t *testing.T) { d.expectError(t, c.status, c.code, "POST", "/done", c.body, c.worker) })
		}
		t.Run("done, twice, by id", func(t *testing.T) {
			body := object{"id": id, "type": "success", "result": 1, "attempt": 1, "finished_at": "2026-11-22T10:00:00"}
			d.expect(t, 204, "POST", "/done", body, idHeader)
			d.expect(t, 204, "POST", "/done", body, idHeader)
			r := d.awaitStatus(t, id, "done")
			if !strings.HasPrefix(r.text("finished_at"), "2026-11-22T10:00:00") {
				t.Errorf("%s", r)
			}
		})
	})
}

// TestGoneClientWaitsNoLonger: the master notices that a client has gone while the client's request
// waits, even if the request has a needless body.
func TestGoneClientWaitsNoLonger(t *testing.T) {
	d := start(t, quickFlags...)
	d.waitUntilReady(t)
	w := d.puller(t, 1, []string{freshName()})
	for _, request := range []string{"POST /worker/jobs?wait=60", "GET /job/" + d.job(t, freshName()) + "/polling?timeout=60"} {
		conn, err := net.Dial("tcp", d.Field("addr"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nworker-id: %s\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", request, w.id)
		began := time.Now()
		for _, want := range []float64{1, 0} {
			waitUntil(t, fmt.Sprintf("%v requests wait after %s", want, request), func() error {
				if r := d.expect(t, 200, "GET", "/v1/stats", nil); r.json["waiters"] != want {
					return fmt.Errorf("%v", r.json["waiters"])
				}
				return nil
			})
			_ = conn.Close()
		}
		if took := time.Since(began); took > 30*time.Second { // after 60 s the request would have ended anyway
			t.Errorf("%s ended after %v", request, took)
		}
	}
}

// TestLostWorker: a worker that sends no sign of life is lost, and its job runs again.
func TestLostWorker(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		name := freshName()
		w := d.puller(t, 5, []string{name}, "heartbeat", true)
		singleRunID, retriedID := d.job(t, name, "max_retry", 0), d.job(t, name, "max_retry", 3)
		w.pullOne(t)
		w.pullOne(t)
		r := d.awaitStatus(t, singleRunID, "error")
		if !strings.Contains(r.text("message"), "lost") || r.json["retry_count"] != 0.0 {
			t.Errorf("%s", r)
		}
		if r := d.ask(t, "POST", "/done", object{"job_id": singleRunID, "type": "success"}, "worker-id: "+w.id); r.status != 404 && r.status != 409 {
			t.Errorf("a lost worker's report: %s", r)
		}
		d.awaitStatus(t, retriedID, "retrying")
		second := d.puller(t, 5, []string{name})
		if got := second.pullOne(t); got != retriedID {
			t.Errorf("%s runs again, want %s", got, retriedID)
		}
	})
}

// TestEffectOfAnswersToPushes: every answer of a worker to a push has the documented effect.
func TestEffectOfAnswersToPushes(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		t.Run("what comes", func(t *testing.T) {
			t.Parallel()
			name := freshName()
			w := d.worker(t, 3, []string{name[:6] + "*" + name[6:]}, nil, "token", "w-secret")
			id := d.job(t, name, "timeout", 7)
			p := w.nextPush(t)
			if p.ID != id || p.JobID != id || p.Name != name || p.Timeout != 7 || p.Attempt != 1 || string(p.Argument) != "\x81\xa1n\x01" ||
				p.auth != "Bearer w-secret" || !strings.Contains(p.kind, "msgpack") {
				t.Errorf("%+v", p)
			}
			if at, err := time.Parse(time.RFC3339Nano, p.deadline); err != nil || time.Until(at) > 10*time.Second {
				t.Errorf("deadline %q", p.deadline)
			}
			d.awaitStatus(t, id, "running")
			w.reportSuccess(t, id, 1)
			d.awaitStatus(t, id, "done")
		})
		first := func(status int, header string) func(pushRequest) (int, string) {
			n := 0
			return func(pushRequest) (int, string) {
				if n++; n == 1 {
					return status, header
				}
				return 202, ""
			}
		}
		for _, c := range []struct {
			name    string
			answer  int
			header  string
			attempt int // the attempt of the next push; 0: none follows
		}{
			{"200", 200, "", 0}, {"429 is no attempt", 429, "Retry-After: 0", 1}, {"503 is no attempt", 503, "Retry-After: 1", 1},
			{"400 is a failure", 400, "", 2}, {"418 is a failure", 418, "", 2}, {"a redirect is a failure", 302, "Location: http://127.0.0.1:1/", 2},
			{"500 is a failure, and a pause", 500, "", 2},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				name := freshName()
				w := d.worker(t, 1, []string{name}, first(c.answer, c.header))
				id := d.job(t, name)
				w.nextPush(t)
				if c.attempt > 0 {
					if p := w.nextPush(t); p.ID != id || p.Attempt != c.attempt {
						t.Errorf("%+v, want attempt %d", p, c.attempt)
					}
				}
				waitUntil(t, "done", func() error {
					if r := w.reportSuccess(t, id, 1); r.status != 204 {
						return fmt.Errorf("%s", r)
					}
					return nil
				})
				if r := d.awaitStatus(t, id, "done"); r.json["retry_count"] != float64(max(1, c.attempt)-1) {
					t.Errorf("%s", r)
				}
			})
		}
		t.Run("404: another worker does it", func(t *testing.T) {
			t.Parallel()
			name := freshName()
			refusingWorker := d.worker(t, 1, []string{name}, func(pushRequest) (int, string) { return 404, "" })
			id := d.job(t, name)
			refusingWorker.nextPush(t)
			w := d.worker(t, 1, []string{name}, nil)
			if p := w.nextPush(t); p.ID != id || p.Attempt != 1 {
				t.Errorf("%+v", p)
			}
			select {
			case p := <-refusingWorker.pushes:
				t.Errorf("it was asked again: %+v", p)
			default:
			}
		})
		t.Run("cut off: taken as accepted", func(t *testing.T) {
			t.Parallel()
			name := freshName()
			w := d.worker(t, 1, []string{name}, first(0, ""))
			id := d.job(t, name, "timeout", 1)
			w.nextPush(t)
			d.awaitStatus(t, id, "running")
			if p := w.nextPush(t); p.Attempt != 2 { // the timeout has ended the run
				t.Errorf("%+v", p)
			}
		})
		t.Run("a worker that cannot be reached", func(t *testing.T) {
			t.Parallel()
			name := freshName()
			deadWorker := d.puller(t, 1, []string{name}, "url", "http://127.0.0.1:1")
			_ = deadWorker
			id := d.job(t, name, "max_retry", 0)
			w := d.worker(t, 1, []string{name}, nil)
			if p := w.nextPush(t); p.ID != id || p.Attempt != 1 {
				t.Errorf("%+v", p)
			}
		})
		t.Run("never more than max_jobs", func(t *testing.T) {
			t.Parallel()
			name := freshName()
			w := d.worker(t, 3, []string{name}, nil)
			for range 30 {
				d.job(t, name)
			}
			for range 30 {
				p := w.nextPush(t)
				if r := w.reportSuccess(t, p.ID, 1); r.status != 204 {
					t.Fatalf("%s", r)
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.maxRunning > 4 { // the next push may arrive before the reply to the report
				t.Errorf("%d jobs at once", w.maxRunning)
			}
		})
	})
}

// TestSmallerPrioritiesRunFirst: jobs with smaller priorities run first, and among equals the
// oldest, whatever their names.
func TestSmallerPrioritiesRunFirst(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		a, b := freshName(), freshName()
		var want []string
		ids := map[int]string{}
		for i, c := range []struct {
			name     string
			priority int
		}{{a, 5}, {b, -3}, {a, -3}, {b, 5}, {a, 0}, {b, -2147483648}, {a, 2147483647}} {
			ids[i] = d.job(t, c.name, "priority", c.priority)
		}
		for _, i := range []int{5, 1, 2, 4, 0, 3, 6} {
			want = append(want, ids[i])
		}
		w := d.puller(t, 10, []string{a, b})
		for i := range want {
			if got := w.pullOne(t); got != want[i] {
				t.Fatalf("job %d is %s, want %s of %v", i, got, want[i], want)
			}
		}
	})
}

// TestRetriesAfterFailuresAndTimeouts: a job is retried after failures and timeouts, until its
// retries are used up.
func TestRetriesAfterFailuresAndTimeouts(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		name := freshName()
		w := d.puller(t, 10, []string{name})
		t.Run("until max_retry", func(t *testing.T) {
			id := d.job(t, name, "max_retry", 2)
			for n := range 3 {
				if got := w.pullOne(t); got != id {
					t.Fatalf("took %s", got)
				}
				if r := d.awaitStatus(t, id, "running"); r.json["retry_count"] != float64(n) {
					t.Errorf("%s", r)
				}
				w.reportFailure(t, id, true)
			}
			r := d.awaitStatus(t, id, "error")
			e, _ := r.json["error"].(object)
			if r.text("message") != "it broke" || e["code"] != 7.0 || r.json["retry_count"] != 2.0 {
				t.Errorf("%s", r)
			}
		})
		t.Run("should_retry false", func(t *testing.T) {
			id := d.job(t, name)
			w.pullOne(t)
			w.reportFailure(t, id, false)
			d.awaitStatus(t, id, "error")
		})
		t.Run("a failed job keeps its place", func(t *testing.T) {
			id := d.job(t, name)
			w.pullOne(t)
			w.reportFailure(t, id, true)
			if r := d.awaitStatus(t, id, "retrying"); r.text("message") != "it broke" {
				t.Errorf("%s", r)
			}
			delayedID := d.job(t, name, "delay", 0.4)
			waitUntil(t, "both may run", func() error {
				if r := d.expect(t, 200, "GET", "/job/"+delayedID, nil); r.text("status") != "queued" {
					return fmt.Errorf("%s", r)
				}
				return nil
			})
			if got := w.pullOne(t); got != id {
				t.Errorf("took %s first, want %s", got, id)
			}
			w.reportSuccess(t, id, 1)
			w.reportSuccess(t, w.pullOne(t), 1)
		})
		t.Run("timeout", func(t *testing.T) {
			id := d.job(t, name, "timeout", 1, "max_retry", 1)
			w.pullOne(t)
			if got := w.pullOne(t); got != id {
				t.Errorf("took %s", got)
			}
			if r := d.ask(t, "POST", "/done", object{"job_id": id, "type": "success", "attempt": 1}, "worker-id: "+w.id); r.status != 409 {
				t.Errorf("the first run's report: %s", r)
			}
			r := d.awaitStatus(t, id, "error")
			if r.json["retry_count"] != 1.0 {
				t.Errorf("%s", r)
			}
			if r := w.reportSuccess(t, id, 1); r.status != 409 {
				t.Errorf("%s", r)
			}
		})
	})
}
