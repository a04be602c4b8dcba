// Package browser tests the page of jq-master in a real Chromium, with the real program.
package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gloom/bench/throwaway"
	"gloom/broker/page/pagetest"
)

var shots = flag.String("shots", "", "directory for pictures of every view, light and dark, narrow and wide")

var program = throwaway.Probe{Name: "jq-master"}

// chromium is the context of the browser. It is the parent of the contexts of tabs.
var chromium context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(program.Main(1, func() (int, error) {
		ctx, end, err := pagetest.StartChromium()
		if err != nil {
			return 1, err
		}
		defer end()
		chromium = ctx
		return m.Run(), nil
	}))
}

// world is a master for one test.
type world struct {
	t   *testing.T
	d   *throwaway.Daemon
	url string
}

func start(t *testing.T, flags ...string) *world {
	t.Helper()
	cmd, err := program.Command(append([]string{"--addr=127.0.0.1:0", "--drain=1s", "--backoff-base=1h", "--backoff-cap=1h"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	d, err := throwaway.Start(cmd, "jq-master is ready")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	w := &world{t, d, "http://" + d.Field("addr")}
	w.waitUntil("/readyz", func(code int, _ map[string]any) bool { return code == 200 })
	return w
}

// try sends a request in JSON; if id is not "", it is the request of the worker with this id.
func (w *world) try(method, path string, body any, worker ...string) (int, map[string]any) {
	w.t.Helper()
	data, ok := body.(string)
	if !ok && body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		data = string(text)
	}
	r, err := http.NewRequest(method, w.url+path, bytes.NewReader([]byte(data)))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, id := range worker {
		r.Header.Set("worker-id", id)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	var out map[string]any
	_ = json.Unmarshal(text, &out) // /readyz has none
	return resp.StatusCode, out
}

// ask is like try, but fails the test unless the request succeeds.
func (w *world) ask(method, path string, body any, worker ...string) map[string]any {
	w.t.Helper()
	code, out := w.try(method, path, body, worker...)
	if code >= 300 {
		w.t.Fatalf("%s %s: %d %v", method, path, code, out)
	}
	return out
}

// waitUntil repeats a GET request until is returns true for the reply.
func (w *world) waitUntil(path string, cond func(code int, v map[string]any) bool) {
	w.t.Helper()
	for end := time.Now().Add(pagetest.WaitTimeout); ; time.Sleep(30 * time.Millisecond) {
		code, v := w.try("GET", path, nil)
		if cond(code, v) {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s stayed %d %v", path, code, v)
		}
	}
}

// job enqueues a job with attributes in JSON, and returns its id.
func (w *world) job(attributes string) string {
	w.t.Helper()
	return w.ask("POST", "/job", attributes)["job_id"].(string)
}

// worker registers a worker that pulls, and returns its id.
func (w *world) worker(name string, slots int, names ...string) string {
	w.t.Helper()
	return w.ask("POST", "/worker", map[string]any{"name": name, "max_jobs": slots, "names": names})["worker_id"].(string)
}

// take takes jobs for a worker, and returns their ids.
func (w *world) take(worker string, n int) (ids []string) {
	w.t.Helper()
	for end := time.Now().Add(pagetest.WaitTimeout); len(ids) < n; {
		out := w.ask("POST", fmt.Sprintf("/worker/jobs?wait=5&max=%d", n-len(ids)), nil, worker)
		for _, j := range append([]any{}, list(out["jobs"])...) {
			ids = append(ids, j.(map[string]any)["id"].(string))
		}
		if time.Now().After(end) {
			w.t.Fatalf("the worker got %d jobs, want %d", len(ids), n)
		}
	}
	return ids
}

func list(v any) []any { l, _ := v.([]any); return l }

// reportDone sends a report of a job's end, in JSON without the id.
func (w *world) reportDone(worker, id, report string) {
	w.t.Helper()
	w.ask("POST", "/done", fmt.Sprintf(`{"job_id":%q,%s`, id, report[1:]), worker)
}

const failure = `{"type":"failure","reason":"other","should_retry":false,"message":"no such mailbox","error":{"code":550}}`

// open opens the page in its own browser profile.
func (w *world) open(route string) *pagetest.Tab {
	w.t.Helper()
	b := pagetest.NewTab(w.t, chromium, chromedp.WithNewBrowserContext())
	b.Visit(w.url + "/" + route)
	return b
}

// startBusy returns a master with jobs in every state, and the ids of the jobs that tests use.
func startBusy(t *testing.T) (w *world, ids map[string]string) {
	t.Helper()
	w = start(t)
	ids = map[string]string{}
	mailer, slowWorker := w.worker("mailer on host-7", 4, "mail", "sms*"), w.worker("slow", 2, "thumbnail")
	for i := range 3 {
		w.job(fmt.Sprintf(`{"name":"mail","argument":{"to":"user%d@example.org"}}`, i))
	}
	for _, id := range w.take(mailer, 3) {
		w.reportDone(mailer, id, `{"type":"success","result":null}`)
	}
	ids["done"] = w.job(`{"name":"mail","argument":{"to":"kept@example.org","n":9223372036854775809},"keep_result":true}`)
	w.reportDone(mailer, w.take(mailer, 1)[0], `{"type":"success","result":{"sent":18446744073709551615}}`)
	ids["error"] = w.job(`{"name":"mail","argument":{"to":"nobody@example.org"},"max_retry":0}`)
	w.reportDone(mailer, w.take(mailer, 1)[0], failure)
	ids["retrying"] = w.job(`{"name":"sms","argument":{"to":"+49 30 1234"}}`)
	w.reportDone(mailer, w.take(mailer, 1)[0], `{"type":"failure","reason":"other","should_retry":true,"message":"gateway is busy"}`)
	ids["running"] = w.job(`{"name":"thumbnail","argument":{"picture":1},"timeout":3600}`)
	w.take(slowWorker, 1)
	w.ask("PUT", "/v1/constraints/per-user", `{"match":{"field":"/argument/user","op":"exists","value":true},"concurrency":0,"per":"/argument/user"}`)
	w.ask("PUT", "/v1/constraints/reports", `{"match":{"field":"/name","op":"glob","value":"report*"},"rate":5,"concurrency":3}`)
	for i := range 8 {
		ids["queued"] = w.job(fmt.Sprintf(`{"name":"report","argument":{"of":%d},"priority":%d}`, i, i%3))
	}
	ids["held"] = w.job(`{"name":"mail","argument":{"user":7}}`)
	ids["cancelled"] = w.job(`{"name":"report","argument":{"of":"all"}}`)
	w.ask("POST", "/v1/jobs/"+ids["cancelled"]+"/cancel", nil)
	w.ask("PUT", "/v1/schedules/nightly", `{"cron":"30 2 * * *","zone":"Europe/Berlin","job":{"name":"report","argument":{"of":"all","n":9223372036854775809}},"note":"for the boss"}`)
	w.waitUntil("/v1/constraints/per-user", func(_ int, v map[string]any) bool { return v["blocked"] == 1. })
	return w, ids
}
