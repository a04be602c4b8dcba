package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestConstraintsHoldJobsBack: constraints hold back the right jobs, and operators see which.
func TestConstraintsHoldJobsBack(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		for _, c := range []struct {
			name string
			body any
			code string
		}{
			{"nothing limited", object{"match": object{}}, ""},
			{"no match", object{"rate": 1}, "missing_field"},
			{"rate 0", object{"match": object{}, "rate": 0}, "invalid_value"},
			{"burst 0", object{"match": object{}, "rate": 1, "burst": 0}, "invalid_value"},
			{"concurrency -1", object{"match": object{}, "concurrency": -1}, "invalid_value"},
			{"two forms", object{"match": object{"all": []any{}, "any": []any{}}, "rate": 1}, "invalid_value"},
			{"another key", object{"match": object{"field": "/name", "op": "eq", "value": 1, "frob": 1}, "rate": 1}, "invalid_value"},
			{"an unknown op", object{"match": object{"field": "/name", "op": "like", "value": 1}, "rate": 1}, "invalid_value"},
			{"a bad regex", object{"match": object{"field": "/name", "op": "regex", "value": "("}, "rate": 1}, "invalid_value"},
			{"a bad pointer", object{"match": object{"field": "name", "op": "eq", "value": 1}, "rate": 1}, "invalid_value"},
		} {
			t.Run(c.name, func(t *testing.T) { d.expectError(t, 400, c.code, "PUT", "/v1/constraints/bad", c.body) })
		}
		t.Run("matchers", func(t *testing.T) {
			job := `{"name":"mail.send","priority":-3,"argument":{"user":[{"id":7}],"big":9223372036854775808,"one":1,"list":[1,2],"none":null,"s":"äb"}}`
			f := func(field, op, value string) string {
				return fmt.Sprintf(`{"field":%q,"op":%q,"value":%s}`, field, op, value)
			}
			for _, c := range []struct {
				match string
				want  bool
			}{
				{`{}`, true}, {f("/name", "eq", `"mail.send"`), true}, {f("/name", "ne", `"mail.send"`), false}, {f("/name", "glob", `"mail.*"`), true},
				{f("/name", "glob", `"*.mail"`), false}, {f("/name", "regex", `"l.s"`), true}, {f("/name", "regex", `"^send"`), false},
				{f("/priority", "lt", `0`), true}, {f("/priority", "ge", `-3`), true}, {f("/priority", "gt", `-3`), false}, {f("/priority", "le", `-3`), true},
				{f("/argument/user/0/id", "eq", `7`), true}, {f("/argument/user/1/id", "eq", `7`), false}, {f("/argument/user/0/id", "in", `[1,7]`), true},
				{f("/argument/big", "eq", `9223372036854775808`), true}, {f("/argument/big", "eq", `9223372036854775809`), false},
				{f("/argument/big", "gt", `9223372036854775807`), true}, {f("/argument/one", "eq", `1.0`), true}, {f("/argument/one", "eq", `"1"`), false},
				{f("/argument/one", "ne", `"1"`), true}, {f("/argument/one", "lt", `"2"`), false}, {f("/argument/nothing", "ne", `1`), false},
				{f("/argument/nothing", "exists", `false`), true}, {f("/argument/none", "exists", `true`), true}, {f("/argument/none", "type", `"null"`), true},
				{f("/argument/list", "type", `"array"`), true}, {f("/argument", "type", `"map"`), true}, {f("/argument/s", "gt", `"b"`), true},
				{`{"all":[` + f("/priority", "eq", "-3") + `,{"not":` + f("/name", "eq", `"x"`) + `}]}`, true},
				{`{"any":[` + f("/priority", "eq", "0") + `]}`, false}, {`{"all":[]}`, true}, {`{"any":[]}`, false},
			} {
				r := d.expect(t, 200, "POST", "/v1/constraints/test", `{"match":`+c.match+`,"job":`+job+`}`)
				if r.json["matches"] != c.want {
					t.Errorf("%s: %s, want %v", c.match, r, c.want)
				}
			}
		})
		t.Run("concurrency, per user", func(t *testing.T) {
			name, id := freshName(), freshName()
			body := object{"match": object{"field": "/name", "op": "eq", "value": name}, "concurrency": 1, "per": "/argument/user"}
			r := d.ask(t, "PUT", "/v1/constraints/"+id, body)
			if r.status != 200 && r.status != 201 {
				t.Fatalf("%s", r)
			}
			tag := r.header.Get("ETag")
			w := d.puller(t, 10, []string{name})
			a1, a2 := d.job(t, name, "argument", object{"user": "a"}), d.job(t, name, "argument", object{"user": "a"})
			b1 := d.job(t, name, "argument", object{"user": "b"})
			if got := w.pullOne(t); got != a1 {
				t.Errorf("first %s", got)
			}
			if got := w.pullOne(t); got != b1 {
				t.Errorf("second %s: a blocked job blocks another", got)
			}
			if jobs := w.pull(t, "0.2", 1); jobs != nil {
				t.Errorf("beyond the constraint: %v", jobs)
			}
			waitUntil(t, "counts", func() error {
				r := d.expect(t, 200, "GET", "/v1/constraints/"+id, nil)
				if r.json["running"] != 2.0 || r.json["blocked"] != 1.0 || r.json["matching"] == nil {
					return fmt.Errorf("%s", r)
				}
				return nil
			})
			if r := d.expect(t, 200, "GET", "/v1/jobs/"+a2, nil); r.json["blocked_by"] == nil && !contains(r, id) {
				t.Errorf("what blocks it: %s", r)
			}
			w.reportSuccess(t, a1, 1)
			if got := w.pullOne(t); got != a2 {
				t.Errorf("third %s", got)
			}
			d.expectError(t, 412, "", "PUT", "/v1/constraints/"+id, body, `If-Match: "frob"`)
			delete(body, "per")
			body["concurrency"] = 0
			d.expect(t, 200, "PUT", "/v1/constraints/"+id, body, "If-Match: "+tag)
			last := d.job(t, name, "argument", object{"user": "c"})
			if jobs := w.pull(t, "0.2", 1); jobs != nil {
				t.Errorf("concurrency 0 lets through %v", jobs)
			}
			if r := d.ask(t, "DELETE", "/v1/constraints/"+id, nil); r.status != 204 && r.status != 200 {
				t.Errorf("%s", r)
			}
			if got := w.pullOne(t); got != last {
				t.Errorf("set free: %s", got)
			}
			d.expectError(t, 404, "", "GET", "/v1/constraints/"+id, nil)
		})
		t.Run("rate", func(t *testing.T) {
			name, id := freshName(), freshName()
			d.ask(t, "PUT", "/v1/constraints/"+id, object{"match": object{"field": "/name", "op": "eq", "value": name}, "rate": 5, "burst": 2})
			defer d.ask(t, "DELETE", "/v1/constraints/"+id, nil)
			w := d.puller(t, 50, []string{name})
			start := time.Now()
			for range 8 {
				d.job(t, name)
			}
			for range 8 {
				w.pullOne(t)
			}
			if elapsed := time.Since(start); elapsed < 1100*time.Millisecond {
				t.Errorf("8 jobs at 5/s, 2 at once, took %s", elapsed)
			}
		})
	})
}

func contains(r reply, name string) bool {
	for i := 0; i+len(name) <= len(r.body); i++ {
		if string(r.body[i:i+len(name)]) == name {
			return true
		}
	}
	return false
}

// TestOperatorsListAndRetryJobs: operators can list jobs, retry one or many, and check the health
// of the master.
func TestOperatorsListAndRetryJobs(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		name := freshName()
		var ids []string
		for range 12 {
			ids = append(ids, d.job(t, name, "max_retry", 0))
		}
		t.Run("pages, newest first", func(t *testing.T) {
			var got []string
			cursor := ""
			for range 10 {
				r := d.expect(t, 200, "GET", "/v1/jobs?limit=5&name="+name+cursor, nil)
				for _, j := range r.json["jobs"].([]any) {
					got = append(got, j.(object)["id"].(string))
				}
				next, ok := r.json["cursor"]
				if !ok || next == nil {
					break
				}
				cursor = fmt.Sprintf("&cursor=%v", next)
			}
			if len(got) != 12 || got[0] != ids[11] || got[11] != ids[0] {
				t.Errorf("%v", got)
			}
		})
		t.Run("bad questions", func(t *testing.T) {
			for _, q := range []string{"limit=0", "limit=501", "limit=x", "status=frob", "from=noon", "cursor=@"} {
				d.expectError(t, 400, "", "GET", "/v1/jobs?"+q, nil)
			}
			d.expectError(t, 404, "unknown_job", "GET", "/v1/jobs/frob", nil)
		})
		w := d.puller(t, 20, []string{name})
		for _, id := range ids[:4] {
			w.pullOne(t)
			w.reportFailure(t, id, true)
			d.awaitStatus(t, id, "error")
		}
		t.Run("by status and by matcher", func(t *testing.T) {
			if r := d.expect(t, 200, "GET", "/v1/jobs?status=error&name="+name, nil); len(r.json["jobs"].([]any)) != 4 {
				t.Errorf("%s", r)
			}
			r := d.expect(t, 200, "POST", "/v1/jobs/query", object{"match": object{"field": "/name", "op": "eq", "value": name}, "status": "queued"})
			if len(r.json["jobs"].([]any)) != 8 {
				t.Errorf("%s", r)
			}
		})
		t.Run("detail is no fetch", func(t *testing.T) {
			r := d.expect(t, 200, "GET", "/v1/jobs/"+ids[0], nil)
			if r.text("name") != name || r.json["attempts"] == nil || r.json["argument"] == nil {
				t.Errorf("%s", r)
			}
		})
		t.Run("again from zero", func(t *testing.T) {
			if r := d.ask(t, "POST", "/v1/jobs/"+ids[0]+"/retry", nil); r.status >= 300 {
				t.Fatalf("%s", r)
			}
			r := d.awaitStatus(t, ids[0], "queued")
			if r.json["retry_count"] != 0.0 {
				t.Errorf("%s", r)
			}
			d.expectError(t, 409, "", "POST", "/v1/jobs/"+ids[0]+"/retry", nil)
		})
		t.Run("bulk", func(t *testing.T) {
			match := object{"field": "/name", "op": "eq", "value": name}
			r := d.expect(t, 200, "POST", "/v1/jobs/retry", object{"match": match, "status": "error", "limit": 100})
			if r.json["affected"] != 3.0 || r.json["more"] != false {
				t.Errorf("%s", r)
			}
			r = d.expect(t, 200, "POST", "/v1/jobs/cancel", object{"match": match, "status": "queued", "limit": 5})
			if r.json["affected"] != 5.0 || r.json["more"] != true {
				t.Errorf("%s", r)
			}
		})
		t.Run("the rest", func(t *testing.T) {
			for _, path := range []string{"/v1/stats", "/v1/workers", "/v1/constraints", "/openapi.yaml", "/healthz", "/readyz", "/metrics"} {
				d.expect(t, 200, "GET", path, nil)
			}
			d.expect(t, 204, "DELETE", "/v1/workers/"+w.id, nil)
			d.expectError(t, 404, "unknown_worker", "DELETE", "/v1/workers/"+w.id, nil)
		})
	})
}

// TestScopesAllowTheirRequests: each scope of a token allows its own requests and no others.
func TestScopesAllowTheirRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("p-secret push\nw-secret work\na-secret admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := start(t, "--token-file="+file)
	d.waitUntilReady(t)
	job, w := object{"name": "x", "argument": object{}}, object{"name": "w", "max_jobs": 1}
	for _, c := range []struct {
		token, method, path string
		body                any
		status              int
	}{
		{"", "POST", "/job", job, 401}, {"frob", "POST", "/job", job, 401}, {"p-secret", "POST", "/job", job, 201}, {"w-secret", "POST", "/job", job, 403},
		{"w-secret", "POST", "/worker", w, 201}, {"p-secret", "POST", "/worker", w, 403}, {"p-secret", "GET", "/v1/jobs", nil, 403},
		{"w-secret", "GET", "/v1/stats", nil, 403}, {"w-secret", "GET", "/v1/status", nil, 403}, {"", "GET", "/app.js", nil, 200}, {"a-secret", "GET", "/v1/stats", nil, 200}, {"", "GET", "/healthz", nil, 200}, {"", "GET", "/v1/stats", nil, 401},
	} {
		t.Run(c.token+" "+c.method+" "+c.path, func(t *testing.T) {
			d.token = c.token
			if r := d.ask(t, c.method, c.path, c.body); r.status != c.status {
				t.Errorf("%s, want %d", r, c.status)
			}
		})
	}
}

// TestOptionErrorNamesOption: an error names the option that is invalid.
func TestOptionErrorNamesOption(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--addr=0.0.0.0:0", "--max-body=frob", "--redis=http://x", "--heartbeat=-1s", "--worker-allow=10.0.0.0", "--frob"} {
		t.Run(flag, func(t *testing.T) {
			d, err := launch(flag)
			if err == nil {
				_ = d.Stop()
				t.Fatal("it has started")
			}
			if code := d.State().ExitCode(); code != 2 {
				t.Errorf("exit %d: %s", code, d.Log.String())
			}
		})
	}
}

// TestRunsHaveKeysOfBroker: a job's runs are shown with the same keys as the broker's runs, and
// survive a restart of the master.
func TestRunsHaveKeysOfBroker(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		name := freshName()
		id := d.job(t, name, "timeout", 0.3, "max_retry", 10)
		d.puller(t, 1, []string{name}).pullOne(t) // this worker does not answer
		w := d.puller(t, 1, []string{name})
		w.pullOne(t) // this one answers too late
		for range 3 {
			if got := w.pullOne(t); got != id {
				t.Fatalf("took %s, wanted %s", got, id)
			}
			w.reportFailure(t, id, true)
		}
		w.pullOne(t)
		w.reportSuccess(t, id, 1)
		runs, _ := d.expect(t, 200, "GET", "/v1/jobs/"+id, nil).json["runs"].([]any)
		words := ""
		for i, r := range runs {
			r := r.(object)
			words += fmt.Sprint(r["outcome"], " ")
			worker, _ := r["worker"].(object)
			if r["n"] != float64(i+1) || i > 0 && worker["id"] != w.id || r["ran_ms"].(float64) < 0 || r["started_at"] == "" || (r["error"] == nil) != (i == 5) {
				t.Errorf("run %d: %v", i, r)
			}
		}
		if words != "timed_out timed_out failed failed failed answered " {
			t.Errorf("%s: %v", words, runs)
		}
		id = d.job(t, name)
		w.pullOne(t)
		d.expect(t, 204, "DELETE", "/job/"+id+"?force=true", nil)
		r := d.expect(t, 200, "GET", "/v1/jobs/"+id, nil)
		if runs, _ := r.json["runs"].([]any); len(runs) != 1 || runs[0].(object)["outcome"] != "cancelled" {
			t.Errorf("%s", r)
		}
	})
}

// TestPriorityOfWaitingJobsIsChanged: an operator lets one job, or all matching jobs, run before
// others, and can count the matching jobs first.
func TestPriorityOfWaitingJobsIsChanged(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		name := freshName()
		var ids []string
		for i := range 6 {
			ids = append(ids, d.job(t, name, "priority", 5, "argument", object{"n": i}))
		}
		d.expect(t, 204, "POST", "/v1/jobs/"+ids[4]+"/priority", object{"priority": -3})
		for body, status := range map[string]int{`{}`: 400, `{"priority": 1e10}`: 400, `{"priority": 1, "frob": 2}`: 400} {
			d.expect(t, status, "POST", "/v1/jobs/"+ids[4]+"/priority", body)
		}
		change := object{"name": name, "match": object{"field": "/argument/n", "op": "ge", "value": 4}, "priority": -4, "count": true}
		r := d.expect(t, 200, "POST", "/v1/jobs/priority", change)
		if r.json["affected"] != 2. || r.json["more"] != false || r.json["start"] == nil {
			t.Errorf("counted: %s", r)
		}
		lateID := d.job(t, name, "priority", 5, "argument", object{"n": 9})
		delete(change, "count")
		change["limit"], change["cursor"] = 1, r.json["start"]
		if r = d.expect(t, 200, "POST", "/v1/jobs/priority", change); r.json["affected"] != 1. || r.json["more"] != true {
			t.Errorf("the first of them: %s", r)
		}
		change["cursor"] = r.json["cursor"]
		if r = d.expect(t, 200, "POST", "/v1/jobs/priority", change); r.json["affected"] != 1. {
			t.Errorf("the second: %s", r)
		}
		w := d.puller(t, 1, []string{name})
		for _, want := range []int{4, 5, 0, 1} {
			got := w.pullOne(t)
			if got != ids[want] {
				t.Fatalf("%s is taken, not job %d", got, want)
			}
			d.expect(t, 409, "POST", "/v1/jobs/"+got+"/priority", object{"priority": 1})
			w.reportSuccess(t, got, nil)
		}
		if r := d.expect(t, 200, "GET", "/v1/jobs/"+lateID+"?bodies=false", nil); r.json["priority"] != 5. || r.json["argument"] != nil || r.json["argument_bytes"] == nil {
			t.Errorf("the job that came later: %s", r)
		}
	})
}

// TestLostRun: the run of a worker that stops sending heartbeats is lost.
func TestLostRun(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		name := freshName()
		id := d.job(t, name, "max_retry", 0)
		d.puller(t, 1, []string{name}, "heartbeat", true).pullOne(t)
		r := d.awaitStatus(t, id, "error")
		if r = d.expect(t, 200, "GET", "/v1/jobs/"+id, nil); len(r.json["runs"].([]any)) != 1 || r.json["runs"].([]any)[0].(object)["outcome"] != "lost" {
			t.Errorf("%s", r)
		}
	})
}
