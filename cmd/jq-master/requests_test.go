package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/bench/throwaway/redistest"
	"gloom/broker/admin/api"
	"gloom/cmd/jq-master/pack"
)

// inBothEncodings runs a test against a daemon in both encodings.
func inBothEncodings(t *testing.T, d *process, test func(t *testing.T, c *client)) {
	for _, media := range []string{msgpackType, jsonType} {
		t.Run(strings.TrimPrefix(media, "application/"), func(t *testing.T) { test(t, d.client(t, media)) })
	}
}

// TestJobLifecycle: a job is enqueued, pulled and answered, and its result is fetched once.
func TestJobLifecycle(t *testing.T) {
	t.Parallel()
	inBothEncodings(t, start(t), func(t *testing.T, c *client) {
		r := c.do("POST", "/job", `{"name":"mail","argument":{"to":"x"},"keep_result":true,"priority":null}`).wantStatus(201)
		id := r.get("job_id")
		if at := r.header.Get("Location"); at != "/job/"+id {
			t.Errorf("Location is %s", at)
		}
		c.do("GET", "/job/"+id, "").wantStatus(200).has(`{"status":"queued","worker_id":null,"result":null,"error":null,"message":null,"reason":null,"retry_count":0,"name":"mail","finished_at":null}`)
		c.do("GET", "/job/"+id+"/polling?timeout=0.05", "").wantStatus(408).has(`{"error":"timeout","status":"queued"}`)

		w := c.register(`{"name":"w","max_jobs":2,"names":["mail"]}`)
		jobs := c.do("POST", "/worker/jobs?max=2&wait=30", "", "worker-id", w).wantStatus(200).decode()["jobs"].([]any)
		text, _ := json.Marshal(jobs[0])
		got := &reply{t, "the job", 200, nil, string(text)}
		got.has(`{"id":"` + id + `","job_id":"` + id + `","name":"mail","argument":{"to":"x"},"timeout":30,"attempt":1}`)
		c.do("GET", "/job/"+id, "").wantStatus(200).has(`{"status":"running","worker_id":"` + w + `"}`)
		c.do("DELETE", "/job/"+id, "").wantRefusal(409, "not_cancelable", "")

		report := `{"job_id":"` + id + `","type":"success","finished_at":"2026-01-02T03:04:05.5","result":[1,{"$bin":"AQ=="}],"attempt":1.0}`
		c.do("POST", "/done", report, "worker-id", w).wantStatus(204)
		c.do("POST", "/done", report, "worker-id", w).wantStatus(204)
		done := `{"status":"done","result":[1,{"$bin":"AQ=="}],"finished_at":"2026-01-02T03:04:05.500Z"}`
		c.do("GET", "/job/"+id+"?peek=true", "").wantStatus(200).has(done)
		c.do("HEAD", "/job/"+id, "").wantStatus(200)
		c.do("HEAD", "/job/"+id+"/polling", "").wantStatus(200)
		c.do("GET", "/job/"+id+"/polling?peek=1", "").wantStatus(200).has(done)
		c.do("GET", "/v1/jobs/"+id, "").wantStatus(200).has(`{"has_result":true,"status":"done"}`)
		c.do("GET", "/job/"+id+"/polling", "").wantStatus(200).has(done)
		c.do("GET", "/job/"+id, "").wantStatus(200).has(`{"status":"done","result":null,"name":"mail"}`)
		c.do("DELETE", "/job/"+id, "").wantRefusal(409, "not_cancelable", "")
		c.do("DELETE", "/worker", "", "worker-id", w).wantStatus(204)
		c.do("DELETE", "/worker", "", "worker-id", w).wantRefusal(404, "unknown_worker", "")
	})
}

// TestJobFailsForGood: a job fails for good, and another one is cancelled.
func TestJobFailsForGood(t *testing.T) {
	t.Parallel()
	inBothEncodings(t, start(t), func(t *testing.T, c *client) {
		w := c.register(`{"name":"w","max_jobs":5,"heartbeat":true}`)
		id := c.enqueue(`{"name":"f","argument":{},"max_retry":0}`)
		if got := c.pull(w, 1); len(got) != 1 || got[0] != id {
			t.Fatalf("pulled %v, want %s", got, id)
		}
		c.do("POST", "/done", `{"id":"`+id+`","type":"failure","reason":"other","should_retry":true,"message":"no\u0000 way","error":{"code":7}}`, "worker-id", w).wantStatus(204)
		c.do("GET", "/job/"+id+"/polling", "").wantStatus(200).has(`{"status":"error","error":{"code":7},"message":"no\u0000 way","reason":"other","result":null,"retry_count":0}`)
		c.do("GET", "/v1/jobs/"+id, "").wantStatus(200).has(`{"reason":"other"}`)

		longMessage := strings.Repeat("x", 70_000)
		id = c.enqueue(`{"name":"f","argument":{},"max_retry":0}`)
		c.pull(w, 1)
		c.do("POST", "/done", `{"job_id":"`+id+`","type":"failure","reason":"timeout","should_retry":false,"message":"`+strings.Repeat("é", 5000)+`","error":"`+longMessage+`"}`, "worker-id", w).wantStatus(204)
		st := c.do("GET", "/job/"+id, "").wantStatus(200).has(`{"status":"error","error":null,"reason":"timeout"}`)
		if m := st.get("message"); len(m) > 4096 || !strings.HasSuffix(m, "[its error of 70005 bytes is left out: at most 65536 are allowed (max-error)]") && !strings.HasSuffix(m, "70003 bytes is left out: at most 65536 are allowed (max-error)]") {
			t.Errorf("the message has %d bytes and ends with %s", len(m), m[len(m)-80:])
		}

		id = c.enqueue(`{"name":"f","argument":{}}`)
		c.pull(w, 1)
		c.do("POST", "/done", `{"job_id":"`+id+`","type":"failure","reason":"other","should_retry":true,"message":""}`, "worker-id", w).wantStatus(204)
		c.do("GET", "/job/"+id, "").wantStatus(200).has(`{"status":"retrying","retry_count":1,"message":"","reason":"other"}`)
		c.do("DELETE", "/job/"+id, "").wantStatus(204)
		c.do("GET", "/job/"+id, "").wantRefusal(404, "unknown_job", "")
		c.do("GET", "/v1/jobs/"+id, "").wantStatus(200).has(`{"status":"cancelled"}`)

		id = c.enqueue(`{"name":"f","argument":{},"max_retry":0}`)
		c.pull(w, 1)
		c.do("DELETE", "/job/"+id+"?force=true", "").wantStatus(204)
		c.do("POST", "/worker/heartbeat", "", "worker-id", w).wantStatus(200).has(`{"cancel":["` + id + `"]}`)
		c.do("POST", "/done", `{"job_id":"`+id+`","type":"success"}`, "worker-id", w).wantRefusal(409, "not_assigned", "")

		id = c.enqueue(`{"name":"f","argument":{}}`)
		c.pull(w, 1)
		c.do("DELETE", "/job/"+id+"?force=true", "").wantStatus(204)
		c.do("POST", "/v1/jobs/"+id+"/retry", "").wantStatus(204)
		c.do("POST", "/worker/heartbeat", "", "worker-id", w).wantStatus(200).has(`{"cancel":["` + id + `"]}`)
		c.pull(w, 1) // the worker must not stop this run
		c.do("POST", "/worker/heartbeat", "", "worker-id", w).wantStatus(200).has(`{"cancel":[]}`)
		c.do("POST", "/done", `{"job_id":"`+id+`","type":"success"}`, "worker-id", w).wantStatus(204)
		c.do("DELETE", "/worker", "", "worker-id", w).wantStatus(204)
	})
}

// TestTimeoutsKeepTheirValue: a timeout may be a fraction of a second or 30 days. Workers,
// operators and matchers get exactly this value, from either store and after a restart.
func TestTimeoutsKeepTheirValue(t *testing.T) {
	t.Parallel()
	try := func(t *testing.T, d *process, restart func() *process) {
		c := d.client(t, jsonType)
		given := map[string]string{"0.0001": "0.001", "0.25": "0.25", "1": "1", "1.5": "1.5", "2.0": "2", "86400.125": "86400.125", "2592000": "2592000", "null": "30"}
		ids := map[string]string{}
		for timeout, shownTimeout := range given {
			id := c.enqueue(`{"name":"t","argument":{},"timeout":` + timeout + `,"delay":3600}`)
			ids[shownTimeout] = id
			c.do("POST", "/v1/jobs/query", `{"match":{"field":"/timeout","op":"eq","value":`+shownTimeout+`}}`).wantStatus(200).has(`{"cursor":null}`)
		}
		c = restart().client(t, jsonType)
		for shownTimeout, id := range ids {
			c.do("GET", "/v1/jobs/"+id, "").wantStatus(200).has(`{"timeout":` + shownTimeout + `}`)
			if r := c.do("POST", "/v1/jobs/query", `{"match":{"field":"/timeout","op":"eq","value":`+shownTimeout+`}}`).wantStatus(200); len(r.decode()["jobs"].([]any)) != 1 || !strings.Contains(r.text, id) {
				t.Errorf("a matcher for %s picks %s", shownTimeout, r.text)
			}
		}
		w := c.register(`{"name":"w","max_jobs":100,"names":["u"]}`)
		for shownTimeout := range ids {
			id := c.enqueue(`{"name":"u","argument":{},"timeout":` + shownTimeout + `,"max_retry":0}`)
			j, _ := json.Marshal(c.do("POST", "/worker/jobs?wait=30", "", "worker-id", w).wantStatus(200).decode()["jobs"].([]any)[0])
			got := &reply{t, "the job", 200, nil, string(j)}
			got.has(`{"id":"` + id + `","timeout":` + shownTimeout + `}`)
			deadline, err := time.Parse(time.RFC3339, got.get("deadline"))
			if seconds, _ := strconv.ParseFloat(shownTimeout, 64); err != nil || time.Until(deadline).Seconds() > seconds+5 || time.Until(deadline).Seconds() < seconds-30 {
				t.Errorf("a timeout of %s has the deadline %s", shownTimeout, got.get("deadline"))
			}
			if shownTimeout == "0.25" || shownTimeout == "0.001" {
				c.do("GET", "/job/"+id+"/polling?timeout=30", "").wantStatus(200).has(`{"status":"error","reason":"timeout"}`)
			}
		}
	}
	t.Run("memory", func(t *testing.T) {
		d := start(t, "--timeout-grace", "50ms")
		try(t, d, func() *process { return d })
	})
	t.Run("redis", func(t *testing.T) {
		r := redistest.New(t).URL()
		args := []string{"--timeout-grace", "50ms", "--redis", r}
		d := start(t, args...)
		try(t, d, func() *process {
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			return start(t, args...)
		})
	})
	t.Run("shared broker", func(t *testing.T) {
		d := start(t, append(brokerFlags(startShared(t, nil)), "--timeout-grace", "50ms")...)
		try(t, d, func() *process { return d })
	})
}

// TestLateReport: a worker whose run has timed out is told that its answer came too late, even if
// the worker has answered for an earlier run of the job. A repeated report of the earlier run is
// still accepted.
func TestLateReport(t *testing.T) {
	t.Parallel()
	c := start(t, "--timeout-grace", "50ms", "--backoff-base", "1ms", "--backoff-cap", "1ms").client(t, jsonType)
	w := c.register(`{"name":"w","max_jobs":1}`)
	id := c.enqueue(`{"name":"n","argument":{},"timeout":0.5,"max_retry":1}`)
	failed := `{"job_id":"` + id + `","type":"failure","reason":"other","should_retry":true,"message":"m"`
	c.pull(w, 1)
	c.do("POST", "/done", failed+`}`, "worker-id", w).wantStatus(204)
	c.do("POST", "/done", failed+`}`, "worker-id", w).wantStatus(204)
	c.pull(w, 1)
	c.do("GET", "/job/"+id+"/polling?timeout=30", "").wantStatus(200).has(`{"status":"error","reason":"timeout"}`)
	c.do("POST", "/done", `{"job_id":"`+id+`","type":"success"}`, "worker-id", w).wantRefusal(409, "not_assigned", "")
	c.do("POST", "/done", failed+`,"attempt":1}`, "worker-id", w).wantStatus(204)
	c.do("POST", "/done", failed+`,"attempt":2}`, "worker-id", w).wantRefusal(409, "not_assigned", "")
}

// TestMaxError: the size limit of errors can be set, even to 0.
func TestMaxError(t *testing.T) {
	t.Parallel()
	for flag, keptBytes := range map[string]int{"0": 0, "1KiB": 1000, "1MiB": 900_000} {
		c := start(t, "--max-error", flag).client(t, jsonType)
		w := c.register(`{"name":"w","max_jobs":1}`)
		for _, size := range []int{keptBytes, keptBytes + 200_000} {
			id := c.enqueue(`{"name":"f","argument":{},"max_retry":0}`)
			c.pull(w, 1)
			c.do("POST", "/done", fmt.Sprintf(`{"job_id":%q,"type":"failure","reason":"other","should_retry":false,"message":"no","error":%q}`, id, strings.Repeat("x", size)), "worker-id", w).wantStatus(204)
			st := c.do("GET", "/job/"+id, "").wantStatus(200)
			got, there := st.decode()["error"].(string)
			if fits := size == keptBytes && keptBytes > 0; fits != (there && len(got) == size) || fits != there || fits != (st.get("message") == "no") {
				t.Errorf("--max-error %s: an error of %d bytes is kept (%v) with %d: %s", flag, size, there, len(got), st.get("message"))
			}
		}
	}
}

// TestBadInput: invalid requests are refused with the right code and field.
func TestBadInput(t *testing.T) {
	t.Parallel()
	d := start(t, "--max-body", "64KiB")
	inBothEncodings(t, d, func(t *testing.T, c *client) {
		job := func(rest string) string { return `{"name":"a","argument":{},` + rest + `}` }
		long := strings.Repeat("x", 201)
		for _, x := range []struct{ body, code, field string }{
			{`[]`, "invalid_type", ""}, {`"x"`, "invalid_type", ""}, {`null`, "invalid_type", ""},
			{`{"argument":{}}`, "missing_field", "name"}, {`{"name":null,"argument":{}}`, "missing_field", "name"}, {`{"name":"a"}`, "missing_field", "argument"},
			{`{"name":5,"argument":{}}`, "invalid_type", "name"}, {`{"name":{"$bin":"YQ=="},"argument":{}}`, "invalid_type", "name"}, {`{"name":"","argument":{}}`, "invalid_value", "name"},
			{`{"name":"` + long + `","argument":{}}`, "invalid_value", "name"}, {`{"name":"a\u0001","argument":{}}`, "invalid_value", "name"}, {`{"name":"a\u007f","argument":{}}`, "invalid_value", "name"}, {`{"name":{"$str":"/w=="},"argument":{}}`, "invalid_value", "name"},
			{`{"name":"a","argument":[]}`, "invalid_type", "argument"}, {`{"name":"a","argument":{"$bin":"AQ=="}}`, "invalid_type", "argument"}, {`{"name":"a","argument":"{}"}`, "invalid_type", "argument"},
			{job(`"priority":2147483648`), "invalid_value", "priority"}, {job(`"priority":-2147483649`), "invalid_value", "priority"}, {job(`"priority":1099511627776`), "invalid_value", "priority"}, {job(`"priority":1.5`), "invalid_value", "priority"}, {job(`"priority":"1"`), "invalid_type", "priority"}, {job(`"priority":true`), "invalid_type", "priority"}, {job(`"priority":18446744073709551615`), "invalid_value", "priority"},
			{job(`"max_retry":-1`), "invalid_value", "max_retry"}, {job(`"max_retry":1001`), "invalid_value", "max_retry"}, {job(`"keep_result":1`), "invalid_type", "keep_result"}, {job(`"keep_result":"true"`), "invalid_type", "keep_result"},
			{job(`"timeout":0`), "invalid_value", "timeout"}, {job(`"timeout":2592000.001`), "invalid_value", "timeout"}, {job(`"timeout":-0.5`), "invalid_value", "timeout"}, {job(`"timeout":"1"`), "invalid_type", "timeout"}, {job(`"timeout":{"$float":"Inf"}`), "invalid_value", "timeout"}, {job(`"timeout":{"$float":"NaN"}`), "invalid_value", "timeout"},
			{job(`"delay":-1`), "invalid_value", "delay"}, {job(`"delay":31536001`), "invalid_value", "delay"}, {job(`"delay":{"$float":"Inf"}`), "invalid_value", "delay"}, {job(`"delay":"1"`), "invalid_type", "delay"},
			{`{"name":1,"name":"","argument":{}}`, "invalid_value", "name"},
		} {
			c.do("POST", "/job", x.body).wantRefusal(400, x.code, x.field)
		}
		for _, x := range []struct{ body, code, field string }{
			{`{}`, "invalid_type", ""}, {`[]`, "invalid_value", ""}, {`[{"name":"a","argument":{}},{"name":"a"}]`, "missing_field", "[1].argument"}, {`[5]`, "invalid_type", "[0]"},
			{`[` + strings.TrimSuffix(strings.Repeat(`{"name":"a","argument":{}},`, 1001), ",") + `]`, "invalid_value", ""},
		} {
			c.do("POST", "/jobs", x.body).wantRefusal(400, x.code, x.field)
		}
		worker := func(rest string) string { return `{"name":"w","max_jobs":1,` + rest + `}` }
		for _, x := range []struct{ body, code, field string }{
			{`{"name":"w"}`, "missing_field", "max_jobs"}, {`{"max_jobs":1}`, "missing_field", "name"}, {`{"name":"w","max_jobs":0}`, "invalid_value", "max_jobs"}, {`{"name":"w","max_jobs":10001}`, "invalid_value", "max_jobs"}, {`{"name":"w","max_jobs":"1"}`, "invalid_type", "max_jobs"},
			{worker(`"url":"ftp://127.0.0.1"`), "invalid_value", "url"}, {worker(`"url":"http://192.0.2.1"`), "invalid_value", "url"}, {worker(`"url":5`), "invalid_type", "url"}, {worker(`"port":0`), "invalid_value", "port"}, {worker(`"port":65536`), "invalid_value", "port"},
			{worker(`"names":"a"`), "invalid_type", "names"}, {worker(`"names":[]`), "invalid_value", "names"}, {worker(`"names":[1]`), "invalid_type", "names[0]"}, {worker(`"names":["a",""]`), "invalid_value", "names[1]"},
			{worker(`"token":"a\n"`), "invalid_value", "token"}, {worker(`"heartbeat":5`), "invalid_type", "heartbeat"},
		} {
			c.do("POST", "/worker", x.body).wantRefusal(400, x.code, x.field)
		}
		w := c.register(`{"name":"w","max_jobs":1}`)
		unknownID := "01890000-0000-7000-8000-000000000000"
		done := func(rest string) string { return `{"job_id":"` + unknownID + `",` + rest + `}` }
		for _, x := range []struct {
			body   string
			status int
			code   string
			field  string
		}{
			{`{"type":"success"}`, 400, "missing_field", "job_id"}, {`{"job_id":5,"type":"success"}`, 400, "invalid_type", "job_id"}, {done(`"x":1`), 400, "missing_field", "type"}, {done(`"type":"maybe"`), 400, "invalid_value", "type"}, {done(`"type":1`), 400, "invalid_type", "type"},
			{done(`"type":"success","finished_at":"yesterday"`), 400, "invalid_value", "finished_at"}, {done(`"type":"success","finished_at":5`), 400, "invalid_type", "finished_at"}, {done(`"type":"success","attempt":0`), 400, "invalid_value", "attempt"},
			{done(`"type":"failure"`), 400, "missing_field", "reason"}, {done(`"type":"failure","reason":"bad","should_retry":true,"message":""`), 400, "invalid_value", "reason"}, {done(`"type":"failure","reason":"other","message":""`), 400, "missing_field", "should_retry"},
			{done(`"type":"failure","reason":"other","should_retry":1,"message":""`), 400, "invalid_type", "should_retry"}, {done(`"type":"failure","reason":"other","should_retry":true`), 400, "missing_field", "message"}, {done(`"type":"failure","reason":"other","should_retry":true,"message":5`), 400, "invalid_type", "message"},
			{done(`"type":"success"`), 404, "unknown_job", ""}, {`{"job_id":"x","type":"success"}`, 404, "unknown_job", "job_id"},
		} {
			c.do("POST", "/done", x.body, "worker-id", w).wantRefusal(x.status, x.code, x.field)
		}
		for _, x := range []struct {
			method, path string
			status       int
			code, field  string
		}{
			{"POST", "/worker/jobs?max=0", 400, "invalid_value", "max"}, {"POST", "/worker/jobs?max=x", 400, "invalid_value", "max"}, {"POST", "/worker/jobs?wait=-1", 400, "invalid_value", "wait"}, {"POST", "/worker/jobs?wait=NaN", 400, "invalid_value", "wait"},
			{"GET", "/job/x/polling?timeout=x", 400, "invalid_value", "timeout"}, {"GET", "/job/x/polling", 404, "unknown_job", ""}, {"GET", "/job/" + unknownID, 404, "unknown_job", ""}, {"DELETE", "/job/" + unknownID, 404, "unknown_job", ""},
			{"GET", "/v1/jobs?limit=0", 400, "invalid_value", "limit"}, {"GET", "/v1/jobs?limit=501", 400, "invalid_value", "limit"}, {"GET", "/v1/jobs?limit=x", 400, "invalid_type", "limit"}, {"GET", "/v1/jobs?status=lost", 400, "invalid_value", "status"}, {"GET", "/v1/jobs?cursor=x", 400, "invalid_value", "cursor"}, {"GET", "/v1/jobs?from=x", 400, "invalid_value", "from"}, {"GET", "/v1/jobs?worker=x", 400, "invalid_value", "worker"},
			{"GET", "/v1/jobs/x", 404, "unknown_job", ""}, {"POST", "/v1/jobs/x/retry", 404, "unknown_job", ""}, {"DELETE", "/v1/workers/x", 404, "unknown_worker", ""}, {"GET", "/v1/constraints/none", 404, "unknown_constraint", ""}, {"DELETE", "/v1/constraints/none", 404, "unknown_constraint", ""},
			{"GET", "/nothing", 404, "not_found", ""}, {"GET", "/job/", 404, "not_found", ""}, {"GET", "//job", 404, "not_found", ""}, {"GET", "/job", 405, "method_not_allowed", ""}, {"PUT", "/v1/stats", 405, "method_not_allowed", ""}, {"POST", "/healthz", 405, "method_not_allowed", ""},
		} {
			c.do(x.method, x.path, "", "worker-id", w).wantRefusal(x.status, x.code, x.field)
		}
		if got := c.do("PATCH", "/job/"+unknownID, "").header.Get("Allow"); got != "GET, HEAD, DELETE" {
			t.Errorf("Allow is %s", got)
		}
		for _, path := range []string{"/done", "/worker/heartbeat", "/worker/jobs"} {
			c.do("POST", path, "").wantRefusal(400, "missing_field", "worker-id")
			c.do("POST", path, "", "worker-id", "x").wantRefusal(404, "unknown_worker", "worker-id")
			c.do("POST", path, "", "worker-id", unknownID).wantRefusal(404, "unknown_worker", "")
		}
		// A report is checked in this order: header, worker, body.
		c.send("POST", "/done", []byte{0xc1}, "worker-id", unknownID).wantRefusal(404, "unknown_worker", "")
		c.send("POST", "/done", []byte{0xc1}, "worker-id", w).wantRefusal(400, "invalid_body", "")
		c.send("POST", "/job", []byte{}).wantRefusal(400, "invalid_body", "")
		c.send("POST", "/job", []byte("{}{}")).wantRefusal(400, "invalid_body", "")
		c.do("POST", "/job", `{"name":"a","argument":{}}`, "Content-Type", "text/plain").wantRefusal(415, "unsupported_media_type", "")
		c.do("POST", "/job", `{"name":"a","argument":{}}`, "Content-Encoding", "gzip").wantRefusal(415, "unsupported_media_type", "")
		c.do("POST", "/job", `{"name":"a","argument":{}}`, "Idempotency-Key", strings.Repeat("k", 256)).wantRefusal(400, "invalid_value", "Idempotency-Key")
		c.do("POST", "/job", `{"name":"a","argument":{"x":"`+strings.Repeat("x", 64<<10)+`"}}`).wantRefusal(413, "too_large", "")
		c.do("GET", "/job/"+unknownID, "", "Accept", "text/plain").wantRefusal(406, "not_acceptable", "")
		c.do("DELETE", "/worker", "", "worker-id", w).wantStatus(204)
	})
	for name, x := range map[string]struct{ bytes, code string }{
		"cut short":    {"\x82\xa4name\xa1a", "invalid_body"},
		"too deep":     {"\x81\xa1a" + strings.Repeat("\x91", 100) + "\xc0", "invalid_body"},
		"a huge array": {"\xdd\xff\xff\xff\xff", "invalid_body"}, "a huge string": {"\xdb\xff\xff\xff\xff", "invalid_body"},
		"trailing": {"\x80\x80", "invalid_body"},
	} {
		t.Run(name, func(t *testing.T) {
			d.client(t, msgpackType).send("POST", "/job", []byte(x.bytes)).wantRefusal(400, x.code, "")
		})
	}
	d.client(t, jsonType).send("POST", "/job", []byte(`{"name":"a","argument":{"x":18446744073709551616}}`)).wantRefusal(400, "invalid_value", "")
}

// TestUnknownFields: a pusher's or operator's request with an unknown field is refused and has no
// effect. The error names that field and the known fields. Workers may send any fields.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	inBothEncodings(t, start(t), func(t *testing.T, c *client) {
		name := "strict-" + c.mediaType[len("application/"):]
		var ids []string
		for range 3 {
			ids = append(ids, c.enqueue(`{"name":"`+name+`","argument":{},"delay":3600}`))
		}
		match := `"match":{"field":"/name","op":"eq","value":"` + name + `"}`
		const jobs, filters = "name, argument, priority, max_retry, keep_result, timeout, delay", "match, status, name, worker, from, to, limit, "
		for _, x := range []struct{ method, path, body, field, known string }{
			{"POST", "/job", `{"name":"a","argument":{},"priorty":1}`, "priorty", jobs}, {"POST", "/job", `{"$map":[["name","a"],["argument",{}],[1,2]]}`, "", jobs},
			{"POST", "/jobs", `[{"name":"a","argument":{}},{"name":"a","argument":{},"max_retries":0}]`, "[1].max_retries", jobs},
			{"POST", "/job?dealy=5", `{"name":"a","argument":{}}`, "dealy", "none"}, {"GET", "/job/" + ids[0] + "?peak=true", "", "peak", "peek"}, {"DELETE", "/job/" + ids[0] + "?Force=true", "", "Force", "force"},
			{"GET", "/job/" + ids[0] + "/polling?time=1", "", "time", "timeout, peek"},
			{"GET", "/v1/jobs?staus=error", "", "staus", "status, name, worker, from, to, limit, cursor"}, {"GET", "/v1/jobs/" + ids[0] + "?x", "", "x", "bodies"}, {"GET", "/v1/stats?x=1", "", "x", "names"}, {"DELETE", "/v1/constraints/x?force=true", "", "force", "none"},
			{"POST", "/v1/jobs/query", `{"nmae":"a"}`, "nmae", filters + "cursor"}, {"POST", "/v1/jobs/cancel", `{"nmae":"a"}`, "nmae", filters + "all"}, {"POST", "/v1/jobs/retry", `{"nmae":"a","all":true}`, "nmae", filters + "all"},
			{"POST", "/v1/jobs/cancel?name=a", `{"all":true}`, "name", "none"}, {"POST", "/v1/jobs/" + ids[0] + "/cancel", `{"force":true}`, "force", "none"},
			{"POST", "/v1/jobs/cancel", `{"match":{"not":{"feild":"/name","op":"eq","value":"a"}}}`, "match.not", "one of all, any, not, or field with op and value"},
			{"POST", "/v1/jobs/cancel", `{"match":{"not":{"field":"/nmae","op":"eq","value":"a"}}}`, "match.not.field", "/name, /argument, /priority, /max_retry, /keep_result, /timeout"},
			{"POST", "/v1/jobs/cancel", `{"match":{"not":{"field":"/name/x","op":"eq","value":"a"}}}`, "match.not.field", "/name, which has no parts"},
			{"PUT", "/v1/constraints/strict", `{` + match + `,"concurency":1,"rate":5}`, "concurency", "match, rate, burst, concurrency, per, enabled"}, {"PUT", "/v1/constraints/strict", `{` + match + `,"rate":5,"per":"/agument/x"}`, "per", "/argument"},
			{"POST", "/v1/constraints/test", `{` + match + `,"job":{},"jobs":[]}`, "jobs", "match, job"}, {"POST", "/v1/constraints/test", `{` + match + `,"job":{"nmae":"a"}}`, "job.nmae", jobs},
			{"POST", "/v1/jobs/cancel", `{"status":"lost"}`, "status", "queued, running, retrying, done, error or cancelled"}, {"POST", "/v1/jobs/cancel", `{"status":""}`, "status", "queued, running, retrying, done, error or cancelled"},
			{"POST", "/v1/jobs/cancel", `{"all":true,"limit":10001}`, "limit", "10000"}, {"DELETE", "/job/" + ids[0] + "?force=flase", "", "force", "true or false"}, {"GET", "/job/" + ids[0] + "?peek=ture", "", "peek", "true or false"},
			{"GET", "/v1/jobs?name=%zz", "", "", "malformed"}, {"GET", "/v1/jobs?status=error&status=done", "", "status", "given 2 times"},
		} {
			r := c.do(x.method, x.path, x.body)
			if r.wantRefusal(400, "invalid_value", x.field); !strings.Contains(r.get("reason"), x.known) {
				t.Errorf("%s: %s, want %s", r.request, r.text, x.known)
			}
		}
		// No filter, or one that selects every job, is refused.
		for _, path := range []string{"/v1/jobs/cancel", "/v1/jobs/retry"} {
			for _, body := range []string{`{}`, `{"limit":1}`, `{"all":false}`, `{"all":null,"name":null}`, `{"match":{}}`, `{"match":{"all":[]}}`, `{"match":{"all":[{},{"not":{"any":[]}}]}}`, `{"match":{"any":[{"not":{}},{}]}}`} {
				c.do("POST", path, body).wantRefusal(400, "missing_field", "all")
			}
			c.do("POST", path, `{"all":1}`).wantRefusal(400, "invalid_type", "all")
		}
		for _, id := range ids {
			c.do("GET", "/job/"+id, "").wantStatus(200).has(`{"status":"queued"}`)
		}
		if r := c.do("GET", "/v1/jobs?name=a", "").wantStatus(200); len(r.decode()["jobs"].([]any)) > 0 {
			t.Errorf("what was refused is there: %s", r.text)
		}
		w := c.register(`{"name":"w","max_jobs":1,"names":["none"],"version":7}`)
		c.do("POST", "/worker/jobs?wait=0&x=1", "", "worker-id", w).wantStatus(204)
		c.do("DELETE", "/worker", "", "worker-id", w).wantStatus(204)
		c.do("POST", "/v1/jobs/cancel", `{"all":true,"name":"`+name+`","match":{},"limit":2}`).wantStatus(200).has(`{"affected":2,"more":true}`)
		c.do("POST", "/v1/jobs/cancel", `{"all":true}`).wantStatus(200).has(`{"affected":1,"more":false}`)
	})
}

// TestReplyHasPreferredEncoding: a reply has the encoding that Accept prefers, otherwise the
// request's encoding.
func TestReplyHasPreferredEncoding(t *testing.T) {
	t.Parallel()
	d := start(t)
	c := d.client(t, jsonType)
	id := c.enqueue(`{"name":"a","argument":{}}`)
	for _, x := range []struct{ accept, want string }{
		{"", msgpackType}, {"*/*", msgpackType}, {"application/json", jsonType}, {"text/html,application/xhtml+xml,*/*;q=0.8", jsonType},
		{"application/x-msgpack", "application/x-msgpack"}, {"application/vnd.msgpack, application/json;q=0.5", "application/vnd.msgpack"}, {"application/json, text/plain, */*", jsonType},
		{"application/msgpack;q=0.1, application/json", jsonType}, {"application/*", msgpackType}, {"application/*, application/msgpack;q=0", jsonType}, {"APPLICATION/JSON", jsonType},
	} {
		if got := c.do("GET", "/job/"+id, "", "Accept", x.accept).wantStatus(200).header.Get("Content-Type"); got != x.want {
			t.Errorf("Accept: %s gives %s, want %s", x.accept, got, x.want)
		}
	}
	body := `{"name":"a","argument":{}}`
	// A request that names no type gets JSON, but only on the paths of operators.
	for _, path := range []string{"/v1/stats", "/v1/jobs", "/v1/jobs/x", "/v1/nothing", "/", "/v1/jobs/query", "/nothing"} {
		for _, accept := range []string{"", "*/*", "application/*"} {
			if r := c.do("GET", path, "", "Accept", accept); r.header.Get("Content-Type") != jsonType {
				t.Errorf("%s with Accept: %s gives %s", path, accept, r.header.Get("Content-Type"))
			}
		}
		if r := c.do("GET", path, "", "Accept", "application/x-msgpack"); r.header.Get("Content-Type") != "application/x-msgpack" {
			t.Errorf("%s gives %s to whoever asks for MessagePack", path, r.header.Get("Content-Type"))
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if r := c.do("POST", path, "", "Accept", ""); r.status != 405 || r.header.Get("Content-Type") != jsonType {
			t.Errorf("%s gives %d in %s", path, r.status, r.header.Get("Content-Type"))
		}
	}
	for _, path := range []string{"/job", "/jobs", "/worker", "/done", "/job/x/polling", "/worker/jobs"} {
		if r := c.do("PUT", path, "", "Accept", "*/*"); r.header.Get("Content-Type") != msgpackType {
			t.Errorf("%s gives %s", path, r.header.Get("Content-Type"))
		}
	}
	if r := d.client(t, msgpackType).do("POST", "/v1/jobs/query", "{}", "Accept", "*/*").wantStatus(200); r.header.Get("Content-Type") != msgpackType {
		t.Errorf("a body in MessagePack gives %s", r.header.Get("Content-Type"))
	}
	if got := c.do("POST", "/job", body, "Accept", "").wantStatus(201).header.Get("Content-Type"); got != jsonType {
		t.Errorf("a body in JSON gives %s", got)
	}
	c.do("POST", "/job", body, "Content-Type", "Application/JSON; charset=utf-8").wantStatus(201)
	m := d.client(t, msgpackType)
	for _, name := range []string{"", "application/x-msgpack", "application/vnd.msgpack"} {
		m.do("POST", "/job", body, "Content-Type", name).wantStatus(201)
	}
}

// TestBytesOfValuesAreKept: the bytes of values are passed on unchanged.
func TestBytesOfValuesAreKept(t *testing.T) {
	t.Parallel()
	d := start(t)
	c := d.client(t, msgpackType)
	oddMap := "\xde\x00\x03" + "\xd9\x01k\xcd\x00\x05" + "\xc0\xca\x7f\xc0\x00\x00" + "\x93\x01\xff\xd4\x07!\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01"
	c.send("POST", "/job", []byte("\x83\xa4name\xa1v\xa8argument"+oddMap+"\xabkeep_result\xc3")).wantStatus(201)
	pushedBody := make(chan []byte, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		pushedBody <- body
	}))
	defer srv.Close()
	w := c.register(`{"name":"w","max_jobs":1,"url":"` + srv.URL + `"}`)
	var pushed []byte
	select {
	case pushed = <-pushedBody:
	case <-time.After(testTimeout):
		t.Fatal("the job is not pushed")
	}
	if !strings.Contains(string(pushed), "\xa8argument"+oddMap) {
		t.Errorf("the worker got % x", pushed)
	}
	id := pack.Value(pushed).Field("job_id").Bytes()
	c.send("POST", "/done", []byte("\x83\xa6job_id\xd9\x24"+string(id)+"\xa4type\xa7success\xa6result"+oddMap), "worker-id", w).wantStatus(204)
	st := c.do("GET", "/job/"+string(id), "").wantStatus(200)
	if want := string(pack.AppendJSON(nil, []byte(oddMap))); !strings.Contains(st.text, want) {
		t.Errorf("the result is %s, want %s", st.text, want)
	}
}

// TestDeepestValues: values that are as deep as a body allows are shown and handed out, although they
// are deeper in the reply.
func TestDeepestValues(t *testing.T) {
	t.Parallel()
	c := start(t).client(t, jsonType)
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	shows := func(r *reply, text string) {
		t.Helper()
		if r.wantStatus(200); !strings.Contains(r.text, text) {
			t.Errorf("%s: %s, want %s", r.request, r.text, text)
		}
	}
	w := c.register(`{"name":"w","max_jobs":1}`)
	argument := `"argument":{"a":` + nested(pack.MaxDepth-2) + `}`
	id := c.enqueue(`{"name":"deep",` + argument + `,"keep_result":true}`)
	shows(c.do("GET", "/v1/jobs", ""), argument)
	shows(c.do("GET", "/v1/jobs/"+id, ""), argument)
	shows(c.do("POST", "/worker/jobs?wait=30", "", "worker-id", w), argument)
	result := `"result":` + nested(pack.MaxDepth-1)
	c.do("POST", "/done", `{"job_id":"`+id+`","type":"success",`+result+`}`, "worker-id", w).wantStatus(204)
	shows(c.do("GET", "/job/"+id, ""), result)

	scheduled := `"job":{"name":"deep","argument":{"a":` + nested(pack.MaxDepth-3) + `}}`
	shows(c.do("PUT", "/v1/schedules/deep", `{"cron":"@yearly",`+scheduled+`}`), scheduled)
	shows(c.do("GET", "/v1/schedules", ""), scheduled)
}

// TestRepeatedRequestReturnsSameJob: a repeated request returns the same job.
func TestRepeatedRequestReturnsSameJob(t *testing.T) {
	t.Parallel()
	inBothEncodings(t, start(t), func(t *testing.T, c *client) {
		key := "key of " + c.mediaType
		body := `{"name":"once","argument":{"n":1}}`
		first := c.do("POST", "/job", body, "Idempotency-Key", key).wantStatus(201)
		secondReply := c.do("POST", "/job", body, "Idempotency-Key", key).wantStatus(201)
		if first.text != secondReply.text || first.header.Get("Idempotency-Replayed") != "" || secondReply.header.Get("Idempotency-Replayed") != "true" || secondReply.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("%s, then %s, %v", first.text, secondReply.text, secondReply.header)
		}
		c.do("POST", "/job", `{"name":"once","argument":{"n":2}}`, "Idempotency-Key", key).wantRefusal(422, "idempotency_key_reused", "")
		batch := c.do("POST", "/jobs", "["+body+","+body+"]", "Idempotency-Key", key).wantStatus(201)
		if reply := c.do("POST", "/jobs", "["+body+","+body+"]", "Idempotency-Key", key).wantStatus(201); reply.text != batch.text {
			t.Errorf("%s, then %s", batch.text, reply.text)
		}
		if ids := batch.decode()["job_ids"].([]any); len(ids) != 2 || ids[0] == ids[1] {
			t.Errorf("a batch of two gives %v", ids)
		}
	})
}

// TestOperatorsListAndChangeJobs: operators list jobs, see their details, and act on them.
func TestOperatorsListAndChangeJobs(t *testing.T) {
	t.Parallel()
	inBothEncodings(t, start(t), func(t *testing.T, c *client) {
		name := "ops-" + c.mediaType[len("application/"):]
		var ids []string
		for i := range 5 {
			ids = append(ids, c.enqueue(fmt.Sprintf(`{"name":%q,"argument":{"n":%d},"delay":3600}`, name, i)))
		}
		page := c.do("GET", "/v1/jobs?limit=3&name="+name, "").wantStatus(200).decode()
		jobs := page["jobs"].([]any)
		cursor, _ := page["cursor"].(string)
		if len(jobs) != 3 || jobs[0].(map[string]any)["id"] != ids[4] || cursor == "" {
			t.Fatalf("the first page is %v", page)
		}
		rest := c.do("GET", "/v1/jobs?limit=3&name="+name+"&cursor="+cursor, "").wantStatus(200).decode()
		if jobs = rest["jobs"].([]any); len(jobs) != 2 || jobs[1].(map[string]any)["id"] != ids[0] || rest["cursor"] != nil {
			t.Errorf("the second page is %v", rest)
		}
		some := c.do("POST", "/v1/jobs/query", `{"name":"`+name+`","match":{"field":"/argument/n","op":"ge","value":3}}`).wantStatus(200).decode()["jobs"].([]any)
		if len(some) != 2 {
			t.Errorf("a matcher picks %v", some)
		}
		c.do("GET", "/v1/jobs/"+ids[0], "").wantStatus(200).has(`{"id":"` + ids[0] + `","name":"` + name + `","argument":{"n":0},"status":"queued","attempts":[],"argument_bytes":4}`)
		c.do("POST", "/v1/jobs/"+ids[0]+"/retry", "").wantRefusal(409, "wrong_state", "")
		c.do("POST", "/v1/jobs/"+ids[0]+"/cancel", "").wantStatus(204)
		c.do("POST", "/v1/jobs/"+ids[0]+"/cancel", "").wantRefusal(409, "wrong_state", "")
		c.do("POST", "/v1/jobs/"+ids[0]+"/retry", "").wantStatus(204)
		c.do("POST", "/v1/jobs/cancel", `{"name":"`+name+`","status":"queued","limit":3}`).wantStatus(200).has(`{"affected":3,"more":true}`)
		c.do("POST", "/v1/jobs/cancel", `{"name":"`+name+`","status":"queued"}`).wantStatus(200).has(`{"affected":2,"more":false}`)
		c.do("GET", "/v1/jobs?status=cancelled&name="+name+"&limit=500", "").wantStatus(200)
		c.do("POST", "/v1/jobs/query", `{"match":{"field":"x","op":"eq","value":1}}`).wantRefusal(400, "invalid_value", "match.field")
		c.do("GET", "/v1/stats", "").wantStatus(200).has(`{"durable":false,"store_away":null}`)
		w := c.register(`{"name":"w","max_jobs":3,"names":["a","b*"],"heartbeat":true}`)
		if text := c.do("GET", "/v1/workers", "").wantStatus(200).text; !strings.Contains(text, w) || !strings.Contains(text, `["a","b*"]`) {
			t.Errorf("the workers are %s", text)
		}
		c.do("DELETE", "/v1/workers/"+w, "").wantStatus(204)
		c.do("POST", "/worker/heartbeat", "", "worker-id", w).wantRefusal(404, "unknown_worker", "")
	})
}

// TestBulkActionFindsOldJobs: a bulk action also finds jobs that are behind many newer jobs.
func TestBulkActionFindsOldJobs(t *testing.T) {
	t.Parallel()
	c := start(t).client(t, jsonType)
	old := c.enqueue(`{"name":"old","argument":{},"delay":3600}`)
	batch := "[" + strings.Repeat(`{"name":"new","argument":{}},`, 999) + `{"name":"new","argument":{}}]`
	for range 11 { // one page examines 10,000
		c.do("POST", "/jobs", batch).wantStatus(201)
	}
	c.do("POST", "/v1/jobs/cancel", `{"name":"old"}`).wantStatus(200).has(`{"affected":1,"more":false}`)
	c.do("POST", "/v1/jobs/retry", `{"status":"cancelled"}`).wantStatus(200).has(`{"affected":1,"more":false}`)
	c.do("GET", "/job/"+old, "").wantStatus(200).has(`{"status":"queued"}`)
}

// TestBulkActionIsCut: a bulk action that cannot change all jobs says how many it has changed, and where
// the next request must continue.
func TestBulkActionIsCut(t *testing.T) {
	t.Parallel()
	c := start(t, "--max-jobs=5").client(t, jsonType)
	batch := func(n int) string {
		return "[" + strings.Repeat(`{"name":"n","argument":{}},`, n-1) + `{"name":"n","argument":{}}]`
	}
	c.do("POST", "/jobs", batch(5)).wantStatus(201)
	c.do("POST", "/v1/jobs/cancel", `{"all":true}`).wantStatus(200).has(`{"affected":5,"more":false,"cursor":null}`)
	c.do("POST", "/jobs", batch(3)).wantStatus(201)
	var cut struct{ Cursor string }
	if r := c.do("POST", "/v1/jobs/retry", `{"all":true}`).wantStatus(200).has(`{"affected":2,"more":true}`); json.Unmarshal([]byte(r.text), &cut) != nil || cut.Cursor == "" {
		t.Fatalf("there is no cursor: %s", r.text)
	}
	c.do("POST", "/v1/jobs/retry", `{"all":true,"cursor":"`+cut.Cursor+`"}`).wantRefusal(503, "overloaded", "")
	c.do("POST", "/v1/jobs/cancel", `{"all":true}`).wantStatus(200).has(`{"affected":5}`)
	c.do("POST", "/v1/jobs/retry", `{"all":true,"limit":3,"cursor":"`+cut.Cursor+`"}`).wantStatus(200).has(`{"affected":3,"more":false}`)
}

// TestReplyShowsOwnConstraint: the reply to a change has the ETag of that change, also if another
// client's change follows at once: a client with another's ETag would overwrite what it has not
// seen. A constraint that was dropped and set again has an ETag that it never had.
func TestReplyShowsOwnConstraint(t *testing.T) {
	t.Parallel()
	c := start(t).client(t, jsonType)
	const at = "/v1/constraints/shared"
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() {
			for i := range 50 {
				text := c.do("PUT", at, fmt.Sprintf(`{"match":{},"concurrency":%d}`, 1000*n+i)).text
				if !strings.Contains(text, fmt.Sprintf(`"concurrency":%d,`, 1000*n+i)) {
					t.Errorf("client %d put %d, and the reply is %s", n, 1000*n+i, text)
					return
				}
			}
		})
	}
	clients.Wait()
	const body = `{"match":{},"concurrency":7}`
	c.do("DELETE", at, "").wantStatus(204)
	tag := c.do("PUT", at, body).wantStatus(201).header.Get("ETag")
	c.do("DELETE", at, "", "If-Match", tag).wantStatus(204)
	c.do("PUT", at, body).wantStatus(201)
	c.do("PUT", at, body, "If-Match", tag).wantRefusal(412, "precondition_failed", "")
}

// TestConstraintsAreChangedInKnownVersion: constraints are set, enforced, changed only in the
// version that the client knows, and dropped.
func TestConstraintsAreChangedInKnownVersion(t *testing.T) {
	t.Parallel()
	inBothEncodings(t, start(t), func(t *testing.T, c *client) {
		name := "limited-" + c.mediaType[len("application/"):]
		match := `"match":{"field":"/name","op":"eq","value":"` + name + `"}`
		at := "/v1/constraints/" + name
		c.do("PUT", at, `{`+match+`,"concurrency":1}`, "If-Match", "*").wantRefusal(412, "precondition_failed", "")
		r := c.do("PUT", at, `{`+match+`,"concurrency":1,"per":"/argument/user"}`).wantStatus(201).
			has(`{"id":"` + name + `",` + match + `,"rate":null,"burst":null,"concurrency":1,"per":"/argument/user","enabled":true,"persisted":false}`)
		tag := r.header.Get("ETag")
		if got := c.do("GET", at, "").wantStatus(200).header.Get("ETag"); got != tag || tag == "" {
			t.Errorf("ETag is %s, then %s", tag, got)
		}
		c.do("PUT", at, `{`+match+`,"rate":2.5}`, "If-Match", tag).wantStatus(200).has(`{"rate":2.5,"burst":3,"concurrency":null,"per":null}`)
		c.do("PUT", at, `{`+match+`,"rate":2.5}`, "If-Match", tag).wantRefusal(412, "precondition_failed", "")
		c.do("DELETE", at, "", "If-Match", tag).wantRefusal(412, "precondition_failed", "")
		for _, x := range []struct{ body, code, field string }{
			{`{"concurrency":1}`, "missing_field", "match"}, {`{` + match + `}`, "missing_field", "rate"}, {`{` + match + `,"rate":0}`, "invalid_value", "rate"}, {`{` + match + `,"rate":-1}`, "invalid_value", "rate"}, {`{` + match + `,"rate":1,"burst":0}`, "invalid_value", "burst"},
			{`{` + match + `,"concurrency":1,"burst":5}`, "invalid_value", "burst"}, {`{` + match + `,"concurrency":-1}`, "invalid_value", "concurrency"}, {`{` + match + `,"concurrency":1,"per":"x"}`, "invalid_value", "per"}, {`{` + match + `,"concurrency":1,"enabled":1}`, "invalid_type", "enabled"},
			{`{"match":5,"concurrency":1}`, "invalid_type", "match"}, {`{"match":{"x":1},"concurrency":1}`, "invalid_value", "match"},
			{`{` + match + `,"rate":1,"burst":1000001}`, "invalid_value", "burst"}, // more than the broker accepts
		} {
			c.do("PUT", at, x.body).wantRefusal(400, x.code, x.field)
		}
		c.do("PUT", at, `{`+match+`,"rate":5e6}`).wantStatus(200).has(`{"burst":1000000}`)
		c.do("PUT", at, `{`+match+`,"concurrency":0}`).wantStatus(200)
		id := c.enqueue(`{"name":"` + name + `","argument":{}}`)
		w := c.register(`{"name":"w","max_jobs":1,"names":["` + name + `"]}`)
		c.do("POST", "/worker/jobs?wait=0.1", "", "worker-id", w).wantStatus(204)
		eventually(t, "the job is seen to be held back", func() bool {
			return strings.Contains(c.do("GET", "/v1/jobs/"+id, "").wantStatus(200).text, `"blocked_by":["`+name+`"]`)
		})
		eventually(t, "the constraint is seen to hold it back", func() bool {
			return strings.Contains(c.do("GET", "/v1/constraints", "").wantStatus(200).text, `"blocked":1`)
		})
		eventually(t, "the metrics tell it", func() bool {
			return strings.Contains(c.do("GET", "/metrics", "").wantStatus(200).text, `gloom_jq_blocked{constraint="`+name+`"} 1`)
		})
		c.do("DELETE", at, "").wantStatus(204)
		if got := c.pull(w, 1); len(got) != 1 || got[0] != id {
			t.Errorf("without its constraint the job does not run: %v", got)
		}
		c.do("POST", "/v1/constraints/test", `{`+match+`,"job":{"name":"`+name+`"}}`).wantStatus(200).has(`{"matches":true}`)
		c.do("POST", "/v1/constraints/test", `{"match":{"not":{}},"job":{}}`).wantStatus(200).has(`{"matches":false}`)
		c.do("POST", "/v1/constraints/test", `{"match":{},"job":{"priority":"x"}}`).wantRefusal(400, "invalid_type", "job.priority")
		c.do("DELETE", "/worker", "", "worker-id", w).wantStatus(204)
	})
}

// TestConstraintIDs: a constraint with any id can be set, read and dropped, even if its id also
// occurs in paths of the API or has a meaning in paths.
func TestConstraintIDs(t *testing.T) {
	t.Parallel()
	inBothEncodings(t, start(t), func(t *testing.T, c *client) {
		for _, id := range []string{"test", "query", "/", "a/b", "a//b", ".", "..", "../..", "a b", "{id}", "é"} {
			at := "/v1/constraints/" + strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
			marked := "/v1/constraints/" + api.Segment(id)
			c.do("PUT", at, `{"match":{},"concurrency":1}`).wantStatus(201)
			if got := c.do("GET", at, "").wantStatus(200).get("id"); got != id {
				t.Errorf("%s is the constraint %q", at, got)
			}
			if got := c.do("GET", marked, "").wantStatus(200).get("id"); got != id {
				t.Errorf("%s is the constraint %q", marked, got)
			}
			c.do("DELETE", at, "").wantStatus(204)
			c.do("GET", at, "").wantRefusal(404, "unknown_constraint", "")
		}
		c.do("POST", "/v1/constraints/other", `{}`).wantRefusal(405, "method_not_allowed", "")
	})
}

// TestScopesAllowTheirRequests: each scope allows its own requests; health needs none.
func TestScopesAllowTheirRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("p push\nw work\na admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, "--token-file", file).client(t, jsonType)
	requests := map[string]func() *reply{
		"p": func() *reply { return c.do("POST", "/job", `{"name":"a","argument":{}}`) },
		"w": func() *reply { return c.do("POST", "/worker", `{"name":"w","max_jobs":1}`) },
		"a": func() *reply { return c.do("GET", "/v1/stats", "") },
	}
	for scope, ask := range requests {
		for _, c.token = range []string{"p", "w", "a"} {
			r := ask()
			if c.token == scope {
				if r.status >= 300 {
					t.Errorf("%s as %s: %s", r.request, c.token, r.text)
				}
			} else {
				r.wantRefusal(403, "forbidden", "")
			}
		}
		for _, c.token = range []string{"", "none"} {
			r := ask()
			r.wantRefusal(401, "unauthorized", "")
			if r.header.Get("WWW-Authenticate") == "" {
				t.Error("a 401 does not say what is asked for")
			}
		}
	}
	c.token = ""
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml"} {
		c.do("GET", path, "").wantStatus(200)
	}
}

// TestWebPages: a web page of another origin can do nothing, even if its host name leads to the
// master.
func TestWebPages(t *testing.T) {
	t.Parallel()
	c := start(t, "--host", "jq.example").client(t, jsonType)
	for _, x := range []struct {
		method, path, body string
		headers            []string
		status             int
	}{
		{"POST", "/job", `{"name":"a","argument":{}}`, []string{"Origin", "https://evil.example"}, 403},
		{"POST", "/job", `{"name":"a","argument":{}}`, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", "/job", `{"name":"a","argument":{}}`, []string{"Origin", "http://evil.example", "Host", "evil.example"}, 403},
		{"POST", "/job", `{"name":"a","argument":{}}`, []string{"Host", "evil.example"}, 201},
		{"GET", "/v1/stats", "", []string{"Host", "evil.example"}, 403},
		{"GET", "/v1/stats", "", []string{"Host", "jq.example"}, 200},
		{"GET", "/v1/stats", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"GET", "/v1/stats", "", []string{"Host", "localhost:9996"}, 200},
		{"POST", "/job", `{"name":"a","argument":{}}`, []string{"Origin", "http://jq.example", "Host", "jq.example"}, 201},
	} {
		if r := c.do(x.method, x.path, x.body, x.headers...); r.status != x.status {
			t.Errorf("%s with %v: %d %s, want %d", r.request, x.headers, r.status, r.text, x.status)
		}
	}
	if r := c.do("GET", "/v1/stats", "", "Origin", "http://localhost:1"); r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("a page of another origin may read replies")
	}
}

// TestPullAtOnce: a worker that asks with wait=0 gets the jobs that are ready.
func TestPullAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t).client(t, jsonType)
	worker := c.register(`{"name":"w","max_jobs":1}`)
	c.enqueue(`{"name":"n","argument":{}}`)
	for tries := 1; c.do("POST", "/worker/jobs?wait=0", "", "worker-id", worker).status == 204; tries++ {
		if tries == 50 {
			t.Fatal("nothing comes")
		}
	}
}

// TestWorkersAreListedInPages: a page begins after the last worker of the page before, even if that
// worker has unregistered.
func TestWorkersAreListedInPages(t *testing.T) {
	t.Parallel()
	c := start(t).client(t, jsonType)
	var ids []string
	for range 3 {
		ids = append(ids, c.register(`{"name":"w","max_jobs":1}`))
	}
	first := c.do("GET", "/v1/workers?limit=2", "").wantStatus(200)
	if cursor := first.get("cursor"); cursor != ids[1] {
		t.Fatalf("the cursor is %s, not %s", cursor, ids[1])
	}
	c.do("DELETE", "/worker", "", "worker-id", ids[1]).wantStatus(204)
	next := c.do("GET", "/v1/workers?limit=2&cursor="+ids[1], "").wantStatus(200)
	if !strings.Contains(next.text, ids[2]) || strings.Contains(next.text, ids[0]) {
		t.Errorf("the next page is %s", next.text)
	}
}
