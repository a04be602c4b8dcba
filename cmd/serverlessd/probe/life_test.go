package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRecordFollowsJob: job/get and state show a job correctly from its acceptance to its end.
func TestRecordFollowsJob(t *testing.T) {
	d := sharedDaemon(t)
	client := freshClient()
	t.Run("unknown", func(t *testing.T) {
		for _, path := range []string{"/job/get/", "/job/result/"} {
			d.expectError(t, 404, "unknown_job", "GET", "/"+client+path+"1m8187qcq-6jne19-00000", "")
			d.expectError(t, 404, "unknown_job", "GET", "/"+client+path+"frob", "")
		}
		d.expectError(t, 404, "unknown_job", "DELETE", "/"+client+"/job/get/1m8187qcq-6jne19-00000", "")
		d.expectError(t, 404, "unknown_job", "POST", "/"+client+"/job/retry/1m8187qcq-6jne19-00000", "")
	})
	id := d.addOne(t, client, "r", "x")
	t.Run("waiting", func(t *testing.T) {
		r := d.job(t, client, id)
		for _, key := range []string{"id", "type", "state", "dt", "create_dt", "done_dt", "lock", "tries", "code", "exitcode", "truncated", "bad_lines"} {
			if _, has := r.json[key]; !has {
				t.Errorf("no %s in %s", key, r)
			}
		}
		if r.text("state") != "waiting" || r.text("type") != "r" || r.json["tries"] != 0.0 || r.json["done_dt"] != nil {
			t.Errorf("%s", r)
		}
		if at, err := time.Parse(time.RFC3339Nano, r.text("create_dt")); err != nil || time.Since(at).Abs() > time.Hour {
			t.Errorf("create_dt: %v, %v", at, err)
		}
		if r := d.ask(t, "GET", "/"+client+"/job/result/"+id, ""); r.status != 404 {
			t.Errorf("a result before the end: %s", r)
		}
	})
	t.Run("of another client", func(t *testing.T) {
		d.expectError(t, 404, "unknown_job", "GET", "/"+freshClient()+"/job/get/"+id, "")
		d.expectError(t, 404, "unknown_job", "DELETE", "/"+freshClient()+"/job/get/"+id, "")
	})
	t.Run("an end may not be retried before it is one", func(t *testing.T) {
		if r := d.ask(t, "POST", "/"+client+"/job/retry/"+id, ""); r.status != 409 {
			t.Errorf("%s", r)
		}
	})
	d.addHandler(t, client, "r", "sh", `exit 0`)
	d.awaitEnd(t, client, id, "ok")
	t.Run("archived", func(t *testing.T) {
		r := d.job(t, client, id)
		done, err := time.Parse(time.RFC3339Nano, r.text("done_dt"))
		dt, err2 := time.Parse(time.RFC3339Nano, r.text("dt"))
		if err != nil || err2 != nil || dt.Year() != done.Year()+1000 || r.text("lock") != "__done" || r.json["tries"] != 1.0 {
			t.Errorf("%s", r)
		}
		d.expectError(t, 409, "done", "DELETE", "/"+client+"/job/get/"+id, "")
	})
	t.Run("again", func(t *testing.T) {
		d.addHandler(t, client, "r", "sh", `exit 65`)
		d.expect(t, 200, "POST", "/"+client+"/job/retry/"+id, "")
		d.awaitEnd(t, client, id, "failed")
		if r := d.job(t, client, id); r.json["tries"] != 1.0 {
			t.Errorf("%s, want tries from zero", r)
		}
		if k := d.counts(t, client, "r"); k["failed"] != 1.0 || k["ok"] != 0.0 || k["added"] != 1.0 {
			t.Errorf("%v", k)
		}
	})
	t.Run("deleted", func(t *testing.T) {
		id := d.addOne(t, client, "gone", "x")
		d.expect(t, 200, "DELETE", "/"+client+"/job/get/"+id, "")
		d.expectError(t, 404, "unknown_job", "GET", "/"+client+"/job/get/"+id, "")
	})
	t.Run("running", func(t *testing.T) {
		d.addHandler(t, client, "run", "sh", `while [ ! -e "$1" ]; do sleep 0.05; done`)
		go_ := t.TempDir() + "/go"
		id := d.addOne(t, client, "run", go_)
		waitUntil(t, "runs", func() error {
			if r := d.job(t, client, id); r.text("state") != "running" {
				return fmt.Errorf("%s", r)
			}
			return nil
		})
		d.expectError(t, 409, "running", "DELETE", "/"+client+"/job/get/"+id, "")
		touch(t, go_)
		d.awaitEnd(t, client, id, "ok")
	})
	t.Run("retried until its time is over", func(t *testing.T) {
		d.addHandler(t, client, "err", "sh", `exit 1`)
		start := time.Now()
		id := d.addOne(t, client, "err", "x")
		d.awaitEnd(t, client, id, "abandoned")
		r := d.job(t, client, id)
		if n := r.json["tries"].(float64); n < 2 && !r.isSlow() || n > 25 || time.Since(start) < time.Second {
			t.Errorf("after %s: %s", time.Since(start), r)
		}
	})
	t.Run("retry succeeds", func(t *testing.T) {
		d.addHandler(t, client, "second", "sh", `if mkdir "$1" 2>/dev/null; then exit 75; fi; exit 0`)
		id := d.addOne(t, client, "second", t.TempDir()+"/x")
		d.awaitEnd(t, client, id, "ok")
		if r := d.job(t, client, id); r.json["tries"] != 2.0 {
			t.Errorf("%s", r)
		}
	})
}

// TestBulkRunsJobsAgain: operators list jobs and run them again.
func TestBulkRunsJobsAgain(t *testing.T) {
	d := sharedDaemon(t)
	client := freshClient()
	d.addHandler(t, client, "f", "sh", `exit 65`)
	d.addHandler(t, client, "g", "sh", `exit 0`)
	ids := d.add(t, client, "f", strings.Repeat("x\n", 25))
	ok := d.addOne(t, client, "g", "x")
	for _, id := range ids {
		d.awaitEnd(t, client, id, "failed")
	}
	d.awaitEnd(t, client, ok, "ok")
	t.Run("pages, newest first", func(t *testing.T) {
		var got []string
		after := ""
		for range 10 {
			r := d.expect(t, 200, "GET", "/"+client+"/jobs?type=f&limit=10"+after, "")
			list, _ := r.json["jobs"].([]any)
			for _, j := range list {
				got = append(got, j.(map[string]any)["id"].(string))
			}
			if len(list) < 10 {
				break
			}
			after = "&after=" + got[len(got)-1]
			if next := r.text("after"); next != "" {
				after = "&after=" + next
			}
			if next := r.text("cursor"); next != "" {
				after = "&after=" + next
			}
		}
		if len(got) != 25 || got[0] != ids[24] || got[24] != ids[0] {
			t.Errorf("%d jobs: %v", len(got), got)
		}
	})
	t.Run("by state", func(t *testing.T) {
		r := d.expect(t, 200, "GET", "/"+client+"/jobs?state=ok", "")
		if list, _ := r.json["jobs"].([]any); len(list) != 1 {
			t.Errorf("%s", r)
		}
		d.expectError(t, 400, "invalid_value", "GET", "/"+client+"/jobs?state=frob", "", "frob")
		d.expectError(t, 400, "invalid_value", "GET", "/"+client+"/jobs?limit=x", "")
	})
	t.Run("all again", func(t *testing.T) {
		d.addHandler(t, client, "f", "sh", `exit 0`)
		for query, code := range map[string]string{"": "missing_field", "?type=&state=": "missing_field", "?typ=f": "invalid_value", "?type=f&type=g": "invalid_value"} {
			d.expectError(t, 400, code, "POST", "/"+client+"/retry"+query, "")
		}
		r := d.expect(t, 200, "POST", "/"+client+"/retry?type=f&state=failed", "")
		if r.json["affected"] != 25.0 || r.json["more"] != false {
			t.Errorf("%s", r)
		}
		for _, id := range ids {
			d.awaitEnd(t, client, id, "ok")
		}
		if k := d.counts(t, client, "f"); k["ok"] != 25.0 || k["failed"] != 0.0 || k["added"] != 25.0 {
			t.Errorf("%v", k)
		}
	})
}

// TestStartStopAndQuit: start, stop and quit do what they say.
func TestStartStopAndQuit(t *testing.T) {
	t.Parallel()
	d := start(t, "--start=false")
	client := freshClient()
	d.addHandler(t, client, "a", "sh", `exit 0`)
	id := d.addOne(t, client, "a", "x")
	d.expect(t, 200, "POST", "/"+client+"/job/a/add?wait=store", "y\n")
	if r := d.job(t, client, id); r.text("state") != "waiting" {
		t.Errorf("before /start: %s", r)
	}
	if r := d.expect(t, 200, "GET", "/start", ""); r.body != "Started.\n" {
		t.Errorf("%q", r.body)
	}
	d.awaitEnd(t, client, id, "ok")
	if r := d.expect(t, 200, "POST", "/stop", ""); r.body != "Stopped.\n" {
		t.Errorf("%q", r.body)
	}
	id = d.addOne(t, client, "a", "x")
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics"} {
		d.expect(t, 200, "GET", path, "")
	}
	if r := d.job(t, client, id); r.text("state") != "waiting" {
		t.Errorf("after /stop: %s", r)
	}
	metrics := d.expect(t, 200, "GET", "/metrics", "").body
	for _, name := range []string{"gloom_sq_added_total", "gloom_sq_journal", "gloom_sq_ingested", "gloom_sq_taken", "gloom_sq_ended", "gloom_sq_contexts", "gloom_sq_store"} {
		if !strings.Contains(metrics, name) {
			t.Errorf("no %s among the metrics", name)
		}
	}
	if r := d.expect(t, 200, "POST", "/quit", ""); r.body != "Quit.\n" {
		t.Errorf("%q", r.body)
	}
	select {
	case <-d.Exited():
	case <-time.After(testTimeout):
		t.Fatal("did not quit")
	}
	if code := d.State().ExitCode(); code != 0 {
		t.Errorf("exit %d: %s", code, d.Log.String())
	}
	// Jobs that were added are kept after quit.
	e := startIn(t, d.dir)
	e.awaitEnd(t, client, id, "ok")
}

// TestBacklogDelaysOthersByOneBatch: a client's backlog delays another client's first job by at
// most one batch.
func TestBacklogDelaysOthersByOneBatch(t *testing.T) {
	t.Parallel()
	d := start(t, "--concurrency=1", "--batch=2", "--start=false")
	a, b := freshClient(), freshClient()
	for _, client := range []string{a, b} {
		d.addHandler(t, client, "s", "sh", `sleep 0.02`)
	}
	d.add(t, a, "s", strings.Repeat("x\n", 60))
	d.expect(t, 200, "POST", "/"+b+"/job/s/add?wait=store", "x\n")
	d.expect(t, 200, "POST", "/"+a+"/job/s/add?wait=store", "x\n")
	r := d.expect(t, 200, "GET", "/"+b+"/jobs", "")
	id := r.json["jobs"].([]any)[0].(map[string]any)["id"].(string)
	d.expect(t, 200, "POST", "/start", "")
	d.awaitEnd(t, b, id, "ok")
	ended := d.job(t, b, id).text("done_dt")
	before := 0
	for _, j := range d.expect(t, 200, "GET", "/"+a+"/jobs?limit=100", "").json["jobs"].([]any) {
		if at, ok := j.(map[string]any)["done_dt"].(string); ok && at < ended {
			before++
		}
	}
	if before > 4 {
		t.Errorf("%d jobs of the backlog ran before the other client's only one", before)
	}
}

// TestLastRunIsShown: why a run did not succeed is shown while the job waits for its next try, also
// in lists with last=true, and by the next daemon.
func TestLastRunIsShown(t *testing.T) {
	t.Parallel()
	d := start(t, "--retry-delay=1h", "--retry-max=1h")
	for lang, body := range map[string]string{
		"sh": `echo "secret of $1" >&2; echo gone; exit 9`, "node": `console.error("secret of", payload); throw new Error("broken " + payload)`,
		"python": "import sys\nprint('secret of', payload, file=sys.stderr)\nraise ValueError('broken ' + payload)",
		"php":    `fwrite(STDERR, "secret of $payload\n"); throw new Exception("broken $payload");`,
	} {
		d.addHandler(t, "c", lang, lang, body)
		id := d.addOne(t, "c", lang, "x")
		waitUntil(t, lang+" has run", func() error {
			if r := d.job(t, "c", id); r.text("state") != "deferred" {
				return fmt.Errorf("%s", r)
			}
			return nil
		})
		r := d.job(t, "c", id)
		last, _ := r.json["last"].(map[string]any)
		data := map[bool]string{true: "exit status 9", false: "broken x"}[lang == "sh"]
		if last["try"] != 1.0 || last["code"] != "error" || last["exitcode"] != 500.0 || last["data"] != data || last["at"] == nil || last["took_ms"] == nil {
			t.Errorf("%s: %s", lang, r)
		}
		if text := fmt.Sprint(last["stderr"]); !strings.HasPrefix(text, "secret of x\n") || lang != "sh" && !strings.Contains(text, data) {
			t.Errorf("%s: %s", lang, r)
		}
		for query, want := range map[string]bool{"": false, "&last=true": true} {
			list := d.expect(t, 200, "GET", "/c/jobs?type="+lang+query, "").json["jobs"].([]any)
			if _, got := list[0].(map[string]any)["last"]; len(list) != 1 || got != want {
				t.Errorf("%s%s: %v", lang, query, list)
			}
		}
	}
	d.addHandler(t, "c", "well", "sh", "echo fine >&2")
	id := d.addOne(t, "c", "well", "x")
	d.awaitEnd(t, "c", id, "ok")
	if r := d.job(t, "c", id); r.json["last"] != nil {
		t.Errorf("succeeded at once: %s", r)
	}
	for query, want := range map[string]int{"": 0, "&last=true": 1} {
		list := d.expect(t, 200, "GET", "/c/jobs?type=well"+query, "").json["jobs"].([]any)
		if runs, _ := list[0].(map[string]any)["runs"].([]any); len(runs) != want || want == 1 && runs[0].(map[string]any)["started_at"] == nil {
			t.Errorf("succeeded at once, %s: %v", query, list)
		}
	}
	r := d.expect(t, 200, "POST", "/c/job/nobody", "x")
	if r.json["handlers"] != 0.0 {
		t.Errorf("a type without a handler: %s", r)
	}
}

// TestReadyKnowsHandlers: even the first add to a ready daemon says that its type has no handler.
func TestReadyKnowsHandlers(t *testing.T) {
	t.Parallel()
	d := start(t)
	if r := d.expect(t, 200, "POST", "/c/job/nobody", "x"); r.json["handlers"] != 0.0 {
		t.Errorf("the first add: %s", r)
	}
}

// TestRunsHaveKeysOfBroker: each run of a job is shown with the same keys as the broker's runs.
func TestRunsHaveKeysOfBroker(t *testing.T) {
	d, client := sharedDaemon(t), freshClient()
	d.addHandler(t, client, "r", "sh", `exit 0`)
	d.addHandler(t, client, "s", "sh", `mark=`+t.TempDir()+`/mark; if [ -e $mark ]; then exit 0; fi; touch $mark; echo "no luck" >&2; exit 1`)
	at := func(id string) string {
		t.Helper()
		d.awaitEnd(t, client, id, "ok")
		list, _ := d.job(t, client, id).json["runs"].([]any)
		words := ""
		for _, r := range list {
			r := r.(map[string]any)
			words += fmt.Sprint(r["n"], r["outcome"], " ", r["error"], r["worker"] != nil, ";")
			if start, err := time.Parse(time.RFC3339Nano, fmt.Sprint(r["started_at"])); err != nil || time.Since(start).Abs() > time.Hour || r["ran_ms"].(float64) < 0 {
				t.Errorf("%v", r)
			}
		}
		return words
	}
	if got := at(d.addOne(t, client, "r", "1")); got != "1answered <nil> false;" {
		t.Errorf("at once: %s", got)
	}
	if got := at(d.addOne(t, client, "s", "1")); got != "1failed exit status 1\nno lucktrue;2answered <nil> true;" {
		t.Errorf("at the second try: %s", got)
	}
}
