package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/admin"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// addWorker serves a type until the test ends. It echoes headers and body, fails jobs with
// the body "fail", and holds jobs with the body "hold" until release is closed.
func (w *world) addWorker(typ string, release <-chan struct{}) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.t.Cleanup(cancel)
	k := &gloom.Worker{Type: typ, Concurrency: 4, Headers: true, Options: []gloom.Option{gloom.Addrs(w.srv.WorkerAddr().String())},
		Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
			switch string(job.Body) {
			case `"fail"`:
				return nil, gloom.Fatal(errors.New("no such number"))
			case `"hold"`:
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return []json.RawMessage{job.Body, append(json.RawMessage(nil), job.Headers...)}, nil
		}}
	if err := k.Start(ctx); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = k.Stop(context.Background()) })
}

// TestSubmitOverHTTPIsLikeFrame: a submit over HTTP has the same effect as a submit frame.
func TestSubmitOverHTTPIsLikeFrame(t *testing.T) {
	w := start(t, func(o *settings.Options) { o.MaxFrame = 4 << 10 })
	x := w.call("POST", "/v1/jobs", `{"body":{"a":1.50},"type":"mail","id":"a/1","priority":7,"groups":["acme"],"headers":{"trace":"x"},"delay_ms":3600000,"retries":2}`, 202)
	if x["id"] != "a/1" || x["type"] != "mail" || x["state"] != "delayed" {
		t.Errorf("handed in: %v", x)
	}
	j := w.call("GET", "/v1/jobs/a%2F1?body=true", "", 200)
	if body, _ := json.Marshal(j["body"]); string(body) != `{"a":1.5}` || j["priority"] != 7.0 || j["retries"] != 2.0 || j["detached"] != true ||
		j["headers"].(map[string]any)["trace"] != "x" || j["groups"].([]any)[0] != "acme" {
		t.Errorf("the job: %v", j)
	}
	if j := w.call("GET", "/v1/jobs/a%2F1", "", 200); j["body"] != nil || j["headers"] != nil {
		t.Errorf("body and headers unasked for: %v", j)
	}
	if x := w.call("POST", "/v1/jobs", `{"body":null}`, 202); x["type"] != "default" || len(x["id"].(string)) < 20 || x["state"] != "queued" {
		t.Errorf("a job without id and type: %v", x)
	}
	w.call("POST", "/v1/jobs?type=mail&id=raw&priority=-3&group=g1&group=g2&headers=%7B%22h%22%3A1%7D", `[1, 2]`, 202)
	if j := w.call("GET", "/v1/jobs/raw?body=true", "", 200); j["priority"] != -3.0 || len(j["groups"].([]any)) != 2 || len(j["body"].([]any)) != 2 || j["headers"] == nil {
		t.Errorf("raw: %v", j)
	}
	w.call("POST", "/v1/jobs?type=mail&id=text", "a \"quoted\"\nline", 202, "Content-Type", "text/plain; charset=utf-8")
	if j := w.call("GET", "/v1/jobs/text?body=true", "", 200); j["body"] != "a \"quoted\"\nline" {
		t.Errorf("text: %v", j)
	}
	for _, zero := range []string{"0", "-0", "null"} { // nobody waits, so the job does not end with its request
		w.call("POST", "/v1/jobs", `{"body":1,"id":"zero`+zero+`","keep_ms":`+zero+`}`, 202)
		if j := w.call("GET", "/v1/jobs/zero"+zero, "", 200); j["state"] != "queued" || j["detached"] != true {
			t.Errorf("with keep_ms %s: %v", zero, j)
		}
	}
	for _, c := range []struct {
		path, body string
		status     int
		code, want string
		headers    []string
	}{
		{"", `{"body":1,"id":"raw"}`, 409, "id_exists", "waiting or running", nil},
		{"", `{}`, 400, "missing_field", "body", nil},
		{"", `{"body":1,"id":7}`, 400, "invalid_type", "id must be a string", nil},
		{"", `{"body":1,"priority":"x"}`, 400, "invalid_type", `priority must be an integer`, nil},
		{"", `{"body":1,"delay_ms":-1}`, 400, "invalid_value", "delay_ms must be an integer from 0", nil},
		{"", `{"body":1,"groups":[]}`, 400, "invalid_value", "groups", nil},
		{"", `{"body":1,"detach":false}`, 400, "invalid_body", "detach", nil},
		{"", `[`, 400, "invalid_body", "object", nil},
		{"", `{"body":"` + strings.Repeat("x", 5000) + `"}`, 413, "size_error", "4096", nil},
		{"?wait=soon", `{"body":1}`, 400, "invalid_value", "30s", nil},
		{"?wait=2h", `{"body":1}`, 400, "invalid_value", "1h", nil},
		{"?type=mail", `1,"id":"x"`, 400, "invalid_json", "JSON", nil},
		{"?type=mail&colour=red", `1`, 400, "invalid_value", "colour", nil},
		{"?wiat=3s", `{"body":1}`, 400, "invalid_value", "takes wait, group, id, type, priority, headers, delay_ms", nil},
		{"?priority=5", `{"body":1}`, 400, "invalid_value", `"priority", but no type`, nil},
		{"?type=mail&groups=g", `1`, 400, "invalid_value", `"groups"`, nil},
		{"?type=mail&priority=high", `1`, 400, "invalid_type", "priority must be an integer", nil},
		{"?type=%ff", `1`, 400, "invalid_value", "type must be UTF-8", nil},
		{"?type=mail&id=%ed%a0%80", `1`, 400, "invalid_value", "id must be UTF-8", nil},
		{"?type=mail&group=a&group=%ff", `1`, 400, "invalid_value", "group must be UTF-8", nil},
		{"?type=mail&type=letter", `1`, 400, "invalid_value", "type is given 2 times", nil},
		{"?type=mail&headers=7", `1`, 400, "invalid_type", "headers", nil},
		{"?type=mail", "\xff", 400, "invalid_body", "UTF-8", []string{"Content-Type", "text/plain"}},
		{"", `{"body":1}`, 415, "content_type", "text/plain", []string{"Content-Type", "text/plain"}},
		{"", `{"body":1}`, 403, "forbidden_origin", "evil.example", []string{"Origin", "http://evil.example"}},
		{"", `{"body":1}`, 403, "forbidden_origin", "", []string{"Sec-Fetch-Site", "cross-site"}},
	} {
		x := w.call("POST", "/v1/jobs"+c.path, c.body, c.status, c.headers...)
		if x["error"] != c.code || !strings.Contains(x["reason"].(string), c.want) {
			t.Errorf("%s %.60s: %v, want %s with %q", c.path, c.body, x, c.code, c.want)
		}
	}
	if x := w.call("GET", "/v1/submitters", "", 200)["items"].([]any); len(x) != 0 {
		t.Errorf("submitters of requests that are over: %v", x)
	}
}

// TestUnwantedBodyIsRead: a client that sends the whole of a job that is too large, or of another type, before
// it reads the reply still sees why it was refused.
func TestUnwantedBodyIsRead(t *testing.T) {
	w := start(t, nil)
	body := strings.Repeat(" ", 40<<20)
	for contentType, want := range map[string]string{"application/json": " 413 ", "text/html": " 415 "} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(body), body); err != nil {
			t.Errorf("%s: %v", contentType, err)
		}
		if line, _ := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, want) {
			t.Errorf("%s: %q", contentType, line)
		}
	}
}

// TestChunkedDeleteMayBeEmpty: a DELETE needs no Content-Type for an empty body whose length was
// not announced, but for any other.
func TestChunkedDeleteMayBeEmpty(t *testing.T) {
	w := start(t, nil)
	for body, want := range map[string]int{"": 404, "{}": 415} {
		req, err := http.NewRequest("DELETE", w.url+"/v1/jobs/none", io.MultiReader(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		req.TransferEncoding = []string{"chunked"} // even if there is nothing to send
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("with the body %q: %s, want %d", body, resp.Status, want)
		}
	}
}

// TestWaitingRequestGetsAnswer: a request that waits returns the answer or the failure. If there is neither
// in time, the outcome is kept.
func TestWaitingRequestGetsAnswer(t *testing.T) {
	w := start(t, nil)
	release := make(chan struct{})
	w.addWorker("t", release)
	x := w.call("POST", "/v1/jobs?wait=45s", `{"type":"t","id":"a","body":{"n":1},"headers":{"h":1}}`, 200)
	if body, _ := json.Marshal(x["body"]); string(body) != `[{"n":1},{"h":1}]` || x["state"] != "answered" || x["id"] != "a" {
		t.Errorf("answered: %v", x)
	}
	big := strings.Repeat("y", 1<<20)
	if x := w.call("POST", "/v1/jobs?wait=45s&type=t", `"`+big+`"`, 200); x["body"].([]any)[0] != big {
		t.Error("a large answer is not what it was")
	}
	x = w.call("POST", "/v1/jobs?wait=45s", `{"type":"t","id":"b","body":"fail"}`, 422)
	if x["error"] != "job_failed" || x["reason"] != "no such number" || x["id"] != "b" {
		t.Errorf("failed: %v", x)
	}
	for _, id := range []string{"a", "b"} {
		eventually(t, "what was told is forgotten", func() bool { return w.call("GET", "/v1/jobs/"+id, "", 200)["keep_ms"] == nil })
	}
	x = w.call("POST", "/v1/jobs?wait=50ms", `{"type":"t","id":"c","body":"hold"}`, 504)
	if x["error"] != "timeout" || x["id"] != "c" {
		t.Errorf("too late: %v", x)
	}
	if x := w.call("POST", "/v1/jobs?wait=1s", `{"type":"t","id":"c","body":1}`, 409); x["error"] != "id_exists" {
		t.Errorf("the same again: %v", x)
	}
	close(release)
	eventually(t, "its outcome is kept", func() bool { return w.call("GET", "/v1/jobs/c", "", 200)["state"] == "ended" })
	if j := w.call("GET", "/v1/jobs/c?body=true", "", 200); j["outcome"] != "answered" || j["body"].([]any)[0] != "hold" {
		t.Errorf("the outcome: %v", j)
	}
	w.call("DELETE", "/v1/jobs/c", "", 200)
	w.call("POST", "/v1/jobs", `{"type":"t","id":"d","body":"fail","keep_ms":60000}`, 202)
	eventually(t, "its outcome is kept", func() bool { return w.call("GET", "/v1/jobs/d", "", 200)["state"] == "ended" })
	if j := w.call("GET", "/v1/jobs/d?body=true", "", 200); j["outcome"] != "failed" || j["reason"] != "no such number" || j["body"] != nil {
		t.Errorf("the outcome of a failed one: %v", j)
	}
}

// httpStatus returns the HTTP status of a GET request.
func (w *world) httpStatus(path string) int {
	w.t.Helper()
	resp, err := http.Get(w.url + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestOutcomeIsKeptForGoneClient: if a client disconnects while it waits, the outcome is kept.
func TestOutcomeIsKeptForGoneClient(t *testing.T) {
	w := start(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	callErr := make(chan error, 1)
	go func() {
		r, _ := http.NewRequestWithContext(ctx, "POST", w.url+"/v1/jobs?wait=10m", strings.NewReader(`{"type":"t","id":"a","body":1}`))
		r.Header.Set("Content-Type", "application/json")
		_, err := http.DefaultClient.Do(r)
		callErr <- err
	}()
	eventually(t, "the job is there", func() bool { return w.httpStatus("/v1/jobs/a") == 200 })
	if x := w.call("GET", "/v1/submitters?type=t", "", 200)["items"].([]any); len(x) != 1 || !strings.HasPrefix(x[0].(map[string]any)["client"].(string), "http ") {
		t.Errorf("submitters: %v", x)
	}
	cancel()
	if err := <-callErr; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	eventually(t, "its submitter is gone", func() bool { return w.call("GET", "/v1/jobs/a", "", 200)["submitter"] == nil })
	w.addWorker("t", nil)
	eventually(t, "its outcome is kept", func() bool { return w.call("GET", "/v1/jobs/a", "", 200)["state"] == "ended" })
}

// TestOutcomeIsKeptWhileWritten: while an answer is still being written, its outcome is kept, and no
// other job can have its id.
func TestOutcomeIsKeptWhileWritten(t *testing.T) {
	w := start(t, nil)
	w.addWorker("t", nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	body := `"` + strings.Repeat("s", 12<<20) + `"`
	fmt.Fprintf(conn, "POST /v1/jobs?wait=1m&type=t&id=slow HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if _, err := io.ReadFull(conn, make([]byte, 100)); err != nil { // the answer has begun
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // the broker must not count the answer as read
	if x := w.call("POST", "/v1/jobs", `{"type":"other","id":"slow","body":1}`, 409); x["error"] != "id_exists" {
		t.Errorf("the same id: %v", x)
	}
	conn.Close()
	eventually(t, "its submitter is gone", func() bool { return w.call("GET", "/v1/jobs/slow", "", 200)["submitter"] == nil })
	if x := w.call("GET", "/v1/jobs/slow?body=true", "", 200); x["state"] != "ended" || len(x["body"].([]any)[0].(string)) != 12<<20 {
		t.Errorf("what nobody has read: state %v", x["state"])
	}
}

// TestWaitingClientStaysConnected: a client that waits for an answer stays connected; an idle one is
// disconnected.
func TestWaitingClientStaysConnected(t *testing.T) {
	w := start(t, func(o *settings.Options) { o.MaxHTTPConns = 4 })
	release := make(chan struct{})
	w.addWorker("t", release)
	callErr := make(chan error, 1)
	client := func() *http.Client {
		tr := &http.Transport{}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	go func() {
		resp, err := client().Post(w.url+"/v1/jobs?wait=1m&type=t&id=waits", "application/json", strings.NewReader(`"hold"`))
		if err == nil {
			resp.Body.Close()
		}
		callErr <- err
	}()
	eventually(t, "it waits", func() bool { return w.httpStatus("/v1/jobs/waits") == 200 })
	for range 8 {
		resp, err := client().Get(w.url + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	close(release)
	if err := <-callErr; err != nil {
		t.Error(err)
	}
}

// hangingUpWriter is a client that disconnects when the broker begins to write the answer.
type hangingUpWriter struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

func (c hangingUpWriter) Write(p []byte) (int, error) {
	c.cancel()
	return c.ResponseRecorder.Write(p)
}

// TestUnreceivedAnswerIsKept: an answer that its client may not have received is kept.
func TestUnreceivedAnswerIsKept(t *testing.T) {
	w := start(t, nil)
	w.addWorker("t", nil)
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, "POST", "/v1/jobs?wait=45s", strings.NewReader(`{"type":"t","id":"a","body":1}`))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	c := hangingUpWriter{httptest.NewRecorder(), cancel}
	admin.New(w.srv, zerolog.Nop()).ServeHTTP(c, r)
	if c.Code != http.StatusOK {
		t.Fatalf("status %d: %s", c.Code, c.Body)
	}
	if j := w.call("GET", "/v1/jobs/a", "", 200); j["state"] != "ended" {
		t.Errorf("the job: %v", j)
	}
}

// TestScopesAllowTheirRequests: the scope watch may read, submit may submit its types, and admin
// may change everything.
func TestScopesAllowTheirRequests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("root admin\nlook watch\nhook submit mail,img.*\nsome submit,watch mail,img.*\nall submit,watch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, func(o *settings.Options) { o.TokenFile = file })
	for _, c := range []struct {
		token, method, path, body string
		status                    int
		want                      string
	}{
		{"root", "GET", "/v1/status", "", 200, ""},
		{"look", "GET", "/v1/status", "", 200, ""},
		{"look", "GET", "/v1/jobs", "", 200, ""},
		{"hook", "GET", "/v1/jobs", "", 403, "watch"},
		{"look", "POST", "/v1/drain", "", 403, "admin"},
		{"look", "POST", "/v1/jobs", `{"type":"mail","body":1}`, 403, "submit"},
		{"root", "POST", "/v1/jobs", `{"type":"mail","body":1}`, 403, "submit"},
		{"hook", "POST", "/v1/jobs", `{"type":"mail","body":1}`, 202, ""},
		{"hook", "POST", "/v1/jobs", `{"type":"img.resize","body":1}`, 202, ""},
		{"hook", "POST", "/v1/jobs", `{"type":"sms","body":1}`, 403, "sms"},
		{"hook", "POST", "/v1/jobs?wait=1ms", `{"type":"mail","body":1}`, 504, "scope watch"},
		{"all", "POST", "/v1/jobs?wait=1ms", `{"type":"mail","body":1}`, 504, "is kept for /v1/jobs/{id}"},
		{"hook", "POST", "/v1/types/mail/jobs/cancel", "", 403, "admin"},
		{"root", "POST", "/v1/types/mail/jobs/cancel", `{"all":true}`, 200, ""},
	} {
		w.token = c.token
		x := w.call(c.method, c.path, c.body, c.status)
		if c.want != "" && !strings.Contains(x["reason"].(string), c.want) {
			t.Errorf("%s: %s %s: %v, want %q", c.token, c.method, c.path, x, c.want)
		}
	}
	for token, want := range map[string]string{"root": "[admin watch]", "look": "[watch]", "all": "[submit watch]"} {
		w.token = token
		if x := w.call("GET", "/v1/status", "", 200); strings.Join(strings.Fields(toString(x["scopes"])), " ") != want {
			t.Errorf("%s has the scopes %v, want %s", token, x["scopes"], want)
		}
	}
	w.token = "some"
	for typ, want := range map[string]string{"mail": "[submit watch]", "img.a": "[submit watch]", "sms": "[watch]"} {
		if x := w.call("GET", "/v1/status?type="+typ, "", 200); toString(x["scopes"]) != want {
			t.Errorf("for %s the scopes are %v, want %s", typ, x["scopes"], want)
		}
	}
}

// TestForeignPageIsRefused: requests that a page of another origin makes a browser send are
// refused.
func TestForeignPageIsRefused(t *testing.T) {
	w := start(t, nil)
	foreignHeaders := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode"}
	if x := w.call("GET", "/v1/groups", "", 403, append(foreignHeaders, "no-cors")...); x["error"] != "forbidden_origin" {
		t.Errorf("told: %v", x)
	}
	w.call("GET", "/v1/groups", "", 200, append(foreignHeaders, "navigate")...) // a link
	w.call("GET", "/v1/groups", "", 403, append(foreignHeaders, "navigate", "Sec-Fetch-Dest", "iframe")...)
	w.call("GET", "/v1/groups", "", 200, "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors")
}

// TestWaitingRequestIsAnsweredAtDrain: a request that waits is answered when the broker stops.
func TestWaitingRequestIsAnsweredAtDrain(t *testing.T) {
	w := start(t, nil)
	drained := make(chan string, 1)
	go func() {
		resp, err := http.Post(w.url+"/v1/jobs?wait=10m", "application/json", strings.NewReader(`{"type":"t","id":"a","body":1}`))
		if err != nil {
			drained <- err.Error()
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		drained <- resp.Status + string(data)
	}()
	eventually(t, "the job is there", func() bool { return w.httpStatus("/v1/jobs/a") == 200 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no time for the job to end
	_ = w.srv.Shutdown(ctx)
	if s := <-drained; !strings.HasPrefix(s, "503 ") || !strings.Contains(s, `"draining"`) || !strings.Contains(s, `"a"`) {
		t.Errorf("told: %s", s)
	}
}

// TestSubmitBytesAreBounded: the bytes of incoming jobs are bounded, and a client that announces
// bytes but does not send them delays no other.
func TestSubmitBytesAreBounded(t *testing.T) {
	smallFrames := func(o *settings.Options) { o.MaxFrame = 1 << 20 }
	w := start(t, smallFrames)
	send := func(size int) (*io.PipeWriter, <-chan int) {
		r, body := io.Pipe()
		status := make(chan int, 1)
		go func() {
			req, _ := http.NewRequest("POST", w.url+"/v1/jobs", r)
			req.ContentLength = int64(size)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				status <- 0
				return
			}
			_ = resp.Body.Close()
			status <- resp.StatusCode
		}()
		return body, status
	}
	// Some clients announce large bodies and send nothing.
	var idle []*io.PipeWriter
	for range 20 {
		body, _ := send(1 << 20)
		if _, err := body.Write([]byte(`{`)); err != nil {
			t.Fatal(err)
		}
		idle = append(idle, body)
	}
	w.call("POST", "/v1/jobs", `{"body":1}`, 202)
	for _, body := range idle {
		_ = body.CloseWithError(io.ErrClosedPipe)
	}
	w = start(t, smallFrames)
	// Some clients have sent most of a large body and pause.
	job := []byte(`{"body":"` + strings.Repeat("x", 900_000) + `"}`)
	const large = 4
	var bodies [large]*io.PipeWriter
	var statuses [large]<-chan int
	start := func(i int) {
		bodies[i], statuses[i] = send(len(job))
		if _, err := bodies[i].Write(job[:800_000]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range large {
		start(i)
	}
	receive := func() int {
		resp, err := http.Post(w.url+"/v1/jobs", "application/json", strings.NewReader(`{"body":1}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	eventually(t, "there is no room for another", func() bool {
		for i := range large { // a small body may have taken the room of a large one
			select {
			case <-statuses[i]:
				start(i)
			default:
			}
		}
		return receive() == 503
	})
	for i, body := range bodies {
		if _, err := body.Write(job[800_000:]); err != nil {
			t.Fatal(err)
		}
		_ = body.Close()
		if n := <-statuses[i]; n != 202 {
			t.Errorf("a large one: status %d", n)
		}
	}
	if n := receive(); n != 202 {
		t.Errorf("a small one behind them: status %d", n)
	}
}

// TestBurstEndsEachJobOnce: many clients submit jobs at once, and some of them disconnect before the
// answer, while other clients list and cancel jobs. Each job ends once, and an answer that no
// client read is kept.
func TestBurstEndsEachJobOnce(t *testing.T) {
	w := start(t, nil)
	w.addWorker("t", nil)
	const clients, perClient = 8, 25
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var answers, leavers atomic.Int64
	var wg, readers sync.WaitGroup
	done := make(chan struct{})
	for _, path := range []string{"/v1/jobs?limit=7", "/v1/submitters?type=t", "/v1/workers"} {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = w.httpStatus(path)
				}
			}
		})
	}
	for n := range clients {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		wg.Go(func() {
			for i := range perClient {
				ctx, cancel := context.WithCancel(context.Background())
				if r.IntN(2) == 0 {
					time.AfterFunc(time.Duration(r.IntN(5000))*time.Microsecond, cancel)
				}
				body := fmt.Sprintf(`{"type":"t","id":"%d-%d","body":%d}`, n, i, i)
				req, _ := http.NewRequestWithContext(ctx, "POST", w.url+"/v1/jobs?wait=45s", strings.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				resp, err := http.DefaultClient.Do(req)
				if err == nil {
					var data []byte
					data, err = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err == nil && resp.StatusCode != http.StatusOK {
						t.Errorf("job %d-%d: %s %s", n, i, resp.Status, data)
					}
				}
				if cancel(); err == nil {
					answers.Add(1)
				} else {
					leavers.Add(1)
				}
			}
		})
	}
	wg.Wait()
	close(done)
	readers.Wait()
	eventually(t, "all is done", func() bool { return w.call("GET", "/v1/types/t/demand", "", 200)["demand"] == 0.0 })
	eventually(t, "all have gone", func() bool { return len(w.call("GET", "/v1/submitters", "", 200)["items"].([]any)) == 0 })
	s := w.call("GET", "/v1/status", "", 200)
	l := s["ledger"].(map[string]any)
	if l["submitted"] != l["answered"] || s["imbalance"] != 0.0 || l["submitted"].(float64) < float64(answers.Load()) {
		t.Errorf("seed %d: the ledger: %v, %d answers came", seed, l, answers.Load())
	}
	_, f := scrape(t, w)
	kept := int(metricSum(f, "gloom_kept_outcomes"))
	if missingAnswers := int(l["submitted"].(float64)) - int(answers.Load()) - kept; missingAnswers > int(leavers.Load()) || kept > int(leavers.Load()) {
		t.Errorf("seed %d: %d answers came, %d are kept, of %v jobs; %d went away", seed, answers.Load(), kept, l["submitted"], leavers.Load())
	}
}
