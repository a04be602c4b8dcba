package probe

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestEnqueueValidJobs: valid jobs.
func TestEnqueueValidJobs(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		for _, c := range []struct{ name, body string }{
			{"least", `{"name":"NAME","argument":{}}`},
			{"everything", `{"name":"NAME","argument":{"a":[1,2.5,null,"x",{"b":true}]},"priority":-5,"max_retry":0,"keep_result":true,"timeout":1}`},
			{"nulls are defaults", `{"name":"NAME","argument":{},"priority":null,"max_retry":null,"keep_result":null,"timeout":null,"delay":null}`},
			{"integral floats are integers", `{"name":"NAME","argument":{},"priority":3.0,"max_retry":1e2,"timeout":30.0}`},
			{"of duplicate keys the last counts", `{"name":1,"name":"NAME","argument":3,"argument":{}}`},
			{"limits, low", `{"name":"NAME","argument":{},"priority":-2147483648,"max_retry":0,"timeout":1}`},
			{"limits, high", `{"name":"NAME","argument":{},"priority":2147483647,"max_retry":1000,"timeout":2592000}`},
			{"a timeout with a fraction", `{"name":"NAME","argument":{},"timeout":1.5}`},
			{"a long name", `{"name":"NAME` + strings.Repeat("ü", 90) + `","argument":{}}`},
			{"a delay with a fraction", `{"name":"NAME","argument":{},"delay":0.5}`},
			{"blanks around", "  \n" + `{"name":"NAME","argument":{}}` + "\n "},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := d.expect(t, 201, "POST", "/job", strings.ReplaceAll(c.body, "NAME", freshName()))
				id := r.text("job_id")
				if loc := r.header.Get("Location"); !strings.HasSuffix(loc, "/job/"+id) || len(id) != 36 {
					t.Errorf("%s at %q", r, loc)
				}
				s := d.expect(t, 200, "GET", "/job/"+id, nil)
				for _, key := range []string{"status", "worker_id", "result", "error", "message", "reason", "retry_count", "name", "finished_at"} {
					if _, has := s.json[key]; !has {
						t.Errorf("no %s in %s", key, s)
					}
				}
				if s.text("status") != "queued" && s.text("status") != "retrying" || s.json["retry_count"] != 0.0 || s.json["worker_id"] != nil {
					t.Errorf("%s", s)
				}
			})
		}
	})
}

// TestBadJobs: invalid jobs.
func TestBadJobs(t *testing.T) {
	d := sharedDaemon(t, "memory")
	t.Parallel()
	mp := func(s string) []byte { return []byte(s) }
	for _, c := range []struct {
		name    string
		status  int
		code    string
		body    any
		headers []string
	}{
		{"nothing", 400, "invalid_body", "", nil},
		{"half", 400, "invalid_body", `{"name":"x"`, nil},
		{"trailing", 400, "invalid_body", `{"name":"x","argument":{}} x`, nil},
		{"two values", 400, "invalid_body", `{"name":"x","argument":{}}{}`, nil},
		{"no map", 400, "invalid_type", `[1]`, nil},
		{"a string", 400, "invalid_type", `"x"`, nil},
		{"no name", 400, "missing_field", `{"argument":{}}`, nil},
		{"no argument", 400, "missing_field", `{"name":"x"}`, nil},
		{"a null name", 400, "missing_field", `{"name":null,"argument":{}}`, nil},
		{"a number as name", 400, "invalid_type", `{"name":1,"argument":{}}`, nil},
		{"an array as argument", 400, "invalid_type", `{"name":"x","argument":[]}`, nil},
		{"an empty name", 400, "invalid_value", `{"name":"","argument":{}}`, nil},
		{"a name too long", 400, "invalid_value", `{"name":"` + strings.Repeat("x", 201) + `","argument":{}}`, nil},
		{"a control character", 400, "invalid_value", `{"name":"a\u0007b","argument":{}}`, nil},
		{"an unknown key", 400, "invalid_value", `{"name":"x","argument":{},"frob":[1]}`, nil},
		{"priority too large", 400, "invalid_value", `{"name":"x","argument":{},"priority":2147483648}`, nil},
		{"priority far too large", 400, "invalid_value", `{"name":"x","argument":{},"priority":1099511627776}`, nil},
		{"priority beyond 64 bits", 400, "invalid_value", `{"name":"x","argument":{},"priority":99999999999999999999999}`, nil},
		{"half a priority", 400, "invalid_value", `{"name":"x","argument":{},"priority":1.5}`, nil},
		{"priority as text", 400, "invalid_type", `{"name":"x","argument":{},"priority":"1"}`, nil},
		{"priority as boolean", 400, "invalid_type", `{"name":"x","argument":{},"priority":true}`, nil},
		{"max_retry negative", 400, "invalid_value", `{"name":"x","argument":{},"max_retry":-1}`, nil},
		{"max_retry too large", 400, "invalid_value", `{"name":"x","argument":{},"max_retry":1001}`, nil},
		{"timeout zero", 400, "invalid_value", `{"name":"x","argument":{},"timeout":0}`, nil},
		{"timeout too long", 400, "invalid_value", `{"name":"x","argument":{},"timeout":2592001}`, nil},
		{"timeout negative", 400, "invalid_value", `{"name":"x","argument":{},"timeout":-1.5}`, nil},
		{"keep_result as number", 400, "invalid_type", `{"name":"x","argument":{},"keep_result":1}`, nil},
		{"delay negative", 400, "invalid_value", `{"name":"x","argument":{},"delay":-1}`, nil},
		{"delay over a year", 400, "invalid_value", `{"name":"x","argument":{},"delay":31622401}`, nil},
		{"deep", 400, "invalid_body", `{"name":"x","argument":{"a":` + strings.Repeat("[", 120) + strings.Repeat("]", 120) + `}}`, nil},
		{"too large", 413, "too_large", `{"name":"x","argument":{"a":"` + strings.Repeat("x", 70000) + `"}}`, nil},
		{"another type", 415, "", `name=x`, []string{"Content-Type: application/x-www-form-urlencoded"}},
		{"nothing acceptable", 406, "", `{"name":"x","argument":{}}`, []string{"Accept: image/png"}},
		// MessagePack by hand.
		{"no bytes", 400, "invalid_body", mp(""), nil},
		{"0xc1", 400, "invalid_body", mp("\xc1"), nil},
		{"0xc1 inside", 400, "invalid_body", mp("\x82\xa4name\xa1x\xa8argument\x81\xa1a\xc1"), nil},
		{"cut short", 400, "invalid_body", mp("\x82\xa4name\xa1x\xa8argument"), nil},
		{"trailing bytes", 400, "invalid_body", mp("\x82\xa4name\xa1x\xa8argument\x80\x00"), nil},
		{"a string of 4 GiB", 400, "invalid_body", mp("\x82\xa4name\xdb\xff\xff\xff\xffx"), nil},
		{"bytes of 4 GiB", 400, "invalid_body", mp("\x82\xa4name\xa1x\xa8argument\x81\xa1a\xc6\xff\xff\xff\xff"), nil},
		{"an array of 4 G", 400, "invalid_body", mp("\x82\xa4name\xa1x\xa8argument\x81\xa1a\xdd\xff\xff\xff\xff"), nil},
		{"a map of 4 G", 400, "invalid_body", mp("\xdf\xff\xff\xff\xff"), nil},
		{"an extension of 4 GiB", 400, "invalid_body", mp("\x82\xa4name\xa1x\xa8argument\x81\xa1a\xc9\xff\xff\xff\xff\x01"), nil},
		{"deep arrays", 400, "invalid_body", append(mp("\x82\xa4name\xa1x\xa8argument\x81\xa1a"), bytes.Repeat([]byte{0x91}, 5000)...), nil},
		{"an array", 400, "invalid_type", mp("\x90"), nil},
		{"bytes as name", 400, "invalid_type", mp("\x82\xa4name\xc4\x01x\xa8argument\x80"), nil},
		{"a name that is no UTF-8", 400, "invalid_value", mp("\x82\xa4name\xa2\xff\xfe\xa8argument\x80"), nil},
		{"priority 2^40", 400, "invalid_value", mp("\x83\xa4name\xa1x\xa8argument\x80\xa8priority\xcf\x00\x00\x01\x00\x00\x00\x00\x00"), nil},
		{"priority NaN", 400, "invalid_value", mp("\x83\xa4name\xa1x\xa8argument\x80\xa8priority\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.expectError(t, c.status, c.code, "POST", "/job", c.body, c.headers...)
		})
	}
	for _, c := range []struct {
		name, method, path string
		status             int
		code               string
	}{
		{"an unknown job", "GET", "/job/019c0000-0000-7000-8000-000000000000", 404, "unknown_job"},
		{"an id that is none", "GET", "/job/frob", 404, "unknown_job"},
		{"polling an unknown one", "GET", "/job/frob/polling", 404, "unknown_job"},
		{"cancelling an unknown one", "DELETE", "/job/frob", 404, "unknown_job"},
		{"an unknown path", "GET", "/frob", 404, ""},
		{"a wrong verb", "PUT", "/job", 405, ""},
		{"a poll forever", "GET", "/job/frob/polling?timeout=x", 400, "invalid_value"},
		{"a negative poll", "GET", "/job/frob/polling?timeout=-1", 400, "invalid_value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := d.ask(t, c.method, c.path, nil)
			if r.status != c.status || c.code != "" && r.text("error") != c.code {
				t.Errorf("%s, want %d %s", r, c.status, c.code)
			}
			if c.status == 405 && r.header.Get("Allow") == "" {
				t.Error("no Allow")
			}
		})
	}
}

// TestReplyHasRequestedEncoding: the reply has the requested encoding.
func TestReplyHasRequestedEncoding(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		id := d.job(t, freshName(), "delay", 3600)
		for _, c := range []struct{ accept, kind string }{
			{"application/json", "application/json"}, {"application/msgpack", "msgpack"}, {"application/x-msgpack", "msgpack"},
			{"application/vnd.msgpack", "msgpack"}, {"*/*", "msgpack"}, {"", "msgpack"}, {"text/html", "application/json"},
			{"text/html,application/xhtml+xml,*/*;q=0.8", "application/json"}, {"application/msgpack;q=0.5, application/json", "application/json"},
		} {
			t.Run("Accept "+c.accept, func(t *testing.T) {
				r := d.expect(t, 200, "GET", "/job/"+id, nil, "Accept: "+c.accept, "Content-Type: ")
				if !strings.Contains(r.header.Get("Content-Type"), c.kind) {
					t.Errorf("%q", r.header.Get("Content-Type"))
				}
			})
		}
		for _, kind := range []string{"application/msgpack", "application/x-msgpack", "application/vnd.msgpack", ""} {
			t.Run("as "+kind, func(t *testing.T) {
				r := d.expect(t, 201, "POST", "/job", []byte("\x83\xa4name\xa1x\xa8argument\x80\xa5delay\xcd\x0e\x10"), "Content-Type: "+kind, "Accept: ")
				if !strings.HasPrefix(string(r.body), "\x81\xa6job_id\xd9\x24") {
					t.Errorf("%s", r)
				}
			})
		}
		oddMap := "\x87" + // a map with all kinds of values and keys
			"\xa1a\xc4\x02\xff\xfe" + // bin
			"\x01\xd4\x05\x07" + // an integer key, an extension
			"\xa1f\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01" + // a NaN with a payload
			"\xa1i\xcf\xff\xff\xff\xff\xff\xff\xff\xff" + // 2^64-1
			"\xa1l\xd3\x00\x00\x00\x00\x00\x00\x00\x01" + // a long one
			"\xc3\xa1t" + // true as a key
			"\xa1s\xa2\xff\xfe" // a string that is not UTF-8
		t.Run("verbatim", func(t *testing.T) {
			name := freshName()
			r := d.expect(t, 201, "POST", "/job", []byte("\x83\xa4name"+"\xd9"+string(rune(len(name)))+name+"\xa8argument"+oddMap+"\xabkeep_result\xc3"))
			id := r.text("job_id")
			w := d.puller(t, 1, []string{name})
			got := d.expect(t, 200, "POST", "/worker/jobs?wait=50", nil, "worker-id: "+w.id, "Accept: application/msgpack")
			if !bytes.Contains(got.body, []byte("\xa8argument"+oddMap)) {
				t.Errorf("the argument came as %q", got.body)
			}
			d.expect(t, 204, "POST", "/done", []byte("\x83\xa6job_id\xd9\x24"+id+"\xa4type\xa7success\xa6result"+oddMap), "worker-id: "+w.id)
			if r := d.expect(t, 200, "GET", "/job/"+id+"?peek=true", nil, "Accept: application/msgpack"); !bytes.Contains(r.body, []byte("\xa6result"+oddMap)) {
				t.Errorf("the result came as %q", r.body)
			}
			r = d.expect(t, 200, "GET", "/job/"+id, nil)
			for _, view := range []string{`"$bin":"//4="`, `"$ext":[5,"Bw=="]`, `"$float":"NaN"`, `18446744073709551615`, `"$map"`, `"$str":"//4="`} {
				if !bytes.Contains(r.body, []byte(view)) {
					t.Errorf("as JSON %s lacks %s", r.body, view)
				}
			}
		})
		t.Run("JSON and back", func(t *testing.T) {
			name := freshName()
			view := `{"b":{"$bin":"//4="},"e":{"$ext":[-3,"AQI="]},"f":{"$float":"-Inf"},"m":{"$map":[[1,2],["x",[]]]},"n":-9223372036854775808,"s":"ü"}`
			d.expect(t, 201, "POST", "/job", `{"name":"`+name+`","argument":`+view+`}`)
			w := d.puller(t, 1, []string{name})
			r := d.expect(t, 200, "POST", "/worker/jobs?wait=50", nil, "worker-id: "+w.id)
			for _, part := range []string{`{"$bin":"//4="}`, `{"$ext":[-3,"AQI="]}`, `{"$float":"-Inf"}`, `{"$map":[[1,2],["x",[]]]}`, `-9223372036854775808`, `"ü"`} {
				if !bytes.Contains(r.body, []byte(part)) {
					t.Errorf("%s lacks %s", r.body, part)
				}
			}
		})
	})
}

// TestKeptResultIsFetchedOnce: a result that is kept can be fetched once; without keep_result there
// is none.
func TestKeptResultIsFetchedOnce(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		name := freshName()
		w := d.puller(t, 10, []string{name})
		ended := func(t *testing.T, more ...any) string {
			t.Helper()
			id := d.job(t, name, more...)
			if got := w.pullOne(t); got != id {
				t.Fatalf("took %s, want %s", got, id)
			}
			if r := w.reportSuccess(t, id, object{"sum": 3}); r.status != 204 {
				t.Fatalf("done: %s", r)
			}
			return id
		}
		checkResult := func(t *testing.T, r reply, want bool) {
			t.Helper()
			if r.text("status") != "done" || (r.json["result"] != nil) != want || r.text("worker_id") != w.id || r.text("finished_at") == "" {
				t.Errorf("%s, want a result: %v", r, want)
			}
		}
		t.Run("once", func(t *testing.T) {
			id := ended(t, "keep_result", true)
			checkResult(t, d.expect(t, 200, "GET", "/job/"+id+"?peek=true", nil), true)
			d.expect(t, 200, "HEAD", "/job/"+id, nil)
			checkResult(t, d.expect(t, 200, "GET", "/job/"+id, nil), true)
			waitUntil(t, "fetched", func() error {
				if r := d.ask(t, "GET", "/job/"+id, nil); r.json["result"] != nil {
					return fmt.Errorf("%s", r)
				}
				return nil
			})
		})
		t.Run("by polling", func(t *testing.T) {
			id := ended(t, "keep_result", true)
			checkResult(t, d.expect(t, 200, "GET", "/job/"+id+"/polling", nil), true)
			checkResult(t, d.expect(t, 200, "GET", "/job/"+id+"/polling?timeout=1", nil), false)
		})
		t.Run("not kept", func(t *testing.T) {
			checkResult(t, d.expect(t, 200, "GET", "/job/"+ended(t), nil), false)
		})
		t.Run("all waiting requests get it", func(t *testing.T) {
			id := d.job(t, name, "keep_result", true)
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					if r, err := d.try("GET", "/job/"+id+"/polling?timeout=50", nil); err != nil || r.json["result"] == nil {
						t.Errorf("%s, %v", r, err)
					}
				})
			}
			waitUntil(t, "five wait", func() error {
				if r := d.expect(t, 200, "GET", "/v1/stats", nil); r.json["waiters"] == nil || r.json["waiters"].(float64) < 5 {
					return fmt.Errorf("%v", r.json["waiters"])
				}
				return nil
			})
			w.pullOne(t)
			w.reportSuccess(t, id, "x")
			wg.Wait()
		})
		t.Run("408", func(t *testing.T) {
			id := d.job(t, freshName())
			r := d.expect(t, 408, "GET", "/job/"+id+"/polling?timeout=0.1", nil)
			if r.text("status") != "queued" || r.text("error") == "" || r.text("reason") == "" {
				t.Errorf("%s", r)
			}
		})
		t.Run("cancelled meanwhile", func(t *testing.T) {
			id := d.job(t, freshName())
			got := make(chan reply, 1)
			go func() {
				r, _ := d.try("GET", "/job/"+id+"/polling?timeout=50", nil)
				got <- r
			}()
			d.expect(t, 204, "DELETE", "/job/"+id, nil)
			if r := <-got; r.status != 404 {
				t.Errorf("%s", r)
			}
			d.expectError(t, 404, "unknown_job", "GET", "/job/"+id, nil)
		})
	})
}

// TestRunningJobsAreCancelledWithForce: waiting jobs can be cancelled, and running ones with force.
func TestRunningJobsAreCancelledWithForce(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		name := freshName()
		w := d.puller(t, 5, []string{name})
		t.Run("running", func(t *testing.T) {
			id := d.job(t, name)
			w.pullOne(t)
			d.expectError(t, 409, "not_cancelable", "DELETE", "/job/"+id, nil)
			d.expect(t, 204, "DELETE", "/job/"+id+"?force=true", nil)
			r := d.expect(t, 200, "POST", "/worker/heartbeat", nil, "worker-id: "+w.id)
			if list, _ := r.json["cancel"].([]any); len(list) != 1 || list[0] != id {
				t.Errorf("%s", r)
			}
			if r := w.reportSuccess(t, id, 1); r.status != 409 && r.status != 404 {
				t.Errorf("its outcome: %s", r)
			}
			d.expectError(t, 404, "unknown_job", "GET", "/job/"+id, nil)
			if r := d.expect(t, 200, "GET", "/v1/jobs/"+id, nil); r.text("status") != "cancelled" {
				t.Errorf("%s", r)
			}
		})
		t.Run("retrying", func(t *testing.T) {
			id := d.job(t, name)
			w.pullOne(t)
			if r := w.reportFailure(t, id, true); r.status != 204 {
				t.Fatalf("%s", r)
			}
			d.expect(t, 204, "DELETE", "/job/"+id, nil)
			d.expectError(t, 404, "unknown_job", "GET", "/job/"+id, nil)
		})
		t.Run("done", func(t *testing.T) {
			id := d.job(t, name)
			w.pullOne(t)
			w.reportSuccess(t, id, 1)
			d.expectError(t, 409, "not_cancelable", "DELETE", "/job/"+id, nil)
		})
	})
}

// TestRepeatedRequestReturnsSameJob: a request that is repeated with the same key returns the same
// job.
func TestRepeatedRequestReturnsSameJob(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		body := object{"name": freshName(), "argument": object{"n": 1}}
		key := "Idempotency-Key: " + freshName()
		first := d.expect(t, 201, "POST", "/job", body, key)
		secondReply := d.expect(t, 201, "POST", "/job", body, key)
		if first.text("job_id") != secondReply.text("job_id") || secondReply.header.Get("idempotency-replayed") != "true" || first.header.Get("idempotency-replayed") == "true" {
			t.Errorf("%s, then %s %v", first, secondReply, secondReply.header)
		}
		body["priority"] = 3
		d.expectError(t, 422, "", "POST", "/job", body, key)
		d.expectError(t, 400, "", "POST", "/job", body, "Idempotency-Key: "+strings.Repeat("x", 256))
		batch := []object{body, body}
		key = "Idempotency-Key: " + freshName()
		firstBatch := d.expect(t, 201, "POST", "/jobs", batch, key)
		secondBatch := d.expect(t, 201, "POST", "/jobs", batch, key)
		if !bytes.Equal(firstBatch.body, secondBatch.body) || secondBatch.header.Get("idempotency-replayed") != "true" {
			t.Errorf("%s, then %s", firstBatch, secondBatch)
		}
		t.Run("many at once", func(t *testing.T) {
			body := object{"name": freshName(), "argument": object{}}
			key := "Idempotency-Key: " + freshName()
			ids := make([]string, 8)
			var wg sync.WaitGroup
			for i := range ids {
				wg.Go(func() {
					if r, err := d.try("POST", "/job", body, key); err == nil && r.status == 201 {
						ids[i] = r.text("job_id")
					}
				})
			}
			wg.Wait()
			for _, id := range ids {
				if id == "" || id != ids[0] {
					t.Fatalf("%v", ids)
				}
			}
		})
	})
}

// TestBatchIsAllOrNothing: all jobs of a batch are enqueued, or none.
func TestBatchIsAllOrNothing(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		name := freshName()
		batch := func(n int) []object {
			jobs := make([]object, n)
			for i := range jobs {
				jobs[i] = object{"name": name, "argument": object{"i": i}}
			}
			return jobs
		}
		r := d.expect(t, 201, "POST", "/jobs", batch(100))
		if ids, _ := r.json["job_ids"].([]any); len(ids) != 100 {
			t.Errorf("%s", r)
		}
		invalidBatch := batch(10)
		invalidBatch[7]["timeout"] = 0
		d.expectError(t, 400, "invalid_value", "POST", "/jobs", invalidBatch)
		d.expectError(t, 400, "invalid_value", "POST", "/jobs", batch(0))
		d.expectError(t, 400, "invalid_value", "POST", "/jobs", batch(1001))
		d.expectError(t, 400, "invalid_type", "POST", "/jobs", object{"name": name})
		if r := d.expect(t, 200, "GET", "/v1/jobs?limit=500&name="+name, nil); len(r.json["jobs"].([]any)) != 100 {
			t.Errorf("%d jobs", len(r.json["jobs"].([]any)))
		}
		w := d.puller(t, 100, []string{name})
		var order []string
		for len(order) < 100 { // one by one, because jobs that come together have no order
			for _, j := range w.pull(t, "50", 1) {
				order = append(order, fmt.Sprint(j.(object)["argument"].(object)["i"]))
			}
		}
		for i, got := range order {
			if got != fmt.Sprint(i) {
				t.Fatalf("out of order: %v", order)
			}
		}
	})
}
