package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// reply is a reply of a daemon.
type reply struct {
	status int
	header http.Header
	body   []byte
	json   map[string]any // nil if the body is not a JSON object
}

func (r reply) text(key string) string { s, _ := r.json[key].(string); return s }

func (r reply) String() string { return fmt.Sprintf("%d %.500q", r.status, r.body) }

var transport = &http.Transport{MaxIdleConnsPerHost: 64}

// object is a JSON object.
type object = map[string]any

// try sends a request. A body of type []byte is sent as MessagePack, any other as JSON. The
// headers are written as "Name: value".
func (d *daemon) try(method, path string, body any, headers ...string) (reply, error) {
	var in io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case []byte:
		in, kind = bytes.NewReader(b), "application/msgpack"
	case string:
		in = strings.NewReader(b)
	default:
		j, err := json.Marshal(b)
		if err != nil {
			return reply{}, err
		}
		in = bytes.NewReader(j)
	}
	req, err := http.NewRequest(method, d.url+path, in)
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Accept", "application/json")
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Del(name); value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	r := reply{status: resp.StatusCode, header: resp.Header, body: b}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		_ = json.Unmarshal(b, &r.json)
	}
	return r, err
}

func (d *daemon) ask(t testing.TB, method, path string, body any, headers ...string) reply {
	t.Helper()
	r, err := d.try(method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// expect sends a request and fails the test unless the reply has this status.
func (d *daemon) expect(t testing.TB, status int, method, path string, body any, headers ...string) reply {
	t.Helper()
	r := d.ask(t, method, path, body, headers...)
	if r.status != status {
		t.Fatalf("%s %s: %s, want %d", method, path, r, status)
	}
	return r
}

// expectError sends a request and expects an error with this status and code, and any reason.
func (d *daemon) expectError(t testing.TB, status int, code, method, path string, body any, headers ...string) {
	t.Helper()
	r := d.ask(t, method, path, body, headers...)
	if r.status != status || code != "" && r.text("error") != code || r.text("reason") == "" {
		t.Errorf("%s %s: %s, want %d %s", method, path, r, status, code)
	}
}

var number atomic.Int64

// freshName returns a name that no other test uses.
func freshName() string { return fmt.Sprintf("name-%d", number.Add(1)) }

// job enqueues a job and returns its id. more has further attributes, each as a name and a value.
func (d *daemon) job(t testing.TB, name string, extra ...any) string {
	t.Helper()
	o := object{"name": name, "argument": object{"n": 1}}
	for i := 0; i < len(extra); i += 2 {
		o[extra[i].(string)] = extra[i+1]
	}
	r := d.expect(t, 201, "POST", "/job", o)
	return r.text("job_id")
}

// awaitStatus waits until a job has this status.
func (d *daemon) awaitStatus(t testing.TB, id, status string) (r reply) {
	t.Helper()
	waitUntil(t, id+" is "+status, func() error {
		if r = d.ask(t, "GET", "/job/"+id+"?peek=true", nil); r.text("status") != status {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
	return r
}

// pushRequest is a job that was pushed to a worker.
type pushRequest struct {
	Name, ID, JobID   string
	Argument          msgpack.RawMessage
	Timeout, Attempt  int
	deadline          string
	kind, auth, token string
}

// worker is a worker that gets its jobs pushed, or pulls them.
type worker struct {
	d      *daemon
	id     string
	pushes chan pushRequest
	// answer returns what the worker answers to a push; nil stands for 202.
	answer func(p pushRequest) (status int, header string)
	server *httptest.Server

	mu                  sync.Mutex
	running, maxRunning int // how many jobs it has, and the most that it ever had
}

// worker registers a worker that gets its jobs pushed. more has further attributes, each as a name and
// a value.
func (d *daemon) worker(t *testing.T, max int, names []string, answer func(pushRequest) (int, string), extra ...any) *worker {
	t.Helper()
	w := &worker{d: d, pushes: make(chan pushRequest, 10000), answer: answer}
	w.server = httptest.NewServer(w)
	t.Cleanup(func() {
		w.server.CloseClientConnections()
		w.server.Close()
		_, _ = d.try("DELETE", "/worker", nil, "worker-id: "+w.id)
	})
	w.register(t, object{"name": "probe", "max_jobs": max, "names": names, "url": w.server.URL}, extra...)
	return w
}

func (w *worker) register(t *testing.T, o object, extra ...any) {
	t.Helper()
	for i := 0; i < len(extra); i += 2 {
		o[extra[i].(string)] = extra[i+1]
	}
	r := w.d.expect(t, 201, "POST", "/worker", o)
	if w.id = r.text("worker_id"); w.id == "" {
		t.Fatalf("registered: %s", r)
	}
}

// puller registers a worker that pulls its jobs.
func (d *daemon) puller(t *testing.T, max int, names []string, extra ...any) *worker {
	t.Helper()
	w := &worker{d: d}
	w.register(t, object{"name": "puller", "max_jobs": max, "names": names}, extra...)
	t.Cleanup(func() { _, _ = d.try("DELETE", "/worker", nil, "worker-id: "+w.id) })
	return w
}

func (w *worker) pull(t *testing.T, wait string, max int) []any {
	t.Helper()
	r := w.d.ask(t, "POST", fmt.Sprintf("/worker/jobs?wait=%s&max=%d", wait, max), nil, "worker-id: "+w.id)
	if r.status == 204 {
		return nil
	}
	if r.status != 200 {
		t.Fatalf("pull: %s", r)
	}
	jobs, _ := r.json["jobs"].([]any)
	return jobs
}

// pullOne pulls one job and returns its id.
func (w *worker) pullOne(t *testing.T) string {
	t.Helper()
	jobs := w.pull(t, "50", 1)
	if len(jobs) != 1 {
		t.Fatalf("pulled %v", jobs)
	}
	id, _ := jobs[0].(object)["job_id"].(string)
	return id
}

func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	var m struct {
		Name     string             `msgpack:"name"`
		ID       string             `msgpack:"id"`
		JobID    string             `msgpack:"job_id"`
		Argument msgpack.RawMessage `msgpack:"argument"`
		Timeout  int                `msgpack:"timeout"`
		Attempt  int                `msgpack:"attempt"`
		Deadline string             `msgpack:"deadline"`
	}
	if err := msgpack.Unmarshal(b, &m); err != nil || r.URL.Path != "/worker-job" || r.Method != "POST" {
		rw.WriteHeader(400)
		return
	}
	p := pushRequest{m.Name, m.ID, m.JobID, m.Argument, m.Timeout, m.Attempt, m.Deadline, r.Header.Get("Content-Type"), r.Header.Get("Authorization"), ""}
	w.mu.Lock()
	w.running++
	w.maxRunning = max(w.maxRunning, w.running)
	w.mu.Unlock()
	status, header := 202, ""
	if w.answer != nil {
		status, header = w.answer(p)
	}
	if name, value, ok := strings.Cut(header, ": "); ok {
		rw.Header().Set(name, value)
	}
	if status == 0 { // cut off
		c, _, _ := http.NewResponseController(rw).Hijack()
		_ = c.Close()
	} else {
		rw.WriteHeader(status)
	}
	w.pushes <- p
}

// nextPush waits for a push.
func (w *worker) nextPush(t *testing.T) pushRequest {
	t.Helper()
	select {
	case p := <-w.pushes:
		return p
	case <-time.After(testTimeout):
		t.Fatal("no job was pushed")
	}
	return pushRequest{}
}

// reportSuccess reports a success.
func (w *worker) reportSuccess(t testing.TB, id string, result any) reply {
	t.Helper()
	w.mu.Lock()
	w.running--
	w.mu.Unlock()
	return w.d.ask(t, "POST", "/done", object{"job_id": id, "type": "success", "result": result}, "worker-id: "+w.id)
}

func (w *worker) reportFailure(t testing.TB, id string, retry bool) reply {
	t.Helper()
	return w.d.ask(t, "POST", "/done", object{"job_id": id, "type": "failure", "reason": "other", "should_retry": retry, "message": "it broke", "error": object{"code": 7}}, "worker-id: "+w.id)
}
